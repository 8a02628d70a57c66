"""A folder for large files is one that all replicas see, or the server does not start."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.server import StartError
from dragoman.server.files import FOLDER_KEY, check_folder
from dragoman.store.api import Store
from dragoman.store.blobs.folder import FolderBlobs
from dragoman.store.open import open_store


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store."""
    store = open_store("memory:", SystemClock())
    await store.open("r1")
    yield store
    await store.close()


async def opened(root: Path) -> FolderBlobs:
    blobs = FolderBlobs(root)
    await blobs.open("the key")
    return blobs


async def test_replicas_that_see_one_folder_start(store: Store, tmp_path: Path) -> None:
    for _ in range(3):
        await check_folder(await opened(tmp_path), f"folder:{tmp_path}", store)


async def test_a_replica_with_a_folder_of_its_own_is_refused(store: Store, tmp_path: Path) -> None:
    await check_folder(await opened(tmp_path / "one"), "folder:one", store)
    other = await opened(tmp_path / "other")
    with pytest.raises(StartError, match="files 'folder:other' is not the folder that the other replicas use"):
        await check_folder(other, "folder:other", store)


async def test_a_new_folder_is_taken_once_the_old_one_is_forgotten(store: Store, tmp_path: Path) -> None:
    await check_folder(await opened(tmp_path / "one"), "folder:one", store)
    await store.shared.delete(FOLDER_KEY)
    await check_folder(await opened(tmp_path / "other"), "folder:other", store)


async def test_the_mark_of_a_folder_is_no_task_of_it(tmp_path: Path) -> None:
    blobs = await opened(tmp_path)
    assert await blobs.mark() == await (await opened(tmp_path)).mark()
    assert [task async for task in blobs.tasks(1 << 62)] == []
