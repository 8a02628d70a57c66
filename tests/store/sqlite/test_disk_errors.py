"""A disk that fails in the middle of a commit: nothing was written, and the store goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import StoreError
from dragoman.store.open import open_store
from tests.store.cases.bench import by_run, chunk, new_task, seqs


class Disk(apsw.VFS):
    """The machine's disk, whose write-ahead logs can be made to fail."""

    def __init__(self) -> None:
        self.fails = ""
        self.below = apsw.vfs_names()[0]
        super().__init__("failing", self.below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  as SQLite calls it
        return File(self, name, flags)


class File(apsw.VFSFile):
    """A file of that disk."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__(disk.below, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._fail("sync", apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._fail("write", apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)

    def _fail(self, what: str, code: int) -> None:
        if self._is_log and self._disk.fails == what:
            error = apsw.IOError(what)
            error.extendedresult = code  # type: ignore[attr-defined]  # a stub lacks it
            raise error


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.unregister()


@pytest.mark.parametrize("fails", ["write", "sync"])
async def test_a_commit_that_the_disk_does_not_take_has_written_nothing(disk: Disk, tmp_path: Path, fails: str) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'tasks.db'}", SystemClock())
    await store.open("h1")
    try:
        await store.create(replace(new_task("t1"), write=1))
        disk.fails = fails
        with pytest.raises(StoreError):
            await store.append(replace(by_run("t1", chunk("a")), write=2, read_seq=1))
        disk.fails = ""
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1]
        await store.append(replace(by_run("t1", chunk("b")), write=3, read_seq=1))
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1, 2]
    finally:
        disk.fails = ""
        await store.close()
