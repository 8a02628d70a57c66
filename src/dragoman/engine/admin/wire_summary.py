"""The wire in a sentence: what the clients of each dialect can learn of a task, and what they can't.

Invariant: it only reads, and it says what the frames of this task show. A log is read once, and continued from there;
of events that are alike some are encoded, so that a long log costs little more than to read it.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from msgspec.structs import replace

from dragoman.admin.logs import Concept, WireFact, WireSummary, WireView
from dragoman.dialects.system import AGENT, System
from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.engine.admin.playback import find_head
from dragoman.engine.admin.wire import (
    LONG_CHARACTERS,
    REQUEST_ID,
    add_to,
    choose_systems,
    encode_frames,
    facts_of,
    streams,
)
from dragoman.engine.admin.wire_facts import Truth, held_by, read_facts, truths_of
from dragoman.engine.folding import fold_aside
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk, Logged, StatusChanged, Submitted
from dragoman.model.lifecycle import SPELLED, Fold
from dragoman.model.message import Message
from dragoman.model.operations import SendMessage, StreamMessage
from dragoman.model.task import TaskHead

TASKS_MAX = 32
"""Most tasks whose summaries are kept."""

ALIKE_MAX = 2
"""Most events that are encoded of those that are alike."""

REQUEST_CHARACTERS = 20_000
"""Most characters of a request that is shown."""

_PLACE = re.compile(r"\[[0-9]+\]")

_CONCEPTS: tuple[Concept, ...] = get_args(Concept)

_NOUNS: dict[Concept, str] = {
    "task": "task id",
    "context": "context id",
    "state": "states",
    "time": "times",
    "progress": "progress",
    "message": "messages",
    "question": "question",
    "text": "text",
    "file": "files",
    "data": "data",
    "tokens": "tokens",
    "end": "end",
}

_ONCE: frozenset[Concept] = frozenset({"task", "context"})
"""What a client knows for ever once it has been told."""

_PLACED: dict[Concept, str] = {"progress": "progress comes", "question": "the question comes", "text": "text comes"}
"""The concepts whose place in a frame is named."""

_CHANGED: dict[Concept, str] = {
    "time": "times are cut to the second",
    "message": "of a long message the end alone comes",
    "question": "of a long question the end alone comes",
    "text": "of a long text the end alone comes",
    "tokens": "tokens come in part",
}

Finding = tuple[WireFact, str]
"""A fact without its value and the numbers in its path. With it, the state of the event if the fact is about a state,
or END if it is what the end of the task says once more of its artifacts."""

END = "end"

NOTHING = "Unknown: the events of this task have been deleted, or cannot be read."


class _Findings:
    """What the log of a task up to `seq` has brought, by dialect."""

    def __init__(self) -> None:
        self.seq = 0
        self.requests: dict[str, str] = {}
        self._alike: Counter[object] = Counter()
        self.found: dict[str, dict[Finding, None]] = {}

    def take(self, systems: Sequence[System], head: TaskHead, fold: Fold, logged: Logged) -> None:
        """Take the next event."""
        replaces = add_to(fold, logged)
        self.seq = logged.seq
        event = logged.event
        if isinstance(event, Submitted):
            self.requests = {system.name: _request(system, head, event.message) for system in systems}
        truths = truths_of(head, event)
        kind = _kind(logged, truths)
        self._alike[kind] += 1
        if not truths or self._alike[kind] > ALIKE_MAX:
            return
        for system in systems:
            frames = encode_frames(system, head, fold, logged, replaces=replaces)
            found = self.found.setdefault(system.name, {})
            for fact in facts_of(system, head, fold, logged, frames):
                found[_finding(fact, event)] = None
            if logged.terminal and fold.seq:
                for fact in read_facts(held_by(fold.record()), frames):
                    found[replace(fact, path=_PLACE.sub("[]", fact.path), value=""), END] = None


def _kind(logged: Logged, truths: Iterable[Truth]) -> object:
    event = logged.event
    long = any(isinstance(truth.value, str) and len(truth.value) > LONG_CHARACTERS for truth in truths)
    state = event.state if isinstance(event, StatusChanged) else None
    place = (event.append, event.last_chunk) if isinstance(event, ArtifactChunk) else None
    return type(event), state, place, frozenset(truth.concept for truth in truths), long


def _finding(fact: WireFact, event: object) -> Finding:
    path = _PLACE.sub("[]", fact.path)
    if fact.concept != "state":
        return replace(fact, path=path, value=""), ""
    state = event.state if isinstance(event, StatusChanged) else None
    return replace(fact, path=path), "submitted" if state is None else SPELLED[state]


class WireSummaries:
    """The summaries of the tasks that were looked at last."""

    def __init__(self, places: FoldedPlaces) -> None:
        self._places = places
        self._known: OrderedDict[tuple[str, tuple[str, ...]], _Findings] = OrderedDict()

    async def read(self, task_id: str, dialects: Sequence[str]) -> WireSummary:
        """Raises InvalidParams for an unknown dialect, TaskNotFound, or StoreError."""
        systems = choose_systems(dialects)
        head, _, _ = await find_head(self._places.store, task_id)
        key = task_id, tuple([system.name for system in systems])
        findings = self._known.pop(key, None) or _Findings()
        fold = await self._places.reach(head, findings.seq)
        while page := await self._places.store.read(task_id, findings.seq, LOG_BYTES):
            await fold_aside(len(page), self._taking(findings, systems, head, fold, page))
        self._places.keep(fold)
        self._known[key] = findings
        while len(self._known) > TASKS_MAX:
            self._known.popitem(last=False)
        views = {system.name: _view(system, findings) for system in systems}
        return WireSummary(dialects=views, seq=findings.seq)

    def _taking(
        self, findings: _Findings, systems: Sequence[System], head: TaskHead, fold: Fold, page: Sequence[Logged]
    ) -> Callable[[], None]:
        def take() -> None:
            for stored in page:
                findings.take(systems, head, fold, Logged(stored.seq, self._places.linked(stored.event)))

        return take


def _view(system: System, findings: _Findings) -> WireView:
    found = sorted(findings.found.get(system.name, ()), key=lambda finding: _CONCEPTS.index(finding[0].concept))
    return WireView(
        sentence=describe(found, streams=streams(system)),
        streams=streams(system),
        facts=tuple([fact for fact, when in found if when != END]),
        request=findings.requests.get(system.name, ""),
        answer=_answer_head(system),
    )


# -- the sentence ------------------------------------------------------------------------------------------------------


def describe(found: Sequence[Finding], *, streams: bool) -> str:
    """What a client cannot learn, what it learns otherwise, and where the rest comes: `No progress; the question comes
    as status.message.`
    """
    if not found:
        return NOTHING
    clauses = [] if streams else ["no stream, a client asks for the task again"]
    late = [fact.concept for fact, when in found if when == END and fact.learned == "same"]
    lacks = [concept for concept in _CONCEPTS if concept not in late and _outcomes(found, concept) == {"nothing"}]
    if lacks:
        clauses.append(f"no {_join([_NOUNS[concept] for concept in lacks], 'or')}")
    partly = [
        concept for concept in _CONCEPTS if concept not in _ONCE and _outcomes(found, concept) == {"nothing", "same"}
    ]
    clauses += [f"not all {_NOUNS[concept]}" for concept in partly]
    clauses += _changes(found)
    if last := [_NOUNS[concept] for concept in dict.fromkeys(late) if _outcomes(found, concept) == {"nothing"}]:
        clauses.append(f"{_join(last, 'and')} come with the end alone")
    if not clauses:
        clauses.insert(0, "everything that the task says")
    clauses += _places(found)
    sentence = "; ".join(clauses)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _outcomes(found: Iterable[Finding], concept: Concept) -> set[str]:
    """What became of a concept where it was said first."""
    return {fact.learned for fact, when in found if fact.concept == concept and when != END}


def _changes(found: Iterable[Finding]) -> list[str]:
    """What a client is told in the place of what the task says."""
    changes: dict[str, None] = {}
    for fact, state in found:
        if fact.learned != "other" or state == END:
            continue
        if fact.concept == "state":
            told = "an error" if fact.path == "error" else f"`{fact.value}`"
            changes[f"`{state}` comes as {told}"] = None
        elif fact.concept == "progress":
            changes[f"progress comes in words alone, as `{fact.path}`"] = None
        elif fact.concept in _CHANGED:
            changes[_CHANGED[fact.concept]] = None
    return list(changes)


def _places(found: Sequence[Finding]) -> list[str]:
    places = []
    for concept, words in _PLACED.items():
        told = [fact for fact, when in found if fact.concept == concept and fact.learned == "same" and when != END]
        if told:
            paths = dict.fromkeys(f"`{fact.path}`" for fact in told)
            so_far = ", each time with all before it" if any(fact.so_far for fact in told) else ""
            places.append(f"{words} as {_join([*paths], 'or')}{so_far}")
    return places


def _join(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


# -- the exchange ------------------------------------------------------------------------------------------------------


def _request(system: System, head: TaskHead, message: Message) -> str:
    """A request by which a client of the dialect begins such a task; empty if the dialect has no way to say it."""
    tongue = system.tongue
    if tongue is None or tongue.rpc is None:
        return ""
    operation = StreamMessage if tongue.streams else SendMessage
    try:
        call = tongue.rpc(operation(message=replace(message, task_id=None, context_id=None)))
    except A2AError:
        return ""
    path = (system.mount or AGENT).path.replace("{id}", head.agent)
    headers = {"Content-Type": "application/json", **tongue.headers}
    if tongue.streams:
        headers["Accept"] = "text/event-stream"
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), ""]
    method = f'{{"jsonrpc":"2.0","id":{REQUEST_ID.decode()},"method":"{call.method}","params":'
    return "\n".join([*lines, method + call.params.decode("utf-8", "replace") + "}"])[:REQUEST_CHARACTERS]


def _answer_head(system: System) -> str:
    """The status line and the headers that the dialect decides."""
    headers = (
        system.dialect.stream_headers if streams(system) else ((b"content-type", system.dialect.content_type.encode()),)
    )
    return "\n".join(["HTTP/1.1 200 OK", *(f"{name.decode()}: {value.decode()}" for name, value in headers)])
