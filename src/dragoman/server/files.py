"""Large files: the blob store, the links to it, who reads what strangers link to, and the sweep of what is left over.

Invariant: bytes in the blob store go once their task is gone, and not before; what a crash left there that no task
refers to goes too.
"""

import asyncio
import logging

from msgspec import Struct

from dragoman.agents.url_files import FileReading
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.files import FileDoor
from dragoman.config import Config, store_path
from dragoman.engine.files import Files
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.links import FileLinks
from dragoman.engine.links import Links
from dragoman.model.ids import Clock
from dragoman.net.address import Guard
from dragoman.server.errors import StartError
from dragoman.store.api import Store, StoreError
from dragoman.store.blobs.api import BlobError, BlobStore
from dragoman.store.blobs.open import blob_store

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 900.0
SETTLED_MS = 3_600_000
"""Bytes are written before their task is: younger ones may be those of a task that is about to be."""

TURN = 100
"""Tasks looked at before the loop gets its turn."""


class ServedFiles(Struct, frozen=True):
    """What a server has to do with files. Without a blob store only `engine` and `reading` are there."""

    engine: Files
    reading: FileReading
    blobs: BlobStore | None = None
    links: Links | None = None
    door: FileDoor | None = None
    sweeps: bool = False

    def linked(self, behind: Handler) -> Handler:
        """A handler whose answers have links in place of large files."""
        return behind if self.links is None else FileLinks(behind, self.links)

    async def sweep(self, store: Store, clock: Clock) -> None:
        """For ever delete the bytes of tasks that are gone.

        A store in memory, which forgets its tasks, knows nothing of the bytes that are not its own, and deletes none.
        """
        if self.blobs is None or not self.sweeps:
            return
        while True:
            try:
                await sweep_once(self.blobs, store, clock.now_ms() - SETTLED_MS)
            except StoreError as error:
                log.warning("the sweep of old files failed, the next is in %g s: %s", SWEEP_EVERY_S, error)
            await asyncio.sleep(SWEEP_EVERY_S)

    async def close(self) -> None:
        """Close every connection."""
        await self.reading.close()
        if self.blobs is not None:
            await self.blobs.close()


async def files_of(config: Config, store: Store, signing: SigningRoom, clock: Clock) -> ServedFiles:
    """All of it, open. Raises StartError if nothing can be kept where the configuration says, StoreError."""
    guard = Guard(config.fetch_allowed_hosts, config.fetch_allowed_cidrs)
    reading = FileReading(guard, max_bytes=config.fetch_max_bytes, timeout_s=config.fetch_timeout_s)
    if config.files is None:
        return ServedFiles(Files(reading=reading), reading)
    try:
        await signing.signer()  # the first server on a store makes the key
        key = await store.keys.signing_key()
        assert key is not None  # it has just been made
        lasts = store_path(config.store) is not None
        blobs = blob_store(config.files)
        await blobs.open(key.kid if lasts else "")
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


async def sweep_once(blobs: BlobStore, store: Store, before_ms: int) -> int:
    """Delete the bytes kept before then whose task is gone; returns of how many tasks. Raises StoreError.

    Those that cannot be deleted keep no others from it.
    """
    gone = looked = 0
    async for task_id in blobs.tasks(before_ms):
        looked += 1
        if store.head(task_id) is None:
            try:
                await blobs.delete(task_id)
            except StoreError as error:
                log.warning("%s", error)
            else:
                gone += 1
        if looked % TURN == 0:
            await asyncio.sleep(0)
    return gone
