"""Server of the official Python SDK 1.3.0: `python sdk1.py` prints its URL.

At `/` a card with everything over HTTP, at `/old` one with the endpoints of its compatibility mode alone. At `/grpc`
and `/grpc-old` are the same for gRPC, which has a port of its own. The agent does what all the servers here do: the
first word of the text says it.
"""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_old_service
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
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
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from google.protobuf import struct_pb2
from listening import serve, write_down
from starlette.applications import Starlette


class Agent(AgentExecutor):
    """Does what the first word says, else gives the parts back."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        write_down(context.get_user_input())
        word, _, rest = context.get_user_input().partition(" ")
        if word == "direct":
            await event_queue.enqueue_event(
                Message(
                    message_id=str(uuid.uuid4()),
                    role=Role.ROLE_AGENT,
                    parts=[Part(text=rest)],
                    context_id=context.context_id,
                )
            )
            return
        answers = context.current_task is not None
        if not answers:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=submitted, history=[context.message])
            )
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.start_work()
        match "answer" if answers else word:
            case "answer":
                await updater.add_artifact([Part(text=f"Booked: {context.get_user_input()}")])
                await updater.complete()
            case "count":
                for n in range(int(rest)):
                    await updater.add_artifact([Part(text=f"{n} ")], artifact_id="count", append=n > 0)
                await updater.complete()
            case "pace":
                for n in range(int(rest)):
                    said = Part(text=f"{context.task_id} <0>" if n == 0 else f"<{n}>")
                    await updater.add_artifact([said], artifact_id="pace", append=n > 0)
                    if n % 4 == 0:
                        await updater.add_artifact([_data(n)], artifact_id="log", append=n > 0)
                    await asyncio.sleep(0.003)
                await updater.complete()
            case "ask":
                await updater.requires_input(updater.new_agent_message([Part(text="Which city?")]))
            case "fail":
                await updater.failed(updater.new_agent_message([Part(text="It broke")]))
            case "slow":
                for n in range(600):
                    await updater.add_artifact([Part(text=".")], artifact_id="slow", append=n > 0)
                    await asyncio.sleep(0.1)
                await updater.complete()
            case _:
                await updater.add_artifact(list(context.message.parts), name="echo")
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def _data(number: int) -> Part:
    value = struct_pb2.Value()
    value.number_value = number
    return Part(data=value)


def application(url: str) -> Any:
    """The agent at `url`, in both versions over all bindings."""
    bindings = {"JSONRPC": f"{url}/rpc", "HTTP+JSON": f"{url}/rest"}
    card = AgentCard(
        name="Official 1.x",
        description="An agent of the official Python SDK",
        version="1.3.0",
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, url=at, protocol_version=version)
            for version in ("1.0", "0.3")
            for binding, at in bindings.items()
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="Do", description="Does what the first word says", tags=["test"])],
    )
    extended, old = copy.deepcopy(card), copy.deepcopy(card)
    extended.description = "For those who have said who they are"
    del old.supported_interfaces[:2]
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Agent(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
        extended_agent_card=extended,
    )
    server = grpc.aio.server()
    add_service(GrpcHandler(handler), server)
    add_old_service(CompatGrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    cards = {"/grpc": copy.deepcopy(card), "/grpc-old": copy.deepcopy(card)}
    for version, each in zip(("1.0", "0.3"), cards.values(), strict=True):
        del each.supported_interfaces[:]
        each.supported_interfaces.add(protocol_binding="GRPC", url=f"127.0.0.1:{port}", protocol_version=version)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await server.start()
        yield
        await server.stop(None)

    return Starlette(
        lifespan=lifespan,
        routes=[
            *(
                route
                for path, each in cards.items()
                for route in create_agent_card_routes(each, card_url=f"{path}/.well-known/agent-card.json")
            ),
            *create_agent_card_routes(card),
            *create_agent_card_routes(old, card_url="/old/.well-known/agent-card.json"),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True),
        ],
    )


if __name__ == "__main__":
    asyncio.run(serve(application))
