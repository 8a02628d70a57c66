"""A2A 1.0 over gRPC on a whole server: the operations, the metadata, and the statuses."""

import asyncio

import aiohttp
import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec.structs import replace

from dragoman.dialects.extensions import EVENT_ID
from tests.grpc_callers import CONFIG, DEADLINE_S, V1, drain, echo, grpc_served, kinds, message, only_task, refusal
from tests.kit.agents import Pacer

pytestmark = pytest.mark.anyio

AUTHORIZED = (("authorization", "Bearer sesame"),)


def reason(status: Status) -> str:
    info = ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    assert info.domain == "a2a-protocol.org"
    found: str = info.reason
    return found


def fields(status: Status) -> set[str]:
    wrong = BadRequest()
    assert any(detail.Unpack(wrong) for detail in status.details)
    return {violation.field for violation in wrong.field_violations}


# -- operations --------------------------------------------------------------------------------------------------------


async def test_a_task_is_the_same_over_http() -> None:
    async with grpc_served(echo()) as caller, aiohttp.ClientSession(caller.url) as http:
        task = await caller.send("hello")
        async with http.get(f"/tasks/{task.id}", headers={"A2A-Version": "1.0"}) as answer:
            assert (await answer.json())["artifacts"][0]["parts"] == [{"text": "echo: hello"}]
        sent = {"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "http"}]}}
        async with http.post("/message:send", json=sent, headers={"A2A-Version": "1.0"}) as answer:
            made = (await answer.json())["task"]["id"]
        assert (await caller.get(made)).artifacts[0].parts[0].text == "echo: http"


async def test_the_tenant_names_the_agent() -> None:
    async with grpc_served(echo("one"), echo("two")) as caller:
        assert (await caller.send("a")).artifacts[0].parts[0].text == "one: a"
        task = await caller.send("a", tenant="two")
        assert task.artifacts[0].parts[0].text == "two: a"
        assert (await caller.get(task.id, tenant="two")).id == task.id
        code, status = await refusal(caller.get("x", tenant="three"))
        assert (code, reason(status), fields(status)) == (grpc.StatusCode.NOT_FOUND, "AGENT_NOT_FOUND", {"tenant"})


def event_id(item: pb.StreamResponse) -> str:
    """The id of an item of a stream, in the metadata of what it holds; empty if it has none."""
    held = getattr(item, item.WhichOneof("payload") or "task")
    found: str = held.metadata.fields[EVENT_ID].string_value
    return found


async def test_items_have_ids_for_callers_who_want_them() -> None:
    gate = Pacer()
    gate.put("a", "b", None)
    async with grpc_served(gate.agent) as caller:
        stream = caller.stream("hi", ("a2a-extensions", EVENT_ID))
        assert dict(await stream.initial_metadata())["a2a-extensions"] == EVENT_ID
        ids = [event_id(item) for item in await drain(stream)]
        assert all(ids)
        assert ids == sorted(ids, key=int)
        assert len(set(ids)) == len(ids)
        gate.put(None)
        assert {event_id(item) for item in await drain(caller.stream("hi", message_id="m2"))} == {""}


async def test_a_subscription_resumes_with_exactly_what_follows() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        stream = caller.stream("hi", ("a2a-extensions", EVENT_ID))
        seen: list[pb.StreamResponse] = []
        for step in "abc":
            gate.put(step)
            while kinds(seen[-1:]) != [step]:
                seen.append(await stream.read())
        task = await only_task(caller)
        for last, following in zip(seen, [*(seen[n:] for n in range(1, len(seen))), []], strict=True):
            resumed = caller.subscribe(task.id, ("last-event-id", event_id(last)), ("a2a-extensions", EVENT_ID))
            assert [await resumed.read() for _ in following] == following
            resumed.cancel()
        resumed = caller.subscribe(task.id, ("last-event-id", event_id(seen[-1])))
        gate.put(None)
        assert kinds(await drain(resumed))[-1:] == ["completed"]
        assert set(kinds(await drain(stream))) <= {"", "completed"}


async def test_an_id_that_is_none_of_ours_is_refused() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        task = await caller.send(return_immediately=True)
        code, status = await refusal(caller.subscribe(task.id, ("last-event-id", "x")))
        assert (code, reason(status)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PARAMS")


async def test_webhooks_are_kept_by_their_ids() -> None:
    gate = Pacer()
    config = replace(CONFIG, push_allowed_hosts=("127.0.0.1",))
    async with grpc_served(gate.agent, config=config) as caller:
        task = await caller.send(return_immediately=True)
        stub = caller.stub
        given = pb.TaskPushNotificationConfig(task_id=task.id, id="p1", url="http://127.0.0.1:9/x", token="t")
        made = await stub.CreateTaskPushNotificationConfig(given, metadata=V1)
        assert made == given
        one = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="p1")
        assert await stub.GetTaskPushNotificationConfig(one, metadata=V1) == given
        all_of_it = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert list((await stub.ListTaskPushNotificationConfigs(all_of_it, metadata=V1)).configs) == [given]
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="p1")
        await stub.DeleteTaskPushNotificationConfig(gone, metadata=V1)
        assert not (await stub.ListTaskPushNotificationConfigs(all_of_it, metadata=V1)).configs


async def test_the_extended_card_is_for_callers_who_say_who_they_are() -> None:
    async with grpc_served(echo(), config=replace(CONFIG, api_key="sesame")) as caller:
        request = pb.GetExtendedAgentCardRequest()
        card = await caller.stub.GetExtendedAgentCard(request, metadata=(*V1, *AUTHORIZED))
        assert card.name == "echo"
        assert card.supported_interfaces[-1].url == f"127.0.0.1:{caller.port}"
        code, status = await refusal(caller.stub.GetExtendedAgentCard(request, metadata=V1))
        assert (code, reason(status)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


# -- metadata ----------------------------------------------------------------------------------------------------------


async def test_a_key_is_asked_for_before_the_request_is_read() -> None:
    async with grpc_served(echo(), config=replace(CONFIG, api_key="sesame")) as caller:
        assert (await caller.send("hi", *AUTHORIZED)).id
        assert (await caller.send("hi", ("x-api-key", "sesame"), message_id="m2")).id
        unread = caller.channel.stream_unary("/lf.a2a.v1.A2AService/SendMessage")(metadata=V1)
        async with asyncio.timeout(DEADLINE_S):
            assert await unread.code() is grpc.StatusCode.UNAUTHENTICATED
        code, status = await refusal(caller.send("hi", ("authorization", "Bearer wrong")))
        assert (code, reason(status)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


@pytest.mark.parametrize("version", ["1.0", "1.0.3", ""])
async def test_the_version_may_be_named(version: str) -> None:
    async with grpc_served(echo()) as caller:
        request = message("hi")
        metadata = (("a2a-version", version),) if version else ()
        assert (await caller.stub.SendMessage(request, metadata=metadata)).HasField("task")


@pytest.mark.parametrize("version", ["0.3", "9.9", "x"])
async def test_another_version_is_refused(version: str) -> None:
    async with grpc_served(echo()) as caller:
        code, status = await refusal(caller.stub.GetTask(pb.GetTaskRequest(), metadata=(("a2a-version", version),)))
        assert (code, reason(status)) == (grpc.StatusCode.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")


async def test_extensions_that_are_active_are_echoed() -> None:
    async with grpc_served(echo()) as caller:
        declared = ("a2a-extensions", "urn:dragoman:dedupe:v1, urn:unknown")
        call = caller.stub.SendMessage(message("hi"), metadata=(*V1, declared))
        assert dict(await call.initial_metadata())["a2a-extensions"] == "urn:dragoman:dedupe:v1"
        await call
        stream = caller.stream("hi", declared, message_id="m2")
        assert dict(await stream.initial_metadata())["a2a-extensions"] == "urn:dragoman:dedupe:v1"
        stream.cancel()


async def test_a_message_sent_again_with_its_key_is_taken_once() -> None:
    async with grpc_served(echo()) as caller:
        first = await caller.send("hi", ("idempotency-key", "k1"))
        assert (await caller.send("hi", ("idempotency-key", "k1"))).id == first.id
        assert (await caller.send("hi", ("idempotency-key", "k2"))).id != first.id


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("authorization", "Bearer sesame", "Bearer wrong"),
        ("x-api-key", "wrong", "sesame"),
        ("idempotency-key", "k1", "k2"),
        ("x-dragoman-agent", "one", "other"),
        ("last-event-id", "a", "b"),
    ],
)
async def test_metadata_with_two_values_is_refused_whichever_is_first(key: str, one: str, other: str) -> None:
    async with grpc_served(echo(), config=replace(CONFIG, api_key="sesame")) as caller:
        known = () if key in ("authorization", "x-api-key") else AUTHORIZED
        for values in ((one, other), (other, one)):
            metadata = (*known, *((key, value) for value in values))
            code, status = await refusal(caller.stub.SendMessage(message("hi"), metadata=metadata))
            assert (code, reason(status)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
            assert key in status.message


async def test_the_last_version_counts_as_the_official_client_sends_its_own_first() -> None:
    async with grpc_served(echo()) as caller:
        call = caller.stub.SendMessage(message("hi"), metadata=(*V1, ("a2a-version", "9.9")))
        code, status = await refusal(call)
        assert (code, reason(status)) == (grpc.StatusCode.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")
        assert (await caller.stub.SendMessage(message("hi"), metadata=(("a2a-version", "9.9"), *V1))).HasField("task")


async def test_metadata_may_be_repeated_and_lists_are_joined() -> None:
    async with grpc_served(echo(), config=replace(CONFIG, api_key="sesame")) as caller:
        lists = (("a2a-extensions", "urn:unknown"), ("a2a-extensions", "urn:dragoman:dedupe:v1"))
        call = caller.stub.SendMessage(message("hi"), metadata=(*V1, *V1, *AUTHORIZED, *AUTHORIZED, *lists))
        assert dict(await call.initial_metadata())["a2a-extensions"] == "urn:dragoman:dedupe:v1"
        assert (await call).HasField("task")


# -- statuses ----------------------------------------------------------------------------------------------------------


async def test_wrong_fields_are_named() -> None:
    async with grpc_served(echo()) as caller:
        code, status = await refusal(caller.stub.SendMessage(pb.SendMessageRequest(), metadata=V1))
        assert (code, fields(status)) == (grpc.StatusCode.INVALID_ARGUMENT, {"message"})


async def test_bytes_that_are_no_message_are_an_invalid_argument() -> None:
    async with grpc_served(echo()) as caller:
        for name in ("SendMessage", "GetTask", "ListTasks"):
            code, status = await refusal(caller.channel.unary_unary(f"/lf.a2a.v1.A2AService/{name}")(b"\xff"))
            assert (code, reason(status)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


async def test_an_unknown_procedure_is_unimplemented() -> None:
    async with grpc_served(echo()) as caller:
        code, _ = await refusal(caller.channel.unary_unary("/lf.a2a.v1.A2AService/Nothing")(b""))
        assert code is grpc.StatusCode.UNIMPLEMENTED
