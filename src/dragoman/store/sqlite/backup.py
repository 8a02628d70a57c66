"""Backups of a store file and of the files beside it: made while a server runs, restored while none does.

Invariant: no file takes its name before it is whole, verified and on the disk. Nothing that exists is overwritten,
except an older backup if the caller says so.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from dragoman.model.ids import timestamp
from dragoman.store.api import StoreError, StoreFull
from dragoman.store.blobs.api import BlobAddress
from dragoman.store.blobs.folder import FULL, FolderBlobs
from dragoman.store.sqlite.archive import FORMAT, Manifest, digest_file, read_archive, write_archive
from dragoman.store.sqlite.connection import ProcessLock
from dragoman.store.sqlite.snapshot import (
    Show,
    find_faults,
    present_tasks,
    read_contents,
    revive,
    schema_version,
    stored_files,
    take_snapshot,
)

NO_SPACE = "no space left on its disk: free some, or name a file on another disk"


class BackupWritten(Struct, frozen=True):
    """A backup that was written. `gone` files were deleted with their tasks meanwhile; `faults` are the store's own.

    A file that is missing although its task is there is one of these faults.
    """

    manifest: Manifest
    gone: int
    faults: list[str]


class Restored(Struct, frozen=True):
    """A backup that was restored. `owed` webhook calls were pending, and were deleted if `dropped`."""

    manifest: Manifest
    owed: int
    dropped: bool


def back_up(
    path: Path,
    blobs: FolderBlobs | None,
    target: Path,
    show: Show,
    *,
    program: str,
    now_ms: int,
    elsewhere: str = "",
    force: bool = False,
) -> BackupWritten:
    """Write a backup of the store file at `path`, and of the files in `blobs`, to `target`.

    A server may have the store open. The archive is read again and checked before it takes its name. `elsewhere` names
    a blob store that the backup leaves out. With `force` an existing target is replaced. Raises StoreError.
    """
    if not path.exists():
        raise StoreError(f"there is no store file {path}: name the one that the server uses")
    with _translated(target), _workplace(target) as folder:
        database, part = folder / "database", folder / "archive"
        take_snapshot(path, database, show)
        show("Checking", 0, 1)
        faults = find_faults(database)
        contents = read_contents(database)
        digest, size = digest_file(database), database.stat().st_size
        show("Checking", 1, 1)

        def describe(files: int, file_bytes: int) -> Manifest:
            return Manifest(
                format=FORMAT,
                made=timestamp(now_ms),
                program=program,
                schema=contents.version,
                sha256=digest,
                bytes=size,
                totals=contents.totals,
                owed=contents.owed,
                files=files,
                file_bytes=file_bytes,
                elsewhere=elsewhere,
            )

        named: Iterator[BlobAddress] = stored_files(database)
        if blobs is None and not elsewhere and next(named, None) is not None:
            raise StoreError(
                f"store file {path} names files outside of it: set files to the folder where they are, or name the "
                "server's file with --config"
            )
        places = iter(()) if blobs is None else named
        manifest, absent = write_archive(
            part, database, places, _no_path if blobs is None else blobs.path, describe, show
        )
        there = present_tasks(path, {place.task_id for place in absent}) if absent else set()
        lost = [place for place in absent if place.task_id in there]
        faults += [f"files: {place} is missing" for place in lost]
        if read_archive(part, show) != manifest:
            raise StoreError(f"backup {target}: what was read back differs from what was written: check the disk")
        _name(part, target, force=force)
    return BackupWritten(manifest, len(absent) - len(lost), faults)


def restore(
    archive: Path, path: Path, blobs: FolderBlobs | None, drops_webhooks: Callable[[int], bool], show: Show
) -> Restored:
    """Make the store file at `path`, and the files in `blobs`, from a backup.

    The store is today's version afterwards, and no lease in it counts. `drops_webhooks` is asked whether that many
    pending webhook calls are deleted, if there are any. Raises StoreError, and then nothing is left behind: also if a
    server has the store open, or if there is a store already.
    """
    with _translated(archive):
        manifest = read_archive(archive, show)
    if manifest.schema > schema_version():
        raise StoreError(
            f"backup {archive} is of version {manifest.schema}, this program knows {schema_version()}: use the "
            f"dragoman that wrote it ({manifest.program}), or a newer one"
        )
    if manifest.files and blobs is None:
        raise StoreError(f"backup {archive} holds {manifest.files} files: set files to folder:PATH, where they will be")
    lock = ProcessLock(path)
    try:
        for present in (path, path.with_name(path.name + "-wal")):
            if present.exists():
                raise StoreError(
                    f"store file {present} exists, and is not overwritten: move it away, or name another with --store"
                )
        drops = bool(manifest.owed) and drops_webhooks(manifest.owed)  # somebody may have to be waited for
        with _translated(path), _workplace(path) as folder, _written_files(blobs) as write:
            database = folder / "database"
            read_archive(archive, show, on_database=lambda pieces: _extract(database, pieces))
            contents = read_contents(database)
            show("Preparing", 0, 1)
            revive(database, drop_webhooks=drops)
            show("Preparing", 1, 1)
            if blobs is not None:
                blobs.claim(contents.kid)
                read_archive(archive, show, on_file=write)
            _sync(database)
            _name(database, path, force=False)
    finally:
        lock.release()
    return Restored(manifest, manifest.owed, drops)


def missing_files(path: Path, blobs: FolderBlobs | None) -> tuple[int, list[str]]:
    """How many files the store file at `path` names, and those of them that are not in `blobs`. Raises StoreError."""
    named, missing = 0, list[str]()
    for place in stored_files(path):
        named += 1
        if blobs is None or not blobs.path(place).is_file():
            missing.append(str(place))
    return named, missing


@contextmanager
def _written_files(blobs: FolderBlobs | None) -> Iterator[Callable[[BlobAddress, bytes], None]]:
    """Yield a function that writes files. If the block fails, those that it wrote are deleted."""
    written: list[Path] = []

    def write(place: BlobAddress, content: bytes) -> None:
        assert blobs is not None
        path = blobs.path(place)
        if not path.exists():
            written.append(path)
            blobs.write(place, content)

    try:
        yield write
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target` that only this user may read. It is deleted at the end, however that comes."""
    folder = target.absolute().parent / f".{target.name}.{secrets.token_hex(6)}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:  # a signal interrupted it
            shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raise the errors of the system as StoreError, in one line about `path`."""
    try:
        yield
    except StoreFull as error:
        raise StoreFull(f"{path}: {NO_SPACE}") from error
    except OSError as error:
        if error.errno in FULL:
            raise StoreFull(f"{path}: {NO_SPACE}") from error
        raise StoreError(f"{path}: {error.strerror}: name a file that this user may use") from error


def _name(part: Path, target: Path, *, force: bool) -> None:
    """Give a finished file its name, for good. Raises StoreError if that is taken, unless `force`."""
    if force:
        part.replace(target)
    else:
        try:
            os.link(part, target)
        except FileExistsError:
            raise StoreError(f"{target} exists, and is not overwritten: name another file") from None
        except OSError as error:  # a file system without hard links
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS) or target.exists():
                raise
            part.replace(target)
    _sync(target.absolute().parent)


def _extract(database: Path, pieces: Iterator[bytes]) -> None:
    descriptor = os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_path(place: BlobAddress) -> Path:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place))
