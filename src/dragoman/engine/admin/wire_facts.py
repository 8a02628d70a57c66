"""Facts of the wire: what a client of a dialect learns of an event, and where in the frames it stands.

Invariant: pure. A fact is looked for in the bytes that are sent, by what the event says; no table knows where a dialect
writes it.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.admin.logs import Concept, Learned, WireFact
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, Record, TaskHead, TaskState, Usage

VALUE_CHARACTERS = 120
"""Most characters of a value that are shown."""

_TEXT_KEYS = frozenset({"text", "message", "output", "content", "details"})
"""The members that hold what an agent says."""

_USER = frozenset({"user", "ROLE_USER"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_FRACTION = re.compile(r"(?:\.([0-9]+))?(?:Z|\+00:00)?$", re.ASCII)

Path = tuple[str | int, ...]
Node = tuple[Path, Any]


class Truth(Struct, frozen=True):
    """Something that an event says. `value` is a text, a state, a number of steps, …, as the model has it."""

    concept: Concept
    value: Any


# -- what an event says ------------------------------------------------------------------------------------------------


def truths_of(head: TaskHead, event: Event, whole: Record | None = None) -> tuple[Truth, ...]:
    """What an event says that callers may be told. None of the agent's own records is.

    `whole` is the task after the event, for callers who ask for it instead of following a stream: what it holds by then
    is said with the event.
    """
    named = (Truth("task", head.id), Truth("context", head.context_id))
    match event:
        case Submitted():
            return (*named, Truth("state", TaskState.SUBMITTED), Truth("time", event.timestamp))
        case ArtifactChunk():
            return (*named, *_content(event.artifact.parts))
        case StatusChanged():
            return (*named, *_status(event), *(() if whole is None else held_by(whole)))
        case _:
            return ()


def _status(event: StatusChanged) -> Iterator[Truth]:
    yield Truth("state", event.state)
    yield Truth("time", event.timestamp)
    if event.progress is not None:
        yield Truth("progress", event.progress)
    said = () if event.message is None else event.message.parts
    words: Concept = "question" if event.state in INTERRUPTED else "message"
    repeated = event.progress is not None and event.message is not None and event.message.text == event.progress.message
    yield from _content(() if repeated else said, words)
    if event.usage is not None:
        yield Truth("tokens", event.usage)
    if event.state in TERMINAL:
        yield Truth("end", event.state)


def held_by(record: Record) -> tuple[Truth, ...]:
    """What the artifacts of a task say."""
    return tuple([truth for artifact in record.artifacts for truth in _content(artifact.parts)])


def _content(parts: Sequence[Part], words: Concept = "text") -> Iterator[Truth]:
    for part in parts:
        if part.text:
            yield Truth(words, part.text)
        elif part.raw is not None or part.url is not None:
            yield Truth("file", part.url if part.raw is None else b64encode(part.raw).decode())
        elif part.data is not UNSET:
            yield Truth("data", part.data)


# -- where it stands ---------------------------------------------------------------------------------------------------


def read_facts(truths: Sequence[Truth], frames: Iterable[str | bytes]) -> tuple[WireFact, ...]:
    """Find what an event says in its frames, each of them JSON: a fact for each of `truths`, in their order."""
    nodes = [list(_walk(_unwrap(msgspec.json.decode(frame)))) for frame in frames]
    return tuple([_best(truth, nodes) for truth in truths])


def _best(truth: Truth, frames: Sequence[Sequence[Node]]) -> WireFact:
    found = [fact for nodes in frames if (fact := _find(truth, nodes)) is not None]
    exact = [fact for fact in found if fact.learned == "same"]
    return min(exact, key=lambda fact: fact.so_far) if exact else next(iter(found), WireFact(concept=truth.concept))


def _unwrap(frame: Any) -> Any:
    """The content of a JSON-RPC answer: its result, or its error under that name."""
    if isinstance(frame, dict) and "jsonrpc" in frame:
        return {"error": frame["error"]} if "error" in frame else frame.get("result")
    return frame


def _walk(frame: Any) -> Iterator[Node]:
    """Every value in a frame with its path, outer ones first; what the caller said is left out."""
    waiting: list[Node] = [((), frame)]
    while waiting:
        path, value = waiting.pop()
        yield path, value
        if isinstance(value, dict) and value.get("role") not in _USER:
            waiting += [((*path, name), each) for name, each in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*path, place), each) for place, each in reversed([*enumerate(value)])]


def _find(truth: Truth, nodes: Sequence[Node]) -> WireFact | None:
    match truth.concept:
        case "task" | "context" | "file" | "data":
            return _same(truth, nodes)
        case "state":
            return _state(truth.value, nodes)
        case "time":
            return _time(truth.value, nodes)
        case "progress":
            return _progress(truth.value, nodes)
        case "message" | "question" | "text":
            return _text(truth, nodes)
        case "tokens":
            return _tokens(truth.value, nodes)
        case "end":
            return _end(truth.value, nodes)


def _same(truth: Truth, nodes: Sequence[Node]) -> WireFact | None:
    wanted = truth.value
    return next(
        (
            _fact(truth.concept, path, value)
            for path, value in nodes
            if path and type(value) is type(wanted) and value == wanted
        ),
        None,
    )


def _state(state: TaskState, nodes: Sequence[Node]) -> WireFact | None:
    spelled = SPELLED[state]
    for path, value in nodes:
        if path and path[-1] == "state" and isinstance(value, str):
            word = value.removeprefix("TASK_STATE_").lower().replace("_", "-")
            return _fact("state", path, value, "same" if word == spelled else "other")
        if path == ("error",):
            return _fact("state", path, value, "same" if state is TaskState.FAILED else "other")
    return None


def _time(at: str, nodes: Sequence[Node]) -> WireFact | None:
    wanted, near = _instant(at), None
    for path, value in nodes:
        if isinstance(value, str) and value[:19] == at[:19] and _FRACTION.search(value, 19):
            if _instant(value) == wanted:
                return _fact("time", path, value)
            near = near or _fact("time", path, value, "other")  # another time of that second may stand before it
    return near


def _instant(at: str) -> str:
    fraction = _FRACTION.search(at, 19)
    return at[:19] + ((fraction and fraction[1]) or "").rstrip("0")


def _progress(progress: Progress, nodes: Sequence[Node]) -> WireFact | None:
    for path, value in nodes:
        if isinstance(value, dict) and (value.get("current"), value.get("total")) == (progress.current, progress.total):
            return _fact("progress", path, value)
    words = progress.message or f"Step {progress.current} of {progress.total}"
    said = _text(Truth("progress", words), nodes)
    return None if said is None else replace(said, learned="other")


def _text(truth: Truth, nodes: Sequence[Node]) -> WireFact | None:
    """A text as it is, as the end of the text so far, or at least its own end."""
    text: str = truth.value
    said = [(path, value) for path, value in nodes if path and path[-1] in _TEXT_KEYS and isinstance(value, str)]
    said.sort(key=lambda node: "history" in node[0])  # of several places that is the last one
    for path, value in said:
        if value == text:
            return _fact(truth.concept, path, value)
    for path, value in said:
        if text in value:
            return _fact(truth.concept, path, value, so_far=True)
    for path, value in said:
        if len(value) > VALUE_CHARACTERS and text.endswith(value):
            return _fact(truth.concept, path, value, "other")
    return None


def _tokens(usage: Usage, nodes: Sequence[Node]) -> WireFact | None:
    for path, value in nodes:
        if isinstance(value, dict) and _holds(value, "input", usage.input_tokens):
            exact = _holds(value, "output", usage.output_tokens)
            return _fact("tokens", path, value, "same" if exact else "other")
    return None


def _holds(members: dict[str, Any], word: str, number: int) -> bool:
    return any(type(value) is int and value == number and word in name.lower() for name, value in members.items())


def _end(state: TaskState, nodes: Sequence[Node]) -> WireFact | None:
    """The end of the task: a member that says so, or else the state."""
    for path, value in nodes:
        if value is True and path and path[-1] == "final":
            return _fact("end", path, value)
    stated = _state(state, nodes)
    return None if stated is None else replace(stated, concept="end", learned="same")


def _fact(concept: Concept, path: Path, value: Any, learned: Learned = "same", *, so_far: bool = False) -> WireFact:
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(shown) > VALUE_CHARACTERS:
        shown = f"…{shown[-VALUE_CHARACTERS:]}" if so_far else f"{shown[:VALUE_CHARACTERS]}…"
    return WireFact(concept=concept, learned=learned, path=spell_path(path), value=shown, so_far=so_far)


def spell_path(path: Path) -> str:
    """A path as people write it: `status.message.parts[0].text`, `metadata["urn:x"].current`."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif _NAME.fullmatch(step):
            written += f".{step}" if written else step
        else:
            written += f"[{msgspec.json.encode(step).decode()}]"
    return written
