"""Converts what an agent yields, returns or sends into Parts, and emits it as the artifacts of its run.

Invariant: the result can be written as JSON and read back unchanged, and shares nothing that the agent can still
change. The same code run again uses the same ids, so a resumed run replaces what the earlier one left.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from sys import maxsize
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.engine.api import Run
from dragoman.engine.bounds import (
    DEPTH_MAX,
    INTEGER_MAX,
    Bounds,
    flag,
    json_form,
    name_or_none,
    sequence,
    whole_characters,
)
from dragoman.model.message import FORM_MEDIA_TYPE, Artifact, Message, Part

INLINE_BYTES = 1_000_000
"""Longer texts and longer JSON are recorded as files, so that they do not fill the log."""

JSON_MEDIA_TYPE = "application/json"
"""The media type of JSON (RFC 8259 §11)."""

BYTES_MEDIA_TYPE = "application/octet-stream"
"""The media type of bytes when no other is given (RFC 2046 §4.5.1)."""

FORM_FIELDS = ("string", "number", "integer", "boolean", "array")
"""The types of the fields of a form."""

READABLE_DEPTH = DEPTH_MAX - 8
"""How deep a value is kept as it is. It goes into metadata, below a few members of ours."""

TOO_DEEP = "(nested too deeply to be shown)"
"""The text in place of what is nested deeper than that."""

PARTS_ALONE = {Part}
"""The types of the items of most tuples that agents return: a caller's own parts."""

_FORM = Bounds(max_text=maxsize)
"""The checks of the form of content. Its run checks how long the texts are, because it knows the setting."""


def parts_of(content: object, *, media_type: str | None = None, filename: str | None = None) -> tuple[Part, ...]:
    """The parts that `content` stands for.

    Text becomes a text part; bytes, or `(bytes, "image/png")`, a file part. A Part stands for itself, a Message for its
    parts. A list that contains a Part or bytes becomes the parts of its items. Everything else that has a JSON form
    (dict, list, number, None, dataclass, msgspec struct, Pydantic model) becomes one data part. `media_type` and
    `filename` apply to parts that have none.

    Raises TypeError for anything else, and ValueError for a Part that does not hold exactly one thing.
    """
    if type(content) is tuple and set(map(type, content)) == PARTS_ALONE and media_type is filename is None:
        return tuple([_sound(part, "part") for part in content])
    match content:
        case str():
            plain = type(content) is str and content.isascii()
            parts: tuple[Part, ...] = (Part(text=content if plain else whole_characters(content)),)
        case Part():
            parts = (_sound(content, "part"),)
        case Message():
            parts = _sound_parts(content.parts, "message.parts")
        case bytes() | bytearray() | memoryview():
            parts = (Part(raw=bytes(content), media_type=media_type or BYTES_MEDIA_TYPE),)
        case (bytes() | bytearray() | memoryview() as raw, str() as kind):
            parts = (Part(raw=bytes(raw), media_type=name_or_none("media_type", kind)),)
        case list() | tuple() if any(_is_piece(item) for item in content):
            parts = tuple(part for item in content for part in parts_of(item))
        case Artifact():
            raise TypeError("an Artifact cannot be a part of something else: yield it, or give it to ctx.artifact()")
        case _:
            parts = (Part(data=json_of(content, "content")),)
    if media_type is None and filename is None:
        return parts
    return tuple(_label(part, media_type, filename) for part in parts)


def form(schema: Mapping[str, Any], *, name: str | None = None) -> Part:
    """A part of a question that asks for fields: `await ctx.ask(["Who are you?", form(schema)])`.

    `schema` is a JSON Schema of type object whose properties are plain: text, numbers, yes or no, choices. Each form of
    a question has the text before it as its message. The answer's `data` is what was filled in; with several forms,
    what was filled into each, by its `name`. Where there are no forms the caller reads the schema, and may answer in
    words.

    Raises TypeError or ValueError if it is no such schema.
    """
    fields = json_of(schema, "schema")
    properties = fields.get("properties") if isinstance(fields, dict) else None
    if not isinstance(properties, dict) or fields.get("type") != "object":
        raise ValueError('schema must be of type object: {"type": "object", "properties": {…}}')
    for field, described in properties.items():
        if not isinstance(described, dict) or described.get("type") not in FORM_FIELDS or "." in field:
            kinds = ", ".join(FORM_FIELDS)
            raise ValueError(f"schema: properties.{field} must be a schema of type {kinds}, without a dot in its name")
    return Part(data=fields, media_type=FORM_MEDIA_TYPE, filename=name)


def sound_artifact(artifact: Artifact) -> Artifact:
    """An agent's own Artifact, validated and detached from what the agent can still change.

    Raises TypeError or ValueError if it cannot be sent.
    """
    return _FORM.artifact(replace(artifact, parts=_with_whole_characters(artifact.parts, "artifact.parts")))


def json_of(value: object, argument: str = "data") -> Any:
    """`value` as a caller will read it: encoded as JSON and decoded. Tuples become lists.

    Raises TypeError or ValueError if it has no JSON form, or one that not every reader understands: NaN, an integer
    beyond ±2^53, half of a surrogate pair. The error names the `argument`.
    """
    return _FORM.json(argument, value)


def recorded_json(data: object) -> Part:
    """JSON as a part of a log: a long value is a file."""
    if isinstance(data, int | float):  # with bool
        return Part(data=data)
    encoded = msgspec.json.encode(data)
    return Part(data=data) if len(encoded) <= INLINE_BYTES else Part(raw=encoded, media_type=JSON_MEDIA_TYPE)


def json_of_part(part: Part) -> Any:
    """The JSON that `recorded_json` made a part of."""
    return part.data if part.data is not UNSET else msgspec.json.decode(part.raw or b"null")


def readable_json(value: object) -> Any:
    """As `json_of`, for what a model, a tool or a framework says of a call: nobody can be asked to say it otherwise.

    An integer beyond ±2^53 becomes text, NaN and infinity become null, and a text takes the place of what is nested too
    deeply. Raises TypeError if the value has no JSON form.
    """
    try:
        return json_of(value)
    except ValueError:
        pass
    try:
        return _readable(msgspec.to_builtins(value, str_keys=True, enc_hook=json_form), 1)
    except RecursionError:
        return TOO_DEEP


def _readable(value: Any, depth: int) -> Any:
    match value:
        case str():
            return whole_characters(value)
        case int() if not -INTEGER_MAX <= value <= INTEGER_MAX:
            return str(value)
        case float() if not isfinite(value):
            return None
        case dict() | list() | tuple() if depth > READABLE_DEPTH:
            return TOO_DEEP
        case dict():
            return {whole_characters(name): _readable(each, depth + 1) for name, each in value.items()}
        case list() | tuple():
            return [_readable(each, depth + 1) for each in value]
        case _:
            return value


class Artifacts:
    """Emits what an agent yields, returns, and passes to `ctx.artifact`.

    Everything that is yielded goes into one artifact, chunk by chunk. The end of the task closes it: to set a flag on
    the last chunk, every chunk would have to be held back until the next one arrives.
    """

    __slots__ = ("_flow", "_flows", "_names", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._flow: str | None = None
        self._flows = 0
        self._names: dict[str, str | None] = {}

    async def add(self, content: object, *, last: bool = False) -> None:
        """Add to the artifact that the run is writing. An Artifact stands for itself; None and "" add nothing.

        `last` closes the artifact: the agent returned the content instead of yielding it.
        """
        if content is None or (isinstance(content, str) and not content):
            return
        if isinstance(content, Artifact):
            await self._emit(sound_artifact(content), append=False, last=True)
            return
        parts = parts_of(content)
        if not parts:
            return
        append = self._flow is not None
        if self._flow is None:
            self._flows += 1
            self._flow = self._fresh("result", self._flows)
            self._names[self._flow] = None
        waits = self._run.emit(Artifact(artifact_id=self._flow, parts=parts), append=append, last_chunk=last)
        if waits is not None:
            await waits

    def begin_new(self) -> None:
        """Start a new artifact for what is yielded after the caller's answer: the caller is about to be asked."""
        self._flow = None

    async def emit(
        self,
        content: object,
        *,
        name: str | None,
        description: str | None,
        id: str | None,  # noqa: A002  the field's word
        append: bool,
        last: bool | None,
        media_type: str | None,
    ) -> str:
        """Emit one artifact, or a chunk of one. Returns its id.

        With `append` and no `id`, the chunk continues the newest artifact of that name (without a name: the newest).
        `last` None: a whole artifact is closed, a chunk leaves it open.
        """
        name, id = name_or_none("name", name), name_or_none("id", id)  # noqa: A001
        media_type, append = name_or_none("media_type", media_type), flag("append", append)
        if last is not None:
            last = flag("last", last)
        artifact = sound_artifact(content) if isinstance(content, Artifact) else None
        if artifact is None:
            parts = parts_of(content, media_type=media_type, filename=name)
            if id is None:
                id = (self._newest(name) if append else None) or self._fresh("artifact", len(self._names) + 1)  # noqa: A001
            artifact = Artifact(artifact_id=id, parts=parts, name=name, description=description)
        elif name is not None or description is not None or id is not None:
            artifact = replace(
                artifact,
                artifact_id=id or artifact.artifact_id,
                name=name or artifact.name,
                description=description or artifact.description,
            )
        await self._emit(artifact, append=append, last=not append if last is None else last)
        return artifact.artifact_id

    async def _emit(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        """Emit a chunk. Its sink knows whether there is something to append to: perhaps what an earlier run said."""
        self._names[artifact.artifact_id] = artifact.name
        await self._run.artifact(artifact, append=append, last_chunk=last)

    def _newest(self, name: str | None) -> str | None:
        candidates = (id_ for id_, known in reversed(self._names.items()) if name is None or known == name)
        return next(candidates, None)

    def _fresh(self, stem: str, number: int) -> str:
        fresh = stem if number == 1 else f"{stem}-{number}"
        while fresh in self._names:
            number += 1
            fresh = f"{stem}-{number}"
        return fresh


def _is_piece(item: object) -> bool:
    match item:
        case Part() | bytes() | bytearray() | memoryview() | (bytes() | bytearray() | memoryview(), str()):
            return True
        case _:
            return False


def _sound(part: Part, argument: str) -> Part:
    return _FORM.part(argument, _with_whole_text(part))


def _sound_parts(parts: tuple[Part, ...], argument: str) -> tuple[Part, ...]:
    return _FORM.parts(argument, _with_whole_characters(parts, argument))


def _with_whole_characters(parts: Iterable[Part], argument: str) -> tuple[Part, ...]:
    return tuple(_with_whole_text(part) if isinstance(part, Part) else part for part in sequence(argument, parts))


def _with_whole_text(part: Part) -> Part:
    """The part without half of a surrogate pair in its text."""
    text = whole_characters(part.text)
    return part if text is part.text else replace(part, text=text)


def _label(part: Part, media_type: str | None, filename: str | None) -> Part:
    if part.raw is None and part.url is None:
        filename = None
    return replace(part, media_type=part.media_type or media_type, filename=part.filename or filename)
