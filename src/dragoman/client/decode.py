"""Decodes what an agent answers, by its dialect: JSON-RPC envelopes, statuses, and the events of a stream.

Invariant: pure. Any bytes give an answer, an A2AError or an HttpRefusal; never an exception of a parser. A dialect is
loaded on first use, so that a client of one does not pay for six.
"""

from typing import NoReturn

import msgspec
from msgspec import Raw, Struct

from dragoman.client.errors import HttpRefusal, shown
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.client import refusals
from dragoman.dialects.registry import DIALECTS, load_system
from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.errors import A2AError, InternalError, InvalidAgentResponse
from dragoman.model.message import Message
from dragoman.model.operations import DeletePushConfig, Operation
from dragoman.model.task import Task
from dragoman.model.updates import Update

_NOTHING = Raw(b"")

_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
"""Events that some servers send to keep a stream open, where a comment would do; their data is arbitrary."""

_EMPTY = ("", "[DONE]")
"""Data without content. Servers that also serve OpenAI's clients end a stream with the second."""

_FOR_NOW = frozenset({429, 503})
"""Statuses that say more than a generic error code does."""

_EXPECTED = "expected a JSON-RPC answer with `result` or `error`"


def tongue(dialect: str | Tongue) -> Tongue:
    """Load the dialect of that name. Raises ValueError if there is none."""
    if isinstance(dialect, Tongue):
        return dialect
    if dialect not in DIALECTS:
        raise ValueError(f"dialect {dialect!r} is not known: use one of {', '.join(DIALECTS)}")
    found = load_system(dialect).tongue
    assert found is not None
    return found


def double_base64(spoken: Tongue) -> Tongue:
    """Return the dialect for agents that encode the bytes of files in base64 twice over HTTP+JSON; only 0.3 differs."""
    if spoken is not tongue("0.3"):
        return spoken
    from dragoman.dialects.v03.client import TWICE

    return TWICE


class _Envelope(Struct):
    jsonrpc: object = None
    id: object = None
    result: Raw = _NOTHING
    error: Raw = _NOTHING

    @property
    def failure(self) -> bytes:
        """The error, empty if there is none: some servers send `"error": null` beside a result."""
        if self.error is _NOTHING:
            return b""
        error = bytes(self.error)
        return b"" if error == b"null" else error


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class AnswerDecoder(Struct, frozen=True):
    """Decodes the answers of one call. `call_id` is the id of the JSON-RPC call, 0 over HTTP+JSON."""

    tongue: Tongue
    operation: Operation
    url: str
    call_id: int

    def decode_answer(self, body: bytes) -> Answer:
        """Decode the body of a 2xx. Raises A2AError."""
        if not self.call_id and not body.strip():
            body = b"{}"  # a 204 has no body: some servers answer a DELETE with it
        result = self._result(body) if self.call_id else body
        try:
            return self.tongue.read_answer(self.operation, result)
        except InvalidAgentResponse as error:
            raise self._add_url(error) from None

    def decode_instead(self, body: bytes) -> tuple[Update, ...]:
        """Decode the body of an answer that came instead of a stream. Raises A2AError."""
        result = self._result(body) if self.call_id else body
        try:
            return self.tongue.read_update(result)
        except InvalidAgentResponse as error:
            try:
                answer = self.tongue.read_answer(self.operation, result)
            except InvalidAgentResponse:
                raise self._add_url(error) from None
            if isinstance(answer, Task | Message):
                return (answer,)
            raise self._add_url(error) from None

    def decode_event(self, event: ServerSentEvent) -> tuple[Update, ...]:
        """Decode an event of a stream. Raises A2AError, which may be the error that the event carries."""
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
            raise self._add_url(error) from None

    def decode_refusal(self, body: bytes, status: int) -> A2AError | HttpRefusal:
        """Decode an answer whose status is not 2xx."""
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
            told = False  # a proxy may have answered in a format of its own
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
        """Check the id of an answer. It may be text or missing, as the exchange is ours alone, but no other number."""
        if came != self.call_id and came is not None and str(came) != str(self.call_id):
            raise self._unreadable(f"expected an answer to the call {self.call_id}", body)

    def _fail(self, error: bytes) -> NoReturn:
        try:
            meant = self.tongue.read_error(error, 0)
        except InvalidAgentResponse as unread:
            raise self._add_url(unread) from None
        if refusals.untold(meant):
            raise self._unreadable("expected an error with a `code` or a `message`", error)
        raise meant

    def _add_url(self, error: InvalidAgentResponse) -> InvalidAgentResponse:
        return InvalidAgentResponse(f"{self.url}: {error.message}")

    def _unreadable(self, expected: str, body: bytes) -> InvalidAgentResponse:
        return InvalidAgentResponse(f"{self.url}: {expected}, got {shown(body)}")
