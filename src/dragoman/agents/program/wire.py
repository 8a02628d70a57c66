"""The messages between a program and the server (docs/agents/command.md), and the parser of a program's output.

Invariant: pure. Parts and messages are those of A2A 1.0 as JSON; the keys around them are in snake case. The set of a
line's keys, in any order, determines its meaning; no two meanings have the same keys. However the bytes are cut, the
same text and statements come out, in the same order. Text waits only for the rest of a character; only a line that may
be a statement waits for its end.
"""

import codecs
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from dragoman.agents.tools import ToolReport
from dragoman.dialects import json_bounds
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError
from dragoman.model.message import Message, Part

_Count = Annotated[int, Meta(ge=0)]

# -- to the program ----------------------------------------------------------------------------------------------------


class CallerMessage(Struct, frozen=True, omit_defaults=True):
    """A message of the caller: its text parts, joined by newlines, its first data part, and all parts."""

    text: str
    parts: tuple[Part, ...]
    data: Any | UnsetType = UNSET


class CallerAnswer(CallerMessage, frozen=True, omit_defaults=True):
    """An answer with the `headers` of its request that the program lists: null if they are lost. It is never noted."""

    headers: dict[str, str] | UnsetType | None = UNSET


class TaskDocument(Struct, frozen=True, kw_only=True):
    """The input of a program: one line of JSON. `message` is whole; `text` and `data` are all that most programs need.

    `answers` belong to the questions of earlier starts for the same task, in order. `headers` are those of the request
    with the newest message that the program lists: null if they are lost.
    """

    task_id: str
    context_id: str
    agent: str
    skill: str | None
    text: str
    data: Any | UnsetType = UNSET
    message: Message
    metadata: dict[str, Any]
    principal: str
    answers: tuple[CallerMessage, ...] = ()
    history: tuple[Message, ...] = ()
    headers: dict[str, str] | UnsetType | None = UNSET


def caller_message(message: Message) -> CallerMessage:
    """Convert a message to the form that programs read."""
    return CallerMessage(message.text, message.parts, _data(message))


def task_line(
    run: Run, agent: str, skill: str | None, answers: Sequence[CallerMessage], history: Sequence[Message]
) -> bytes:
    """Encode the first line that a program reads for `run`."""
    message = run.message
    return _line(
        TaskDocument(
            task_id=run.head.id,
            context_id=run.head.context_id,
            agent=agent,
            skill=skill,
            text=message.text,
            data=_data(message),
            message=message,
            metadata=run.head.metadata or {},
            principal=run.principal.id,
            answers=tuple(answers),
            history=tuple(history),
            headers=_headers(run),
        )
    )


def answer_line(run: Run, answer: CallerMessage) -> bytes:
    """Encode the line that answers a question."""
    return _line(CallerAnswer(answer.text, answer.parts, answer.data, _headers(run)))


def _headers(run: Run) -> dict[str, str] | UnsetType | None:
    if not run.sink.gives_headers:
        return UNSET
    return None if run.headers is None else dict(run.headers)


def _line(value: Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _data(message: Message) -> Any:
    return next((part.data for part in message.parts if part.data is not UNSET), UNSET)


# -- from the program --------------------------------------------------------------------------------------------------


class Piece(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A Part (A2A 1.0 §4.1.6) that a program wrote: exactly one of `text`, `raw`, `url` and `data`."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] | None = None

    def part(self) -> Part:
        """Convert to the Part of the model."""
        return Part(**asdict(self))


class Given(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An artifact or, with `append`, an addition to the one with that `id` or `name`."""

    parts: Annotated[tuple[Piece, ...], Meta(min_length=1)]
    id: Annotated[str, Meta(min_length=1)] | None = None
    name: str | None = None
    description: str | None = None
    append: bool = False
    last: bool | None = None


class ProgramTokens(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens used since the last report; `total` defaults to the sum. `model` names the one that used them.

    `cached` are those of `input` that a cache had.
    """

    input: _Count = 0
    output: _Count = 0
    total: _Count | None = None
    model: str = ""
    cached: _Count = 0


class SaysText(Struct, frozen=True):
    """`{"text": "…"}`: more of the result, without a newline."""

    text: str


class SaysData(Struct, frozen=True):
    """`{"data": …}`: a data part of the result."""

    data: Any


class SaysFile(Struct, frozen=True):
    """`{"file": {"raw": "<base64>", "filename": "a.png", "mediaType": "image/png"}}`: a file of the result."""

    file: Piece


class GivesArtifact(Struct, frozen=True):
    """`{"artifact": {"name": "plan", "parts": [{"text": "…"}]}}`: an artifact beside the result."""

    artifact: Given


class Progresses(Struct, frozen=True):
    """`{"progress": [1, 3], "text": "…"}`: step 1 of 3 has been reached, with a text that describes it."""

    progress: tuple[_Count, _Count]
    text: str = ""


class Reports(Struct, frozen=True):
    """`{"status": …}`: what is going on: text, or any other JSON as data."""

    status: Any


class Titles(Struct, frozen=True):
    """`{"task_title": "Order 12"}`: what operators see the task called. A plain `title` is often a result itself."""

    task_title: str


class Asks(Struct, frozen=True):
    """`{"ask": …}`: a question to the caller: text, or any other JSON as data."""

    ask: Any


class AsksAuth(Struct, frozen=True):
    """`{"auth": …}`: a request that the caller authenticate."""

    auth: Any


class Uses(Struct, frozen=True):
    """`{"usage": {"input": 10, "output": 20}}`: tokens used."""

    usage: ProgramTokens


class CallsTool(Struct, frozen=True):
    """`{"tool": {"id": "1", "name": "search", "arguments": {…}}}`: a tool is called; with `done`, its result."""

    tool: ToolReport


class Rejects(Struct, frozen=True):
    """`{"reject": "why"}`: the task will not be done."""

    reject: str


class Fails(Struct, frozen=True):
    """`{"fail": "why"}`: the task cannot be done."""

    fail: str


Statement = (
    SaysText
    | SaysData
    | SaysFile
    | GivesArtifact
    | Progresses
    | Reports
    | Titles
    | Asks
    | AsksAuth
    | Uses
    | CallsTool
    | Rejects
    | Fails
)

MEANINGS: dict[frozenset[str], Any] = {
    frozenset(("text",)): SaysText,
    frozenset(("data",)): SaysData,
    frozenset(("file",)): SaysFile,
    frozenset(("artifact",)): GivesArtifact,
    frozenset(("progress",)): Progresses,
    frozenset(("progress", "text")): Progresses,
    frozenset(("status",)): Reports,
    frozenset(("task_title",)): Titles,
    frozenset(("ask",)): Asks,
    frozenset(("auth",)): AsksAuth,
    frozenset(("usage",)): Uses,
    frozenset(("tool",)): CallsTool,
    frozenset(("reject",)): Rejects,
    frozenset(("fail",)): Fails,
}
"""The meaning of a line, by its keys."""


class UnreadableLine(ValueError):
    """A program wrote something without a meaning. The text says what is allowed, and is for the log."""


def parse_line(line: bytes) -> Statement | None:
    """Parse a line; None if it is not JSON, no object, or has other keys. Raises UnreadableLine for wrong values."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict) or (meaning := MEANINGS.get(frozenset(value))) is None:
        return None
    try:
        json_bounds.check(line)  # callers accept no JSON that is nested deeper
        meant: Statement = msgspec.convert(value, meaning)
    except (A2AError, msgspec.ValidationError) as error:
        raise UnreadableLine(f"{', '.join(value)}: {error}") from error
    return meant


Mode = Literal["auto", "lines", "text"]


class StatementParser:
    """Parses what a program writes in `mode`.

    `auto`: a line that begins with `{` and is a JSON object with the keys of a statement is that statement; everything
    else is text. `lines`: every line is a statement, or empty. `text`: everything is text.
    """

    def __init__(self, mode: Mode, max_line_bytes: int) -> None:
        self._mode = mode
        self._max_line_bytes = max_line_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text: list[bytes] = []
        self._line = bytearray()
        self._begins = True
        self._holds = False
        self._number = 1

    def feed(self, piece: bytes) -> Iterator[Statement]:
        """Parse the next piece. The caller must exhaust the iterator. Neighbouring text is joined.

        Raises UnreadableLine, after what came before the fault.
        """
        at = 0
        while at < len(piece):
            end = (piece.find(b"\n", at) + 1) if self._mode != "text" else 0
            bit = piece[at : end or len(piece)]
            at += len(bit)
            if self._begins:
                self._holds = self._mode == "lines" or (self._mode == "auto" and bit[:1] == b"{")
            self._begins = end > 0
            if not self._holds:
                self._text.append(bit)
            else:
                self._line += bit
                if len(self._line) > self._max_line_bytes:
                    yield from self._flush()
                    raise UnreadableLine(f"line {self._number} is longer than max_line_bytes ({self._max_line_bytes})")
                if self._begins:
                    yield from self._decide()
            self._number += self._begins
        yield from self._flush()

    def end(self) -> Iterator[Statement]:
        """Parse what is left at the end: the last line may lack its newline. Raises UnreadableLine."""
        if self._line:
            yield from self._decide()
        yield from self._flush(final=True)

    def _decide(self) -> Iterator[Statement]:
        """Parse a whole line. The text before it comes first, unless the line is text itself."""
        line = bytes(self._line)
        self._line.clear()
        try:
            says = parse_line(line)
        except UnreadableLine as error:
            yield from self._flush()
            raise UnreadableLine(f"line {self._number}: {error}") from error
        if isinstance(says, SaysText):
            self._text.append(says.text.encode(errors="replace"))
        elif says is not None:
            yield from self._flush()
            yield says
        elif self._mode == "auto":
            self._text.append(line)
        elif line.strip():
            yield from self._flush()
            raise UnreadableLine(f'line {self._number} is not a JSON object that says something: {{"text": "…"}} does')

    def _flush(self, *, final: bool = False) -> Iterator[Statement]:
        text = self._decoder.decode(b"".join(self._text), final)
        self._text.clear()
        if text:
            yield SaysText(text)
