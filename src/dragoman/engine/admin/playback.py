"""Playback: the log of a task with its whole content, for an operator.

Invariant: it only reads.
"""

from msgspec.structs import replace

from dragoman.admin.logs import LogEvent, Recording
from dragoman.engine.admin.folded_places import LOG_BYTES, Linked, unlinked
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    Submitted,
)
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message, Part
from dragoman.model.task import TERMINAL
from dragoman.store.api import Store

READ_BYTES = 32 << 10
"""About how many stored bytes the first read for a page returns: a page of small events needs no more."""

FEW = 16
"""After a read that returns fewer events than this, the next one asks for four times as many bytes."""

CHARACTERS_MAX = 200_000
"""Most characters of one text; longer ones are cut to their end."""


class Playback:
    """Reads the logs of everybody from a store."""

    def __init__(self, store: Store, linked: Linked = unlinked) -> None:
        self._store = store
        self._linked = linked

    async def content(self, task_id: str, after: int, limit: int) -> Recording:
        """At most `limit` events after seq `after`. Raises TaskNotFound, or StoreError."""
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        _, seq, state = known
        logged = await self._read(task_id, after, limit)
        last = logged[-1].seq if logged else after
        return Recording(
            events=tuple([self._entry(each) for each in logged]),
            seq=seq,
            ended=state in TERMINAL,
            pruned=(logged[0].seq > after + 1) if logged else after < seq,
            next_after=last if logged and last < seq else None,
        )

    async def _read(self, task_id: str, after: int, limit: int) -> list[Logged]:
        """As `content` returns them. Small events are read in small pieces, of which none is read in vain.

        Large ones are read in few pieces: for each, the store may decode all that one write of a run held.
        """
        found: list[Logged] = []
        size, wanted = 0, READ_BYTES
        while len(found) < limit and size < LOG_BYTES:
            page = await self._store.read(task_id, found[-1].seq if found else after, min(wanted, LOG_BYTES - size))
            if len(page) < FEW:
                wanted *= 4
            if not page:
                break
            found += page[: limit - len(found)]
            size += sum([each.size for each in page])
        return found

    def _entry(self, logged: Logged) -> LogEvent:
        seq, event = logged.seq, self._linked(logged.event)
        match event:
            case Submitted(message=message, timestamp=at):
                said, dropped = cut_message(message)
                return LogEvent(seq=seq, at=at, kind="submitted", state="submitted", message=said, dropped=dropped)
            case MessageReceived(message=message, timestamp=at):
                said, dropped = cut_message(message)
                return LogEvent(seq=seq, at=at, kind="message", message=said, dropped=dropped)
            case StatusChanged():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="status",
                    state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                    message=event.message,
                    progress=event.progress,
                    usage=event.usage,
                    duration_ms=event.duration_ms,
                )
            case ArtifactChunk(artifact=artifact):
                parts, dropped = cut_parts(artifact.parts)
                return LogEvent(
                    seq=seq,
                    at=None,
                    kind="artifact",
                    artifact=replace(artifact, parts=parts) if dropped else artifact,
                    dropped=dropped,
                    append=event.append,
                    last_chunk=event.last_chunk,
                )
            case Delegated():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="delegated",
                    state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                    agent=event.agent,
                    task=event.task_id or None,
                    message=event.message,
                    usage=event.usage,
                )
            case Noted():
                return LogEvent(seq=seq, at=None, kind="noted")
            case Intervened():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="operator",
                    operator=event.operator,
                    action=event.action,
                    reason=event.reason,
                )


def cut_parts(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], int]:
    """The parts with the ends of their texts, and how many characters they are without."""
    dropped = sum([max(0, len(part.text) - CHARACTERS_MAX) for part in parts if part.text is not None])
    if not dropped:
        return parts, 0
    return tuple(
        [part if part.text is None else replace(part, text=part.text[-CHARACTERS_MAX:]) for part in parts]
    ), dropped


def cut_message(message: Message) -> tuple[Message, int]:
    """The message with the ends of its texts, and how many characters it is without."""
    parts, dropped = cut_parts(message.parts)
    return (replace(message, parts=parts) if dropped else message), dropped
