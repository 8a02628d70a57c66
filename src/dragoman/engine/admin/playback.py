"""Playback: the events of a task as operators read them, with all that they hold or only its beginning.

Invariant: it only reads.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.admin.logs import LogEvent, Recording, TimelineEntry, ToolPhase
from dragoman.admin.tasks import state_word
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.ids import timestamp
from dragoman.model.message import Message, Part
from dragoman.model.parts import TEXT_CHARACTERS, beginning
from dragoman.model.task import TERMINAL, TaskHead, TaskState
from dragoman.model.title import TITLE_NOTE
from dragoman.store.api import Store, Stored

READ_BYTES = 32 << 10
"""About how many stored bytes the first read for a page returns: a page of small events needs no more."""

FEW = 16
"""After a read that returns fewer events than this, the next one asks for four times as many bytes."""

CHARACTERS_MAX = 200_000
"""Most characters of one text; longer ones are cut to their end, those of messages to their beginning."""

BEGINNING_CHARACTERS = 4_000
"""How many characters of the beginning are kept beside the end."""


async def read_content(places: FoldedPlaces, task_id: str, after: int, limit: int) -> Recording:
    """At most `limit` events after seq `after`. Raises TaskNotFound, or StoreError."""
    _, seq, state = await find_head(places.store, task_id)
    logged = await read_events(places.store, task_id, after, limit)
    events = tuple([_cut(log_event(Logged(each.seq, places.linked(each.event)))) for each in logged])
    return Recording(events=events, **page_facts(logged, after, seq, state))


async def read_events(store: Store, task_id: str, after: int, limit: int) -> list[Logged]:
    """As `read_content` returns them. Small events are read in small pieces, of which none is read in vain.

    Large ones are read in few pieces: for each, the store may decode all that one write of a run held.
    """
    found: list[Logged] = []
    size, wanted = 0, READ_BYTES
    while len(found) < limit and size < LOG_BYTES:
        page = await store.read(task_id, found[-1].seq if found else after, min(wanted, LOG_BYTES - size))
        if len(page) < FEW:
            wanted *= 4
        if not page:
            break
        found += page[: limit - len(found)]
        size += sum([each.size for each in page])
    return found


async def find_head(store: Store, task_id: str) -> tuple[TaskHead, int, TaskState]:
    """The head of a task, the seq of its last event, and its state. Raises TaskNotFound, or StoreError."""
    known = await store.head(task_id)
    if known is None:
        raise TaskNotFound(task_id)
    return known


async def find_snapshot(store: Store, task_id: str) -> Stored:
    """A task with its last snapshot. Raises TaskNotFound, or StoreError."""
    stored = await store.load_snapshot(task_id)
    if stored is None:
        raise TaskNotFound(task_id)
    return stored


def page_facts(logged: Sequence[Logged], after: int, seq: int, state: TaskState) -> dict[str, Any]:
    """The fields of a page of a log beside its events: see `Timeline`."""
    last = logged[-1].seq if logged else after
    return {
        "seq": seq,
        "ended": state in TERMINAL,
        "pruned": (logged[0].seq > after + 1) if logged else after < seq,
        "next_after": last if logged and last < seq else None,
    }


def log_event(logged: Logged) -> LogEvent:
    """An event with all that it holds."""
    seq, event = logged.seq, logged.event
    match event:
        case Submitted(message=message, timestamp=at):
            return LogEvent(seq=seq, at=at, kind="submitted", state="submitted", message=message)
        case MessageReceived(message=message, timestamp=at):
            return LogEvent(seq=seq, at=at, kind="message", message=message)
        case StatusChanged():
            return LogEvent(
                seq=seq,
                at=event.timestamp,
                kind="status",
                state=state_word(event.state),
                message=event.message,
                progress=event.progress,
                usage=event.usage,
                duration_ms=event.duration_ms,
                wakes=_wakes(event),
                wakes_on_message=event.placed is not None and event.placed.wakes_on_message,
                tool=_tool(event),
            )
        case ArtifactChunk(artifact=artifact):
            return LogEvent(
                seq=seq,
                at=None,
                kind="artifact",
                artifact=artifact,
                append=event.append,
                last_chunk=event.last_chunk,
            )
        case Delegated():
            return LogEvent(
                seq=seq,
                at=event.timestamp,
                kind="delegated",
                state=state_word(event.state),
                agent=event.agent,
                task=event.task_id or None,
                message=event.message,
                usage=event.usage,
            )
        case Noted(note) if TITLE_NOTE in note:
            return LogEvent(seq=seq, at=None, kind="titled", reason=note[TITLE_NOTE])
        case Noted():
            return LogEvent(seq=seq, at=None, kind="noted")
        case StepBegun():
            return LogEvent(seq=seq, at=event.timestamp, kind="step-begun", step=event.name)
        case Stepped():
            failure = event.failure
            return LogEvent(
                seq=seq,
                at=event.timestamp,
                kind="step",
                step=event.name,
                key=event.key,
                attempts=event.attempts,
                began=event.began,
                parts=event.result,
                failure=None if failure is None else f"{failure.type}: {failure.text}",
                usage=event.usage,
            )
        case Intervened():
            return LogEvent(
                seq=seq,
                at=event.timestamp,
                kind="operator",
                operator=event.operator,
                action=event.action,
                reason=event.reason,
            )


def _wakes(event: StatusChanged) -> str | None:
    """When the task wakes that goes to sleep with a status."""
    wakes_ms = None if event.placed is None else event.placed.wakes_ms
    return None if wakes_ms is None else timestamp(wakes_ms)


def _tool(event: StatusChanged) -> ToolPhase | None:
    """The call of a tool that a status reports; None if it reports none."""
    call = (event.metadata or {}).get(TOOL_CALL)
    if not isinstance(call, dict):
        return None
    try:
        return msgspec.convert({**call, "id": call.get("toolCallId")}, ToolPhase)
    except msgspec.ValidationError:  # an agent may write what it likes
        return None


def timeline_entry(logged: Logged) -> TimelineEntry:
    """An event with the beginning of what it says."""
    event = log_event(logged)
    said = event.artifact or event.message
    return TimelineEntry(
        seq=event.seq,
        at=event.at,
        kind=event.kind,
        state=event.state,
        text=(event.failure or event.reason)[:TEXT_CHARACTERS] if said is None else beginning(said.parts),
        artifact=None if event.artifact is None else event.artifact.artifact_id,
        agent=event.agent,
        task=event.task,
        progress=event.progress,
        operator=event.operator,
        action=event.action,
        step=event.step,
        attempts=event.attempts,
        began=event.began,
        failed=event.failure is not None,
        wakes=event.wakes,
        wakes_on_message=event.wakes_on_message,
        key=event.key or None,
    )


def _cut(event: LogEvent) -> LogEvent:
    """The event with the ends of very long texts of callers and artifacts."""
    if event.artifact is not None:
        parts, dropped, begins = cut_parts(event.artifact.parts)
        artifact = replace(event.artifact, parts=parts)
        return replace(event, artifact=artifact, dropped=dropped, beginning=begins) if dropped else event
    if event.kind in ("submitted", "message") and event.message is not None:
        message, dropped = cut_message(event.message)
        return replace(event, message=message, dropped=dropped) if dropped else event
    return event


def cut_parts(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], int, str]:
    """The parts with the ends of their texts, how many characters they are without, and how the first of those texts
    begins."""
    long = [part.text for part in parts if part.text is not None and len(part.text) > CHARACTERS_MAX]
    if not long:
        return parts, 0, ""
    cut = tuple([part if part.text is None else replace(part, text=part.text[-CHARACTERS_MAX:]) for part in parts])
    return cut, sum(len(text) - CHARACTERS_MAX for text in long), long[0][:BEGINNING_CHARACTERS]


def cut_message(message: Message) -> tuple[Message, int]:
    """The message with the beginnings of its texts, and how many characters it is without."""
    dropped = sum(max(0, len(part.text) - CHARACTERS_MAX) for part in message.parts if part.text is not None)
    if not dropped:
        return message, 0
    parts = [part if part.text is None else replace(part, text=part.text[:CHARACTERS_MAX]) for part in message.parts]
    return replace(message, parts=tuple(parts)), dropped
