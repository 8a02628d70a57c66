"""Answers that are read as they come, before real sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dragoman.net.address import Guard
from dragoman.net.egress import Egress
from dragoman.net.errors import AddressRefused, Broken, TimedOut, TooLarge, Unreachable
from tests.kit.waiting import no_hang
from tests.net.peer import Asked, Peer, hangs, nobody, raw, says

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress(max_answer_bytes=1000)
    yield egress
    await egress.close()


class Watched:
    """A server that begins a stream, goes on no further, and knows when its caller has hung up."""

    def __init__(self) -> None:
        self.url = ""
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"one"))
        assert await reader.read() == b""
        self.left.set()
        writer.close()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    server = await asyncio.start_server(watched.serve, "127.0.0.1", 0)
    watched.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with no_hang(), server:
        yield watched


async def test_pieces_come_before_the_answer_is_over(peer: Peer, egress: Egress) -> None:
    go = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(b"one"))
        await go.wait()
        writer.write(chunk(b"two") + END)

    peer.scripts["POST /"] = script
    async with egress.stream("POST", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0, body=b"{}") as flow:
        assert (flow.status, flow.ok, flow.headers["content-type"]) == (200, True, "text/event-stream")
        pieces = flow.pieces
        assert await anext(pieces) == b"one"
        go.set()
        assert [piece async for piece in pieces] == [b"two"]
    assert peer.asked[0].body == b"{}"


async def test_a_body_is_read_whole_up_to_its_limit(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(b"x" * 1000, 404)
    peer.scripts["GET /large"] = says(b"x" * 1001)
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        assert (flow.ok, len(await flow.body())) == (False, 1000)
    async with egress.stream("GET", peer.url + "/large", head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        with pytest.raises(TooLarge):
            await flow.body()


async def test_a_head_that_does_not_come_in_time_is_named(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = hangs()
    with pytest.raises(TimedOut, match=r"within 0\.5 s") as caught:  # time enough to connect
        async with egress.stream("GET", peer.url + "/", head_timeout_s=0.5, idle_timeout_s=60.0):
            pass
    assert caught.value.sent


async def test_silence_in_the_midst_ends_the_wait(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = hangs(HEAD + chunk(b"one"))
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=0.05) as flow:
        pieces = flow.pieces
        assert await anext(pieces) == b"one"
        with pytest.raises(TimedOut, match=r"within 0\.05 s"):
            await anext(pieces)


async def test_time_that_the_reader_takes_is_not_silence(peer: Peer, egress: Egress) -> None:
    go = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(b"one"))
        await go.wait()
        writer.write(chunk(b"two") + END)

    peer.scripts["GET /"] = script
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=0.5) as flow:
        pieces = flow.pieces
        assert await anext(pieces) == b"one"
        busy = asyncio.Event()
        asyncio.get_running_loop().call_later(0.6, busy.set)
        await busy.wait()
        go.set()
        assert [piece async for piece in pieces] == [b"two"]


async def test_a_stream_that_breaks_off_is_no_end(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = raw(HEAD + chunk(b"one") + b"5\r\ntw")
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        with pytest.raises(Broken):
            [piece async for piece in flow.pieces]


async def test_whoever_leaves_early_hangs_up(watched: Watched, egress: Egress) -> None:
    async with egress.stream("GET", watched.url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        assert await anext(flow.pieces) == b"one"
    await watched.left.wait()


async def test_cancellation_hangs_up(watched: Watched, egress: Egress) -> None:
    begun = asyncio.Event()

    async def follow() -> None:
        async with egress.stream("GET", watched.url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
            async for _ in flow.pieces:
                begun.set()

    following = asyncio.create_task(follow())
    await begun.wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    await watched.left.wait()


async def test_a_redirect_is_an_answer(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(b"", 307, {"Location": "/other"})
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        assert flow.status == 307
    assert peer.paths == ["GET /"]


async def test_what_never_went_out_was_not_sent(egress: Egress) -> None:
    with pytest.raises(Unreachable) as caught:
        async with egress.stream("GET", await nobody(), head_timeout_s=60.0, idle_timeout_s=60.0):
            pass
    assert not caught.value.sent


async def test_a_guarded_stream_dials_no_private_address(peer: Peer) -> None:
    guarded = Egress(Guard())
    with pytest.raises(AddressRefused):
        async with guarded.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0):
            pass
    await guarded.close()
    assert not peer.asked


async def test_a_compressed_stream_is_refused(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(b"xx", headers={"Content-Encoding": "gzip"})
    async with egress.stream("GET", peer.url + "/", head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        with pytest.raises(Broken, match="compressed"):
            await flow.body()
