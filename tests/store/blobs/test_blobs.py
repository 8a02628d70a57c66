"""A folder and a bucket keep bytes the same way: what a BlobStore promises, for each."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from dragoman.store.blobs.api import OWNER, BlobAddress, BlobError, BlobMissing, BlobStore
from dragoman.store.open import blob_store
from tests.store.blobs.bucket import Bucket, moto, rclone

TASK, OTHER = "01a1f92a-3e47-7761-82d7-4cc7178158f7", "01a1f92a-3e47-7761-82d7-4cc7178158f8"
LATER_MS = 10_000


@pytest.fixture(scope="module")
async def bucket() -> AsyncIterator[Bucket]:
    async with moto() as running:
        yield running


@pytest.fixture(params=["folder", pytest.param("s3", marks=[pytest.mark.peer, pytest.mark.slow])])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The setting."""
    if request.param == "folder":
        return f"folder:{tmp_path}/deep/files"
    here: Bucket = request.getfixturevalue("bucket")
    here.as_owner(monkeypatch)
    return here.files.replace("some/prefix", tmp_path.name)


@pytest.fixture
async def blobs(files: str) -> AsyncIterator[BlobStore]:
    made = blob_store(files)
    await made.open()
    yield made
    await made.delete(TASK)
    await made.delete(OTHER)
    await made.close()


def now_ms() -> int:
    return int(time.time() * 1000)


async def read(blobs: BlobStore, place: BlobAddress, start: int, stop: int) -> bytes:
    return b"".join([piece async for piece in blobs.pieces(place, start, stop)])


async def tasks(blobs: BlobStore, before_ms: int) -> list[str]:
    return [task_id async for task_id in blobs.tasks(before_ms)]


@pytest.mark.parametrize("size", [1, 5000, 3_000_000])
async def test_what_was_put_is_there_whole_and_in_pieces(blobs: BlobStore, size: int) -> None:
    content = os.urandom(size)
    place = BlobAddress.of(TASK, content)
    await blobs.put(place, content)
    await blobs.put(place, content)
    assert await blobs.size(place) == size
    assert await blobs.get(place) == content
    assert await read(blobs, place, 0, size) == content
    middle = size // 3
    assert await read(blobs, place, middle, size - middle) == content[middle : size - middle]


async def test_what_was_never_put_is_missing(blobs: BlobStore) -> None:
    place = BlobAddress.of(TASK, b"nothing")
    with pytest.raises(BlobMissing):
        await blobs.size(place)
    with pytest.raises(BlobMissing):
        await blobs.get(place)
    with pytest.raises(BlobMissing):
        await read(blobs, place, 0, 7)


async def test_a_task_goes_with_all_its_bytes_and_no_other_does(blobs: BlobStore) -> None:
    mine, more, others = BlobAddress.of(TASK, b"a"), BlobAddress.of(TASK, b"b"), BlobAddress.of(OTHER, b"a")
    for place, content in ((mine, b"a"), (more, b"b"), (others, b"a")):
        await blobs.put(place, content)
    assert sorted(await tasks(blobs, now_ms() + LATER_MS)) == [TASK, OTHER]
    await blobs.delete(TASK)
    await blobs.delete(TASK)
    assert await tasks(blobs, now_ms() + LATER_MS) == [OTHER]
    with pytest.raises(BlobMissing):
        await blobs.get(mine)
    assert await blobs.get(others) == b"a"


async def test_only_what_was_kept_before_a_time_is_listed(blobs: BlobStore) -> None:
    await blobs.put(BlobAddress.of(TASK, b"a"), b"a")
    assert await tasks(blobs, now_ms() - LATER_MS) == []


async def test_what_one_store_has_another_does_not_take(blobs: BlobStore, files: str) -> None:
    await blobs.open("one")
    await blobs.open("one")
    for owner in ("two", ""):  # one in memory, whose files the first would delete
        other = blob_store(files)
        with pytest.raises(BlobError, match="another folder or prefix"):
            await other.open(owner)
        await other.close()
    assert await tasks(blobs, now_ms() + LATER_MS) == []


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BlobError, match="name a folder that the server may write to"):
        await blob_store(f"folder:{tmp_path}/file/below").open()


async def test_a_folder_stays_where_it_is_when_an_agent_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    blobs = blob_store("folder:files")
    await blobs.open()
    monkeypatch.chdir(tmp_path / "elsewhere")
    place = BlobAddress.of(TASK, b"x")
    await blobs.put(place, b"x")
    assert await blobs.get(place) == b"x"
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / OWNER).write_bytes(b"\xff\xfe")
    with pytest.raises(BlobError, match="another folder or prefix"):
        await blob_store(f"folder:{tmp_path}").open("one")


async def test_a_folder_that_the_server_makes_is_its_own(tmp_path: Path) -> None:
    await blob_store(f"folder:{tmp_path}/new").open()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


async def test_a_half_written_file_is_no_file(tmp_path: Path) -> None:
    blobs = blob_store(f"folder:{tmp_path}")
    place = BlobAddress.of(TASK, b"whole")
    await blobs.put(place, b"whole")
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != OWNER)
    assert path.name == place.digest
    path.rename(path.with_name(f"{place.digest}.x.part"))
    with pytest.raises(BlobMissing):
        await blobs.get(place)
    await blobs.put(place, b"whole")
    assert await blobs.get(place) == b"whole"


@pytest.mark.parametrize(
    "spelled", ["", "/", "a/b", "../x/" + "0" * 40, "a/" + "0" * 39, "a/" + "G" * 40, "a/b/" + "0" * 40]
)
def test_what_is_no_place_is_none(spelled: str) -> None:
    assert BlobAddress.read(spelled) is None


def test_a_place_is_read_as_it_is_spelled() -> None:
    place = BlobAddress.of(TASK, b"x")
    assert BlobAddress.read(str(place)) == place


@pytest.mark.peer
@pytest.mark.slow
async def test_a_bucket_that_refuses_is_named_with_what_to_look_at(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.as_owner(monkeypatch)
    with pytest.raises(BlobError, match=r"AWS_ACCESS_KEY_ID"):
        await blob_store(bucket.files.replace("//files", "//absent")).open()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(BlobError, match=r"privileges"):
        await blob_store(bucket.files).open()


@pytest.mark.peer
@pytest.mark.slow
async def test_the_url_of_a_bucket_opens_that_object_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rclone(tmp_path / "s3") as bucket, aiohttp.ClientSession() as http:
        bucket.as_owner(monkeypatch)
        blobs = blob_store(bucket.files)
        await blobs.open()
        place, other = BlobAddress.of(TASK, b"mine"), BlobAddress.of(OTHER, b"others")
        await blobs.put(place, b"mine")
        await blobs.put(other, b"others")
        url = await blobs.elsewhere(place, 60)
        assert url is not None
        async with http.get(url) as answer:
            assert (answer.status, await answer.read()) == (200, b"mine")
        async with http.get(url.replace(str(place), str(other))) as answer:
            assert answer.status == 403
        await blobs.close()


BREAKS_AFTER = 300_000
"""More than the driver hands on at once."""


async def test_a_download_that_breaks_off_time_and_again_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(BREAKS_AFTER * 9)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = re.search(rb"range: bytes=([0-9]+)-", await reader.readuntil(b"\r\n\r\n"), re.IGNORECASE)
        assert found is not None
        start, size = int(found[1]), len(content)
        head = f"content-range: bytes {start}-{size - 1}/{size}\r\ncontent-length: {size - start}\r\n"
        dated = 'last-modified: Wed, 21 Oct 2026 07:28:00 GMT\r\netag: "x"\r\n'
        writer.write(f"HTTP/1.1 206 Partial Content\r\n{head}{dated}\r\n".encode())
        writer.write(content[start : start + BREAKS_AFTER])
        await writer.drain()
        writer.close()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        blobs = blob_store(f"s3://files?endpoint=http://127.0.0.1:{port}&region=us-east-1")
        assert await read(blobs, BlobAddress.of(TASK, content), 5, len(content)) == content[5:]
        await blobs.close()
