"""A2A 1.0 and 0.3 as a client speaks them, over JSON-RPC and HTTP+JSON: what our server reads and writes, and no more.

A lane is a version over a binding. `v1/test_client.py` and `v03/test_client.py` have what is particular to one version.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import v03, v1
from dragoman.dialects.api import Dialect, Tongue
from dragoman.dialects.client.encode import named
from dragoman.dialects.v03.client import TONGUE as V03_TONGUE
from dragoman.dialects.v03.client import TWICE
from dragoman.dialects.v1.client import TONGUE as V1_TONGUE
from dragoman.dialects.v1.errors import TABLE
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, UnsupportedOperation
from dragoman.model.events import Event
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    UpdateStatus,
)
from dragoman.model.task import Record, TaskState
from tests.dialects import spoken

HELLO = SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),)))
UNARY: list[Operation] = [
    HELLO,
    GetTask(id="t"),
    ListTasks(),
    GetPushConfig(task_id="t", id="p"),
    ListPushConfigs(task_id="t"),
    DeletePushConfig(task_id="t", id="p"),
    GetExtendedCard(),
]


def with_skill(operation: Operation) -> Operation:
    """The operation as 1.0 says it: the skill is in the metadata, too."""
    return replace(operation, metadata=named(operation)) if isinstance(operation, SendMessage) else operation


def in_0_3(operation: Operation) -> Operation:
    """The operation as 0.3 says it over JSON-RPC: there are no pages of webhooks."""
    if isinstance(operation, ListPushConfigs):
        return ListPushConfigs(task_id=operation.task_id)
    return with_skill(operation)


def in_protobuf(operation: Operation) -> Operation:
    """The operation as 0.3 says it over HTTP+JSON."""
    match operation:
        case SendMessage():
            return in_0_3(replace(operation, message=spoken.without_references(operation.message)))
        case CancelTask():
            return replace(operation, metadata=None)
        case _:
            return in_0_3(operation)


def unchanged(value: Any) -> Any:
    return value


NONE: Mapping[type[A2AError], type[A2AError]] = MappingProxyType({})


class Lane(Struct, frozen=True, kw_only=True):
    """A version over a binding: the dialect of the server, and the tongue of the client.

    `sayable` makes an operation one that the lane has words for, `told` a value one that its answers can hold. `heard`
    is the folder of vectors of servers that take the specification loosely. `blurred` errors come back as
    others. An answer `tells_delays` if it says itself after how long to try again, beside HTTP's header.
    """

    server: Dialect
    client: Tongue
    sayable: Callable[[Operation], Operation]
    told: Callable[[Any], Any] = unchanged
    heard: str
    blurred: Mapping[type[A2AError], type[A2AError]] = NONE
    tells_delays: bool = True

    def read(self, operation: Operation) -> Operation:
        """Return the operation that the server reads when the client asks for this one."""
        if self.server.decode_rest is None:
            assert self.client.rpc is not None
            call = self.client.rpc(operation)
            return self.server.decode(call.method, call.params)
        assert self.client.rest is not None
        return spoken.routed(self.server, self.client.rest(operation))

    def ask(self, operation: Operation) -> object:
        """Say an operation, or raise."""
        say = self.client.rpc if self.server.decode_rest is None else self.client.rest
        assert say is not None
        return say(operation)


UNKNOWN_IN_0_3 = {errors.AgentNotFound: A2AError, errors.LeaseLost: A2AError, errors.AgentOffline: A2AError}

LANES = {
    "1.0 JSONRPC": Lane(server=v1.JSONRPC, client=V1_TONGUE, sayable=with_skill, heard="v1"),
    "1.0 HTTP+JSON": Lane(
        server=v1.REST,
        client=V1_TONGUE,
        sayable=with_skill,
        heard="v1",
        blurred={errors.ParseError: errors.InvalidRequest},
    ),
    "0.3 JSONRPC": Lane(
        server=v03.JSONRPC, client=V03_TONGUE, sayable=in_0_3, heard="v03", blurred=UNKNOWN_IN_0_3, tells_delays=False
    ),
    "0.3 HTTP+JSON": Lane(
        server=v03.REST,
        client=V03_TONGUE,
        sayable=in_protobuf,
        told=spoken.without_references,
        heard="v03",
        blurred=UNKNOWN_IN_0_3,
        tells_delays=False,
    ),
    "0.3 HTTP+JSON, base64 twice": Lane(
        server=v03.REST_TWICE,
        client=TWICE,
        sayable=in_protobuf,
        told=spoken.without_references,
        heard="v03",
        blurred=UNKNOWN_IN_0_3,
        tells_delays=False,
    ),
}
every = pytest.mark.parametrize("lane", LANES.values(), ids=LANES)


@every
@given(operation=spoken.operations)
def test_what_is_asked_is_the_operation_that_the_server_reads(lane: Lane, operation: Operation) -> None:
    sayable = lane.sayable(operation)
    assert lane.read(sayable) == sayable


@every
@given(record=spoken.records, length=spoken.lengths)
def test_any_task_that_the_server_writes_is_read(lane: Lane, record: Record, length: int | None) -> None:
    told = lane.told(record)
    for operation in (replace(HELLO, history_length=length), GetTask(id="t1", history_length=length)):
        body = lane.server.encode_result(operation, told)
        assert lane.client.read_answer(operation, body) == spoken.task_of(told, length)


@every
@given(event=spoken.events)
def test_any_event_that_the_server_writes_is_read(lane: Lane, event: Event) -> None:
    told = lane.told(event)
    (frame,) = lane.server.encode_event(spoken.HEAD, told, None)
    assert lane.client.read_update(frame) == spoken.update_of(spoken.HEAD, told)


ERRORS: list[A2AError] = [
    errors.ParseError("the body is not JSON"),
    errors.InvalidRequest("no"),
    errors.MethodNotFound("Foo"),
    errors.InvalidParams("message.parts", "is required", ("id", "is required")),
    errors.InternalError("r-12"),
    errors.TaskNotFound("t1"),
    errors.TaskNotCancelable("t1", "TASK_STATE_COMPLETED"),
    errors.PushNotificationNotSupported(),
    errors.UnsupportedOperation("it does not"),
    errors.ContentTypeNotSupported("no audio"),
    errors.InvalidAgentResponse("what?"),
    errors.ExtendedAgentCardNotConfigured("none"),
    errors.ExtensionSupportRequired("urn:x"),
    errors.VersionNotSupported("2.0", ("1.0", "0.3")),
    errors.NotFound("nothing here"),
    errors.AgentNotFound("echo"),
    errors.MethodNotAllowed(("GET",)),
    errors.UnsupportedMediaType("text/plain"),
    errors.PayloadTooLarge(7),
    errors.RequestTimeout("too slow"),
    errors.Unavailable("later", 9),
    errors.LeaseLost(),
    errors.AgentOffline("echo"),
    errors.TaskTimeout("t1", 3),
    errors.AgentFailed("t1", "boom"),
    errors.Unauthorized("who?"),
    errors.Forbidden("no"),
    errors.TooManyRequests("rate", "slow down", 3),
    errors.Conflict("id", "is taken: choose another one"),
    errors.VersionConflict(7),
]

OF_OPERATORS: Mapping[type[A2AError], type[A2AError]] = {
    errors.Conflict: errors.InvalidParams,
    errors.VersionConflict: errors.InvalidParams,
}
"""The errors of the admin API, which is no agent's: a client of agents takes them for others."""


@every
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_with_its_fields(lane: Lane, error: A2AError) -> None:
    found = lane.client.read_error(lane.server.encode_error(error), lane.server.error_status(error))
    if (other := {**lane.blurred, **OF_OPERATORS}.get(type(error))) is not None:
        assert isinstance(found, other)
        return
    assert (type(found), found.message) == (type(error), error.message)
    if isinstance(error, errors.AgentNotFound):  # the client reads no id out of the text
        return
    assert (str(found), found.metadata) == (str(error), error.metadata)
    assert getattr(found, "violations", None) == getattr(error, "violations", None)
    if lane.tells_delays:
        assert getattr(found, "retry_after_s", None) == getattr(error, "retry_after_s", None)


def test_every_error_of_the_model_is_tried() -> None:
    assert {type(error) for error in ERRORS} == TABLE.keys() - {A2AError}


@every
@pytest.mark.parametrize("status", [200, 301, 400, 404, 500, 502])
def test_a_page_of_a_proxy_is_an_error_too(lane: Lane, status: int) -> None:
    assert isinstance(lane.client.read_error(b"<html>Bad Gateway</html>", status), A2AError)


UNSAID: list[Operation] = [
    CompleteTask(id="t"),
    UpdateStatus(id="t", state=TaskState.WORKING),
    ListTasks(offset=5),
    DeletePushConfig(task_id="t"),
    replace(HELLO, earlier=(HELLO.message,)),
]


@every
@pytest.mark.parametrize("operation", UNSAID, ids=lambda operation: type(operation).__name__)
def test_what_the_version_has_no_words_for_is_refused(lane: Lane, operation: Operation) -> None:
    with pytest.raises(UnsupportedOperation):
        lane.ask(operation)


@every
def test_text_that_is_not_unicode_is_refused(lane: Lane) -> None:
    for operation in (GetTask(id="\ud800"), replace(HELLO, message=replace(HELLO.message, message_id="\ud800"))):
        with pytest.raises(InvalidParams):
            lane.ask(operation)


@every
def test_an_answer_that_is_none_is_shown_in_part(lane: Lane) -> None:
    with pytest.raises(InvalidAgentResponse) as refused:
        lane.client.read_answer(GetTask(id="t"), b"<html>" + b"x" * 1000)
    assert "expected JSON" in refused.value.message
    assert "<html>xxx" in refused.value.message
    assert len(refused.value.message) < 300


VECTORS = Path(__file__).parent / "vectors"
HEARD = {
    folder: [vector["heard"] for path in sorted((VECTORS / folder).glob("*.json"))
             if "heard" in (vector := json.loads(path.read_text("utf-8")))]
    for folder in ("v1", "v03")
}  # fmt: skip


@every
@given(data=st.data(), operation=st.sampled_from(UNARY), status=st.sampled_from([0, 200, 400, 404, 418, 500, 503]))
def test_any_bytes_give_a_value_or_one_error(
    lane: Lane, data: st.DataObject, operation: Operation, status: int
) -> None:
    changed = st.builds(
        lambda vector, at, value: json.dumps(spoken.changed(vector, at, value)).encode(),
        st.sampled_from(HEARD[lane.heard]),
        st.integers(0, 60),
        spoken.values,
    )
    body = data.draw(st.binary(max_size=60) | spoken.values.map(lambda value: json.dumps(value).encode()) | changed)
    for read in (lane.client.read_update, lambda body: lane.client.read_answer(operation, body)):
        with suppress(InvalidAgentResponse):
            msgspec.json.encode(read(body))
    assert isinstance(lane.client.read_error(body, status), A2AError)
