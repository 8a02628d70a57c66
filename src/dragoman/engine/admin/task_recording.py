"""Records a task as the store keeps it, so that an agent can be run against its log elsewhere.

Invariant: it only reads. No byte of a file, and nothing of an answer to a question for credentials, is in a recording:
only digests. All else is as it was written, so that the fold of the events is the task.
"""

import secrets
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman import __version__
from dragoman.admin.logs import LogQuery, RecordedTask
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.playback import find_head, read_events
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.events import Event, MessageReceived, StatusChanged
from dragoman.model.message import Message, Part
from dragoman.model.parts import everywhere, swap_event, swap_message
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import Store
from dragoman.store.blobs.api import BlobAddress

SECRET = "secret:"
"""The beginning of what stands in the place of secrets."""


class TaskRecorder:
    """Records tasks of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places = FoldedPlaces(store)
        self._salt = secrets.token_bytes(32)
        """Without it a digest would tell a short secret to somebody who tries all of them."""

    async def page(self, asked: Asked[LogQuery]) -> RecordedTask:
        """The next events. Raises TaskNotFound, UnsupportedOperation if events are gone, or StoreError."""
        task_id, after = asked.id, asked.given.after
        head, seq, _ = await find_head(self._store, task_id)
        found = await read_events(self._store, task_id, after, asked.given.limit)
        if after < seq and (not found or found[0].seq > after + 1):
            raise UnsupportedOperation(
                f"task {task_id} cannot be recorded: events were deleted (log_retention), or are damaged, as "
                "`dragoman store check` would say"
            )
        asks_secret = False
        if after and found:
            asks_secret = (await self._places.reach(head, after)).record().state is TaskState.AUTH_REQUIRED
        events: list[Event] = []
        for logged in found:
            event = logged.event
            if isinstance(event, StatusChanged):
                asks_secret = event.state is TaskState.AUTH_REQUIRED
            elif isinstance(event, MessageReceived) and asks_secret:
                event = self._without_secret(event)
            events.append(swap_event(event, everywhere(lambda part: _without_bytes(task_id, part))))
        last = found[-1].seq if found else after
        return RecordedTask(
            dragoman=__version__,
            head=_bare(head),
            events=tuple(events),
            seq=seq,
            next_after=last if last < seq else None,
        )

    def _without_secret(self, event: MessageReceived) -> MessageReceived:
        """The answer to a question for credentials."""
        message = swap_message(event.message, self._digest)
        assert message is not None
        return replace(event, message=replace(message, metadata=None), metadata=None)

    def _digest(self, part: Part) -> Part:
        """A part of the same kind with a digest. Bytes become a text: not even their length is told."""
        said: Any = part.data if part.data is not UNSET else part.text or part.url or part.file
        content = part.raw if part.raw is not None else msgspec.json.encode(said)
        digest = SECRET + blake2b(content, key=self._salt, digest_size=20).hexdigest()
        if part.data is not UNSET:
            return Part(data=digest)
        return Part(url=digest) if part.url is not None else Part(text=digest)


def _bare(head: TaskHead) -> TaskHead:
    """The head, with the files of the conversation before it by their digests."""
    earlier = [swap_message(message, lambda part: _without_bytes(head.id, part)) for message in head.earlier]
    return replace(head, earlier=tuple(message for message in earlier if isinstance(message, Message)))


def _without_bytes(task_id: str, part: Part) -> Part:
    """A part with the place of its bytes, as the blob store has it for those that are kept there."""
    return part if part.raw is None else replace(part, raw=None, file=str(BlobAddress.of(task_id, part.raw)))
