"""BeeOS, KAOS, Evo AI and protoAgent as a client speaks them: what their own clients send, what their servers answer,
and what nobody should."""

import json
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import jsonrpc
from dragoman.dialects.beeos.client import TONGUE as BEEOS
from dragoman.dialects.evoai.client import TONGUE as EVOAI
from dragoman.dialects.kaos.client import TONGUE as KAOS
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, UnsupportedOperation
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.updates import Update
from tests.dialects.tongues import (
    CONFIG,
    DIALECTS,
    EVERY_OPERATION,
    MADE_UP,
    SEND,
    SYSTEMS,
    TONGUES,
    called,
    of_all,
    operation_in,
    outcome,
    told_by,
    unnamed,
    value_in,
)


@pytest.mark.parametrize(("name", "vector"), of_all("call"))
def test_calls_are_those_of_the_systems_own_clients(name: str, vector: dict[str, Any]) -> None:
    call = called(TONGUES[name], operation_in(vector))
    params = json.loads(call.params)
    if vector["params"].get("message", {}).get("messageId") == "?":
        assert UUID(params["message"]["messageId"]).version == 4
        assert call == called(TONGUES[name], operation_in(vector))
        vector["params"]["message"]["messageId"] = params["message"]["messageId"]
    assert (call.method, params) == (vector["method"], vector["params"])


def as_said(name: str, operation: Operation) -> Operation:
    """The operation as far as the dialect has words for it, and with no ids that were made up."""
    match operation:
        case SendMessage():
            said = operation.message
            if said.message_id.startswith(MADE_UP) or said.message_id in ("", "*") or name == "evoai":
                said = replace(said, message_id="*")
            if name == "kaos":  # what is the message's is the task's
                said = replace(said, metadata=operation.metadata)
            earlier = tuple([replace(each, message_id="*") for each in operation.earlier])
            return replace(operation, message=said, earlier=earlier)
        case GetPushConfig() | DeletePushConfig() if name == "evoai":
            return replace(operation, id="")
        case _:
            return operation


@pytest.mark.parametrize(
    ("name", "vector"), [*of_all("decode", "beeos", "kaos"), *of_all("request", "evoai", "protoagent")]
)
def test_our_server_reads_a_call_as_what_was_asked(name: str, vector: dict[str, Any]) -> None:
    asked = operation_in(vector)
    if isinstance(asked, SendMessage) and asked.message.message_id == "*":
        asked = replace(asked, message=replace(asked.message, message_id=""))
    if name == "kaos" and isinstance(asked, ListTasks):
        with pytest.raises(UnsupportedOperation, match="KAOS has no list of tasks"):
            called(TONGUES[name], asked)
        return
    call = called(TONGUES[name], asked)
    assert as_said(name, DIALECTS[name].decode(call.method, call.params)) == as_said(name, asked)


WORKERS = {CompleteTask, UpdateStatus}
LACKING: dict[str, set[type]] = {
    "beeos": set(),
    "kaos": {type(each) for each in EVERY_OPERATION} - {SendMessage, GetTask, CancelTask},
    "evoai": {ListTasks, ListPushConfigs} | WORKERS,
    "protoagent": {ListTasks} | WORKERS,
}


@pytest.mark.parametrize("name", TONGUES)
def test_what_a_system_does_not_have_is_refused_in_its_name(name: str) -> None:
    tongue, refused = TONGUES[name], set[type]()
    for operation in EVERY_OPERATION:
        error = outcome(partial(called, tongue, operation))
        if isinstance(error, UnsupportedOperation):
            refused.add(type(operation))
            assert error.message.startswith(f"{SYSTEMS[name]} has no ")
    assert refused == LACKING[name]
    assert tongue.streams == (StreamMessage not in refused)
    assert tongue.subscribes == (Subscribe not in refused)
    assert tongue.pushes == (CreatePushConfig not in refused)
    assert tongue.lists == (ListTasks not in refused)
    assert tongue.rest is None


def test_what_is_asked_for_is_never_left_out_in_silence() -> None:
    with pytest.raises(UnsupportedOperation, match="KAOS has no webhooks"):
        called(KAOS, replace(SEND, push_config=CONFIG))
    with pytest.raises(UnsupportedOperation, match="Evo AI calls only webhooks at https"):
        called(EVOAI, CreatePushConfig(config=replace(CONFIG, url="http://example.com/h")))
    with pytest.raises(UnsupportedOperation, match="BeeOS has no choice among tasks"):
        called(BEEOS, ListTasks(context_id="c"))
    with pytest.raises(InvalidParams, match="pageToken"):
        called(BEEOS, ListTasks(page_token="x"))
    for name in ("beeos", "kaos", "protoagent"):
        with pytest.raises(UnsupportedOperation, match=f"{SYSTEMS[name]} takes no earlier messages"):
            called(TONGUES[name], replace(SEND, earlier=(SEND.message,)))
    with pytest.raises(InvalidParams, match="not Unicode"):
        called(BEEOS, GetTask(id="\ud800"))


# Answers


@pytest.mark.parametrize(("name", "vector"), of_all("hears"))
def test_answers_are_understood(name: str, vector: dict[str, Any]) -> None:
    answer = TONGUES[name].read_answer(operation_in(vector), json.dumps(vector["result"]).encode())
    assert unnamed(answer) == value_in(vector["answer"])


@pytest.mark.parametrize(("name", "vector"), of_all("follows"))
def test_frames_are_understood(name: str, vector: dict[str, Any]) -> None:
    told = [told_by(name, frame) for frame in vector["frames"]]
    assert [[unnamed(each) for each in updates] for updates in told] == [
        [value_in(each) for each in updates] for updates in vector["updates"]
    ]


@pytest.mark.parametrize(("name", "vector"), of_all("refused"))
def test_errors_are_understood(name: str, vector: dict[str, Any]) -> None:
    body = vector["body"]
    error = TONGUES[name].read_error(
        body.encode() if isinstance(body, str) else json.dumps(body).encode(), vector["status"]
    )
    assert type(error) is getattr(errors, vector["error"])
    assert {field: getattr(error, field) for field in vector["fields"]} == vector["fields"]
    assert str(error) == error.message


def test_a_frame_that_tells_of_an_error_raises_it() -> None:
    for frame in (
        b'{"type":"error","task_id":"t","error":{"code":-32003,"message":"task timeout"}}',
        b'{"type":"error","task_id":"t","code":"service_timeout","message":"task timeout"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32003,"message":"task timeout"}}',
    ):
        with pytest.raises(errors.TaskTimeout, match="task timeout"):
            BEEOS.read_update(frame)


def test_what_cannot_be_read_shows_what_was_expected_and_what_came() -> None:
    with pytest.raises(InvalidAgentResponse, match=r"expected a task.*, got \{\"nothing\": \"of it\"\}"):
        KAOS.read_answer(GetTask(id="t"), b'{"nothing": "of it"}')
    with pytest.raises(InvalidAgentResponse, match="expected a frame with"):
        BEEOS.read_update(b"[]")
    with pytest.raises(InvalidAgentResponse, match="expected JSON, got <html>"):
        EVOAI.read_update(b"<html>")


# Any bytes


def keys_of(value: object) -> set[str]:
    """The names of all members, at any depth."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (set(value) if isinstance(value, dict) else set()).union(*[keys_of(each) for each in inside])


HEARD = [vector for kind in ("hears", "refused") for param in of_all(kind) for vector in [param.values[1]]]
KEYS = st.sampled_from(sorted(set().union(*[keys_of(each.get("result", each.get("body"))) for each in HEARD])))
WORDS = st.sampled_from(
    ["completed", "text", "task", "status", "artifact", "artifact_delta", "error", "status-update", "t", "", "agent"]
)
LEAVES = st.none() | st.booleans() | st.integers(-40000, 10) | st.floats(allow_nan=False, allow_infinity=False) | WORDS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6))
BODIES = st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode())


@given(BODIES, st.sampled_from(EVERY_OPERATION), st.sampled_from([0, 200, 400, 401, 404, 422, 429, 500, 503]))
@pytest.mark.parametrize("name", TONGUES)
def test_whatever_the_bytes_a_value_or_an_error_of_the_tree(
    name: str, body: bytes, operation: Operation, status: int
) -> None:
    tongue = TONGUES[name]
    answer = outcome(lambda: tongue.read_answer(operation, body))
    if isinstance(answer, A2AError):
        assert isinstance(answer, InvalidAgentResponse)
        assert answer.message.startswith("expected ")
    else:
        msgspec.json.encode(answer)
    updates = outcome(lambda: tongue.read_update(body))
    if isinstance(updates, A2AError):
        assert name == "beeos" or isinstance(updates, InvalidAgentResponse)
    else:
        assert all(isinstance(each, Update) for each in updates)
    error = tongue.read_error(body, status)
    assert isinstance(error, A2AError)
    assert isinstance(error.metadata, dict)
    for dialect in DIALECTS.values():
        assert jsonrpc.id_of(dialect.encode_error(error)) == b"null"


@given(st.data())
@pytest.mark.parametrize("name", TONGUES)
def test_an_answer_with_a_member_lost_or_changed_is_read_or_refused(name: str, data: st.DataObject) -> None:
    _, vector = data.draw(st.sampled_from([param.values for param in of_all("hears", name)]))
    result = vector["result"]
    inside = result
    while isinstance(inside, dict | list) and inside:
        key = data.draw(st.sampled_from(list(inside) if isinstance(inside, dict) else list(range(len(inside)))))
        if data.draw(st.booleans()):
            if isinstance(inside, dict) and data.draw(st.booleans()):
                del inside[key]
            else:
                inside[key] = data.draw(JSON)
            break
        inside = inside[key]
    answer = outcome(lambda: TONGUES[name].read_answer(operation_in(vector), json.dumps(result).encode()))
    assert not isinstance(answer, A2AError) or isinstance(answer, InvalidAgentResponse)
