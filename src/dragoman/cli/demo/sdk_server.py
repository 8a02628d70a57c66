"""A server of the official Python SDK that does the demo's work, with all that the SDK has to keep a task.

`python -m dragoman.cli.demo.sdk_server URL PORT DATABASE [REFERENCE]`. URL is where callers call. REFERENCE is an
AgentExecutor of the user's, which is served instead. Without the SDK's extras `http-server` and `sqlite` it does not
start.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import BasePushNotificationSender, DatabasePushNotificationConfigStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from dragoman.cli.demo.steps import STEPS, perform

DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "postgres": "asyncpg"}


class Work(AgentExecutor):
    """The demo's work, as an executor of the SDK."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do the steps; each reports by an artifact of its own."""
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        for number in range(1, STEPS + 1):
            said = await perform(number)
            await updater.add_artifact([Part(text=said)], name=said)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Nothing cancels the work."""
        raise NotImplementedError


def make_app(url: str, database: str, executor: AgentExecutor) -> Starlette:
    """Make the application: the SDK's stores for tasks, their versions, their events and webhooks, in one database."""
    card = AgentCard(
        name="work",
        description="Twenty steps of a second each",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[AgentInterface(protocol_binding="JSONRPC", url=url, protocol_version="1.0")],
        skills=[AgentSkill(id="work", name="work", description="Does them one after the other", tags=["demo"])],
    )
    engine = create_async_engine(database.replace("://", f"+{DRIVERS[database.partition(':')[0]]}://", 1))
    tasks, events = VersionedDatabaseTaskStore(engine), DatabaseTaskEventStream(engine)
    webhooks = DatabasePushNotificationConfigStore(engine)
    handler = DefaultRequestHandler(
        agent_executor=executor,
        task_store=tasks,
        agent_card=card,
        push_config_store=webhooks,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), webhooks),
        event_stream=events,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for store in (tasks, events, webhooks):
            await store.initialize()
        yield

    return Starlette(routes=[*create_jsonrpc_routes(handler, "/"), *create_agent_card_routes(card)], lifespan=lifespan)


def _load(reference: str) -> AgentExecutor:
    """Return the user's executor. Its kind is known: the demo has looked."""
    from dragoman.cli.loader import look_in_working_directory
    from dragoman.cli.references import load_object

    look_in_working_directory()
    found: Any = load_object(reference)
    executor: AgentExecutor = found() if isinstance(found, type) else found
    return executor


def main() -> None:
    """Serve until the process is ended."""
    url, port, database, *reference = sys.argv[1:]
    executor = _load(reference[0]) if reference else Work()
    uvicorn.run(make_app(url, database, executor), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
