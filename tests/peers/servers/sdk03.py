"""Server of the official Python SDK 0.3.26: `python sdk03.py` prints its URL. Its agent does what sdk1.py's does.

At `/grpc` is a card with its gRPC endpoint alone.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.apps.rest.rest_adapter import RESTAdapter
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)
from listening import serve, write_down
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def text(words: str) -> list[Part]:
    return [Part(root=TextPart(text=words))]


class Agent(AgentExecutor):
    """Does what the first word says, else gives the parts back."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        write_down(context.get_user_input())
        word, _, rest = context.get_user_input().partition(" ")
        if word == "direct":
            await event_queue.enqueue_event(
                Message(message_id=str(uuid.uuid4()), role=Role.agent, parts=text(rest), context_id=context.context_id)
            )
            return
        answers = context.current_task is not None
        if not answers:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.submitted),
                    history=[context.message],
                )
            )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        match "answer" if answers else word:
            case "answer":
                await updater.add_artifact(text(f"Booked: {context.get_user_input()}"))
                await updater.complete()
            case "count":
                for n in range(int(rest)):
                    await updater.add_artifact(text(f"{n} "), artifact_id="count", append=n > 0)
                await updater.complete()
            case "ask":
                await updater.requires_input(updater.new_agent_message(text("Which city?")), final=True)
            case "fail":
                await updater.failed(updater.new_agent_message(text("It broke")))
            case "slow":
                for n in range(600):
                    await updater.add_artifact(text("."), artifact_id="slow", append=n > 0)
                    await asyncio.sleep(0.1)
                await updater.complete()
            case _:
                await updater.add_artifact(context.message.parts, name="echo")
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def application(url: str) -> Any:
    """The agent at `url`, over all bindings."""
    card = AgentCard(
        name="Official 0.3",
        description="An agent of the official Python SDK",
        version="0.3.26",
        protocol_version="0.3.0",
        url=f"{url}/rpc",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(transport="JSONRPC", url=f"{url}/rpc"),
            AgentInterface(transport="HTTP+JSON", url=f"{url}/rest"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="Do", description="Does what the first word says", tags=["test"])],
    )
    extended = card.model_copy(update={"description": "For those who have said who they are"})
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Agent(),
        task_store=InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    rest = RESTAdapter(agent_card=card, http_handler=handler, extended_agent_card=extended)
    routes = [Route(f"/rest{path}", served, methods=[verb]) for (path, verb), served in rest.routes().items()]
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    over_grpc = card.model_copy(
        update={"url": f"127.0.0.1:{port}", "preferred_transport": "GRPC", "additional_interfaces": None}
    )
    add_A2AServiceServicer_to_server(GrpcHandler(over_grpc, handler), server)

    async def show_card(request: Request) -> JSONResponse:
        return JSONResponse(over_grpc.model_dump(mode="json", by_alias=True, exclude_none=True))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await server.start()
        yield
        await server.stop(None)

    app = Starlette(routes=[*routes, Route("/grpc/.well-known/agent-card.json", show_card)], lifespan=lifespan)
    A2AStarletteApplication(agent_card=card, http_handler=handler, extended_agent_card=extended).add_routes_to_app(
        app, rpc_url="/rpc"
    )
    return app


if __name__ == "__main__":
    asyncio.run(serve(application))
