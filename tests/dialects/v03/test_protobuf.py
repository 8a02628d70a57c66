"""A2A 0.3 in protobuf, both sides against each other, and against the official types."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import jsonrpc
from dragoman.dialects.api import Dialect, GrpcStatus, Tongue
from dragoman.dialects.client import refusals
from dragoman.dialects.client.encode import named
from dragoman.dialects.v03.operations import TABLE
from dragoman.dialects.v03.protobuf import (
    GRPC,
    GRPC_BASE64,
    PROCEDURES,
    TONGUE,
    TONGUE_BASE64,
    check_bounds,
    dialect_for,
    status_text,
)
from dragoman.model import errors
from dragoman.model.card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, MethodNotFound, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Event, StatusChanged
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.task import STATES, Record, TaskState, TaskStatus
from tests.dialects import spoken
from tests.dialects.spoken import part_in_0_3, without_references

LANES: dict[str, tuple[Dialect, Tongue]] = {"raw": (GRPC, TONGUE), "base64": (GRPC_BASE64, TONGUE_BASE64)}
HELLO = SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),)))
lanes = st.sampled_from(sorted(LANES))


def call(operation: Operation, tongue: Tongue = TONGUE) -> tuple[str, bytes]:
    assert tongue.grpc is not None
    made = tongue.grpc(operation)
    service, _, method = made.method.rpartition("/")
    assert service == "/a2a.v1.A2AService"
    return method, made.message


def nameable(task_id: str) -> str:
    return task_id.replace("/", "-")


def plain(config: PushConfig | None) -> PushConfig | None:
    """A webhook without what 0.3's proto has no field for."""
    return None if config is None else replace(config, secret=None, events=())


def sayable(operation: Operation) -> Operation | None:
    """The operation as 0.3's proto can say it; None if it has no such request."""
    match operation:
        case SendMessage():
            said = replace(operation.message, reference_task_ids=())
            return replace(
                operation,
                message=said,
                metadata=named(operation),
                history_length=operation.history_length or None,
                push_config=plain(operation.push_config),
            )
        case GetTask():
            return replace(operation, id=nameable(operation.id), history_length=operation.history_length or None)
        case CancelTask():
            return CancelTask(id=nameable(operation.id))
        case Subscribe():
            return Subscribe(id=nameable(operation.id))
        case ListPushConfigs():
            return ListPushConfigs(task_id=nameable(operation.task_id))
        case GetPushConfig() | DeletePushConfig():
            return replace(operation, task_id=nameable(operation.task_id))
        case CreatePushConfig(config=config):
            kept = plain(config)
            assert kept is not None
            return CreatePushConfig(config=replace(kept, task_id=nameable(config.task_id)))
        case GetExtendedCard():
            return replace(operation, or_public=True)  # 0.3's proto has one request for both cards
        case ListTasks():
            return None
        case _:
            return operation


@given(spoken.operations, lanes)
def test_a_request_is_the_operation_that_the_server_reads(operation: Operation, lane: str) -> None:
    dialect, tongue = LANES[lane]
    said = sayable(operation)
    if said is None:
        with pytest.raises(UnsupportedOperation):
            call(operation, tongue)
    else:
        assert dialect.decode(*call(said, tongue)) == said


@given(spoken.records, spoken.lengths, lanes)
def test_any_task_that_the_server_writes_is_read(record: Record, length: int | None, lane: str) -> None:
    dialect, tongue = LANES[lane]
    record = without_references(record)
    for operation in (replace(HELLO, history_length=length), GetTask(id="t1", history_length=length)):
        body = dialect.encode_result(operation, record)
        assert tongue.read_answer(operation, body) == spoken.task_of(record, length)


@given(spoken.events, lanes)
def test_any_event_that_the_server_writes_is_read(event: Event, lane: str) -> None:
    dialect, tongue = LANES[lane]
    event = without_references(event)
    (frame,) = dialect.encode_event(spoken.HEAD, event, None)
    assert tongue.read_update(frame) == spoken.update_of(spoken.HEAD, event)


@given(spoken.messages, lanes)
def test_any_message_that_the_server_writes_is_read(said: Message, lane: str) -> None:
    dialect, tongue = LANES[lane]
    said = without_references(said)
    body = dialect.encode_result(HELLO, said)
    assert body == dialect.encode_message(said)
    assert tongue.read_answer(HELLO, body) == said
    assert tongue.read_update(body) == (said,)


@given(st.lists(spoken.webhooks, max_size=3))
def test_any_webhook_that_the_server_writes_is_read(configs: list[PushConfig]) -> None:
    kept = tuple([replace(each, id=each.id or "w", task_id="t1") for each in configs])
    listed = ListPushConfigs(task_id="t1")
    assert TONGUE.read_answer(listed, GRPC.encode_result(listed, kept)) == tuple(map(spoken.secretless, kept))
    for each in kept:
        asked = GetPushConfig(task_id="t1", id=each.id)
        assert TONGUE.read_answer(asked, GRPC.encode_result(asked, each)) == spoken.secretless(each)
    gone = DeletePushConfig(task_id="t1", id="w")
    assert TONGUE.read_answer(gone, GRPC.encode_result(gone, None)) is None


def test_parts_are_those_of_the_proto() -> None:
    parts = (
        Part(text="see", metadata={"a": 1}),
        Part(raw=b"\0\xff", filename="f.bin", media_type="application/octet-stream"),
        Part(url="https://example.com/f", media_type="text/plain"),
        Part(data={"n": 3, "x": [1.5, None, True, {"y": "z"}]}),
        Part(data=[1, 2]),
    )
    task = pb.StreamResponse.FromString(GRPC.encode_message(replace(HELLO.message, parts=parts))).msg
    assert json_format.MessageToDict(task)["content"] == [
        {"text": "see", "metadata": {"a": 1}},
        {"file": {"fileWithBytes": "AP8=", "name": "f.bin", "mimeType": "application/octet-stream"}},
        {"file": {"fileWithUri": "https://example.com/f", "mimeType": "text/plain"}},
        {"data": {"data": {"n": 3, "x": [1.5, None, True, {"y": "z"}]}}},
        {"data": {"data": {"value": [1, 2]}}, "metadata": {"data_part_compat": True}},
    ]


def test_states_are_those_of_the_proto() -> None:
    for state in STATES:
        event = StatusChanged(state=state, timestamp=spoken.WHEN)
        (frame,) = GRPC.encode_event(spoken.HEAD, event, None)
        update = json_format.MessageToDict(pb.StreamResponse.FromString(frame))["statusUpdate"]
        spelled = "TASK_STATE_CANCELLED" if state is TaskState.CANCELED else state.value
        assert update["status"] == {"state": spelled, "timestamp": "2026-11-20T07:00:00Z"}
        assert update.get("final", False) == (state not in (TaskState.SUBMITTED, TaskState.WORKING))


def test_a_message_without_configuration_leaves_the_wait_to_the_server() -> None:
    request = pb.SendMessageRequest(
        request=pb.Message(message_id="m1", role=pb.ROLE_USER, content=[pb.Part(text="hello")])
    )
    assert GRPC.decode("SendMessage", request.SerializeToString()) == HELLO
    request.configuration.SetInParent()
    assert GRPC.decode("SendMessage", request.SerializeToString()) == replace(HELLO, return_immediately=True)
    request.configuration.blocking = True
    assert GRPC.decode("SendMessage", request.SerializeToString()) == HELLO
    streamed = GRPC.decode("SendStreamingMessage", request.SerializeToString())
    assert streamed == StreamMessage(message=HELLO.message)


def test_file_bytes_of_the_official_python_clients_are_base64() -> None:
    assert dialect_for("grpc-python-asyncio/1.85.1 grpc-c/54.0.0 (linux; chttp2)") is GRPC_BASE64
    assert dialect_for("dragoman/1.0 grpc-python-asyncio/1.85.1 grpc-c/54.0.0 (linux; chttp2)") is GRPC
    assert dialect_for("grpc-python/1.85.1 grpc-c/54.0.0 (linux; chttp2)") is GRPC
    assert dialect_for("grpc-node-js/1.14.0") is GRPC
    part = pb.Part(file=pb.FilePart(file_with_bytes=b"AP8="))
    request = pb.SendMessageRequest(request=pb.Message(message_id="m1", role=pb.ROLE_USER, content=[part]))
    for dialect, raw in ((GRPC, b"AP8="), (GRPC_BASE64, b"\0\xff")):
        sent = dialect.decode("SendMessage", request.SerializeToString())
        assert isinstance(sent, SendMessage)
        assert sent.message.parts == (Part(raw=raw),)
        frame = pb.StreamResponse.FromString(dialect.encode_message(sent.message))
        assert frame.msg.content[0].file.file_with_bytes == b"AP8="
    request.request.content[0].file.file_with_bytes = b"\xff is no base64"
    sent = GRPC_BASE64.decode("SendMessage", request.SerializeToString())
    assert isinstance(sent, SendMessage)
    assert sent.message.parts == (Part(raw=b"\xff is no base64"),)


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("SendMessage", pb.SendMessageRequest(), "request"),
        ("SendMessage", pb.SendMessageRequest(request=pb.Message(message_id="m")), "request.role"),
        (
            "SendMessage",
            pb.SendMessageRequest(request=pb.Message(message_id="m", role=pb.ROLE_USER)),
            "request.content",
        ),
        (
            "SendMessage",
            pb.SendMessageRequest(request=pb.Message(role=pb.ROLE_USER, content=[pb.Part(text="")])),
            "request.message_id",
        ),
        (
            "SendStreamingMessage",
            pb.SendMessageRequest(
                request=pb.Message(message_id="m", role=pb.ROLE_USER, content=[pb.Part(text="a"), pb.Part()])
            ),
            "request.content[1]",
        ),
        (
            "SendMessage",
            pb.SendMessageRequest(
                request=pb.Message(message_id="m", role=pb.ROLE_USER, content=[pb.Part(file=pb.FilePart(name="f"))])
            ),
            "request.content[0].file",
        ),
        ("GetTask", pb.GetTaskRequest(), "name"),
        ("GetTask", pb.GetTaskRequest(name="tasks/"), "name"),
        ("GetTask", pb.GetTaskRequest(name="tasks/t", history_length=-1), "history_length"),
        ("TaskSubscription", pb.TaskSubscriptionRequest(name="agents/t"), "name"),
        ("ListTaskPushNotificationConfig", pb.ListTaskPushNotificationConfigRequest(), "parent"),
        ("DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest(name="tasks/t"), "name"),
        (
            "CreateTaskPushNotificationConfig",
            pb.CreateTaskPushNotificationConfigRequest(parent="tasks/t"),
            "config.push_notification_config",
        ),
        (
            "CreateTaskPushNotificationConfig",
            pb.CreateTaskPushNotificationConfigRequest(
                parent="tasks/t",
                config=pb.TaskPushNotificationConfig(
                    push_notification_config=pb.PushNotificationConfig(url="https://a", token="\n")
                ),
            ),
            "config.push_notification_config.token",
        ),
    ],
)
def test_a_wrong_field_is_named_as_the_proto_spells_it(method: str, request_: ProtoMessage, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        GRPC.decode(method, request_.SerializeToString())
    assert refused.value.violations[0][0] == field


@pytest.mark.parametrize(
    ("request_", "config"),
    [
        # a2a-sdk 0.3.26 and 1.3.0, @a2a-js/sdk 0.3.14
        ({"parent": "tasks/t", "configId": "c", "config": {"name": "tasks/t/pushNotificationConfigs/c"}}, "c"),
        ({"parent": "tasks/t/pushNotificationConfigs", "configId": "c"}, "c"),
        ({"parent": "t", "config": {"name": "tasks/t/pushNotificationConfigs/a/b"}}, "a/b"),
        ({"parent": "tasks/t", "configId": "c", "config": {"pushNotificationConfig": {"id": "d"}}}, "d"),
        ({"parent": "tasks/t"}, ""),
    ],
)
def test_a_registration_may_name_its_configuration_in_three_places(request_: dict[str, Any], config: str) -> None:
    made = json_format.ParseDict(request_, pb.CreateTaskPushNotificationConfigRequest())
    made.config.push_notification_config.url = "https://example.com/hook"
    created = GRPC.decode("CreateTaskPushNotificationConfig", made.SerializeToString())
    assert created == CreatePushConfig(config=PushConfig(url="https://example.com/hook", id=config, task_id="t"))


def test_data_deeper_than_a_parser_reads_is_refused() -> None:
    deep: Any = "leaf"
    for levels in range(1, 200):
        deep = {"in": deep} if levels % 2 else [deep]
        chunk = ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Part(data={"in": deep}),)))
        try:
            (frame,) = GRPC.encode_event(spoken.HEAD, chunk, None)
        except UnsupportedOperation:
            assert levels > 20
            return
        assert pb.StreamResponse.FromString(frame)
    pytest.fail("data of any depth was written")


def test_a_request_of_too_many_values_is_refused_before_it_is_decoded() -> None:
    request = pb.SendMessageRequest()
    for _ in range(1000):
        request.request.content.add().data.data.fields["a"].number_value = 1
    for method in ("SendMessage", "SendStreamingMessage"):
        check_bounds(method, request.SerializeToString(), 8000)
        with pytest.raises(InvalidParams):
            check_bounds(method, request.SerializeToString(), 4000)


def test_numbers_are_doubles() -> None:
    given = {"whole": 3.0, "big": 2**60 + 1, "huge": 10**400, "none": float("nan"), "half": 0.5}
    message = replace(HELLO.message, metadata=given)
    (read,) = TONGUE.read_update(GRPC.encode_message(message))
    assert isinstance(read, Message)
    assert read.metadata == {"whole": 3, "big": float(2**60), "huge": str(10**400), "none": None, "half": 0.5}
    assert isinstance((read.metadata or {})["whole"], int)


CARD = AgentCard(
    name="Echo",
    description="Echoes.",
    supported_interfaces=(
        AgentInterface(url="http://a/", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(url="a:50051", protocol_binding="GRPC", protocol_version="0.3"),
    ),
    version="1",
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=True,
        extended_agent_card=True,
        extensions=(AgentExtension(uri="urn:x", params={"window": "600s"}),),
    ),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(AgentSkill(id="echo", name="Echo", description="Echoes.", tags=("a",)),),
    security_schemes={
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "deviceCode": {"tokenUrl": "https://a/t"},
                    "clientCredentials": {"tokenUrl": "https://a/t", "scopes": {"s": "S"}},
                    "authorizationCode": {"authorizationUrl": "https://a/a", "tokenUrl": "https://a/t", "scopes": {}},
                }
            }
        },
    },
    security_requirements=({"schemes": {"key": {"list": ["s"]}}},),
)


def test_the_card_is_that_of_the_proto() -> None:
    before = msgspec.json.encode(CARD)
    body = GRPC.encode_result(GetExtendedCard(), CARD)
    assert msgspec.json.encode(CARD) == before
    card = pb.AgentCard.FromString(body)
    assert (card.protocol_version, card.url, card.preferred_transport) == ("0.3.0", "http://a/", "JSONRPC")
    assert [(each.url, each.transport) for each in card.additional_interfaces] == [
        ("http://a/", "JSONRPC"),
        ("a:50051", "GRPC"),
    ]
    assert card.supports_authenticated_extended_card
    assert card.security_schemes["key"].api_key_security_scheme.name == "X-API-Key"
    flows = card.security_schemes["oauth"].oauth2_security_scheme.flows
    assert flows.authorization_code.authorization_url == "https://a/a"
    assert list(card.security[0].schemes["key"].list) == ["s"]
    read = TONGUE.read_answer(GetExtendedCard(), body)
    assert isinstance(read, AgentCard)
    assert (read.name, read.skills, read.supported_interfaces) == (CARD.name, CARD.skills, CARD.supported_interfaces)


EVERY_ERROR = [kind for kind in jsonrpc.CODES if kind is not A2AError]


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: kind.__name__)
def test_an_error_keeps_its_class_and_text(kind: type[A2AError]) -> None:
    error = refusals.made(kind, "half \ud800 of it: done", {})
    code = GRPC.error_status(error)
    assert code not in (0, 2), "neither OK nor UNKNOWN"
    details = GRPC.encode_error(error)
    status = Status.FromString(details)
    assert (status.code, status.message) == (code, status_text(error))
    read = TONGUE.read_status(GrpcStatus(code, status.message))
    assert type(read) is kind
    assert read.message == "half ? of it: done" or kind is errors.AgentFailed
    assert type(TONGUE.read_status(GrpcStatus(code, status.message, details))) is kind
    by_details = TONGUE.read_status(GrpcStatus(code, "", details))
    assert type(by_details) is kind or kind is errors.ParseError, "1.0 calls it an invalid request"


@pytest.mark.parametrize(
    ("details", "code", "kind"),
    [
        ("TaskNotFoundError: Task not found", 5, errors.TaskNotFound),
        ("TaskNotCancelableError: It is over", 12, errors.TaskNotCancelable),
        ("AuthenticatedExtendedCardNotConfiguredError: none", 9, errors.ExtendedAgentCardNotConfigured),
        ("no such thing", 5, errors.TaskNotFound),
        ("Received RST_STREAM", 14, errors.Unavailable),
        ("", 16, errors.Unauthorized),
        ("Unknown error type: x", 2, errors.InternalError),
    ],
)
def test_an_error_that_says_less_becomes_what_comes_nearest(details: str, code: int, kind: type[A2AError]) -> None:
    assert type(TONGUE.read_status(GrpcStatus(code, details))) is kind


def test_what_the_proto_has_no_words_for_is_refused() -> None:
    hook = PushConfig(url="https://example.com/hook", task_id="t")
    unsaid: list[Operation] = [
        ListTasks(),
        CompleteTask(id="t"),
        DeletePushConfig(task_id="t"),
        replace(HELLO, earlier=(HELLO.message,)),
        CreatePushConfig(config=replace(hook, secret="a" * 16)),
        replace(HELLO, push_config=replace(hook, events=("completed",))),
    ]
    for operation in unsaid:
        with pytest.raises(UnsupportedOperation):
            call(operation)
    for operation in (
        GetTask(id="a/b"),
        GetTask(id=""),
        replace(HELLO, message=replace(HELLO.message, message_id="\ud800")),
    ):
        with pytest.raises(InvalidParams):
            call(operation)


def test_no_history_can_be_asked_for_all_the_same() -> None:
    record = Record(
        head=spoken.HEAD,
        seq=1,
        status=TaskStatus(state=TaskState.COMPLETED, timestamp=spoken.WHEN),
        history=(HELLO.message,),
    )
    body = GRPC.encode_result(GetTask(id="t1"), record)
    assert TONGUE.read_answer(GetTask(id="t1", history_length=0), body) == spoken.task_of(record, 0)


def test_a_method_that_the_service_lacks_is_refused() -> None:
    with pytest.raises(MethodNotFound):
        GRPC.decode("ListTasks", b"")
    assert PROCEDURES.keys() == {row.procedure for row in TABLE.values() if row.procedure}
    streams = {row.procedure for kind, row in TABLE.items() if kind in (StreamMessage, Subscribe)}
    assert {name for name, streaming in PROCEDURES.items() if streaming} == streams


REQUESTS = [
    call(said)[1]
    for said in (
        replace(HELLO, push_config=PushConfig(url="https://a", token="t"), metadata={"a": [{"b": 1}]}),
        GetTask(id="t", history_length=3),
        CreatePushConfig(config=PushConfig(url="https://a", id="c", task_id="t")),
    )
]
ANSWERS = [
    GRPC.encode_message(replace(HELLO.message, metadata={"a": [{"b": 1}]})),
    GRPC.encode_result(ListPushConfigs(task_id="t"), (PushConfig(url="https://a", id="c", task_id="t"),)),
    GRPC.encode_result(GetExtendedCard(), CARD),
]


def changed(body: bytes, at: int, value: bytes, gone: int) -> bytes:
    at %= len(body) + 1
    return body[:at] + value + body[at + gone :]


def around(bodies: list[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, and bytes that are nearly a message."""
    nearly = st.builds(changed, st.sampled_from(bodies), st.integers(0, 500), st.binary(max_size=4), st.integers(0, 4))
    return st.binary(max_size=60) | nearly


@given(around(REQUESTS), st.sampled_from([*PROCEDURES, "Other"]), lanes)
def test_any_bytes_give_an_operation_or_a_status(body: bytes, method: str, lane: str) -> None:
    dialect = LANES[lane][0]
    refusal = None
    try:
        msgspec.msgpack.encode(dialect.decode(method, body))
    except A2AError as error:
        refusal = error
    if refusal is not None:
        assert Status.FromString(dialect.encode_error(refusal)).message
        assert 2 < dialect.error_status(refusal) <= 16


UNARY: list[Operation] = [
    HELLO,
    GetTask(id="t"),
    CancelTask(id="t"),
    GetPushConfig(task_id="t", id="p"),
    ListPushConfigs(task_id="t"),
    DeletePushConfig(task_id="t", id="p"),
    GetExtendedCard(),
]


@given(around(ANSWERS), st.sampled_from(UNARY), lanes)
def test_any_bytes_give_a_value_or_one_error(body: bytes, operation: Operation, lane: str) -> None:
    tongue = LANES[lane][1]
    for read in (tongue.read_update, lambda data: tongue.read_answer(operation, data)):
        with suppress(InvalidAgentResponse):
            msgspec.json.encode(read(body))


@given(st.text(max_size=40), st.integers(0, 20), st.binary(max_size=20))
def test_any_status_gives_an_error(message: str, code: int, details: bytes) -> None:
    assert isinstance(TONGUE.read_status(GrpcStatus(code, message, details)), A2AError)


@given(spoken.parts)
def test_a_part_of_1_0_is_one_of_0_3(part: Part) -> None:
    said = replace(HELLO.message, parts=(part,))
    assert TONGUE.read_update(GRPC.encode_message(said)) == (replace(said, parts=(part_in_0_3(part),)),)
