"""What came back over HTTP, as the answers and errors of a dialect: JSON-RPC envelopes opened, statuses understood.

Invariant: pure. Whatever the bytes, an answer, or an A2AError, or HttpRefusal; never an exception of a parser.
"""

from typing import NoReturn

import msgspec
from msgspec import Raw, Struct

from dragoman.client.errors import HttpRefusal, shown
from dragoman.dialects import refusals
from dragoman.dialects.sse import ServerSentEvent
from dragoman.dialects.tongue import Answer, Tongue
from dragoman.model.errors import A2AError, InternalError, InvalidAgentResponse
from dragoman.model.message import Message
from dragoman.model.operations import DeletePushConfig, Operation
from dragoman.model.task import Task
from dragoman.model.updates import Update

_NOTHING = Raw(b"")
_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
"""Events by which some servers keep a stream open, where a comment would do; their data is anything."""

_EMPTY = ("", "[DONE]")
"""Data that tells of nothing; the second ends streams of servers that also speak to OpenAI's clients."""

_FOR_NOW = frozenset({429, 503})
"""Statuses that say more than a code that stands for any failure."""

_EXPECTED = "expected a JSON-RPC answer with `result` or `error`"


class _Envelope(Struct):
    jsonrpc: object = None
    id: object = None
    result: Raw = _NOTHING
    error: Raw = _NOTHING

    @property
    def failure(self) -> bytes:
        """The error, empty if there is none: some send `"error": null` beside a result."""
        if self.error is _NOTHING:
            return b""
        error = bytes(self.error)
        return b"" if error == b"null" else error


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class Reading(Struct, frozen=True):
    """How the answers of one call are read. `call_id` is the id of the JSON-RPC call, 0 over HTTP+JSON."""

    tongue: Tongue
    operation: Operation
    url: str
    call_id: int

    def answer(self, body: bytes) -> Answer:
        """The answer in the body of a 2xx. Raises A2AError."""
        if not self.call_id and not body.strip():
            body = b"{}"  # as of a 204, which some answer a DELETE with
        result = self._result(body) if self.call_id else body
        try:
            return self.tongue.read_answer(self.operation, result)
        except InvalidAgentResponse as error:
            raise self._told(error) from None

    def only(self, body: bytes) -> tuple[Update, ...]:
        """The updates in a body that came in place of a stream. Raises A2AError."""
        result = self._result(body) if self.call_id else body
        try:
            return self.tongue.read_update(result)
        except InvalidAgentResponse as error:
            try:
                answer = self.tongue.read_answer(self.operation, result)
            except InvalidAgentResponse:
                raise self._told(error) from None
            if isinstance(answer, Task | Message):
                return (answer,)
            raise self._told(error) from None

    def quickly(self, data: str) -> Update | None:
        """What the data of an event tells that is as it should be; None of any other, which `updates` is asked for."""
        return self.tongue.read_event(data, self.call_id) if self.call_id else None

    def updates(self, event: ServerSentEvent) -> tuple[Update, ...]:
        """What an event of a stream tells. Raises A2AError, also that which the event tells of."""
        if event.data in _EMPTY or event.event in _PINGS:
            return ()
        data = event.data.encode()
        try:
            envelope = _ENVELOPE.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._unreadable("expected a JSON object in an event of the stream", data) from None
        if self.tongue.enveloped or envelope.jsonrpc is not None or event.event == "error":
            if (failure := envelope.failure) or event.event == "error":
                self._fail(failure or data)
            if result := bytes(envelope.result):
                self._check_id(envelope.id, data)
                data = result
        try:
            return self.tongue.read_update(data)
        except InvalidAgentResponse as error:
            raise self._told(error) from None

    def refusal(self, body: bytes, status: int) -> A2AError | HttpRefusal:
        """What an answer means whose status is not 2xx."""
        if 300 <= status < 400:
            return HttpRefusal(self.url, status, body)
        told = True
        try:
            envelope = _ENVELOPE.decode(body)
            if self.call_id and envelope.jsonrpc is not None and (failure := envelope.failure):
                error = self.tongue.read_error(failure, 0)
                if not refusals.untold(error) and not (status in _FOR_NOW and isinstance(error, InternalError)):
                    return error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidAgentResponse):
            told = False  # something on the way may have answered, in a manner of its own
        try:
            error = self.tongue.read_error(body, status)
        except InvalidAgentResponse:
            return HttpRefusal(self.url, status, body)
        if refusals.untold(error) or (isinstance(error, InvalidAgentResponse) and not told):
            return HttpRefusal(self.url, status, body)
        return error

    def _result(self, body: bytes) -> bytes:
        try:
            envelope = _ENVELOPE.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._unreadable(_EXPECTED, body) from None
        if failure := envelope.failure:
            self._fail(failure)
        if not (result := bytes(envelope.result)):
            if envelope.jsonrpc is None or not isinstance(self.operation, DeletePushConfig):
                raise self._unreadable(_EXPECTED, body)
            result = b"null"  # the official Python servers leave it out where it is null (a2a-sdk 0.3.26, 1.3.0)
        self._check_id(envelope.id, body)
        return result

    def _check_id(self, came: object, body: bytes) -> None:
        """A number may come back as a string, or not at all: the exchange is ours alone. Another's id is a mistake."""
        if came != self.call_id and came is not None and str(came) != str(self.call_id):
            raise self._unreadable(f"expected an answer to the call {self.call_id}", body)

    def _fail(self, error: bytes) -> NoReturn:
        try:
            meant = self.tongue.read_error(error, 0)
        except InvalidAgentResponse as unread:
            raise self._told(unread) from None
        if refusals.untold(meant):
            raise self._unreadable("expected an error with a `code` or a `message`", error)
        raise meant

    def _told(self, error: InvalidAgentResponse) -> InvalidAgentResponse:
        return InvalidAgentResponse(f"{self.url}: {error.message}")

    def _unreadable(self, expected: str, body: bytes) -> InvalidAgentResponse:
        return InvalidAgentResponse(f"{self.url}: {expected}, got {shown(body)}")
