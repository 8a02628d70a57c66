"""Large files: the blob store, the links to it, the reading of foreign links, and the sweep of leftovers.

Invariant: bytes in the blob store are deleted after their task, and not before. Bytes that a crash left without a task
are deleted, too.
"""

import asyncio
import logging

from msgspec import Struct

from dragoman.agents.url_files import FileReading
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.files import FileDoor
from dragoman.config import Config
from dragoman.engine.admin.folded_places import Linked, unlinked
from dragoman.engine.files import Files, Links
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.links import FileLinks
from dragoman.model.ids import Clock
from dragoman.net.address import Guard
from dragoman.server.callers import MEMORY
from dragoman.server.errors import StartError
from dragoman.server.jobs import Job
from dragoman.store.api import Store, StoreError
from dragoman.store.blobs.api import BlobError, BlobStore
from dragoman.store.blobs.folder import FolderBlobs
from dragoman.store.open import blob_store

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 900.0
SETTLED_MS = 3_600_000
"""Bytes younger than this are kept: they are written before their task, which may be about to follow."""

FOLDER_KEY = "files/folder"
"""The shared entry with the mark of the folder that all replicas must have."""

FOLDER_MS = 3_600_000
"""How long the folder is remembered after the last replica has stopped. It is renewed with each sweep."""

TURN = 100
"""Tasks checked before the loop gets a turn."""


class ServedFiles(Struct, frozen=True):
    """The parts of a server that handle files. Without a blob store there are only `engine` and `reading`."""

    engine: Files
    reading: FileReading
    blobs: BlobStore | None = None
    links: Links | None = None
    door: FileDoor | None = None
    sweeps: bool = False

    @property
    def linked(self) -> Linked:
        """A function that puts relative URLs in place of bytes that are in the blob store."""
        return unlinked if self.links is None else self.links.at("").event

    def wrap_links(self, behind: Handler) -> Handler:
        """Wrap a handler so that its answers have links in place of large files."""
        return behind if self.links is None else FileLinks(behind, self.links)

    async def sweep(self, store: Store, clock: Clock, job: Job) -> None:
        """Delete the bytes of tasks that are gone, for ever, every `SWEEP_EVERY_S`, while the job is ours.

        A server with a store in memory deletes nothing: it cannot know whose bytes are in the blob store.
        """
        if self.blobs is None or not self.sweeps:
            return
        while True:
            try:
                await store.shared.renew((FOLDER_KEY,), FOLDER_MS)
                if await job.take():
                    await sweep_once(self.blobs, store, clock.now_ms() - SETTLED_MS)
            except StoreError as error:
                log.warning("the sweep of old files failed, the next one is in %g s: %s", SWEEP_EVERY_S, error)
            await asyncio.sleep(SWEEP_EVERY_S)

    async def close(self) -> None:
        """Close every connection."""
        await self.reading.close()
        if self.blobs is not None:
            await self.blobs.close()


async def open_files(config: Config, store: Store, signing: SigningRoom, clock: Clock) -> ServedFiles:
    """Make and open all parts. Raises StartError if the blob store cannot be used, StoreError."""
    guard = Guard(config.fetch_allowed_hosts, config.fetch_allowed_cidrs)
    reading = FileReading(guard, max_bytes=config.fetch_max_bytes, timeout_s=config.fetch_timeout_s)
    if config.files is None:
        if store.replicas.shared and await store.shared.get(FOLDER_KEY) is not None:
            log.warning(
                "files is not set, and other replicas of this store keep large files in a folder: set files to that "
                "folder here as well, because answers of this replica lack those files"
            )
        return ServedFiles(Files(reading=reading), reading)
    try:
        await signing.signer()  # makes the key, on a new store
        key = await store.keys.signing_key()
        assert key is not None  # the line above has made it
        lasts = config.store != MEMORY
        blobs = blob_store(config.files)
        await blobs.open(key.kid if lasts else "")
        if store.replicas.shared and isinstance(blobs, FolderBlobs):
            await check_folder(blobs, config.files, store)
    except BlobError as error:
        raise StartError(str(error)) from error
    links = Links(key.jwk, config.files_expire_s, clock)
    return ServedFiles(
        Files(blobs, above=config.files_above, links=links, reading=reading),
        reading,
        blobs,
        links,
        FileDoor(blobs, links, redirects=config.files_redirect),
        lasts,
    )


async def check_folder(blobs: FolderBlobs, files: str, store: Store) -> None:
    """Check that the other replicas see the same folder, by its mark. Raises StartError, BlobError, StoreError."""
    mark = (await blobs.mark()).encode()
    if await store.shared.put(FOLDER_KEY, mark, FOLDER_MS, version=0) is not None:
        return
    known = await store.shared.get(FOLDER_KEY)
    if known is not None and known.value != mark:
        raise StartError(
            f"files {files!r} is not the folder that the other replicas use, so that files stored here could not be "
            "read there: let all replicas see one folder (a network's file system), or use s3://. If the folder was "
            "moved, move its file .folder with it; if it is gone for good, a new one can be used an hour after the "
            "last replica has stopped"
        )


async def sweep_once(blobs: BlobStore, store: Store, before_ms: int) -> int:
    """Delete the bytes kept before `before_ms` whose task is gone. Returns the number of tasks. Raises StoreError.

    A failed deletion is logged, and the others go on.
    """
    gone = looked = 0
    async for task_id in blobs.tasks(before_ms):
        looked += 1
        if await store.head(task_id) is None:
            try:
                await blobs.delete(task_id)
            except StoreError as error:
                log.warning("%s", error)
            else:
                gone += 1
        if looked % TURN == 0:
            await asyncio.sleep(0)
    return gone
