"""A2A 0.3 over gRPC on a whole server: the metadata that names the agent, the cards, the statuses."""

import asyncio
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub
from a2a.types import a2a_pb2 as v1
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Agent, Context, Part
from dragoman.dialects.extensions import EVENT_ID
from dragoman.dialects.v03.protobuf import PROCEDURES
from tests.grpc_callers import CONFIG, DEADLINE_S, GrpcCaller, connected, drain, echo, grpc_served, refusal

pytestmark = pytest.mark.anyio

Code = grpc.StatusCode
DEDUPE = "urn:dragoman:dedupe:v1"


def stub_of(caller: GrpcCaller) -> Any:
    return A2AServiceStub(caller.channel)  # type: ignore[no-untyped-call]


def message(text: str = "hi", message_id: str = "m1", task_id: str = "", **configuration: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        request=pb.Message(message_id=message_id, task_id=task_id, role=pb.ROLE_USER, content=[pb.Part(text=text)]),
        configuration=pb.SendMessageConfiguration(**{"blocking": True, **configuration}),
    )


def named(agent: str) -> tuple[tuple[str, str], ...]:
    return (("x-dragoman-agent", agent),)


def reason(status: Status) -> str:
    info = ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    found: str = info.reason
    return found


def held(item: Any) -> Any:
    return getattr(item, item.WhichOneof("payload"))


async def test_a_message_is_answered_with_its_task_which_is_the_same_in_1_0() -> None:
    async with grpc_served(echo()) as caller:
        stub = stub_of(caller)
        task = (await stub.SendMessage(message("hello"))).task
        assert task.status.state == pb.TASK_STATE_COMPLETED
        assert [part.text for part in task.artifacts[0].parts] == ["echo: hello"]
        assert await stub.GetTask(pb.GetTaskRequest(name=f"tasks/{task.id}")) == task
        again = await caller.get(task.id)
        assert (again.status.state, again.artifacts[0].parts[0].text) == (v1.TASK_STATE_COMPLETED, "echo: hello")


async def test_the_metadata_names_the_agent() -> None:
    async with grpc_served(echo("one"), echo("two")) as caller:
        stub = stub_of(caller)
        assert (await stub.SendMessage(message("a"))).task.artifacts[0].parts[0].text == "one: a"
        task = (await stub.SendMessage(message("a"), metadata=named("two"))).task
        assert task.artifacts[0].parts[0].text == "two: a"
        asked = pb.GetTaskRequest(name=f"tasks/{task.id}")
        assert (await stub.GetTask(asked, metadata=named("two"))).id == task.id
        assert (await refusal(stub.GetTask(asked, metadata=named("one"))))[0] is Code.NOT_FOUND
        code, status = await refusal(stub.GetTask(asked, metadata=named("three")))
        assert (code, reason(status)) == (Code.NOT_FOUND, "AGENT_NOT_FOUND")
        assert (await refusal(stub.GetTask(asked, metadata=named("../two"))))[0] is Code.NOT_FOUND


async def test_a_stream_ends_with_the_only_final_status() -> None:
    async with grpc_served(echo()) as caller:
        items: list[Any] = await drain(stub_of(caller).SendStreamingMessage(message("hello")))
    assert items[0].WhichOneof("payload") == "task"
    updates = [item.status_update for item in items if item.HasField("status_update")]
    assert [(update.final, update.status.state) for update in updates if update.final] == [
        (True, pb.TASK_STATE_COMPLETED)
    ]
    assert items[-1].HasField("status_update")


async def test_items_have_the_ids_that_resume_their_stream_if_the_caller_declares_it() -> None:
    declared = (("x-a2a-extensions", EVENT_ID),)
    async with grpc_served(echo()) as caller:
        stub = stub_of(caller)
        items: list[Any] = await drain(stub.SendStreamingMessage(message("hello"), metadata=declared))
        assert all(held(item).metadata.fields[EVENT_ID].string_value for item in items)
        name = f"tasks/{items[0].task.id}"
        for at, item in enumerate(items[:-1]):
            seen = ("last-event-id", held(item).metadata.fields[EVENT_ID].string_value)
            resumed = stub.TaskSubscription(pb.TaskSubscriptionRequest(name=name), metadata=(*declared, seen))
            assert await drain(resumed) == items[at + 1 :]
        plain: list[Any] = await drain(stub.SendStreamingMessage(message("hello", message_id="m2")))
        assert not any(EVENT_ID in held(item).metadata.fields for item in plain)


async def test_only_the_card_at_the_root_lists_0_3() -> None:
    async with grpc_served(echo("one"), echo("two")) as caller, aiohttp.ClientSession(caller.url) as http:
        listed: dict[str, list[tuple[str, str | None]]] = {}
        for mount in ("", "/agents/one", "/agents/two"):
            async with http.get(f"{mount}/.well-known/agent-card.json") as answer:
                card = await answer.json()
            over_grpc = [each for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
            assert {each["url"] for each in over_grpc} == {f"127.0.0.1:{caller.port}"}
            listed[mount] = [(each["protocolVersion"], each.get("tenant")) for each in over_grpc]
            old = [each["url"] for each in card["additionalInterfaces"] if each["transport"] == "GRPC"]
            assert old == ([] if mount else [f"127.0.0.1:{caller.port}"])
        assert listed == {
            "": [("1.0", None), ("0.3", None)],
            "/agents/one": [("1.0", "one")],
            "/agents/two": [("1.0", "two")],
        }


async def test_an_agent_of_one_version_is_listed_and_served_in_that_alone() -> None:
    async with grpc_served(echo(versions=["1.0"])) as caller, aiohttp.ClientSession(caller.url) as http:
        async with http.get("/.well-known/agent-card.json") as answer:
            interfaces = (await answer.json())["supportedInterfaces"]
        assert {each["protocolVersion"] for each in interfaces} == {"1.0"}
        code, status = await refusal(stub_of(caller).SendMessage(message()))
        assert (code, reason(status)) == (Code.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")


async def test_extensions_that_are_active_are_echoed_under_the_name_of_0_3() -> None:
    async with grpc_served(echo()) as caller:
        for name in ("x-a2a-extensions", "a2a-extensions"):
            call = stub_of(caller).SendMessage(message(), metadata=((name, f"{DEDUPE},urn:unknown"),))
            assert dict(await call.initial_metadata()).get("x-a2a-extensions") == DEDUPE
            await call


async def test_an_error_names_no_extension() -> None:
    async with grpc_served(echo()) as caller:
        stub, declared = stub_of(caller), (("x-a2a-extensions", DEDUPE),)
        unary = stub.GetTask(pb.GetTaskRequest(name="tasks/t"), metadata=declared)
        stream = stub.TaskSubscription(pb.TaskSubscriptionRequest(name="tasks/t"), metadata=declared)
        for call in (unary, stream):
            assert "x-a2a-extensions" not in dict(await call.initial_metadata())
            assert await call.code() is Code.NOT_FOUND


@pytest.mark.parametrize("version", ["1.0", "0.2"])
async def test_another_version_is_refused(version: str) -> None:
    async with grpc_served(echo()) as caller:
        call = stub_of(caller).GetTask(pb.GetTaskRequest(name="tasks/t"), metadata=(("a2a-version", version),))
        code, status = await refusal(call)
        assert (code, reason(status)) == (Code.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")


async def test_a_status_is_told_by_its_code_its_name_and_its_details() -> None:
    hook = pb.TaskPushNotificationConfig(push_notification_config=pb.PushNotificationConfig(url="https://a.invalid/"))
    async with grpc_served(echo(), config=replace(CONFIG, push=False)) as caller:
        stub = stub_of(caller)
        task = (await stub.SendMessage(message())).task
        name = f"tasks/{task.id}"
        told = {
            "unknown": await refusal(stub.GetTask(pb.GetTaskRequest(name="tasks/t"))),
            "ended": await refusal(stub.CancelTask(pb.CancelTaskRequest(name=name))),
            "followed": await refusal(stub.TaskSubscription(pb.TaskSubscriptionRequest(name=name))),
            "webhook": await refusal(
                stub.CreateTaskPushNotificationConfig(
                    pb.CreateTaskPushNotificationConfigRequest(parent=name, config=hook)
                )
            ),
            "wrong": await refusal(stub.SendMessage(pb.SendMessageRequest())),
        }
    assert {
        each: (code, status.message.partition(": ")[0], reason(status)) for each, (code, status) in told.items()
    } == {
        "unknown": (Code.NOT_FOUND, "TaskNotFoundError", "TASK_NOT_FOUND"),
        "ended": (Code.FAILED_PRECONDITION, "TaskNotCancelableError", "TASK_NOT_CANCELABLE"),
        "followed": (Code.UNIMPLEMENTED, "UnsupportedOperationError", "UNSUPPORTED_OPERATION"),
        "webhook": (Code.UNIMPLEMENTED, "PushNotificationNotSupportedError", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        "wrong": (Code.INVALID_ARGUMENT, "InvalidParamsError", "INVALID_PARAMS"),
    }


async def test_the_public_card_is_given_where_nobody_says_who_they_are() -> None:
    agent = echo()

    @agent.skill("hidden", extended=True)
    async def hidden(ctx: Context) -> str:
        """Is on the extended card only."""
        return "never"

    async with grpc_served(agent) as caller:
        card = await stub_of(caller).GetAgentCard(pb.GetAgentCardRequest())
        async with aiohttp.ClientSession(caller.url, headers={"A2A-Version": "0.3"}) as http:
            public = await (await http.get("/.well-known/agent-card.json")).json()
    assert not card.supports_authenticated_extended_card
    assert [skill.id for skill in card.skills] == ["give_back"] == [skill["id"] for skill in public["skills"]]
    listed = [(each["transport"], each["url"]) for each in public["additionalInterfaces"]]
    assert [(each.transport, each.url) for each in card.additional_interfaces] == listed


async def test_the_card_is_for_callers_who_say_who_they_are() -> None:
    async with grpc_served(echo(), config=replace(CONFIG, api_key="sesame")) as caller:
        stub = stub_of(caller)
        card = await stub.GetAgentCard(pb.GetAgentCardRequest(), metadata=(("x-api-key", "sesame"),))
        assert (card.name, card.supports_authenticated_extended_card) == ("echo", True)
        code, status = await refusal(stub.GetAgentCard(pb.GetAgentCardRequest()))
        assert (code, status.message.partition(": ")[0]) == (Code.UNAUTHENTICATED, "Unauthorized")


async def test_files_are_base64_only_for_the_official_python_clients() -> None:
    agent = Agent("papers")

    @agent.skill
    async def give_back(ctx: Context) -> Part:
        """Give back the file."""
        (file,) = ctx.files
        return file

    content = b"dGVzdA=="  # text that looks like base64
    part = pb.Part(file=pb.FilePart(file_with_bytes=content, mime_type="text/plain"))
    request = message()
    request.request.content[0].CopyFrom(part)
    async with grpc_served(agent) as caller:
        for user_agent, received in (("", b"test"), ("somebody", content)):
            options = {"grpc.primary_user_agent": user_agent} if user_agent else {}
            request.request.message_id += "x"
            async with connected(caller.port, **options) as channel:
                answer = await A2AServiceStub(channel).SendMessage(request)  # type: ignore[no-untyped-call]
            assert answer.task.artifacts[0].parts[0].file.file_with_bytes == content
            stored = await caller.get(answer.task.id)
            assert stored.artifacts[0].parts[0].raw == received


async def test_0_3_has_no_list() -> None:
    async with grpc_served(echo()) as caller:
        code, _ = await refusal(caller.channel.unary_unary("/a2a.v1.A2AService/ListTasks")(b""))
        assert code is Code.UNIMPLEMENTED


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*PROCEDURES]), st.binary(max_size=40)), min_size=5, max_size=20))
def test_any_bytes_are_answered_with_a_status(calls: list[tuple[str, bytes]]) -> None:
    asyncio.run(answered(calls))


async def answered(calls: list[tuple[str, bytes]]) -> None:
    async with grpc_served(echo()) as caller:
        for method, body in calls:
            path = f"/a2a.v1.A2AService/{method}"
            call: Any = (
                caller.channel.unary_stream(path)(body)
                if PROCEDURES[method]
                else caller.channel.unary_unary(path)(body)
            )
            async with asyncio.timeout(DEADLINE_S):
                code = await call.code()
            assert code not in (Code.UNKNOWN, Code.INTERNAL), (method, body, await call.details())
