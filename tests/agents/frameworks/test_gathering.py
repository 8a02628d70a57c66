"""Tokens become chunks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from dragoman.agents.frameworks.runs import PIECES_MAX, flush_output, gather_texts, text_sink
from dragoman.agents.text_windows import Windows

WINDOW_S = 0.05


async def given(*pieces: object) -> AsyncGenerator[object, None]:
    for piece in pieces:
        yield piece


async def all_of(pieces: AsyncGenerator[object, None]) -> list[object]:
    async with aclosing(gather_texts(pieces, Windows(WINDOW_S))) as gathering:
        return [piece async for piece in gathering]


async def test_texts_that_come_together_are_one() -> None:
    assert await all_of(given("a", "b", "c")) == ["abc"]


async def test_order_is_kept_around_what_is_no_text() -> None:
    assert await all_of(given("a", "b", {"n": 1}, "c", {"n": 2})) == ["ab", {"n": 1}, "c", {"n": 2}]


async def test_nothing_is_nothing() -> None:
    assert await all_of(given()) == []


async def test_the_first_comes_at_once_and_the_rest_within_a_window() -> None:
    more, over = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncGenerator[object, None]:
        yield "first "
        await more.wait()
        yield "second "
        yield "third"
        await over.wait()

    async with asyncio.timeout(60), aclosing(gather_texts(slow(), Windows(WINDOW_S))) as gathering:
        assert await anext(gathering) == "first "
        more.set()
        assert await anext(gathering) == "second third"
        over.set()
        assert await anext(gathering, None) is None


async def test_more_than_fits_waits_and_nothing_is_lost() -> None:
    texts = [str(number) for number in range(3 * PIECES_MAX)]
    assert "".join(map(str, await all_of(given(*texts)))) == "".join(texts)


async def test_what_is_said_and_what_is_yielded_keep_their_order() -> None:
    async def run() -> AsyncGenerator[object, None]:
        say = text_sink()
        assert say("a")
        yield "b"
        say("c")
        yield {"n": 1}
        say("d")

    assert await all_of(run()) == ["abc", {"n": 1}, "d"]


async def test_the_first_that_is_said_comes_at_once() -> None:
    over = asyncio.Event()

    async def run() -> AsyncGenerator[object, None]:
        text_sink()("first")
        await over.wait()
        yield "last"

    async with asyncio.timeout(60), aclosing(gather_texts(run(), Windows(60))) as gathering:
        assert await anext(gathering) == "first"
        over.set()
        assert [piece async for piece in gathering] == ["last"]


async def test_whoever_says_more_than_fits_is_told_and_can_wait_for_room() -> None:
    texts = [str(number) for number in range(3 * PIECES_MAX)]
    full = 0

    async def run() -> AsyncGenerator[object, None]:
        nonlocal full
        say = text_sink()
        for text in texts:
            if not say(text):
                full += 1
                await flush_output()
        yield {"n": 1}

    assert "".join(map(str, await all_of(run()))) == "".join(texts) + "{'n': 1}"
    assert full == 3


async def test_nothing_is_said_outside_of_a_run() -> None:
    with pytest.raises(LookupError):
        text_sink()


async def test_what_came_before_an_error_is_given_then_it_is_raised() -> None:
    async def breaking() -> AsyncGenerator[object, None]:
        yield "half"
        raise ValueError("broken")

    got: list[object] = []
    with pytest.raises(ValueError, match="broken"):
        async with aclosing(gather_texts(breaking(), Windows(WINDOW_S))) as gathering:
            async for piece in gathering:
                got.append(piece)
    assert got == ["half"]


async def test_what_is_reported_comes_after_what_was_given_before() -> None:
    order: list[object] = []

    async def reporting() -> AsyncGenerator[object, None]:
        yield "a "
        yield "b "
        await flush_output()
        order.append("report ")
        yield "c "
        await asyncio.sleep(0)
        yield "d "
        await flush_output()
        await flush_output()
        order.append("report")

    async with asyncio.timeout(60), aclosing(gather_texts(reporting(), Windows(60))) as gathering:
        async for piece in gathering:
            order.append(piece)
    assert "".join(str(each) for each in order) == "a b report c d report"


async def test_outside_of_a_run_there_is_nothing_to_wait_for() -> None:
    await flush_output()


async def test_closing_it_ends_the_run_first() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[object, None]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async with aclosing(gather_texts(endless(), Windows(WINDOW_S))) as gathering:
        assert await anext(gathering) == "a"
    assert ended.is_set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_what_would_end_the_process_ends_the_run(error: BaseException) -> None:
    async def run() -> AsyncGenerator[object, None]:
        yield "a"
        raise error

    with pytest.raises(RuntimeError) as raised:
        await all_of(run())
    assert raised.value.__cause__ is error
