"""Chooses the driver for a store url, and the blob store for the setting `files`.

Invariant: no other module knows which drivers there are. The driver of S3 is imported only if the setting names it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.model.extras import install_command
from dragoman.model.ids import Clock, SystemClock
from dragoman.store.api import Store, StoreError
from dragoman.store.blobs.api import BlobError, BlobStore
from dragoman.store.blobs.folder import FolderBlobs
from dragoman.store.copying import Copied, CopyProgress, copy
from dragoman.store.damage_check import find_damage
from dragoman.store.path import ALLOWED, hide_password, is_shared, store_path
from dragoman.store.replicas import Heartbeat
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.backup import BackupWritten, Restored, back_up, missing_files, restore
from dragoman.store.sqlite.connection import InUse, ProcessLock
from dragoman.store.sqlite.connection import note_server as _note
from dragoman.store.sqlite.connection import noted_server as _noted
from dragoman.store.sqlite.snapshot import Show, read_contents, schema_version
from dragoman.store.sqlite.transfer import check as check_file
from dragoman.store.sqlite.transfer import open_source as open_file
from dragoman.store.sqlite.transfer import open_target as open_file_copy
from dragoman.store.sqlite.transfer import read_beside
from dragoman.store.transfer import TransferSource, TransferTarget

FOLDER = "folder:"


def open_store(url: str, clock: Clock, heartbeat: Heartbeat | None = None) -> Store:
    """The store at `url`, not yet opened. Raises StoreError, naming the valid urls, if no driver knows `url`.

    `heartbeat` is how this process's replicas stay alive if several processes share the store. The time of such a store
    is that of its server, which `clock` is asked for only in tests.
    """
    if url == "memory:" or url.startswith("sqlite:"):
        return SqliteStore(url, clock)
    if is_shared(url):
        return _postgres_store(url, clock, heartbeat)
    raise StoreError(f"store url {url!r}: {ALLOWED}")


def _postgres_store(url: str, clock: Clock, heartbeat: Heartbeat | None) -> Store:
    with _extra_postgres(url):
        from dragoman.store.postgres import DatabaseClock, PostgresStore
    return PostgresStore(url, DatabaseClock() if isinstance(clock, SystemClock) else clock, heartbeat)


@contextmanager
def _extra_postgres(url: str) -> Iterator[None]:
    """Says what to install if the driver cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise StoreError(
            f"store {hide_password(url)!r} needs the extra postgres: run {install_command('postgres')}"
        ) from error


async def check_made(url: str) -> None:
    """Raises StoreError if the database at `url` has no store, or cannot be asked. Nothing is made in it."""
    with _extra_postgres(url):
        from dragoman.store.postgres.database.address import parse_address
        from dragoman.store.postgres.database.opening import open_pool
    await (await open_pool(parse_address(url), make=False)).close()


async def check_store(url: str) -> list[str]:
    """One line for each fault in the store at `url`; none if all is well. It only reads, also beside servers.

    Counters match rows, logs have no gaps, nothing belongs to a missing task, and all rows can be decoded. Raises
    StoreError if it cannot be read.
    """
    if is_shared(url):
        with _extra_postgres(url):
            from dragoman.store.postgres.transfer import check as check_schema
            from dragoman.store.postgres.transfer import open_source
        faults = await check_schema(url)
        rows = await open_source(url)
        try:
            return faults + await find_damage(rows)
        finally:
            await rows.close()
    faults = check_file(url)
    if not is_current(url):  # an earlier version has other columns
        return faults
    with read_beside(_file(url)) as beside:
        return faults + await find_damage(beside)


async def is_served(url: str) -> bool:
    """Whether a server has the store at `url` open. Raises StoreError."""
    if not is_shared(url):
        try:
            ProcessLock(_file(url)).release()
        except InUse:
            return True
        return False
    store = open_store(url, SystemClock())
    await store.open(None)
    try:
        return bool(await store.replicas.all())
    finally:
        await store.close()


async def copy_store(
    source: str, target: str, show: Callable[[CopyProgress], None], *, restart: bool = False
) -> Copied:
    """Copy the store at one url into an empty one at another. A copy that was killed goes on where it was.

    `restart` deletes what is left of a copy. Raises StoreError.
    """
    if source == target:
        raise StoreError(f"store {hide_password(source)!r} cannot be copied into itself: name another place")
    rows: TransferSource
    if is_shared(source):
        with _extra_postgres(source):
            from dragoman.store.postgres.transfer import open_source
        rows = await open_source(source)
    else:
        rows = open_file(source)
    try:
        place: TransferTarget
        if is_shared(target):
            with _extra_postgres(target):
                from dragoman.store.postgres.transfer import open_target
            place = await open_target(target, rows.name, restart=restart)
        else:
            place = open_file_copy(target, rows.name, restart=restart)
        try:
            return await copy(rows, place, show)
        finally:
            await place.close()
    finally:
        await rows.close()


def back_up_store(
    url: str, files: str | None, target: Path, show: Show, *, program: str, now_ms: int, force: bool = False
) -> BackupWritten:
    """Write a backup of the file at `url`, and of the folder that `files` names, to `target`. Raises StoreError.

    A server may run. Files in a bucket are left out.
    """
    blobs, elsewhere = _folder(files)
    return back_up(_file(url), blobs, target, show, program=program, now_ms=now_ms, elsewhere=elsewhere, force=force)


def restore_store(
    archive: Path, url: str, files: str | None, drops_webhooks: Callable[[int], bool], show: Show
) -> Restored:
    """Make the file at `url`, and the folder that `files` names, from a backup. Raises StoreError.

    `drops_webhooks` is asked whether that many pending webhook calls are deleted, if there are any.
    """
    return restore(archive, _file(url), _folder(files)[0], drops_webhooks, show)


def check_files(url: str, files: str | None) -> tuple[int, list[str]]:
    """How many files outside of the store at `url` it names, and those of them that are missing. Raises StoreError.

    Files in a bucket are not looked for.
    """
    blobs, elsewhere = _folder(files)
    named, missing = missing_files(_file(url), blobs)
    return named, [] if elsewhere else missing


def is_current(url: str) -> bool:
    """Whether the file at `url` has the tables that this program writes. Raises StoreError."""
    return read_contents(_file(url)).version == schema_version()


def _file(url: str) -> Path:
    path = store_path(url)
    if path is None:
        raise StoreError(f"store {hide_password(url)!r} is no file: use sqlite:///path")
    return path


def _folder(files: str | None) -> tuple[FolderBlobs | None, str]:
    """The folder that `files` names, or else the place elsewhere."""
    if files is None:
        return None, ""
    if not files.startswith(FOLDER):
        return None, files.partition("?")[0]
    return FolderBlobs(_folder_path(files)), ""


def _folder_path(files: str) -> Path:
    """The folder, as an absolute path, because agents may change the working directory."""
    return Path(files.removeprefix(FOLDER)).expanduser().absolute()


def database_dsns(url: str) -> tuple[str, ...]:
    """The hosts of the PostgreSQL at `url`, each as its driver takes it, without the settings of the store.

    Raises StoreError.
    """
    from dragoman.store.postgres.database.address import parse_address

    return parse_address(url).each_dsn


def database_tools(url: str) -> tuple[str, str]:
    """The PostgreSQL at `url` as its own tools take it, without the password, and the schema. Raises StoreError."""
    with _extra_postgres(url):
        from dragoman.store.postgres.database.address import parse_address
    address = parse_address(url)
    bare = re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1@", address.dsn)
    return re.sub(r"[?&]password=[^&#]*", "", bare), address.schema


def note_server(url: str, base_url: str) -> None:
    """Write down, beside the store at `url`, the address of the server that has it open."""
    if (path := store_path(url)) is not None:
        _note(path, base_url)


def noted_server(url: str) -> str | None:
    """The address of the server that has the store at `url` open, or had it last; None if it was never noted."""
    path = store_path(url)
    return None if path is None else _noted(path)


def blob_store(files: str) -> BlobStore:
    """The blob store that `files` names, not yet opened. Raises BlobError, naming the fix."""
    if files.startswith(FOLDER):
        return FolderBlobs(_folder_path(files))
    try:
        from dragoman.store.blobs.s3 import S3Blobs
    except ImportError as error:
        raise BlobError(f"files {files!r} needs the extra s3: run {install_command('s3')}") from error
    return S3Blobs(files)
