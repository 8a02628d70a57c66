"""Files: moves large files into the blob store on the way into the log, and back on the way to agents.

Invariant: an event that refers to bytes in the blob store is written after they are durable there (invariant 2), and
refers only to bytes of its own task. Agents see bytes, callers see links.
"""

import asyncio
import hmac
import logging
import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.api import Unreadable
from dragoman.engine.handler import Answered
from dragoman.model.errors import Forbidden, NotFound
from dragoman.model.events import ArtifactChunk, Delegated, Event, Intervened, Logged, Noted, StepBegun, Stepped
from dragoman.model.ids import Clock, timestamp
from dragoman.model.message import Message, Part
from dragoman.model.operations import TaskPage
from dragoman.model.parts import (
    Swaps,
    every_part,
    everywhere,
    swap_artifact,
    swap_event,
    swap_message,
    swap_parts,
    swap_record,
)
from dragoman.model.task import Record
from dragoman.store.api import StoreError
from dragoman.store.blobs.api import BlobAddress, BlobMissing, BlobStore

log = logging.getLogger(__name__)

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""How long a run waits before each new attempt to store or read a file. After the last one the run fails."""

T = TypeVar("T")


NO_FILE = "the part is not a file: it has neither raw bytes nor a url"


PATH = "/files/"
"""The path below which links are served."""

NAME_CHARACTERS = 200
"""Most characters of a file's name in its link; the part has the whole name."""

EXPIRES = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)

PURPOSE = b"dragoman file links 1"


class Expired(Forbidden):
    """A genuine link has expired."""


class LinkClaim(Struct, frozen=True):
    """The content of a link: place, name and media type of the bytes, and the expiry in seconds since the epoch.

    `name` and `media_type` are as an agent or a caller wrote them; empty if they did not.
    """

    place: BlobAddress
    name: str
    media_type: str
    expires: int


class Links:
    """Makes links and reads them. All servers on one store have the same `secret`, and nobody else has it."""

    def __init__(self, secret: bytes, expire_s: int, clock: Clock) -> None:
        self._key = hmac.digest(secret, PURPOSE, "sha256")
        self._expire_s = expire_s
        self._clock = clock

    def at(self, base: str, longer_s: int = 0) -> "LinksAt":
        """Links below the base URL `base`, valid `longer_s` longer than usual."""
        return LinksAt(lambda part: self._linked(base, part, longer_s))

    def _linked(self, base: str, part: Part, longer_s: int) -> Part:
        place = None if part.file is None else BlobAddress.read(part.file)
        if place is None:
            return part
        expires = self._now_s() + self._expire_s + longer_s
        claim = LinkClaim(place, (part.filename or "")[:NAME_CHARACTERS], part.media_type or "", expires)
        return replace(part, file=None, url=self._url(base, claim))

    def _url(self, base: str, claim: LinkClaim) -> str:
        fields: dict[str, str | int] = {"name": claim.name} if claim.name else {}
        if claim.media_type:
            fields["type"] = claim.media_type
        query = urlencode({**fields, "expires": claim.expires, "signature": self._signature(claim)})
        return f"{base}{PATH}{claim.place}?{query}"

    def claim(self, task_id: str, digest: str, query: Mapping[str, str]) -> LinkClaim:
        """Read the claim of a link. Raises NotFound if it is not a link, Forbidden if it is forged, or Expired."""
        place = BlobAddress.read(f"{task_id}/{digest}")
        if place is None:
            raise NotFound("no such file: take the URL as it stands in the task")
        signed, expires = query.get("signature", ""), query.get("expires", "")
        if not EXPIRES.fullmatch(expires):
            raise Forbidden("this URL is not signed: take it as it stands in the task, with its whole query")
        claim = LinkClaim(place, query.get("name", ""), query.get("type", ""), int(expires))
        if not hmac.compare_digest(self._signature(claim).encode(), signed.encode()):
            raise Forbidden("the signature does not fit: take the URL as it stands in the task, with its whole query")
        if claim.expires <= self._now_s():
            when = timestamp(claim.expires * 1000)
            raise Expired(f"this URL expired at {when}: read the task again, its files have fresh URLs there")
        return claim

    def place(self, url: str) -> BlobAddress | None:
        """The place of the bytes that a URL leads to, whatever its host; None if it is not one of our links.

        Raises Expired.
        """
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=10))
        except ValueError:
            return None
        _, found, spelled = parts.path.rpartition(PATH)
        if not found or "signature" not in query:
            return None
        task_id, _, digest = spelled.partition("/")
        try:
            return self.claim(task_id, digest, query).place
        except Expired:
            raise
        except (NotFound, Forbidden):
            return None

    def left_s(self, claim: LinkClaim) -> int:
        """How many seconds the claim is still valid."""
        return max(0, claim.expires - self._now_s())

    def _signature(self, claim: LinkClaim) -> str:
        fields = (str(claim.place), claim.name, claim.media_type, str(claim.expires))
        signed = b"".join(
            b"%d:%b," % (len(field), field) for field in (each.encode("utf-8", "replace") for each in fields)
        )
        return urlsafe_b64encode(hmac.digest(self._key, signed, "sha256")).rstrip(b"=").decode()

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000


class LinksAt:
    """Replaces files by links. A value without files comes back as the same object."""

    __slots__ = ("_swaps",)

    def __init__(self, linked: Callable[[Part], Part]) -> None:
        self._swaps: Swaps = everywhere(linked)

    def event(self, event: Event) -> Event:
        """An event for a caller to see."""
        return swap_event(event, self._swaps) if event_has_files(event) else event

    def record(self, record: Record) -> Record:
        """A task for a caller to see."""
        return swap_record(record, self._swaps) if record_has_files(record) else record

    def message(self, message: Message) -> Message:
        """A message for a caller to see."""
        return swap_message(message, self._swaps.history) or message

    def answer(self, answer: Answered) -> Answered:
        """The answer to a unary operation."""
        match answer:
            case Record():
                return self.record(answer)
            case TaskPage() if any(map(record_has_files, answer.records)):
                return replace(answer, records=tuple(map(self.record, answer.records)))
            case Message():
                return self.message(answer)
            case _:
                return answer


def event_has_files(event: Event) -> bool:
    """Whether any bytes of the event are in the blob store."""
    if isinstance(event, ArtifactChunk):
        return _any(event.artifact.parts)
    if isinstance(event, Noted | Intervened | StepBegun):
        return False
    if isinstance(event, Delegated | Stepped):
        return _any(every_part((event,)))
    return event.message is not None and _any(event.message.parts)


def record_has_files(record: Record) -> bool:
    """Whether any bytes of the task are in the blob store."""
    return _any(every_part((), record))


def _any(parts: Iterable[Part]) -> bool:
    for part in parts:  # noqa: SIM110  a generator would triple the cost for each event of a stream
        if part.file is not None:
            return True
    return False


def same_parts(told: Sequence[Part], given: Sequence[Part]) -> bool:
    """Whether the parts `told` by `run.record` are the `given` ones. A link equals the bytes it leads to."""
    return len(told) == len(given) and all(
        one == other or _stands_for(one, other) for one, other in zip(told, given, strict=True)
    )


def _stands_for(link: Part, file: Part) -> bool:
    if link.url is None or file.raw is None or replace(link, url=None) != replace(file, raw=None):
        return False
    return urlsplit(link.url).path.endswith(f"/{BlobAddress.of('', file.raw).digest}")


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
        self.keeps = blobs is not None
        """Whether there is a blob store."""

    def serve_at(self, base: str) -> None:
        """Make the links of `run.record` below the server's own URL, which is known now."""
        self.base = base

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

    async def event_kept(self, task_id: str, event: Event) -> Event:
        """As `kept_by_run`, for the parts of an event."""
        large = [part for part in event.all_parts if self.large((part,))]
        if not large:
            return event
        kept = dict(zip(map(id, large), await self.kept_by_run(task_id, tuple(large)), strict=True))
        return swap_event(event, everywhere(lambda part: kept.get(id(part), part)))

    async def kept_by_run(self, task_id: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """As `kept`, for a run, which can wait for the blob store to recover."""
        return await _patiently(lambda: self.kept(task_id, parts))

    async def forget(self, task_id: str) -> None:
        """Delete the files of a task that was not made, or has been deleted.

        Files that cannot be deleted now are swept later.
        """
        if self._blobs is not None:
            try:
                await self._blobs.delete(task_id)
            except StoreError as error:
                log.warning("files of a task that is gone are left to the sweep: %s", error)

    async def _kept(self, task_id: str, part: Part) -> Part:
        if self._blobs is None or part.raw is None or len(part.raw) <= self._above:
            return part
        place = await asyncio.to_thread(BlobAddress.of, task_id, part.raw)
        await self._blobs.put(place, part.raw)
        return replace(part, raw=None, file=str(place))

    # -- out -----------------------------------------------------------------------------------------------------------

    async def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Parts of the log as an agent sees them, with their bytes. This and all methods below raise StoreError."""
        swaps = await self._back(parts)
        return parts if swaps is None else swap_parts(parts, swaps.artifacts)

    async def message(self, message: Message) -> Message:
        """A message as an agent sees it."""
        swaps = await self._back(message.parts)
        return message if swaps is None else swap_message(message, swaps.history) or message

    async def delegated(self, event: Delegated) -> Delegated:
        """The outcome of a delegated task as an agent sees it."""
        swaps = await self._back(every_part((event,)))
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
        swaps = await self._back(every_part((), record))
        return record if swaps is None else swap_record(record, swaps)

    async def log(self, events: tuple[Logged, ...]) -> tuple[Logged, ...]:
        """A log for an agent that is run again, with the bytes of all files but those of its own artifacts."""
        if self._blobs is None:
            return events
        heard = [logged.event for logged in events if not isinstance(logged.event, ArtifactChunk)]
        swaps = await self._back(every_part(heard))
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

    async def _back(self, parts: Iterable[Part]) -> Swaps | None:
        """Return the swaps that put the bytes back into these parts, each file read once; None without files."""
        if self._blobs is None:
            return None
        found: dict[str, bytes] = {}
        for part in parts:
            if part.file is not None and part.file not in found:
                found[part.file] = await self._bytes(part.file)
        if not found:
            return None
        return everywhere(lambda part: part if part.file is None else replace(part, raw=found[part.file], file=None))

    async def _bytes(self, file: str) -> bytes:
        place = BlobAddress.read(file)
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
