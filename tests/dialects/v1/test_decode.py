"""A2A 1.0 params: what is refused, and with which path."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.v1 import JSONRPC
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound, ParseError
from dragoman.model.operations import GetTask, ListTasks, SendMessage

MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}


def decode(method: str, **params: Any) -> Any:
    return JSONRPC.decode(method, json.dumps(params).encode())


def refused(method: str, **params: Any) -> list[str]:
    with pytest.raises(InvalidParams) as refusal:
        decode(method, **params)
    return [field for field, _ in refusal.value.violations]


def sent(**message: Any) -> SendMessage:
    operation = decode("SendMessage", message=MESSAGE | message)
    assert isinstance(operation, SendMessage)
    return operation


@pytest.mark.parametrize("method", ["", "message/send", "sendMessage", "Foo", "x" * 10_000])
def test_an_unknown_method_is_not_found(method: str) -> None:
    with pytest.raises(MethodNotFound) as refusal:
        decode(method)
    assert len(refusal.value.message) < 200
    assert ("send A2A-Version: 0.3" in refusal.value.message) == ("/" in method)


@pytest.mark.parametrize("params", [b"", b"x", b'{"message"', b'{"message":{"parts":[{"text":"\xff"}]}}', b'{"a":NaN}'])
def test_params_that_are_not_json_are_a_parse_error(params: bytes) -> None:
    with pytest.raises(ParseError):
        JSONRPC.decode("SendMessage", params)


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "a\\ud83d", "\\ud83dx"])
@pytest.mark.parametrize(
    "place", ['{"text":"%s"}', '{"raw":"%s"}', '{"data":{"%s":1}}', '{"text":"","metadata":{"a":["%s"]}}']
)
def test_a_lone_surrogate_is_refused_because_it_cannot_be_written_again(text: str, place: str) -> None:
    params = '{"message":{"messageId":"m","role":"ROLE_USER","parts":[' + place % text + "]}}"
    with pytest.raises(A2AError):
        JSONRPC.decode("SendMessage", params.encode())


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
def test_a_number_that_python_cannot_hold_is_refused(number: str) -> None:
    params = '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":' + number + "}]}}"
    with pytest.raises(InvalidParams) as refusal:
        JSONRPC.decode("SendMessage", params.encode())
    assert refusal.value.violations == (("message.parts[0].data", "is out of range"),)


def test_everything_that_is_missing_is_named_at_once() -> None:
    assert refused("SendMessage") == ["message"]
    assert refused("SendMessage", message={}) == ["message.messageId", "message.role", "message.parts"]
    assert refused(
        "SendMessage",
        message={
            "messageId": "",
            "role": "user",
            "parts": [{}, {"text": "a"}, {"text": "a", "url": "b"}, {"raw": "!"}],
        },
        configuration={"historyLength": -1, "taskPushNotificationConfig": {"authentication": {}}},
    ) == [
        "message.messageId",
        "message.role",
        "message.parts[0]",
        "message.parts[2]",
        "message.parts[3].raw",
        "configuration.historyLength",
        "configuration.taskPushNotificationConfig.url",
        "configuration.taskPushNotificationConfig.authentication.scheme",
    ]


def test_the_violations_that_are_named_are_bounded() -> None:
    assert len(refused("SendMessage", message=MESSAGE | {"parts": [{}] * 10_000})) == 20


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("SendMessage", {"message": 5}, "message"),
        ("SendMessage", {"message": MESSAGE | {"messageId": 5}}, "message.messageId"),
        ("SendMessage", {"message": MESSAGE | {"parts": {}}}, "message.parts"),
        ("SendMessage", {"message": MESSAGE | {"parts": [{"text": "a"}, {"text": 1}]}}, "message.parts[1].text"),
        ("SendMessage", {"message": MESSAGE | {"parts": [{"raw": 1}]}}, "message.parts[0].raw"),
        ("SendMessage", {"message": MESSAGE | {"parts": [None]}}, "message.parts[0]"),
        ("SendMessage", {"message": MESSAGE | {"metadata": []}}, "message.metadata"),
        ("SendMessage", {"message": MESSAGE | {"extensions": [1]}}, "message.extensions[0]"),
        (
            "SendMessage",
            {"message": MESSAGE, "configuration": {"returnImmediately": "true"}},
            "configuration.returnImmediately",
        ),
        ("GetTask", {"id": 5}, "id"),
        ("GetTask", {"id": "t", "historyLength": []}, "historyLength"),
        ("ListTasks", {"includeArtifacts": 1}, "includeArtifacts"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_in_words_of_ours(method: str, params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        decode(method, **params)
    ((named, description),) = refusal.value.violations
    assert named == field
    assert description.startswith("must be ")
    assert "Expected" not in refusal.value.message


@pytest.mark.parametrize(
    ("method", "params", "fields"),
    [
        ("GetTask", {}, ["id"]),
        ("GetTask", {"id": ""}, ["id"]),
        ("GetTask", {"id": None, "historyLength": -1}, ["id", "historyLength"]),
        ("CancelTask", {}, ["id"]),
        ("SubscribeToTask", {"id": ""}, ["id"]),
        ("CreateTaskPushNotificationConfig", {}, ["taskId", "url"]),
        (
            "CreateTaskPushNotificationConfig",
            {"taskId": "t", "url": "u", "authentication": {}},
            ["authentication.scheme"],
        ),
        ("GetTaskPushNotificationConfig", {}, ["taskId", "id"]),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t"}, ["id"]),
        ("ListTaskPushNotificationConfigs", {"pageSize": -1}, ["taskId", "pageSize"]),
    ],
)
def test_what_an_operation_requires_is_named(method: str, params: dict[str, Any], fields: list[str]) -> None:
    assert refused(method, **params) == fields


@pytest.mark.parametrize("size", [0, -1, 101, "0", "x", "", "1.5", 1.5, 2**40, 1e300, "9" * 50, "٣"])
def test_a_page_size_outside_1_to_100_is_refused(size: object) -> None:
    """A2A 1.0 §3.1.4."""
    assert refused("ListTasks", pageSize=size) == ["pageSize"]


@pytest.mark.parametrize(
    ("size", "number"), [(1, 1), (100, 100), (7.0, 7), ("7", 7), ("7.0", 7), (1e2, 100), (None, 50)]
)
def test_a_page_size_may_be_spelled_as_protojson_spells_numbers(size: object, number: int) -> None:
    operation = decode("ListTasks", pageSize=size)
    assert isinstance(operation, ListTasks)
    assert operation.page_size == number


@pytest.mark.parametrize("status", ["working", "TASK_STATE_DONE", 9, -1, "1"])
def test_an_unknown_status_is_refused(status: object) -> None:
    assert refused("ListTasks", status=status) == ["status"]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.999999999Z", 1000),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1970-01-01t02:30:00+02:30", 0),
        ("1969-12-31T22:30:00.25-01:30", 250),
        ("2026-11-20T07:00:00.123z", 1795158000123),
    ],
)
def test_time_stamps_may_have_nanoseconds_and_offsets(text: str, milliseconds: int) -> None:
    operation = decode("ListTasks", statusTimestampAfter=text)
    assert isinstance(operation, ListTasks)
    assert operation.status_after_ms == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-11-20",
        "2026-11-20T07:00:00",
        "2026-13-20T07:00:00Z",
        "2026-02-30T07:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-11-20T25:00:00Z",
        "2026-11-20T07:00:00.1234567890Z",
        "2026-11-20 07:00:00Z",
        "2026-11-20T07:00:00+2:00",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٦-11-20T07:00:00Z",
        "1795158000",
    ],
)
def test_what_is_no_rfc3339_time_stamp_is_refused(text: str) -> None:
    assert refused("ListTasks", statusTimestampAfter=text) == ["statusTimestampAfter"]


@given(st.binary(max_size=40))
def test_base64_is_read_in_every_spelling(content: bytes) -> None:
    standard, url_safe = base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode()
    for text in (standard, url_safe, standard.rstrip("="), url_safe.rstrip("="), standard.replace("/", "_")):
        assert sent(parts=[{"raw": text}]).message.parts[0].raw == content


def test_base64_may_be_written_with_escapes() -> None:
    params = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"\\u0051UI\\/"}]}}'
    operation = JSONRPC.decode("SendMessage", params)
    assert isinstance(operation, SendMessage)
    assert operation.message.parts[0].raw == b"AB?"


@pytest.mark.parametrize("text", ["A", "AAAAA", "!!!!", "QQ==QQ==", "Q Q=", "QQ\n==", "====", "é", "QQ=A"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    assert refused("SendMessage", message=MESSAGE | {"parts": [{"raw": text}]}) == ["message.parts[0].raw"]


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"text": None},
        {"raw": None},
        {"mediaType": "text/plain"},
        {"text": "a", "raw": "QQ=="},
        {"text": "a", "data": {}},
        {"url": "u", "data": 0},
        {"text": "", "url": ""},
    ],
)
def test_a_part_with_other_than_one_content_is_refused(part: dict[str, Any]) -> None:
    """A2A 1.0 §4.1.6."""
    assert refused("SendMessage", message=MESSAGE | {"parts": [part]}) == ["message.parts[0]"]


@pytest.mark.parametrize("field", ["messageId", "contextId"])
@pytest.mark.parametrize("value", ["a\0b", "x" * 1025])
def test_an_id_that_a_caller_chooses_is_bounded(field: str, value: str) -> None:
    assert refused("SendMessage", message=MESSAGE | {field: value}) == [f"message.{field}"]


def test_an_id_that_is_looked_up_may_be_anything() -> None:
    for task_id in ("a\0b", "../../etc", "a/b", "é", " ", "x" * 5000):
        operation = decode("GetTask", id=task_id)
        assert isinstance(operation, GetTask)
        assert operation.id == task_id


@pytest.mark.parametrize("skill", [None, "", 5, {"a": 1}, ["x"]])
def test_a_skill_that_is_no_name_is_metadata_like_any_other(skill: object) -> None:
    operation = decode("SendMessage", message=MESSAGE, metadata={"skill": skill})
    assert isinstance(operation, SendMessage)
    assert operation.skill is None
    assert operation.metadata == {"skill": skill}


def test_of_a_field_in_both_spellings_the_one_that_says_something_counts() -> None:
    for method, first, second in (
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "p"}, {"task_id": "t", "id": "p"}),
        ("ListTasks", {"contextId": "c", "pageToken": "7"}, {"context_id": "c", "page_token": "7"}),
        ("ListTasks", {"includeArtifacts": True}, {"include_artifacts": True}),
    ):
        empty = dict.fromkeys([*first, *second], "")
        if "includeArtifacts" in first:
            empty = dict.fromkeys(empty, False)
        assert decode(method, **empty | first) == decode(method, **empty | second) == decode(method, **first)
    configuration = {"acceptedOutputModes": [], "accepted_output_modes": ["a/b"]}
    assert decode("SendMessage", message=MESSAGE, configuration=configuration).accepted_output_modes == ("a/b",)


def test_a_number_that_is_zero_says_something() -> None:
    assert decode("GetTask", id="t", historyLength=0, history_length=5).history_length == 0


def test_of_keys_that_come_twice_the_last_counts() -> None:
    operation = JSONRPC.decode("GetTask", b'{"id":"a","id":"b"}')
    assert isinstance(operation, GetTask)
    assert operation.id == "b"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["ROLE_USER", "QQ"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "message",
                    "messageId",
                    "role",
                    "parts",
                    "text",
                    "raw",
                    "url",
                    "data",
                    "metadata",
                    "configuration",
                    "id",
                    "historyLength",
                    "taskPushNotificationConfig",
                    "authentication",
                    "taskId",
                    "task_id",
                    "pageSize",
                    "status",
                    "statusTimestampAfter",
                    "skill",
                    "tenant",
                    "page_size",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.text(max_size=8))
def test_whatever_a_message_holds_can_be_written_again(data: object, text: str) -> None:
    params = {"message": MESSAGE | {"parts": [{"data": data}, {"text": text}], "metadata": {text: data}}}
    try:
        operation = JSONRPC.decode("SendMessage", json.dumps(params).encode())
    except A2AError:
        return
    assert isinstance(operation, SendMessage)
    written = json.loads(JSONRPC.encode_message(operation.message))["message"]
    again = JSONRPC.decode("SendMessage", json.dumps({"message": written}).encode())
    assert isinstance(again, SendMessage)
    assert again.message == operation.message
