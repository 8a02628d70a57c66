"""A2A 1.0 over gRPC, both sides: against each other, and against the official JSON of the same messages."""

import json
from contextlib import suppress
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse, ParseDict
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.client.encode import named
from dragoman.dialects.protobuf.bounds import MAX_DEPTH
from dragoman.dialects.v1 import JSONRPC
from dragoman.dialects.v1.protobuf import GRPC, SERVICE, TONGUE, check_bounds
from dragoman.dialects.v1.protobuf.decode import METHODS
from dragoman.model.card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill
from dragoman.model.errors import (
    A2AError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotFound,
    ParseError,
    UnsupportedOperation,
)
from dragoman.model.events import ArtifactChunk, Delegated, Event, Intervened, MessageReceived, Noted
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
    TaskPage,
)
from dragoman.model.task import Record, TaskState
from tests.dialects import spoken

HELLO = SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),)))
REQUESTS: dict[str, Any] = {name: method.request for name, method in METHODS.items()}
CARD = AgentCard(
    name="Echo",
    description="Repeats",
    supported_interfaces=(AgentInterface(url="h:1", protocol_binding="GRPC", protocol_version="1.0", tenant="echo"),),
    version="1.2",
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=False,
        extended_agent_card=True,
        extensions=(AgentExtension(uri="urn:x", description="X", required=True, params={"a": [1, None]}),),
    ),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(AgentSkill(id="s", name="S", description="skill", tags=("t",), examples=("e",)),),
    security_schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}},
    security_requirements=({"schemes": {"key": {"list": ["a"]}}},),
    signatures=({"protected": "p", "signature": "s", "header": {"kid": "k"}},),
)


def ask(operation: Operation) -> Operation:
    assert TONGUE.grpc is not None
    call = TONGUE.grpc(operation)
    return GRPC.decode(call.method.rpartition("/")[2], call.message)


def without_secrets(operation: Operation) -> Operation:
    """The operation without the fields of a webhook that the proto file lacks."""
    match operation:
        case SendMessage(push_config=PushConfig() as config):
            return replace(operation, push_config=replace(config, secret=None, events=()))
        case CreatePushConfig(config=config):
            return replace(operation, config=replace(config, secret=None, events=()))
        case _:
            return operation


def as_json(message: ProtoMessage) -> bytes:
    return MessageToJson(message).encode()


# -- requests ----------------------------------------------------------------------------------------------------------


@given(spoken.operations)
def test_the_server_reads_the_operation_that_the_client_writes(operation: Operation) -> None:
    operation = without_secrets(operation)
    if isinstance(operation, SendMessage):
        operation = replace(operation, metadata=named(operation))
    assert ask(operation) == operation


@given(spoken.operations, spoken.ids)
def test_a_request_means_what_its_official_json_means(operation: Operation, tenant: str) -> None:
    assert TONGUE.grpc is not None
    call = TONGUE.grpc(replace(without_secrets(operation), tenant=tenant))
    official = as_json(REQUESTS[call.method.rpartition("/")[2]].FromString(call.message))
    assert GRPC.decode(call.method.rpartition("/")[2], call.message) == JSONRPC.decode(
        call.method.rpartition("/")[2], official
    )


def test_there_is_a_procedure_for_each_of_the_service() -> None:
    service = pb.DESCRIPTOR.services_by_name["A2AService"]
    assert service.full_name == SERVICE
    assert {method.name: method.input_type.full_name for method in service.methods} == {
        name: request.DESCRIPTOR.full_name for name, request in REQUESTS.items()
    }


def test_an_unknown_procedure_is_refused() -> None:
    with pytest.raises(MethodNotFound):
        GRPC.decode("message/send", b"")


@pytest.mark.parametrize("method", REQUESTS)
@given(body=st.binary(max_size=60))
def test_any_bytes_give_an_operation_or_are_refused(method: str, body: bytes) -> None:
    error: A2AError | None = None
    try:
        check_bounds(method, body, 10)
        GRPC.decode(method, body)
    except A2AError as refused:
        error = refused
    assert error is None or (GRPC.encode_error(error) and GRPC.error_status(error))


@given(operation=spoken.operations, data=st.data())
def test_a_request_that_is_damaged_gives_an_operation_or_is_refused(operation: Operation, data: st.DataObject) -> None:
    assert TONGUE.grpc is not None
    call = TONGUE.grpc(without_secrets(operation))
    body = bytearray(call.message)
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(A2AError):
        check_bounds(call.method.rpartition("/")[2], bytes(body), 20)
        GRPC.decode(call.method.rpartition("/")[2], bytes(body))


def test_bytes_that_are_no_message_are_a_parse_error() -> None:
    with pytest.raises(ParseError, match=r"lf\.a2a\.v1\.GetTaskRequest"):
        GRPC.decode("GetTask", b"\xff")


def test_text_that_is_no_utf_8_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        GRPC.decode("GetTask", b"\x12\x01\xff")


def violations(method: str, request: dict[str, Any]) -> set[str]:
    body = ParseDict(request, REQUESTS[method]()).SerializeToString()
    with pytest.raises(InvalidParams) as refused:
        GRPC.decode(method, body)
    return {field for field, _ in refused.value.violations}


def test_all_violations_of_a_send_are_told_by_their_paths_in_the_proto_file() -> None:
    config = {"token": "a\nb", "authentication": {"credentials": "x"}}
    configuration = {"historyLength": -1, "taskPushNotificationConfig": config}
    message = {"contextId": "\0", "parts": [{"text": "a"}, {}]}
    assert violations("SendMessage", {"message": message, "configuration": configuration}) == {
        "message.message_id",
        "message.context_id",
        "message.role",
        "message.parts[1]",
        "configuration.history_length",
        "configuration.task_push_notification_config.url",
        "configuration.task_push_notification_config.token",
        "configuration.task_push_notification_config.authentication.scheme",
    }
    assert violations("SendMessage", {}) == {"message"}
    assert violations("SendMessage", {"message": {"messageId": "m", "role": 1}}) == {"message.parts"}


def test_violations_of_the_other_requests() -> None:
    late = {"statusTimestampAfter": "0001-01-01T00:00:00Z"}
    assert violations("ListTasks", {"pageSize": 0, "historyLength": -1, "status": 77, **late}) == {
        "page_size",
        "history_length",
        "status",
        "status_timestamp_after",
    }
    assert violations("ListTasks", {"pageSize": 101}) == {"page_size"}
    assert violations("GetTask", {"historyLength": -1}) == {"id", "history_length"}
    assert violations("CancelTask", {}) == violations("SubscribeToTask", {}) == {"id"}
    assert violations("CreateTaskPushNotificationConfig", {}) == {"task_id", "url"}
    assert violations("GetTaskPushNotificationConfig", {}) == {"task_id", "id"}
    assert violations("DeleteTaskPushNotificationConfig", {}) == {"task_id", "id"}
    assert violations("ListTaskPushNotificationConfigs", {"pageSize": -1}) == {"task_id", "page_size"}


@pytest.mark.parametrize("metadata", [None, {}, {"a": 1}])
def test_the_client_reads_the_metadata_of_a_part_as_it_came(metadata: dict[str, Any] | None) -> None:
    said = Message(message_id="m1", role=Role.AGENT, parts=(Part(text="hello", metadata=metadata),))
    assert TONGUE.read_update(GRPC.encode_message(said)) == (said,)


def test_a_time_is_rounded_up_to_milliseconds() -> None:
    body = ParseDict({"statusTimestampAfter": "2026-11-20T07:00:00.123456Z"}, pb.ListTasksRequest())
    assert GRPC.decode("ListTasks", body.SerializeToString()) == ListTasks(status_after_ms=1_795_158_000_124)


def test_a_message_that_is_nested_too_deeply_is_refused() -> None:
    nested: Any = 1
    for _ in range(40):
        nested = {"a": nested}
    body = Parse(json.dumps({"message": {"metadata": nested}}), pb.SendMessageRequest(), max_recursion_depth=500)
    with pytest.raises(ParseError):
        GRPC.decode("SendMessage", body.SerializeToString())


@pytest.mark.parametrize(
    "operation",
    [
        CompleteTask(id="t"),
        ListTasks(offset=3),
        GetPushConfig(task_id="t"),
        DeletePushConfig(task_id="t"),
        replace(HELLO, earlier=(HELLO.message,)),
        replace(HELLO, push_config=PushConfig(url="https://a", events=("completed",))),
        CreatePushConfig(config=PushConfig(url="https://a", task_id="t", secret="s" * 16)),
    ],
)
def test_an_operation_that_1_0_cannot_express_is_unsupported(operation: Operation) -> None:
    with pytest.raises(UnsupportedOperation):
        ask(operation)


@pytest.mark.parametrize(
    "operation",
    [GetTask(id="\ud800"), GetTask(id="t", history_length=2**40), ListTasks(status_after_ms=10**18)],
)
def test_an_operation_whose_values_protobuf_lacks_is_refused(operation: Operation) -> None:
    with pytest.raises(InvalidParams):
        ask(operation)


# -- responses and events ----------------------------------------------------------------------------------------------

ANSWERS: list[tuple[Operation, type[ProtoMessage]]] = [
    (HELLO, pb.SendMessageResponse),
    (GetTask(id="t1"), pb.Task),
    (GetTask(id="t1", history_length=1), pb.Task),
    (CancelTask(id="t1"), pb.Task),
]


def same(kind: type[ProtoMessage], encoded: bytes, official: bytes) -> bool:
    """Whether a message is the one that the official JSON is of."""
    return kind.FromString(encoded) == Parse(official, kind(), max_recursion_depth=1000)


@given(spoken.records, spoken.lengths)
def test_a_task_is_the_one_of_the_official_json(record: Record, length: int | None) -> None:
    for operation, kind in [(replace(HELLO, history_length=length), pb.SendMessageResponse), *ANSWERS]:
        encoded = GRPC.encode_result(operation, record)
        assert same(kind, encoded, JSONRPC.encode_result(operation, record))
        limit = getattr(operation, "history_length", None)
        assert TONGUE.read_answer(operation, encoded) == spoken.task_of(record, limit)
    snapshot = GRPC.encode_snapshot(record, length)
    assert same(pb.StreamResponse, snapshot, JSONRPC.encode_snapshot(record, length))
    assert TONGUE.read_update(snapshot) == (spoken.task_of(record, length),)


@given(st.lists(spoken.records, max_size=3), spoken.lengths, st.booleans())
def test_a_page_is_the_one_of_the_official_json(records: list[Record], length: int | None, artifacts: bool) -> None:
    operation = ListTasks(history_length=length, include_artifacts=artifacts)
    page = TaskPage(records=tuple(records), next_page_token="n", page_size=50, total_size=7)
    encoded = GRPC.encode_result(operation, page)
    assert same(pb.ListTasksResponse, encoded, JSONRPC.encode_result(operation, page))
    assert TONGUE.read_answer(operation, encoded) == spoken.answer_of(operation, page)


@given(spoken.messages)
def test_a_message_is_the_one_of_the_official_json(message: Message) -> None:
    encoded = GRPC.encode_result(HELLO, message)
    assert same(pb.SendMessageResponse, encoded, JSONRPC.encode_result(HELLO, message))
    assert TONGUE.read_answer(HELLO, encoded) == message
    assert TONGUE.read_update(GRPC.encode_message(message)) == (message,)


@given(spoken.events)
def test_an_event_is_the_one_of_the_official_json(event: Event) -> None:
    (encoded,) = GRPC.encode_event(spoken.HEAD, event, None)
    (official,) = JSONRPC.encode_event(spoken.HEAD, event, None)
    assert same(pb.StreamResponse, encoded, official)
    assert TONGUE.read_update(encoded) == spoken.update_of(spoken.HEAD, event)


@given(st.lists(spoken.webhooks, max_size=3))
def test_webhooks_are_those_of_the_official_json(configs: list[PushConfig]) -> None:
    listed = ListPushConfigs(task_id="t")
    encoded = GRPC.encode_result(listed, tuple(configs))
    official = JSONRPC.encode_result(listed, tuple(configs))
    assert same(pb.ListTaskPushNotificationConfigsResponse, encoded, official)
    assert TONGUE.read_answer(listed, encoded) == tuple(map(spoken.secretless, configs))
    for config in configs:
        got = GetPushConfig(task_id="t", id="p")
        one = GRPC.encode_result(got, config)
        assert same(pb.TaskPushNotificationConfig, one, JSONRPC.encode_result(got, config))
        assert TONGUE.read_answer(got, one) == spoken.secretless(config)


def test_events_that_no_caller_sees_are_no_items() -> None:
    unseen: list[Event] = [
        MessageReceived(HELLO.message, spoken.WHEN),
        Delegated(1, "a", "t", TaskState.COMPLETED, spoken.WHEN),
        Noted({"a": "b"}),
        Intervened("key:ops", "cancel", spoken.WHEN),
    ]
    assert [GRPC.encode_event(spoken.HEAD, event, None) for event in unseen] == [()] * 4


def test_a_card_is_the_one_of_the_official_json() -> None:
    encoded = GRPC.encode_result(GetExtendedCard(), CARD)
    assert same(pb.AgentCard, encoded, JSONRPC.encode_result(GetExtendedCard(), CARD))
    assert TONGUE.read_answer(GetExtendedCard(), encoded) == CARD


def test_a_deleted_webhook_is_answered_with_nothing() -> None:
    deleted = DeletePushConfig(task_id="t", id="p")
    assert GRPC.encode_result(deleted, None) == b""
    assert TONGUE.read_answer(deleted, b"") is None


def nested(levels: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize("kind", [dict, list])
def test_data_is_refused_before_it_is_too_deep_for_parsers(kind: type) -> None:
    """The deepest place for data is in a message of a task in a list."""
    deepest = 0
    for levels in range(1, MAX_DEPTH):
        data = Part(data=nested(levels, kind))
        record = Record(
            head=spoken.HEAD,
            seq=1,
            status=spoken.TaskStatus(
                state=TaskState.WORKING, timestamp=spoken.WHEN, message=replace(HELLO.message, parts=(data,))
            ),
        )
        page = TaskPage(records=(record,), next_page_token="", page_size=1, total_size=1)
        try:
            encoded = GRPC.encode_result(ListTasks(), page)
        except UnsupportedOperation:
            break
        pb.ListTasksResponse.FromString(encoded)
        deepest = levels
    assert 25 <= deepest < 60


def test_numbers_that_json_lacks_and_texts_that_utf_8_lacks() -> None:
    data = {"inf": float("inf"), "nan": float("nan"), "large": 10**400, "\ud800": "\udfff", "tuple": (1, 2)}
    chunk = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(data=data), Part(text="\ud800"))))
    (frame,) = GRPC.encode_event(spoken.HEAD, chunk, None)
    parts = MessageToDict(pb.StreamResponse.FromString(frame))["artifactUpdate"]["artifact"]["parts"]
    assert parts[0]["data"] == {"inf": None, "nan": None, "large": str(10**400), "?": "?", "tuple": [1, 2]}
    assert parts[1] == {"text": "?"}


@given(
    st.sampled_from([HELLO, GetTask(id="t"), ListTasks(), GetPushConfig(task_id="t", id="p"), GetExtendedCard()]),
    st.binary(max_size=60),
)
def test_any_bytes_give_an_answer_or_are_an_invalid_one(operation: Operation, body: bytes) -> None:
    with suppress(InvalidAgentResponse):
        TONGUE.read_answer(operation, body)
    with suppress(InvalidAgentResponse):
        TONGUE.read_update(body)


def test_a_sparse_answer_is_read() -> None:
    task = pb.Task(id="t", artifacts=[pb.Artifact(parts=[pb.Part()])], history=[pb.Message(role=7)])
    read = TONGUE.read_answer(GetTask(id="t"), task.SerializeToString())
    assert isinstance(read, spoken.Task)
    assert (read.status.state, read.status.timestamp) == (TaskState.UNSPECIFIED, "")
    assert (read.artifacts[0].artifact_id, read.artifacts[0].parts) == ("t-0", (Part(text=""),))
    assert read.history[0].role is Role.AGENT
    assert read.history[0].message_id.startswith("msg-")


@pytest.mark.parametrize(
    ("operation", "body"),
    [(HELLO, b""), (GetTask(id="t"), b""), (GetPushConfig(task_id="t", id="p"), b""), (HELLO, b"\xff")],
)
def test_an_answer_without_what_was_asked_for_is_invalid(operation: Operation, body: bytes) -> None:
    with pytest.raises(InvalidAgentResponse, match="expected"):
        TONGUE.read_answer(operation, body)


def test_an_item_that_holds_nothing_is_invalid() -> None:
    with pytest.raises(InvalidAgentResponse, match="StreamResponse"):
        TONGUE.read_update(b"")


def test_a_stream_and_a_subscription_are_called_by_their_names() -> None:
    assert TONGUE.grpc is not None
    assert TONGUE.grpc(StreamMessage(message=HELLO.message)).method == f"/{SERVICE}/SendStreamingMessage"
    assert TONGUE.grpc(Subscribe(id="t")).method == f"/{SERVICE}/SubscribeToTask"
