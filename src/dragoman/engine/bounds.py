"""Bounds: what an agent may say, checked where it says it.

Invariant: a value that passed can be written to any task, and be read back in every dialect. It is plain: text is `str`
and no subclass of it, and JSON values share nothing with the agent. A check returns the value as it is to be written,
or raises TypeError or ValueError that names the argument.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from operator import index
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct

from dragoman.dialects.json_bounds import MAX_TEXT
from dragoman.model.message import Artifact, Part
from dragoman.model.task import ModelUsage, Usage

NAME_MAX = 1024
"""Most characters of names, ids, titles and media types."""

_ONLY_TEXT = {str}
"""The types of names and values that are texts alone."""

DEPTH_MAX = 64
"""Deepest nesting of a JSON value: callers accept none that is deeper (`max_depth`)."""

MAX_TOKENS_PER_REPORT = 100_000_000
"""More tokens than the longest context of a model has."""

INTEGER_MAX = 1 << 53
"""The range of integers in JSON, which every reader keeps exact (RFC 8259 §6)."""

NO_PARTS = "artifact {!r} has no parts (A2A 1.0 §4.1.9): give it at least one"

PART_BYTES = 64
"""The weight of a part, and of an event, beside its content."""

HALF_A_CHARACTER = "half of a surrogate pair is no character, and cannot be sent"

_LONG_NUMBER = re.compile(rb"[0-9]{16}")

_JSON_TYPES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, dict),
    (list, list),
)
"""The types of JSON, and how a value of a subclass becomes one of the type itself: `str()` may give a subclass."""

T = TypeVar("T")


class Bounds(Struct, frozen=True):
    """The checks. `max_text` and `max_tokens_per_report` are the settings of these names: most characters of one text,
    and most tokens of one report."""

    max_text: int = MAX_TEXT
    max_tokens_per_report: int = MAX_TOKENS_PER_REPORT

    def fault_in_usage(self, used: Usage) -> str:
        """Why a report of tokens is not counted; empty if it is."""
        most = self.max_tokens_per_report
        parts: tuple[Usage | ModelUsage, ...] = (used, *used.models)
        for part in parts:
            numbers = part.input_tokens, part.output_tokens, part.total_tokens, part.cached_tokens
            if min(numbers) >= 0 and max(numbers) <= most:
                continue
            for word, number in zip(("input", "output", "total", "cached"), numbers, strict=True):
                if not 0 <= number <= most:
                    shown = str(number) if abs(number) <= INTEGER_MAX else "beyond 2^53"
                    return f"{word} is {shown}: must be from 0 to {most} (max_tokens_per_report)"
        return ""

    def text(self, argument: str, value: object) -> str:
        """Check a text."""
        return _text(argument, value, self.max_text, "max_text")

    def parts(self, argument: str, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Check parts."""
        given = sequence(argument, parts)
        return tuple([self.part(f"{argument}[{number}]", part) for number, part in enumerate(given)])

    def part(self, argument: str, part: Part) -> Part:
        """Check a part. The fields that belong to the store are taken out of it."""
        if type(part) is not Part:
            raise TypeError(f"{argument} must be a Part, not {type_name(part)}")
        if self._is_plain(part):
            return part
        held = [name for name in ("text", "raw", "url") if getattr(part, name) is not None]
        data = part.data
        if data is not UNSET:
            held.append("data")
            data = self.json(f"{argument}.data", data)
        if len(held) != 1:
            raise ValueError(
                f"{argument}: a Part holds exactly one of text, raw, url and data; this one: "
                f"{', '.join(held) or 'nothing'}"
            )
        raw = part.raw
        if raw is not None and type(raw) is not bytes:
            if not isinstance(raw, bytes | bytearray | memoryview):
                raise TypeError(f"{argument}.raw must be bytes, not {type_name(raw)}")
            raw = bytes(raw)
        return Part(
            text=None if part.text is None else self.text(f"{argument}.text", part.text),
            raw=raw,
            url=None if part.url is None else self.text(f"{argument}.url", part.url),
            data=data,
            filename=name_or_none(f"{argument}.filename", part.filename),
            media_type=name_or_none(f"{argument}.media_type", part.media_type),
            metadata=self.metadata(f"{argument}.metadata", part.metadata),
        )

    def _is_plain(self, part: Part) -> bool:
        """Whether a part is a sound text of ASCII and nothing else, as most parts are."""
        text = part.text
        if type(text) is not str or len(text) > self.max_text or not text.isascii():
            return False
        if part.raw is not None or part.url is not None or part.data is not UNSET or part.metadata is not None:
            return False
        return part.media_type is None and part.filename is None and part.blob is None and part.file is None

    def weigh_plain(self, artifact: Artifact) -> int:
        """About how many bytes a chunk of nothing but text takes; 0 if it needs `artifact`, as every other one does.

        This is the check of almost every chunk that a model streams. It takes a third of a microsecond.
        """
        if type(artifact) is not Artifact or artifact.description is not None or artifact.metadata is not None:
            return 0
        key, title, parts = artifact.artifact_id, artifact.name, artifact.parts
        if artifact.extensions or type(key) is not str or type(parts) is not tuple or len(parts) != 1:
            return 0
        if not 0 < len(key) <= NAME_MAX or not key.isascii() or "\0" in key:
            return 0
        if title is not None and not (
            type(title) is str and len(title) <= NAME_MAX and title.isascii() and "\0" not in title
        ):
            return 0
        part = parts[0]
        if type(part) is not Part or part.raw is not None or part.url is not None or part.data is not UNSET:
            return 0
        text = part.text
        if type(text) is not str or part.filename is not None or part.media_type is not None:
            return 0
        if part.metadata is not None or part.blob is not None or part.file is not None or len(text) > self.max_text:
            return 0
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return 0
        return 2 * PART_BYTES + len(text)

    def artifact(self, artifact: Artifact) -> Artifact:
        """Check an artifact."""
        if type(artifact) is not Artifact:
            raise TypeError(f"artifact must be an Artifact, not {type_name(artifact)}")
        artifact_id = name("artifact_id", artifact.artifact_id)
        if not artifact_id:
            raise ValueError("an Artifact needs an artifact_id that is unique in the task (A2A 1.0 §4.1.9)")
        parts = self.parts("artifact.parts", artifact.parts)
        if not parts:
            raise ValueError(NO_PARTS.format(artifact_id))
        description = artifact.description
        return Artifact(
            artifact_id=artifact_id,
            parts=parts,
            name=name_or_none("artifact.name", artifact.name),
            description=None if description is None else self.text("artifact.description", description),
            metadata=self.metadata("artifact.metadata", artifact.metadata),
            extensions=tuple(
                [name("artifact.extensions", uri) for uri in sequence("artifact.extensions", artifact.extensions)]
            ),
        )

    def metadata(self, argument: str, metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Check metadata: None, or an object of JSON."""
        if metadata is None:
            return None
        plain = self.json(argument, metadata)
        if not isinstance(plain, dict):
            raise TypeError(f"{argument} must be a dict, not {type_name(metadata)}")
        return plain

    def json(self, argument: str, value: object) -> Any:
        """Return a value as a caller will read it: encoded as JSON and decoded."""
        if value is None or value is True or value is False:
            return value
        try:
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=json_form)  # once: a value may be made anew
            encoded = msgspec.json.encode(plain)
            suspicious = (
                len(encoded) > self.max_text
                or b"null" in encoded
                or encoded.count(b"[") + encoded.count(b"{") > DEPTH_MAX
                or _LONG_NUMBER.search(encoded) is not None
            )
            if suspicious:
                self._walk(argument, plain)
            return msgspec.json.decode(encoded)
        except UnicodeEncodeError:
            raise ValueError(f"{argument}: {HALF_A_CHARACTER}") from None
        except RecursionError:
            raise ValueError(f"{argument} is nested deeper than {DEPTH_MAX} levels, or contains itself") from None
        except TypeError as error:
            raise TypeError(f"{argument}: {error}") from error

    def _walk(self, argument: str, value: object) -> None:
        """Look at each number and text in a JSON value, and at how deep it is nested."""
        level: list[object] = [value]
        depth = 0
        while level:
            inner: list[object] = []
            for each in level:
                if isinstance(each, str):
                    if len(each) > self.max_text:
                        raise ValueError(
                            f"{argument}: a text in it has more than {self.max_text} characters (max_text)"
                        )
                elif isinstance(each, dict):
                    inner += each
                    inner += each.values()
                elif isinstance(each, list | tuple):
                    inner += each
                elif isinstance(each, int):
                    _check_integer(argument, each)
                elif isinstance(each, float) and not isfinite(each):
                    raise ValueError(f"{argument}: {each} is no number of JSON: give None or a text in its place")
            depth += any(isinstance(each, dict | list | tuple) for each in level)
            if depth > DEPTH_MAX:
                raise ValueError(f"{argument} is nested deeper than {DEPTH_MAX} levels")
            level = inner

    def note(self, note: Mapping[str, str]) -> dict[str, str]:
        """Check notes by their names."""
        if {*map(type, note), *map(type, note.values())} == _ONLY_TEXT:
            names, texts = "".join(note), "".join(note.values())
            short = len(names) <= NAME_MAX and len(texts) <= self.max_text
            if short and names.isascii() and texts.isascii() and "\0" not in names:
                return dict(note)  # nearly all notes, and a fifth of the time
        return {name("note", key): self.text(f"note {key}", text) for key, text in note.items()}


def name(argument: str, value: object) -> str:
    """Check a name, an id, a title or a media type. None has a NUL, as no id of a caller has."""
    text = _text(argument, value, NAME_MAX)
    if "\0" in text:
        raise ValueError(f"{argument} must not contain the character NUL")
    return text


def name_or_none(argument: str, value: object) -> str | None:
    """Check a name that may be absent."""
    return None if value is None else name(argument, value)


def flag(argument: str, value: object) -> bool:
    """Check a flag."""
    if value is True or value is False:
        return value
    raise TypeError(f"{argument} must be True or False, not {shown(value)}")


def integer(argument: str, value: object) -> int:
    """Check a whole number."""
    try:
        whole = index(value)  # type: ignore[arg-type]  # it raises for whatever is none
    except TypeError:
        raise TypeError(f"{argument} must be a whole number, not {type_name(value)}") from None
    _check_integer(argument, whole)
    return whole


def steps(progress: tuple[int, int] | None) -> tuple[int, int] | None:
    """Check the steps of a progress."""
    if progress is None:
        return None
    current, total = sequence("progress", progress)
    return integer("current", current), integer("total", total)


def usage(used: Usage) -> Usage:
    """Check a report of tokens."""
    if type(used) is not Usage:
        raise TypeError(f"usage must be a Usage, not {type_name(used)}")
    models = [
        ModelUsage(
            name("model", whole_characters(each.model)),
            tokens("input", each.input_tokens),
            tokens("output", each.output_tokens),
            tokens("total", each.total_tokens),
            tokens("cached", each.cached_tokens),
            each.upstream,
            tokens("uncertain", each.uncertain),
        )
        for each in used.models
    ]
    return Usage(
        tokens("input", used.input_tokens),
        tokens("output", used.output_tokens),
        tokens("total", used.total_tokens),
        tuple(models),
        tokens("cached", used.cached_tokens),
    )


def whole_characters(text: T) -> T | str:
    """`text` as a plain str, with `?` in place of half a surrogate pair, which a model may stream. Else the value."""
    if not isinstance(text, str):
        return text
    plain = str.__str__(text)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            return plain.encode(errors="replace").decode()
    return plain


def _text(argument: str, value: object, most: int, setting: str = "") -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be text, not {type_name(value)}")
    text = value if type(value) is str else str.__str__(value)
    if len(text) > most:
        said = f" ({setting})" if setting else ""
        raise ValueError(f"{argument} has {len(text)} characters: at most {most} are allowed{said}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{argument}: {HALF_A_CHARACTER}") from None
    return text


def sequence(argument: str, values: Iterable[T]) -> tuple[T, ...]:
    """Check that there is a tuple or a list."""
    if not isinstance(values, tuple | list):
        raise TypeError(f"{argument} must be a tuple or a list, not {type_name(values)}")
    return tuple(values)


def tokens(argument: str, value: object) -> int:
    """Check a number of tokens, which may be of any size: what is out of range is cut when it is added up."""
    try:
        return index(value)  # type: ignore[arg-type]  # it raises for whatever is none
    except TypeError:
        raise TypeError(f"{argument} must be a whole number, not {type_name(value)}") from None


def _check_integer(argument: str, value: int) -> None:
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise ValueError(f"{argument}: integers must be within ±2^53, so that every reader keeps them: give it as text")


def type_name(value: object) -> str:
    """The type of a value, for an error that names it."""
    return type(value).__name__


def shown(value: object) -> str:
    """A value for an error that quotes it: its repr, at most 100 characters; its type if that cannot be made."""
    try:
        return f"{value!r:.100}"
    except Exception:  # noqa: BLE001  a `__repr__` of an agent, or an integer of too many digits
        return f"a value of type {type_name(value)}"


def json_form(value: object) -> Any:
    """msgspec's hook for types that it does not know. Subclasses of the JSON types land here, too."""
    for kind, plain in _JSON_TYPES:
        if isinstance(value, kind):
            return plain(value)
    if callable(dump := getattr(value, "model_dump", None)):  # Pydantic 2
        return dump(mode="json")
    raise TypeError(
        f"{type(value).__name__} has no JSON form: give text, a dict, (bytes, 'image/png'), a Part or an Artifact"
    )
