"""A2A 1.0 over HTTP+JSON: where each field comes from."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.api import RestRequest
from dragoman.dialects.v1 import REST
from dragoman.dialects.v1.decode import METHODS
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound, ParseError
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
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
from dragoman.model.task import TaskState

BODY = json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}}).encode()
MESSAGE = Message(message_id="m", role=Role.USER, parts=(Part(text="a"),))
HOOK = b'{"url": "https://example.com/hook", "taskId": "other", "id": "p"}'


def decode(
    route: str, path: dict[str, str] | None = None, query: dict[str, str] | None = None, body: bytes = b""
) -> Operation:
    assert REST.decode_rest is not None
    return REST.decode_rest(RestRequest(route, path or {}, query or {}, body))


@pytest.mark.parametrize(
    ("route", "path", "query", "body", "operation"),
    [
        ("SendMessage", {}, {}, BODY, SendMessage(message=MESSAGE)),
        ("SendMessage", {"tenant": "echo"}, {}, BODY, SendMessage(message=MESSAGE, tenant="echo")),
        ("SendStreamingMessage", {}, {}, BODY, StreamMessage(message=MESSAGE)),
        ("GetTask", {"id": "a/b é"}, {}, b"", GetTask(id="a/b é")),
        ("GetTask", {"id": "t"}, {"historyLength": "0"}, b"", GetTask(id="t", history_length=0)),
        ("GetTask", {"id": "t", "history_length": "x", "metadata": "y"}, {}, b"", GetTask(id="t")),
        (
            "GetTask",
            {"id": "t"},
            {"history_length": "3", "id": "other", "x": "y"},
            b"",
            GetTask(id="t", history_length=3),
        ),
        ("ListTasks", {}, {}, b"", ListTasks()),
        ("ListTasks", {"tenant": "echo"}, {"tenant": "other"}, b"", ListTasks(tenant="echo")),
        ("ListTasks", {}, {"tenant": "echo", "contextId": "null"}, b"", ListTasks(tenant="echo", context_id="null")),
        (
            "ListTasks",
            {},
            {
                "contextId": "c",
                "status": "TASK_STATE_WORKING",
                "pageSize": "9",
                "pageToken": "5",
                "historyLength": "1",
                "statusTimestampAfter": "1970-01-01T01:00:00.5 01:00",
                "includeArtifacts": "true",
            },
            b"",
            ListTasks(
                context_id="c",
                state=TaskState.WORKING,
                page_size=9,
                page_token="5",
                history_length=1,
                status_after_ms=500,
                include_artifacts=True,
            ),
        ),
        (
            "ListTasks",
            {},
            {
                "context_id": "c",
                "status": "2",
                "page_size": "9",
                "page_token": "p",
                "history_length": "1",
                "status_timestamp_after": "1970-01-01T00:00:00Z",
                "include_artifacts": "1",
            },
            b"",
            ListTasks(
                context_id="c",
                state=TaskState.WORKING,
                page_size=9,
                page_token="p",
                history_length=1,
                status_after_ms=0,
                include_artifacts=True,
            ),
        ),
        (
            "ListTasks",
            {},
            {"pageSize": "", "status": "", "includeArtifacts": "False", "metadata": "x"},
            b"",
            ListTasks(),
        ),
        ("CancelTask", {"id": "t"}, {}, b"", CancelTask(id="t")),
        (
            "CancelTask",
            {"id": "t"},
            {},
            b'{"id": "other", "metadata": {"a": 1}}',
            CancelTask(id="t", metadata={"a": 1}),
        ),
        ("SubscribeToTask", {"id": "t"}, {}, b"", Subscribe(id="t")),
        ("SubscribeToTask", {"id": "t"}, {}, b'{"id": "t"}', Subscribe(id="t")),
        ("SubscribeToTask", {"id": "t"}, {"fromSeq": "7"}, b"", Subscribe(id="t", after="7")),
        (
            "CreateTaskPushNotificationConfig",
            {"task_id": "t"},
            {},
            HOOK,
            CreatePushConfig(config=PushConfig(url="https://example.com/hook", task_id="t", id="p")),
        ),
        ("GetTaskPushNotificationConfig", {"task_id": "t", "id": "p"}, {}, b"", GetPushConfig(task_id="t", id="p")),
        (
            "ListTaskPushNotificationConfigs",
            {"task_id": "t"},
            {"pageSize": "2"},
            b"",
            ListPushConfigs(task_id="t", page_size=2),
        ),
        (
            "DeleteTaskPushNotificationConfig",
            {"task_id": "t", "id": "p"},
            {},
            b"",
            DeletePushConfig(task_id="t", id="p"),
        ),
        ("GetExtendedAgentCard", {"tenant": "echo"}, {}, b"", GetExtendedCard(tenant="echo")),
    ],
)
def test_a_route_gives_its_operation(
    route: str, path: dict[str, str], query: dict[str, str], body: bytes, operation: Operation
) -> None:
    assert decode(route, path, query, body) == operation


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "x"}, "pageSize"),
        ({"status": "working"}, "status"),
        ({"status": "99999999999999"}, "status"),
        ({"includeArtifacts": "yes"}, "includeArtifacts"),
        ({"statusTimestampAfter": "soon"}, "statusTimestampAfter"),
        ({"contextId": "\udcff"}, "contextId"),
    ],
)
def test_a_wrong_query_parameter_is_named(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        decode("ListTasks", query=query)
    assert [named for named, _ in refusal.value.violations] == [field]


def test_a_path_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidParams) as refusal:
        decode("GetTask", {"id": "\udcff"})
    json.loads(REST.encode_error(refusal.value))


@pytest.mark.parametrize("body", [b"", b"   ", b"x", b"{"])
def test_a_route_that_needs_a_body_refuses_what_is_not_json(body: bytes) -> None:
    with pytest.raises(ParseError):
        decode("SendMessage", body=body)


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidParams, match="must be an object"):
        decode("SendMessage", body=b"[]")


def test_an_unknown_route_is_not_found() -> None:
    with pytest.raises(MethodNotFound):
        decode("Nothing")


TEXTS: Any = st.dictionaries(
    st.sampled_from(["id", "task_id", "tenant", "pageSize", "status", "metadata", "includeArtifacts", "historyLength"]),
    st.text(max_size=6) | st.sampled_from(["1", "true", "²", "\ud800"]),
)


@given(st.sampled_from(sorted(METHODS)), TEXTS, TEXTS, st.binary(max_size=20) | st.just(BODY))
def test_any_request_gives_an_operation_or_an_a2a_error(
    route: str, path: dict[str, str], query: dict[str, str], body: bytes
) -> None:
    try:
        decode(route, path, query, body)
    except A2AError as error:
        json.loads(REST.encode_error(error))
