"""Reads that several operators share."""

import asyncio

import pytest

from dragoman.engine.admin.shared_reads import APART_S, SharedReads
from tests.virtual_time import in_virtual_time

DEADLINE_S = 60.0


class Book:
    """A thing to read: each reading returns what was written, as soon as `gate` is open."""

    def __init__(self) -> None:
        self.written = 0
        self.readings = 0
        self.gate = asyncio.Event()
        self.reading = asyncio.Event()
        self.gate.set()

    async def read(self) -> int:
        self.readings += 1
        found = self.written
        self.reading.set()
        await self.gate.wait()
        return found


async def test_those_who_ask_together_share_one_reading() -> None:
    shared, book = SharedReads(), Book()
    assert await asyncio.gather(*[shared.read("book", book.read) for _ in range(20)]) == [0] * 20
    assert book.readings == 1


async def test_an_answer_shows_what_was_written_before_it_was_asked_for() -> None:
    shared, book = SharedReads(), Book()
    book.gate.clear()
    first = asyncio.create_task(shared.read("book", book.read))
    async with asyncio.timeout(DEADLINE_S):
        await book.reading.wait()
        book.written = 1
        second = asyncio.create_task(shared.read("book", book.read))
        await asyncio.sleep(0)  # it has asked, while the first reading is under way
        book.gate.set()
        assert (await first, await second) == (0, 1)


@in_virtual_time
async def test_the_same_is_never_read_twice_at_the_same_time() -> None:
    shared, book = SharedReads(), Book()
    book.gate.clear()
    first = asyncio.create_task(shared.read("book", book.read))
    async with asyncio.timeout(DEADLINE_S):
        await book.reading.wait()
        others = [asyncio.create_task(shared.read("book", book.read)) for _ in range(3)]
        await asyncio.sleep(2 * APART_S)  # longer than a reading is put off
        assert book.readings == 1
        book.gate.set()
        await asyncio.gather(first, *others)
    assert book.readings == 2


async def test_who_leaves_takes_the_reading_from_nobody() -> None:
    shared, book = SharedReads(), Book()
    book.gate.clear()
    async with asyncio.timeout(DEADLINE_S):
        leaves = asyncio.create_task(shared.read("book", book.read))
        await asyncio.sleep(0)
        stays = [asyncio.create_task(shared.read("book", book.read)) for _ in range(2)]
        await book.reading.wait()
        leaves.cancel()
        book.gate.set()
        assert await asyncio.gather(*stays) == [0, 0]
        assert book.readings == 2


async def test_all_who_wait_learn_that_the_reading_failed() -> None:
    async def fail() -> int:
        raise LookupError("no such book")

    shared = SharedReads()
    outcomes = await asyncio.gather(*[shared.read("book", fail) for _ in range(3)], return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["no such book"] * 3
    with pytest.raises(LookupError):
        await shared.read("book", fail)


async def test_different_questions_are_asked_apart() -> None:
    shared, book, other = SharedReads(), Book(), Book()
    other.written = 7
    found = await asyncio.gather(shared.read("book", book.read), shared.read("other", other.read))
    assert list(found) == [0, 7]
