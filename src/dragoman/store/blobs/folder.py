"""A folder as a blob store: `folder/ab/<task>/<digest>`, where `ab` are the last two characters of the task's id.

Invariant: a file exists whole, or not at all: it is written under another name, synced to the disk, then renamed.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.model.ids import new_id
from dragoman.store.api import StoreFull
from dragoman.store.blobs.api import OTHERS, OWNER, PIECE_BYTES, TASK_ID, BlobAddress, BlobError, BlobMissing

FULL = (errno.ENOSPC, errno.EDQUOT)

MARK = ".folder"
"""The file that tells this folder from all others. No task has this id."""

UNFINISHED = ".part"
"""The suffix of a file that is still being written."""


class FolderBlobs:
    """The BlobStore protocol on a folder: see `store.blobs.api.BlobStore`. The work is done on threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def open(self, owner: str = "") -> None:
        """Make the folder if it does not exist, and write into it. Raises BlobError."""
        await asyncio.to_thread(self.claim, owner)

    def claim(self, owner: str) -> None:
        """As `open`, for callers without a loop."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark = self._root / OWNER
            found = mark.read_text(errors="replace") if mark.exists() else ""
            part = mark.with_name(f"{new_id()}{UNFINISHED}")
            part.write_text(found or owner)
            part.replace(mark)
        except OSError as error:
            raise BlobError(
                f"files 'folder:{self._root}': {error.strerror}: name a folder that the server may write to"
            ) from error
        if found not in ("", owner):
            raise BlobError(f"files 'folder:{self._root}' {OTHERS}")

    async def mark(self) -> str:
        """The mark of this folder, which no other folder has. It is made at the first call, whoever makes that one.

        Raises BlobError.
        """

        def attempt() -> str:
            mark = self._root / MARK
            part = mark.with_name(f"{new_id()}{UNFINISHED}")
            part.write_text(new_id())
            with suppress(FileExistsError):
                os.link(part, mark)  # atomic, also on a network's file system
            part.unlink()
            return mark.read_text()

        try:
            return await asyncio.to_thread(attempt)
        except OSError as error:
            raise BlobError(f"files 'folder:{self._root}': {error.strerror}: its mark cannot be made") from error

    async def close(self) -> None:
        """Do nothing: no resource is held."""

    async def put(self, place: BlobAddress, content: bytes) -> None:
        """See the protocol."""
        await asyncio.to_thread(self.write, place, content)

    async def get(self, place: BlobAddress) -> bytes:
        """See the protocol."""

        def read() -> bytes:
            with _translate_errors(place):
                return self.path(place).read_bytes()

        return await asyncio.to_thread(read)

    async def size(self, place: BlobAddress) -> int:
        """See the protocol."""

        def look() -> int:
            with _translate_errors(place):
                return self.path(place).stat().st_size

        return await asyncio.to_thread(look)

    async def pieces(self, place: BlobAddress, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """See the protocol."""
        with _translate_errors(place):
            file = await asyncio.to_thread(self.path(place).open, "rb", 0)
            try:
                while start < stop:
                    piece = await asyncio.to_thread(os.pread, file.fileno(), min(PIECE_BYTES, stop - start), start)
                    if not piece:
                        raise BlobError(f"file {place} is shorter than it was")
                    start += len(piece)
                    yield piece
            finally:
                file.close()

    async def elsewhere(self, place: BlobAddress, expires_s: float) -> str | None:
        """Always None: only this server reads the folder."""
        return None

    async def tasks(self, before_ms: int) -> AsyncIterator[str]:
        """See the protocol; a folder is as old as the newest file in it."""
        for shard in await asyncio.to_thread(_folders, self._root):
            for folder in await asyncio.to_thread(_folders, shard, before_ms):
                if TASK_ID.fullmatch(folder.name):
                    yield folder.name

    async def delete(self, task_id: str) -> None:
        """See the protocol."""

        def remove() -> None:
            try:
                shutil.rmtree(self._folder(task_id))
            except FileNotFoundError:
                return
            except OSError as error:
                raise BlobError(f"the files of task {task_id} cannot be deleted: {error.strerror}") from error

        await asyncio.to_thread(remove)

    def write(self, place: BlobAddress, content: bytes) -> None:
        """As `put`, for callers without a loop."""
        path = self.path(place)
        with _translate_errors(place):
            if path.exists():
                _sync(path.parent)  # its writer may have stopped before syncing the folder
                return
            _make_folder(path.parent, self._root)
            part = path.with_name(f"{place.digest}.{new_id()}{UNFINISHED}")
            try:
                with part.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            except OSError:
                part.unlink(missing_ok=True)
                raise
            _sync(path.parent)

    def _folder(self, task_id: str) -> Path:
        return self._root / task_id[-2:] / task_id

    def path(self, place: BlobAddress) -> Path:
        """The file with the bytes of a place, which need not be there."""
        return self._folder(place.task_id) / place.digest


@contextmanager
def _translate_errors(place: BlobAddress) -> Iterator[None]:
    """Raise the driver's errors as those of the protocol."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissing(f"there is no file {place}") from error
    except OSError as error:
        if error.errno in FULL:
            raise StoreFull(f"file {place}: {error.strerror}") from error
        raise BlobError(f"file {place}: {error.strerror}") from error


def _make_folder(folder: Path, root: Path) -> None:
    """Make a folder below `root` so that it survives a power loss."""
    if folder.exists():
        return
    if folder != root:
        _make_folder(folder.parent, root)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Sync the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folders(parent: Path, before_ms: int | None = None) -> list[Path]:
    """The folders in `parent` to which nothing was added since `before_ms`; none if `parent` is gone."""
    try:
        with os.scandir(parent) as found:
            return [
                Path(entry.path)
                for entry in found
                if entry.is_dir(follow_symlinks=False)
                and (before_ms is None or entry.stat(follow_symlinks=False).st_mtime * 1000 < before_ms)
            ]
    except OSError:
        return []
