"""An answer that comes in pieces, and is read as often as its reader likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dragoman.net.egress import Egress, Flow
from dragoman.net.errors import Broken
from tests.kit.waiting import no_hang
from tests.net.lines import Line, speaking
from tests.net.peer import listening

DEADLINE_S = 60.0

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"


class Speaker:
    """Says what it is told to, over one connection."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()

    def say(self, *pieces: bytes) -> None:
        """Each in a chunk of its own; an empty one ends the answer."""
        for piece in pieces:
            self.said.put_nowait(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def __call__(self, asked: object, writer: asyncio.StreamWriter) -> None:
        """As a script of the peer."""
        writer.write(HEAD)
        while (piece := await self.said.get()) is not None:
            writer.write(piece)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def heard(speaker: Speaker) -> AsyncIterator[Flow]:
    async with no_hang(), listening() as peer:
        peer.scripts["GET /"] = speaker
        egress = Egress()
        try:
            async with egress.stream("GET", peer.url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
                yield flow
        finally:
            speaker.said.put_nowait(None)
            await egress.close()


class Windows:
    """The wait, until it is ended."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def gathered(self, flow: Flow, speaker: Speaker, *more: bytes) -> bytes:
        """The bytes that have come by the end of a window in which more was said."""
        waiting = flow.gathering(self.begun.put_nowait)
        if waiting is None:
            return flow.gathered()
        window = await self.begun.get()
        speaker.say(*more)
        while not speaker.said.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # the network's time
        assert not waiting.done()
        window.set_result(None)
        await waiting
        return flow.gathered()


async def test_what_comes_within_a_window_comes_as_one() -> None:
    speaker, windows = Speaker(), Windows()
    async with heard(speaker) as flow:
        speaker.say(b"a")
        assert await windows.gathered(flow, speaker, b"b", b"c") == b"abc"
        assert await windows.gathered(flow, speaker, b"d", b"e") == b"de"
        assert await windows.gathered(flow, speaker, b"f", b"") == b"f"
        assert flow.gathering(windows.begun.put_nowait) is None
        assert flow.gathered() == b""


async def test_a_window_in_which_nothing_came_is_followed_by_what_comes_next() -> None:
    speaker, windows = Speaker(), Windows()
    async with heard(speaker) as flow:
        speaker.say(b"a")
        assert await windows.gathered(flow, speaker) == b"a"
        waiting = flow.gathering(windows.begun.put_nowait)
        assert waiting is not None
        (await windows.begun.get()).set_result(None)
        await asyncio.sleep(0.05)  # as long as anything might come
        assert not waiting.done()
        speaker.say(b"b")
        (await windows.begun.get()).set_result(None)
        await waiting
        assert flow.gathered() == b"b"


async def test_an_answer_that_breaks_off_says_so_after_what_came() -> None:
    speaker, windows = Speaker(), Windows()
    async with heard(speaker) as flow:
        speaker.say(b"a")
        assert await windows.gathered(flow, speaker, b"b") == b"ab"
        speaker.said.put_nowait(None)
        waiting = flow.gathering(windows.begun.put_nowait)
        if waiting is not None:
            (await windows.begun.get()).set_result(None)
            await waiting
        with pytest.raises(Broken):
            flow.gathered()


async def test_a_window_that_is_over_at_once_holds_nothing_back() -> None:
    speaker = Speaker()
    async with heard(speaker) as flow:
        got = b""
        for piece in (b"a", b"b", b"c"):
            speaker.say(piece)
            waiting = flow.gathering(lambda window: window.set_result(None))
            assert waiting is not None
            await waiting
            got += flow.gathered()
        assert got == b"abc"


async def test_what_comes_before_it_is_asked_for_begins_no_window() -> None:
    speaker, begun = Speaker(), 0

    def begin(window: "asyncio.Future[None]") -> None:
        nonlocal begun
        begun += 1
        window.set_result(None)

    async with heard(speaker) as flow:
        speaker.say(b"a")
        waiting = flow.gathering(begin)
        assert waiting is not None
        await waiting
        speaker.say(b"b")
        await asyncio.sleep(0.05)  # the network's time
        assert begun == 1
        assert flow.gathered() == b"ab"


async def test_a_chunk_of_which_the_beginning_has_come_alone_is_waited_for() -> None:
    speaker, windows = Speaker(), Windows()
    async with heard(speaker) as flow:
        speaker.say(b"a")
        assert await windows.gathered(flow, speaker, b"b") == b"ab"
        waiting = flow.gathering(windows.begun.put_nowait)
        assert waiting is not None
        window = await windows.begun.get()
        speaker.said.put_nowait(b"1\r\n")
        await asyncio.sleep(0.05)  # the network's time
        window.set_result(None)
        await asyncio.sleep(0.05)  # as long as anything might come
        assert not waiting.done()
        speaker.said.put_nowait(b"c\r\n")
        (await windows.begun.get()).set_result(None)
        await waiting
        assert flow.gathered() == b"c"


async def test_what_has_come_in_a_window_needs_no_more_of_them_however_much_it_is() -> None:
    speaker, windows, much = Speaker(), Windows(), b"x" * 100_000
    async with heard(speaker) as flow:
        speaker.say(b"a")
        assert await windows.gathered(flow, speaker, b"b") == b"ab"
        got = await windows.gathered(flow, speaker, *[much[:1000]] * 100)
        while len(got) < len(much):
            waiting = flow.gathering(windows.begun.put_nowait)
            if waiting is not None:
                await waiting
            got += flow.gathered()
        assert got == much
        assert windows.begun.empty()


async def test_of_the_next_answer_on_a_connection_the_head_counts_at_once() -> None:
    taken = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(HEAD, b"1\r\na\r\n")
        await taken.wait()
        await line.says(b"0\r\n\r\n")
        await line.asked()
        await line.says(HEAD)
        await line.ended()

    def at_once(window: "asyncio.Future[None]") -> None:
        window.set_result(None)

    async with asyncio.timeout(DEADLINE_S), speaking(talk) as lines:
        egress, url = Egress(), f"http://127.0.0.1:{lines.port}/"
        async with egress.stream("GET", url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
            waiting = flow.gathering(at_once)
            assert waiting is not None
            await waiting
            assert flow.gathered() == b"a"
            waiting = flow.gathering(at_once)
            assert waiting is not None
            taken.set()
            await waiting
        async with asyncio.timeout(60), egress.stream("GET", url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
            assert flow.status == 200
        assert lines.came == 1
        await egress.close()
