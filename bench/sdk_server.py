"""The official SDK's server with the bench agents, on uvicorn with httptools and uvloop, as its users run it.

Same agents, paths and events as `agents.py` has for Dragoman. Tasks are kept in memory, or with `--store` in SQLite
(a file; WAL, `synchronous=FULL`) or PostgreSQL (a URL) through the SDK's own DatabaseTaskStore.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.routing import Route

Chunks = AsyncIterator[list[Part]]
Skill = Callable[[RequestContext], Chunks]


class Chunked(AgentExecutor):
    """Runs a skill: task, working, what the skill yields as chunks of one artifact, completed."""

    def __init__(self, skill: Skill) -> None:
        self._skill = skill

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        append = False
        async for parts in self._skill(context):
            await updater.add_artifact(parts, artifact_id="result", append=append)
            append = True
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def echo(context: RequestContext) -> Chunks:
    assert context.message is not None
    yield list(context.message.parts)


async def chunks(context: RequestContext) -> Chunks:
    count, pace = context.get_user_input().split()
    for i in range(int(count)):
        if pace == "turns":
            await asyncio.sleep(0)
        yield [Part(text=f"chunk {i:06d} ")]


async def idle(context: RequestContext) -> Chunks:
    await asyncio.Event().wait()
    yield []


def gate_skills() -> tuple[Skill, Skill]:
    """A skill that waits until a call of the other one names it: subscribers are all there before the first chunk."""
    gates: dict[str, asyncio.Event] = {}

    async def gate(context: RequestContext) -> Chunks:
        name, count, size, pace = context.get_user_input().split()
        await gates.setdefault(name, asyncio.Event()).wait()
        for i in range(int(count)):
            if pace == "turns":
                await asyncio.sleep(0)
            yield [Part(text=f"chunk {i:06d} ".ljust(int(size), "x"))]

    async def release(context: RequestContext) -> Chunks:
        gates.setdefault(context.get_user_input(), asyncio.Event()).set()
        yield [Part(text="released")]

    return gate, release


def agents() -> dict[str, AgentExecutor]:
    gate, release = gate_skills()
    skills: dict[str, Skill] = {
        "echo": echo,
        "judge": echo,
        "chunks": chunks,
        "idle": idle,
        "gate": gate,
        "release": release,
    }
    return {name: Chunked(skill) for name, skill in skills.items()}


def card(name: str, port: int) -> AgentCard:
    return AgentCard(
        name=name,
        description=f"The bench agent {name}",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(
                protocol_binding="JSONRPC", url=f"http://127.0.0.1:{port}/agents/{name}", protocol_version="1.0"
            )
        ],
        skills=[AgentSkill(id=name, name=name, description=name, tags=["bench"])],
    )


def sqlite_store(path: str) -> TaskStore:
    """The SDK's database store on a SQLite file that promises what Dragoman's promises: WAL and FULL."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 30})

    @event.listens_for(engine.sync_engine, "connect")
    def pragmas(connection, _record) -> None:  # type: ignore[no-untyped-def]
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return DatabaseTaskStore(engine)


def postgres_store(url: str) -> TaskStore:
    """The SDK's database store on PostgreSQL, with SQLAlchemy's own pool."""
    return DatabaseTaskStore(create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://")))


def database_store(place: str) -> TaskStore:
    """The SDK's database store in a file, or at a URL of PostgreSQL."""
    return postgres_store(place) if place.startswith("postgresql://") else sqlite_store(place)


async def fill(store: TaskStore, count: int, contexts: list[str]) -> None:
    """Writes finished tasks straight into the store: through its front door 100,000 would take minutes."""
    owner = ServerCallContext()
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for i in range(count):
        context_id = contexts[i % len(contexts)]
        rejected = i // len(contexts) % 10 == 0
        task = Task(
            id=f"{i:08x}-0000-4000-8000-000000000000",
            context_id=context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_REJECTED if rejected else TaskState.TASK_STATE_COMPLETED),
            history=[Message(message_id=f"m{i}", role=Role.ROLE_USER, context_id=context_id, parts=[Part(text="42")])],
        )
        if not rejected:
            task.artifacts.append(Artifact(artifact_id="result", parts=[Part(text="42")]))
        task.status.timestamp.FromDatetime(start + datetime.timedelta(milliseconds=i))
        await store.save(task, owner)


class ByTenant:
    """One handler for gRPC, which hands each call to that of the agent which the tenant names."""

    def __init__(self, handlers: dict[str, DefaultRequestHandler]) -> None:
        self._handlers = handlers

    def __getattr__(self, name: str) -> Callable[..., object]:
        handlers = self._handlers

        def call(request: object, context: ServerCallContext) -> object:
            return getattr(handlers[context.tenant], name)(request, context)

        setattr(self, name, call)
        return call


async def serve_grpc(handlers: dict[str, DefaultRequestHandler], port: int) -> object:
    """The same agents over gRPC, with the SDK's own servicer on the same loop."""
    import grpc.aio
    from a2a.server.request_handlers.grpc_handler import GrpcHandler
    from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(ByTenant(handlers)), server)  # type: ignore[arg-type, no-untyped-call]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server


def app(port: int, store: TaskStore, filled: tuple[int, list[str]], grpc_port: int) -> Starlette:
    routes: list[Route] = []
    handlers: dict[str, DefaultRequestHandler] = {}
    for name, executor in agents().items():
        about = card(name, port)
        handler = DefaultRequestHandler(agent_executor=executor, task_store=store, agent_card=about)
        handlers[name] = handler
        routes += create_jsonrpc_routes(handler, f"/agents/{name}")
        if name == "echo":
            routes += create_agent_card_routes(about)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        if isinstance(store, DatabaseTaskStore):
            await store.initialize()  # else the first requests race to create the table, and fail
        await fill(store, *filled)
        serving = await serve_grpc(handlers, grpc_port) if grpc_port else None
        yield
        del serving  # it ends with the process

    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, required=True)
    options.add_argument(
        "--store", default="", help="a SQLite file or a postgresql:// URL; without it, tasks are kept in memory"
    )
    options.add_argument("--fill", type=int, default=0, help="finished tasks to start with")
    options.add_argument("--contexts", default="", help="context ids to spread them over, with commas")
    options.add_argument("--grpc-port", type=int, default=0, help="also serve gRPC there")
    given = options.parse_args()
    store = database_store(given.store) if given.store else InMemoryTaskStore()
    uvicorn.run(
        app(given.port, store, (given.fill, given.contexts.split(",")), given.grpc_port),
        host="127.0.0.1",
        port=given.port,
        http="httptools",
        loop="uvloop",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
