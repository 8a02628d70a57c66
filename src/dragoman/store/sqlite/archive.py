"""Archives: a backup as one tar file, written from a snapshot and the files beside the store, and read back.

Invariant: an archive ends with its manifest, so one that was cut off is never taken for a whole one. Every byte in it
has a digest, in the manifest or in its own name, that is checked before it is believed.

The entries, in this order: `dragoman.db`, `files/<task>/<digest>` for each file of the blob store, `manifest.json`.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.blobs.api import BlobAddress
from dragoman.store.sqlite.snapshot import Show, Totals

FORMAT = 1
"""The number of this format. A program reads archives up to its own number."""

DATABASE = "dragoman.db"
FILES = "files/"
MANIFEST = "manifest.json"

MANIFEST_BYTES_MAX = 1 << 20
"""No manifest is longer; a longer one belongs to something else."""

PIECE_BYTES = 1 << 20


class Manifest(Struct, frozen=True, kw_only=True):
    """The contents of an archive. `sha256` and `bytes` are those of the database; `made` is a timestamp in UTC.

    `schema` is the version of its tables and `program` the Dragoman that wrote the archive. `files` counts the files
    from the blob store. `owed` webhook calls are pending. `elsewhere` names a blob store that the archive leaves out.
    """

    format: int
    made: str
    program: str
    schema: int
    sha256: str
    bytes: int
    totals: Totals
    owed: int
    files: int
    file_bytes: int
    elsewhere: str = ""


class ArchiveFault(StoreError):
    """The archive is damaged, cut off, or no archive of Dragoman."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"backup {path} {fault}: use another one")


def digest_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_archive(
    target: Path,
    database: Path,
    places: Iterable[BlobAddress],
    path_of: Callable[[BlobAddress], Path],
    describe: Callable[[int, int], Manifest],
    show: Show,
) -> tuple[Manifest, list[BlobAddress]]:
    """Write an archive to the new file `target`, synced to the disk. Returns its manifest, and the files that are gone.

    `describe` makes the manifest, given the number of files and their bytes. Raises OSError.
    """
    size = database.stat().st_size
    files = file_bytes = 0
    gone: list[BlobAddress] = []
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        with database.open("rb") as content:
            archive.addfile(_entry(DATABASE, size), _Shown(content, lambda done: show("Writing", done, size)))
        for place in places:
            try:
                with path_of(place).open("rb") as stored:
                    entry = _entry(f"{FILES}{place}", os.fstat(stored.fileno()).st_size)
                    archive.addfile(entry, stored)
            except FileNotFoundError:
                gone.append(place)
                continue
            files, file_bytes = files + 1, file_bytes + entry.size
        manifest = describe(files, file_bytes)
        told = msgspec.json.format(msgspec.json.encode(manifest))
        archive.addfile(_entry(MANIFEST, len(told)), io.BytesIO(told))
        archive.close()
        out.flush()
        os.fsync(out.fileno())
    return manifest, gone


def read_archive(
    path: Path,
    show: Show,
    *,
    on_database: Callable[[Iterator[bytes]], None] | None = None,
    on_file: Callable[[BlobAddress, bytes], None] | None = None,
) -> Manifest:
    """Read a whole archive, check every digest in it, and return its manifest.

    `on_database` gets the bytes of the database before they are checked, `on_file` those of each file afterwards.
    Raises ArchiveFault, OSError.
    """
    size = path.stat().st_size
    digest, database_bytes, files, file_bytes = "", 0, 0, 0
    manifest: Manifest | None = None
    try:
        with path.open("rb") as content, tarfile.open(fileobj=content, mode="r:") as archive:
            for entry in archive:
                body = archive.extractfile(entry)
                if body is None or manifest is not None:
                    raise ArchiveFault(path, f"has an entry that does not belong there ({entry.name!r})")
                if entry.name == DATABASE and not digest:
                    pieces = _Digest(body, lambda: show("Verifying", content.tell(), size))
                    if on_database is None:
                        for _ in pieces:
                            pass
                    else:
                        on_database(iter(pieces))
                    digest, database_bytes = pieces.sha256.hexdigest(), entry.size
                elif entry.name.startswith(FILES) and digest:
                    place = BlobAddress.read(entry.name.removeprefix(FILES))
                    stored = body.read()
                    if place is None or BlobAddress.of(place.task_id, stored) != place:
                        raise ArchiveFault(path, f"is damaged in {entry.name!r}")
                    if on_file is not None:
                        on_file(place, stored)
                    files, file_bytes = files + 1, file_bytes + len(stored)
                    show("Verifying", content.tell(), size)
                elif entry.name == MANIFEST and digest:
                    manifest = _read_manifest(path, body.read(MANIFEST_BYTES_MAX))
                else:
                    raise ArchiveFault(path, f"has an entry that does not belong there ({entry.name!r})")
    except tarfile.TarError as error:
        raise ArchiveFault(path, "is no backup of Dragoman, or was cut off") from error
    if manifest is None:
        raise ArchiveFault(path, "was cut off")
    if (digest, database_bytes, files, file_bytes) != (
        manifest.sha256,
        manifest.bytes,
        manifest.files,
        manifest.file_bytes,
    ):
        raise ArchiveFault(path, "is damaged: its digest is not the one it was written with")
    show("Verifying", size, size)
    return manifest


def _read_manifest(path: Path, content: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ArchiveFault(path, "has a manifest that cannot be read") from error
    if manifest.format > FORMAT:
        raise StoreError(f"backup {path} is of format {manifest.format}, this program reads {FORMAT}: use a newer one")
    return manifest


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


class _Shown(io.RawIOBase):
    """A file that tells how far it was read."""

    def __init__(self, file: IO[bytes], tell: Callable[[int], None]) -> None:
        self._file = file
        self._tell = tell

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._tell(self._file.tell())
        return piece


class _Digest:
    """The pieces of a file; `sha256` is that of those that were read."""

    def __init__(self, file: IO[bytes], step: Callable[[], None]) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file
        self._step = step

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._file.read(PIECE_BYTES):
            self.sha256.update(piece)
            self._step()
            yield piece
