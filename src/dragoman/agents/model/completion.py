"""Parses a model's answer from its bytes: a stream of chunks, or one completion, whichever the endpoint sends.

Invariant: pure. With any bytes the parser continues or raises NoCompletion. How the bytes are cut into pieces
changes nothing about the result.
"""

import json
from codecs import BOM_UTF8
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.model.task import Usage

HELD_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes held of one event, or of a completion that arrives whole. A sender that exceeds it is broken."""

CALLS_MAX = 128
"""The most tools that a model may call at once: as many as the API allows to be offered."""

SHOWN_BYTES = 200

_FIELDS = (b":", b"data:", b"event:", b"id:", b"retry:")


class NoCompletion(Exception):
    """The bytes are not an answer of this API. The message is for the operator."""


class Faulted(Exception):
    """The endpoint reported an error instead of an answer, or in the middle of one. `fault` is that error."""

    def __init__(self, fault: "ApiFault") -> None:
        super().__init__(fault.message)
        self.fault = fault


class ApiFault(Struct, frozen=True):
    """An error as this API spells it. `code` is its code, or else its type; absent fields are empty."""

    message: str = ""
    code: str = ""
    status: int = 0


class Called(Struct):
    """A tool call as the model wrote it: `arguments` is JSON, if the model complied."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class CompletionParser:
    """One answer. Only the first choice is asked for, and read.

    `whole`: the model has ended its answer, or the endpoint its stream. `finish` is why the model stopped, as the API
    spells it. `begun`: something of the answer itself has arrived. Reasoning is not part of the answer. The tokens are
    those of `model`, as the operator names it, at `upstream`. `usage_fault` says why a report of them cannot be read,
    which spoils no answer.
    """

    __slots__ = (
        "_head",
        "_held",
        "_model",
        "_plain",
        "_rest",
        "_upstream",
        "_waiting",
        "begun",
        "calls",
        "finish",
        "refusal",
        "usage",
        "usage_fault",
        "whole",
    )

    def __init__(self, model: str = "", upstream: str = "") -> None:
        self.begun = False
        self.whole = False
        self.finish = ""
        self.refusal = ""
        self.calls: list[Called] = []
        self.usage: Usage | None = None
        self.usage_fault = ""
        self._model = model
        self._upstream = upstream
        self._waiting: list[str] = []
        self._rest = b""
        self._held = b""
        self._plain: bool | None = None
        self._head = b""

    @property
    def pending(self) -> bool:
        """Whether there is text that has not been taken."""
        return bool(self._waiting)

    def take_text(self) -> str:
        """Take the text that has arrived since the last call. Half a surrogate pair waits for its other half."""
        text = "".join(self._waiting)
        self._waiting.clear()
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                if "\ud800" <= text[-1] <= "\udbff" and not self.whole:
                    self._waiting.append(text[-1])
                    text = text[:-1]
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises NoCompletion, or Faulted."""
        if len(self._head) <= SHOWN_BYTES:
            self._head = (self._head + piece)[: SHOWN_BYTES + 1]
        data = self._rest + piece if self._rest else piece
        if self._plain is None:
            if BOM_UTF8.startswith(data):
                self._rest = data
                return
            data = data.removeprefix(BOM_UTF8)  # a stream of events may begin with one (HTML §9.2.5)
            if first := data.lstrip()[:1]:
                self._plain = first == b"{"  # a completion, though a stream was asked for
        if self._plain is not False:
            self._hold(data)
            return
        lines = data.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line or self._held:
                self._line(line)
        self._hold(rest)

    def end(self) -> None:
        """Parse the rest of the stream. Raises NoCompletion, or Faulted. An answer that is not `whole` now was cut off.

        Bytes that do not begin like a stream of events, and contain none, are not a truncated answer but no answer at
        all: for instance an HTML page, which a wrong URL usually serves.
        """
        rest, self._rest = self._rest, b""
        if self._plain:
            self._chunk(rest.strip())
            self.whole = True
        else:
            self._line(rest)
            self._line(b"")
            if not (self.begun or self.finish or self.whole or _begins_events(self._head)):
                raise self._unreadable(self._head)
        if self.finish:
            self.whole = True

    def _hold(self, rest: bytes) -> None:
        if len(rest) + len(self._held) > HELD_BYTES_MAX:
            raise NoCompletion(f"an event of the stream is larger than {HELD_BYTES_MAX} bytes")
        self._rest = rest

    def _line(self, line: bytes) -> None:
        """Read a line of the stream. It may end in CR LF, since JSON allows white space."""
        if line[:5] == b"data:":
            if self._held:  # an event with several lines
                self._held += b"\n" + line[5:]
                self._try()
            else:
                self._data(line[5:])
        elif self._held and not line.strip():
            raise self._unreadable(self._held)

    def _data(self, data: bytes) -> None:
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            data = data.strip()
            if data == b"[DONE]":
                self.whole = True
            elif b"\\ud" in data and (halved := _decode_halved(data)) is not None:
                self._take(halved)
            elif data:
                self._held = data
                self._try()
            return
        self._take(chunk)

    def _try(self) -> None:
        """Read an event whose JSON may continue on the next line."""
        try:
            chunk = _CHUNK.decode(self._held)
        except msgspec.ValidationError:
            raise self._unreadable(self._held) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._hold(b"")
            return
        self._held = b""
        self._take(chunk)

    def _chunk(self, data: bytes) -> None:
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._unreadable(data) from None
        if not chunk.choices and chunk.error is None:
            raise self._unreadable(data)
        self._take(chunk)

    def _take(self, chunk: _Chunk) -> None:
        if chunk.choices:
            choice = chunk.choices[0]
            if (delta := choice.delta or choice.message) is not None:
                content = delta.content
                if content and (text := content if isinstance(content, str) else _text_of(content)):
                    self.begun = True
                    self._waiting.append(text)
                if delta.refusal:
                    self.begun = True
                    self.refusal += delta.refusal
                if delta.tool_calls:
                    self.begun = True
                    for call in delta.tool_calls:
                        self._call(call)
            if choice.finish_reason:
                self.finish = choice.finish_reason
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if chunk.error is not None:
            raise Faulted(fault_of(chunk.error))
        if chunk.object == "error":  # some versions of vLLM report an error this way
            raise Faulted(ApiFault("the endpoint reported an error"))

    def _take_usage(self, told: Any) -> None:
        """Take a report of tokens, which counts all of the answer so far."""
        try:
            given, made, total = (
                _number(told, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
            )
            cached = _cached(told)
        except ValueError as error:
            self.usage_fault = str(error)
            self.usage = Usage.unknown(self._model, self._upstream)
            return
        if cached > max(given, 0):
            self.usage_fault = f"it names {cached} cached tokens of {given}"
            cached = 0
        self.usage = Usage.of(given, made, total or None, self._model, cached_tokens=cached, upstream=self._upstream)

    def _call(self, delta: _CallDelta) -> None:
        """Add a piece of a call. The id and the name come with the first piece, arguments with all.

        Some endpoints whose calls come whole leave `index` out, or give the same one to each call.
        """
        function = delta.function or _Function()
        at = len(self.calls) - 1 if delta.index is None else delta.index
        known = self.calls[at] if 0 <= at < len(self.calls) else None
        if known is None or (delta.id and known.id and delta.id != known.id):
            if delta.index is not None and known is not None:  # another call under an index that is taken
                known = next((call for call in self.calls if call.id == delta.id), None)
            else:
                known = None
        if known is None:
            if len(self.calls) >= CALLS_MAX:
                raise NoCompletion(f"the model calls more than {CALLS_MAX} tools at once")
            known = Called()
            self.calls.append(known)
        known.id = known.id or delta.id or ""
        if function.name and function.name != known.name:
            known.name += function.name
        if isinstance(function.arguments, str):
            known.arguments += function.arguments
        elif function.arguments is not None:
            known.arguments = msgspec.json.encode(function.arguments).decode()

    @staticmethod
    def _unreadable(data: bytes) -> NoCompletion:
        more = "…" if len(data) > SHOWN_BYTES else ""
        return NoCompletion(f"expected a chat completion, got {data[:SHOWN_BYTES]!r}{more}")


def _number(told: Any, name: str) -> int:
    """A number of a report of tokens; 0 if it is not there. Raises ValueError if it is none."""
    value = told.get(name) if isinstance(told, dict) else told
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"{name} is {value!r:.40}")
    return int(value)


def _cached(told: Any) -> int:
    """Those of the tokens that go in which a cache had: OpenAI's field, DeepSeek's, or Moonshot's."""
    details = told.get("prompt_tokens_details")
    if isinstance(details, dict) and details.get("cached_tokens") is not None:
        return _number(details, "cached_tokens")
    return _number(told, "prompt_cache_hit_tokens") or _number(told, "cached_tokens")


def _begins_events(said: bytes) -> bool:
    """Whether a stream of events may begin this way: with a field, or a comment (HTML §9.2.6)."""
    said = said.removeprefix(BOM_UTF8).lstrip()
    return any(said.startswith(field) or field.startswith(said) for field in _FIELDS)


def _decode_halved(data: bytes) -> _Chunk | None:
    """A chunk that contains half a surrogate pair, as servers in JavaScript cut text; None if it is not a chunk."""
    try:
        return msgspec.convert(json.loads(data), _Chunk)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _text_of(content: list[Any]) -> str:
    """The text of content in parts, which some endpoints send. Thoughts among the parts are left out."""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def fault_of(error: Any, status: int = 0) -> ApiFault:
    """The fault that an `error` value of any form describes."""
    if not isinstance(error, dict):
        return ApiFault(str(error), "", status)
    message, code, kind = error.get("message"), error.get("code"), error.get("type")
    inner = error.get("innererror")
    if isinstance(inner, dict) and isinstance(inner.get("code"), str):
        code = code or inner["code"]
    number = code if isinstance(code, int) else 0
    named = code if isinstance(code, str) and code else kind
    return ApiFault(
        message if isinstance(message, str) else "",
        named if isinstance(named, str) else "",
        status or (number if 400 <= number < 600 else 0),
    )


def fault_in(body: bytes, status: int) -> ApiFault:
    """The fault that the body of an error response describes."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ApiFault("", "", status)
    if isinstance(said, list) and said:  # Google's endpoint wraps the error in a list
        said = said[0]
    if not isinstance(said, dict):
        return ApiFault("", "", status)
    if said.get("error") is not None:
        return fault_of(said["error"], status)
    for name in ("message", "detail"):
        if isinstance(said.get(name), str):
            return ApiFault(said[name], str(said.get("code") or said.get("type") or ""), status)
    return ApiFault("", "", status)
