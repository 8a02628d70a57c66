"""Files: moves large files into the blob store on the way into the log, and back on the way to agents.

Invariant: an event that refers to bytes in the blob store is written after they are durable there (invariant 2), and
refers only to bytes of its own task. Agents see bytes, callers see links.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from dragoman.engine.api import Unreadable
from dragoman.engine.links import Expired, Links, LinksAt, record_has_files
from dragoman.model.events import ArtifactChunk, Delegated, Logged
from dragoman.model.message import Message, Part
from dragoman.model.parts import (
    Swaps,
    every_parts,
    everywhere,
    swap_artifact,
    swap_event,
    swap_message,
    swap_parts,
    swap_record,
)
from dragoman.model.task import Record
from dragoman.store.api import StoreError
from dragoman.store.blobs.api import BlobMissing, BlobStore, Place

log = logging.getLogger(__name__)

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""How long a run waits before each new attempt to store or read a file. After the last one the run fails."""

T = TypeVar("T")


NO_FILE = "the part is not a file: it has neither raw bytes nor a url"


class Reading(Protocol):
    """Fetches the bytes behind a URL that may come from a stranger."""

    async def fetch(self, url: str) -> bytes:
        """Return all bytes of the file. Raises Unreadable."""
        ...


class Files:
    """Stores large files in the blob store and reads them back. Without a blob store, files stay in the log.

    A file of more than `above` bytes is large. `links` makes the URLs that callers get.
    """

    def __init__(
        self,
        blobs: BlobStore | None = None,
        *,
        above: int = 0,
        links: Links | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.base = ""
        """The server's own URL, for links in `run.record`, as soon as it is known."""
        self._blobs = blobs
        self._above = above
        self._links = links
        self._reading = reading

    @property
    def keeps(self) -> bool:
        """Whether there is a blob store."""
        return self._blobs is not None

    # -- in ------------------------------------------------------------------------------------------------------------

    def large(self, parts: Sequence[Part]) -> bool:
        """Whether any of `parts` belongs in the blob store."""
        if self._blobs is not None:
            for part in parts:
                if part.raw is not None and len(part.raw) > self._above:
                    return True
        return False

    async def kept(self, task_id: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return `parts` as they go into the log, with the bytes of large ones in the blob store. Raises StoreError."""
        return tuple([await self._kept(task_id, part) for part in parts]) if self.large(parts) else parts

    async def event_kept(self, task_id: str, event: Delegated) -> Delegated:
        """As `kept_by_run`, for the parts of an event."""
        artifacts = tuple(
            [replace(each, parts=await self.kept_by_run(task_id, each.parts)) for each in event.artifacts]
            if any(self.large(each.parts) for each in event.artifacts)
            else event.artifacts
        )
        message = event.message
        if message is not None and self.large(message.parts):
            message = replace(message, parts=await self.kept_by_run(task_id, message.parts))
        return replace(event, artifacts=artifacts, message=message)

    async def kept_by_run(self, task_id: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """As `kept`, for a run, which can wait for the blob store to recover."""
        return await _patiently(lambda: self.kept(task_id, parts))

    async def forget(self, task_id: str) -> None:
        """Delete the files stored for a task that was not made. Files that cannot be deleted now are swept later."""
        if self._blobs is not None:
            try:
                await self._blobs.delete(task_id)
            except StoreError as error:
                log.warning("files of a task that was refused are left to the sweep: %s", error)

    async def _kept(self, task_id: str, part: Part) -> Part:
        if self._blobs is None or part.raw is None or len(part.raw) <= self._above:
            return part
        place = await asyncio.to_thread(Place.of, task_id, part.raw)
        await self._blobs.put(place, part.raw)
        return replace(part, raw=None, file=str(place))

    # -- out -----------------------------------------------------------------------------------------------------------

    async def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Parts of the log as an agent sees them, with their bytes. This and all methods below raise StoreError."""
        swaps = await self._back((parts,))
        return parts if swaps is None else swap_parts(parts, swaps.artifacts)

    async def message(self, message: Message) -> Message:
        """A message as an agent sees it."""
        swaps = await self._back((message.parts,))
        return message if swaps is None else swap_message(message, swaps.history) or message

    async def delegated(self, event: Delegated) -> Delegated:
        """The outcome of a delegated task as an agent sees it."""
        swaps = await self._back(every_parts((event,), None))
        if swaps is None:
            return event
        artifacts = tuple(swap_artifact(artifact, swaps.artifacts) for artifact in event.artifacts)
        return replace(event, artifacts=artifacts, message=swap_message(event.message, swaps.status))

    async def chunk(self, chunk: ArtifactChunk) -> ArtifactChunk:
        """A chunk from another agent as an agent sees it."""
        parts = await self.parts(chunk.artifact.parts)
        return chunk if parts is chunk.artifact.parts else replace(chunk, artifact=replace(chunk.artifact, parts=parts))

    async def record(self, record: Record) -> Record:
        """A task as an agent sees it."""
        if self._blobs is None or not record_has_files(record):
            return record
        swaps = await self._back(every_parts((), record))
        return record if swaps is None else swap_record(record, swaps)

    async def log(self, events: tuple[Logged, ...]) -> tuple[Logged, ...]:
        """A log for an agent that is run again, with the bytes of all files but those of its own artifacts."""
        if self._blobs is None:
            return events
        heard = [logged.event for logged in events if not isinstance(logged.event, ArtifactChunk)]
        swaps = await self._back(every_parts(heard, None))
        if swaps is None:
            return events
        return tuple(
            logged
            if isinstance(logged.event, ArtifactChunk)
            else Logged(logged.seq, swap_event(logged.event, swaps), logged.size)
            for logged in events
        )

    def linked(self, record: Record) -> Record:
        """A task with links in place of its files."""
        return record if self._links is None else self._links.at(self.base).record(record)

    def links(self, longer_s: int = 0) -> LinksAt | None:
        """Links below the server's own URL; None if no file is in the blob store."""
        return None if self._links is None else self._links.at(self.base, longer_s)

    async def _back(self, several: Iterable[tuple[Part, ...]]) -> Swaps | None:
        """Return the swaps that put the bytes back into these parts, each file read once; None without files."""
        if self._blobs is None:
            return None
        found: dict[str, bytes] = {}
        for parts in several:
            for part in parts:
                if part.file is not None and part.file not in found:
                    found[part.file] = await self._bytes(part.file)
        if not found:
            return None
        return everywhere(lambda part: part if part.file is None else replace(part, raw=found[part.file], file=None))

    async def _bytes(self, file: str) -> bytes:
        place = Place.read(file)
        if place is None or self._blobs is None:
            raise BlobMissing(f"there is no file {file}")
        blobs = self._blobs
        return await _patiently(lambda: blobs.get(place))

    # -- ctx.read ------------------------------------------------------------------------------------------------------

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part, wherever they are. Raises Unreadable."""
        if part.raw is not None:
            return part.raw
        try:
            if part.file is not None:
                return await self._bytes(part.file)
            if part.url is None:
                raise Unreadable(NO_FILE)
            if self._blobs is not None and self._links is not None:
                place = self._links.place(part.url)
                if place is not None:
                    return await self._blobs.get(place)
        except BlobMissing as error:
            raise Unreadable("the file is gone: it was kept as long as its task") from error
        except Expired as error:
            raise Unreadable(str(error)) from error
        if self._reading is None:
            raise Unreadable("this server fetches no files: the part has a url and no bytes")
        return await self._reading.fetch(part.url)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call for a while that the blob store cannot do now. Raises StoreError; BlobMissing at once."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except BlobMissing:
            raise
        except StoreError as error:
            log.warning("a run waits %g s for the blob store: %s", pause_s, error)
        await asyncio.sleep(pause_s)
    return await call()
