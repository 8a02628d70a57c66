"""A2A 1.0 as a client speaks it: the server's own vectors the other way round, and other people's servers."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from dragoman.dialects.client import answers, objects, scalars
from dragoman.dialects.v1 import JSONRPC, REST
from dragoman.dialects.v1.client import TONGUE
from dragoman.model import errors, operations
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, UnsupportedOperation
from dragoman.model.events import Event
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    GetPushConfig,
    GetTask,
    Operation,
    SendMessage,
    Subscribe,
)
from dragoman.model.task import Record, TaskHead
from tests.dialects import spoken
from tests.dialects.shown import RESULTS, named_vectors

VECTORS, having = named_vectors("v1")


HELLO = SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),)))


def named_in(vector: dict[str, Any], key: str, kinds: Any) -> Any:
    ((name, fields),) = vector[key].items()
    return msgspec.convert(fields, kinds[name] if isinstance(kinds, dict) else getattr(kinds, name))


def rpc(operation: Operation) -> Operation:
    assert TONGUE.rpc is not None
    call = TONGUE.rpc(operation)
    return JSONRPC.decode(call.method, call.params)


def rest(operation: Operation) -> Operation:
    assert TONGUE.rest is not None
    return spoken.routed(REST, TONGUE.rest(operation))


@pytest.mark.parametrize("name", having("params"))
def test_what_the_vectors_ask_can_be_asked_again(name: str) -> None:
    operation = named_in(VECTORS[name], "operation", operations)
    assert rpc(operation) == operation


@pytest.mark.parametrize("name", having("json"))
def test_the_results_of_the_vectors_are_read(name: str) -> None:
    vector = VECTORS[name]
    operation = named_in(vector, "operation", operations)
    told = TONGUE.read_answer(operation, json.dumps(vector["json"]).encode())
    assert told == spoken.answer_of(operation, named_in(vector, "result", RESULTS))


@pytest.mark.parametrize("name", having("frames"))
def test_the_frames_of_the_vectors_are_read(name: str) -> None:
    vector = VECTORS[name]
    event: Event = msgspec.convert(vector["event"], Event)
    told = [update for frame in vector["frames"] for update in TONGUE.read_update(json.dumps(frame).encode())]
    assert told == list(spoken.update_of(msgspec.convert(vector["head"], TaskHead), event))


@given(spoken.events, spoken.records)
def test_the_lenient_reading_agrees_with_the_exact_one(event: Event, record: Record) -> None:
    (frame,) = JSONRPC.encode_event(spoken.HEAD, event, None)
    assert (scalars.decode_answer(frame, objects.update),) == TONGUE.read_update(frame)
    body = JSONRPC.encode_result(HELLO, record)
    assert scalars.decode_answer(body, lambda value: answers.answer(HELLO, value)) == TONGUE.read_answer(HELLO, body)


@pytest.mark.parametrize("name", having("heard"))
def test_servers_that_take_the_specification_loosely_are_understood(name: str) -> None:
    vector = VECTORS[name]
    body = json.dumps(vector["heard"]).encode()
    if "answers" in vector:
        told: object = TONGUE.read_answer(named_in(vector, "answers", operations), body)
    else:
        (told,) = TONGUE.read_update(body)
    assert {type(told).__name__: spoken.builtins(told)} == vector["told"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"code": -32001, "message": "gone"}, 0, errors.TaskNotFound),
        ({"code": -32001, "message": "gone", "data": {"x": 1}}, 0, errors.TaskNotFound),
        ({"code": -31999, "message": "odd"}, 0, errors.InternalError),
        ({"error": {"code": 404, "status": "NOT_FOUND", "message": "gone"}}, 404, errors.NotFound),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "slow"}}, 400, errors.TooManyRequests),
        ({"detail": "Unauthorized"}, 401, errors.Unauthorized),
        ({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no"}}, 404, errors.MethodNotFound),
        ({"message": "over"}, 503, errors.Unavailable),
    ],
)
def test_errors_that_say_less_become_what_comes_nearest(body: object, status: int, kind: type[A2AError]) -> None:
    assert type(TONGUE.read_error(json.dumps(body).encode(), status)) is kind


@pytest.mark.parametrize("say", [TONGUE.rpc, TONGUE.rest], ids=["rpc", "rest"])
def test_the_webhook_to_read_has_to_be_named(say: Any) -> None:
    with pytest.raises(UnsupportedOperation):
        say(GetPushConfig(task_id="t"))


@pytest.mark.parametrize("task_id", ["", ".", ".."])
def test_an_id_that_a_path_would_lose_is_refused(task_id: str) -> None:
    assert TONGUE.rest is not None
    with pytest.raises(InvalidParams):
        TONGUE.rest(GetTask(id=task_id))


def test_a_tenant_is_a_parameter_and_the_first_segment_of_the_path() -> None:
    assert TONGUE.rpc is not None
    assert TONGUE.rest is not None
    assert rpc(Subscribe(id="t", tenant="echo")) == Subscribe(id="t", tenant="echo")
    assert TONGUE.rest(Subscribe(id="t", tenant="a/b")).path == "/a%2Fb/tasks/t:subscribe"


def test_the_first_of_several_skills_is_the_one_that_is_named() -> None:
    assert rpc(replace(HELLO, skills=("a", "b"))) == replace(HELLO, skill="a", metadata={"skill": "a"})


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"data":' + b"[" * 900 + b"]" * 900 + b"}]}}"
    with pytest.raises(InvalidAgentResponse):
        TONGUE.read_update(deep)


@pytest.mark.parametrize("name", ["blob", "file"])
@pytest.mark.parametrize("value", [5, "other-task/0000000000000000000000000000000000000000"])
def test_no_remote_agent_says_where_our_store_has_bytes(name: str, value: object) -> None:
    part = {"text": "x", name: value}
    artifact = {"artifactId": "a", "parts": [part]}
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [part]}
    status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-20T07:00:00.000Z", "message": message}
    task = {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact], "history": [message]}
    at = {"taskId": "t", "contextId": "c"}
    frames: list[object] = [
        {"task": task},
        {"message": message},
        {"artifactUpdate": {**at, "artifact": artifact}},
        {"statusUpdate": {**at, "status": status}},
    ]
    for frame in frames:
        for update in TONGUE.read_update(msgspec.json.encode(frame)):
            assert b"blob" not in msgspec.json.encode(update)
            assert b'"file"' not in msgspec.json.encode(update)
            assert b"other-task" not in msgspec.json.encode(update)
