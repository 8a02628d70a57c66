"""A2A 0.3 as a client speaks it: the server's own vectors the other way round, and other people's servers."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from dragoman.dialects import v03
from dragoman.dialects.api import Dialect, Tongue
from dragoman.dialects.client import objects, scalars
from dragoman.dialects.v03.client import TONGUE, TWICE
from dragoman.model import errors
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk, Event
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    Operation,
    SendMessage,
    StreamMessage,
)
from dragoman.model.task import TaskHead
from tests.dialects import spoken
from tests.dialects.shown import RESULTS
from tests.dialects.vendor_vectors import expected, some_vectors

LANES: dict[str, tuple[Dialect, Tongue]] = {
    "rpc": (v03.JSONRPC, TONGUE),
    "rest": (v03.REST, TONGUE),
    "rest_twice": (v03.REST_TWICE, TWICE),
}
HELLO = SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),)))


def asked(operation: Operation, lane: str) -> Operation:
    """The operation as the server reads it."""
    dialect, tongue = LANES[lane]
    if lane == "rpc":
        assert tongue.rpc is not None
        call = tongue.rpc(operation)
        return dialect.decode(call.method, call.params)
    assert tongue.rest is not None
    return spoken.routed(dialect, tongue.rest(operation))


@pytest.mark.parametrize("vector", some_vectors("v03", "decode"))
def test_what_the_vectors_ask_can_be_asked_again(vector: dict[str, Any]) -> None:
    operation = expected(vector)
    assert asked(operation, "rpc") == operation


@pytest.mark.parametrize("vector", some_vectors("v03", "encode"))
@pytest.mark.parametrize("lane", LANES)
def test_the_results_of_the_vectors_are_read(lane: str, vector: dict[str, Any]) -> None:
    operation, result = expected(vector), msgspec.convert(vector["value"], RESULTS[vector["result"]])
    told = LANES[lane][1].read_answer(operation, json.dumps(vector[lane]).encode())
    assert told == spoken.answer_of(operation, spoken.without_references(result) if lane != "rpc" else result)


@pytest.mark.parametrize("vector", some_vectors("v03", "event"))
@pytest.mark.parametrize("lane", LANES)
def test_the_frames_of_the_vectors_are_read(lane: str, vector: dict[str, Any]) -> None:
    event: Event = msgspec.convert(vector["event"], Event)
    event = spoken.without_references(event) if lane != "rpc" else event
    read = LANES[lane][1].read_update
    told = [update for frame in vector[lane] for update in read(json.dumps(frame).encode())]
    assert told == list(spoken.update_of(msgspec.convert(vector["head"], TaskHead), event))


@given(spoken.events)
def test_the_lenient_reading_agrees_with_the_exact_one(event: Event) -> None:
    (frame,) = v03.JSONRPC.encode_event(spoken.HEAD, event, None)
    assert (scalars.decode_answer(frame, objects.update),) == TONGUE.read_update(frame)


@pytest.mark.parametrize("vector", some_vectors("v03", "heard"))
def test_servers_that_take_the_specification_loosely_are_understood(vector: dict[str, Any]) -> None:
    body = json.dumps(vector["heard"]).encode()
    if "operation" in vector:
        told: object = TONGUE.read_answer(expected(vector), body)
    else:
        (told,) = TONGUE.read_update(body)
    assert {type(told).__name__: spoken.builtins(told)} == vector["told"]


def test_a_send_says_whether_it_waits() -> None:
    assert TONGUE.rpc is not None
    assert TONGUE.rest is not None
    for at_once in (False, True):
        sent = replace(HELLO, return_immediately=at_once)
        for body in (TONGUE.rpc(sent).params, TONGUE.rest(sent).body):
            assert json.loads(body)["configuration"]["blocking"] is not at_once


def test_a_plain_send_is_the_one_that_the_official_clients_send() -> None:
    assert TONGUE.rpc is not None
    call = TONGUE.rpc(HELLO)
    message = {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
    assert call.method == "message/send"
    assert json.loads(call.params) == {"message": message, "configuration": {"blocking": True}}


def test_over_http_the_first_of_several_skills_is_named() -> None:
    sent = replace(HELLO, skills=("a", "b"))
    assert asked(sent, "rest") == replace(HELLO, skill="a", metadata={"skill": "a"})
    assert asked(sent, "rpc") == replace(sent, skill="a", metadata={"skill": "a"})


def test_file_bytes_go_twice_into_base64_for_the_official_python_servers() -> None:
    assert TWICE.rest is not None
    raw = StreamMessage(message=replace(HELLO.message, parts=(Part(raw=b"\x00\xff"),)))
    content = json.loads(TWICE.rest(raw).body)["message"]["content"]
    assert content == [{"file": {"fileWithBytes": "QVA4PQ=="}}]
    chunk = ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Part(raw=b"\x00\xff"),)))
    (frame,) = v03.REST_TWICE.encode_event(spoken.HEAD, chunk, None)
    assert TWICE.read_update(frame) == spoken.update_of(spoken.HEAD, chunk)


def google(code: int, status: str, message: str, reason: str) -> object:
    """A google.rpc.Status with its reason (A2A 1.0 §11.6)."""
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}
    return {"error": {"code": code, "status": status, "message": message, "details": [detail]}}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"code": -32001, "message": "Task not found", "data": None}, 0, errors.TaskNotFound),
        ({"code": -32007, "message": "none"}, 0, errors.ExtendedAgentCardNotConfigured),
        ({"code": -32005, "message": "no audio"}, 415, errors.ContentTypeNotSupported),
        # The official Python server over HTTP+JSON
        ({"message": "Task not found"}, 404, errors.TaskNotFound),
        ({"message": "Task cannot be canceled - current state: completed"}, 409, errors.TaskNotCancelable),
        ({"message": "Push Notification is not supported"}, 501, errors.PushNotificationNotSupported),
        ({"message": "This operation is not supported"}, 501, errors.UnsupportedOperation),
        ({"message": "Authenticated Extended Card is not configured"}, 404, errors.ExtendedAgentCardNotConfigured),
        ({"message": "Task t was specified but does not exist"}, 404, errors.TaskNotFound),
        ({"message": "no such path"}, 404, errors.NotFound),
        ({"message": "unknown exception"}, 500, errors.InternalError),
        # The same since 1.0, in its compatibility mode
        (google(404, "NOT_FOUND", "Task t not found", "TASK_NOT_FOUND"), 404, errors.TaskNotFound),
        (google(400, "FAILED_PRECONDITION", "It is over", "TASK_NOT_CANCELABLE"), 400, errors.TaskNotCancelable),
        # BeeOS's, where a mount serves both
        ({"code": -32000, "message": "gone", "data": {"code": "task_not_found"}}, 0, errors.TaskNotFound),
        ({"code": -32002, "message": "off", "data": {"code": "agent_offline"}}, 0, errors.AgentOffline),
        ({"detail": "Unauthorized"}, 401, errors.Unauthorized),
    ],
)
def test_errors_that_say_less_become_what_comes_nearest(body: object, status: int, kind: type[A2AError]) -> None:
    assert type(TONGUE.read_error(json.dumps(body).encode(), status)) is kind
