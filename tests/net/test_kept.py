"""Connections of an Egress: which are kept, how often a request is made, and who waits for whom."""

import asyncio
import base64
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from dragoman.net.connection import HELD_BYTES_MAX, NEVER, ConnectionEnd, HttpConnection
from dragoman.net.dialer import missing_answer
from dragoman.net.egress import Egress
from dragoman.net.errors import BadUrl, Broken, Unreachable
from dragoman.net.exchange import HttpAnswer
from tests.certificates import Authority
from tests.kit.waiting import no_hang
from tests.net.lines import NO_CONTENT, Line, Lines, obliging, speaking
from tests.net.peer import DEADLINE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress()
    async with no_hang():
        yield egress
    await egress.close()


def at(lines: Lines, path: str = "/") -> str:
    return f"http://127.0.0.1:{lines.port}{path}"


async def ask(egress: Egress, lines: Lines, method: str = "GET") -> int:
    return (await egress.request(method, at(lines), timeout_s=60.0)).status


async def read(egress: Egress, lines: Lines) -> bytes:
    async with egress.stream("GET", at(lines), head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
        return b"".join([piece async for piece in flow.pieces])


async def test_requests_and_streams_use_one_connection_in_turn(egress: Egress) -> None:
    async def talk(line: Line) -> None:
        for answer in (OK, HEAD + b"1\r\na\r\n" + END, NO_CONTENT):
            await line.asked()
            await line.says(answer)
        await line.ended()

    async with speaking(talk) as lines:
        assert await ask(egress, lines) == 200
        assert await read(egress, lines) == b"a"
        assert await ask(egress, lines, "DELETE") == 204
        assert lines.came == 1
        await egress.close()


class Prompt(asyncio.Transport):
    """A transport whose other side answers at once, before a deadline can pass, until it is silent."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__({"ssl_object": "so that it needs no socket"})
        self.silent = self.closing = False
        self._connection = connection

    def write(self, data: object) -> None:
        if not self.silent:
            self._connection.data_received(OK)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        pass


async def test_each_request_on_one_connection_has_a_time_of_its_own() -> None:
    """One timer serves all of them: it comes with the time of the first, and must not end the second then."""
    loop, passed = asyncio.get_running_loop(), asyncio.Event()
    connection = HttpConnection(("http", "h", 80), SimpleNamespace(forget=lambda connection: None))
    transport = Prompt(connection)
    connection.connection_made(transport)
    first_s = loop.time() + 0.05
    await connection.ask(b"", HttpAnswer(), first_s)
    connection.finish()
    transport.silent = True
    second = loop.create_task(connection.ask(b"", HttpAnswer(), first_s + DEADLINE_S))
    loop.call_at(first_s + 0.05, passed.set)
    await passed.wait()
    assert connection.end is None
    connection.data_received(OK)
    await second
    connection.finish()
    await connection.ask(b"", HttpAnswer(), loop.time() + 0.05)
    assert connection.end is ConnectionEnd.LATE


async def test_head_leaves_a_connection_of_use(egress: Egress) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK[:-2])
        await line.asked()
        await line.says(OK)
        await line.ended()

    async with speaking(talk) as lines:
        reply = await egress.request("HEAD", at(lines), timeout_s=60.0)
        assert (reply.status, reply.headers["content-length"], reply.body) == (200, "2", b"")
        assert await ask(egress, lines) == 200
        assert lines.came == 1
        await egress.close()


async def test_a_body_that_ends_with_its_connection_is_whole(egress: Egress) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\n\r\n", b"all", b" of it")

    async with speaking(talk) as lines:
        assert (await egress.request("GET", at(lines), timeout_s=60.0)).body == b"all of it"
        assert await read(egress, lines) == b"all of it"


async def test_a_body_that_a_reset_ends_is_not_whole(egress: Egress) -> None:
    seen = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\n\r\n", b"some")
        await seen.wait()
        line.reset()

    async with (
        speaking(talk) as lines,
        egress.stream("GET", at(lines), head_timeout_s=60.0, idle_timeout_s=60.0) as flow,
    ):
        pieces = flow.pieces
        assert await anext(pieces) == b"some"
        seen.set()
        with pytest.raises(Broken):
            await anext(pieces)


@pytest.mark.parametrize(("method", "made"), [("GET", 2), ("PUT", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)])
async def test_only_what_may_be_made_twice_is_when_its_kept_connection_ends(
    egress: Egress, method: str, made: int
) -> None:
    asked: list[str] = []

    async def talk(line: Line) -> None:
        first = not asked
        while True:
            head, _ = await line.asked()
            asked.append(head)
            if first and len(asked) == 2:
                return
            await line.says(OK)

    async with speaking(talk) as lines:
        assert await ask(egress, lines) == 200
        if made == 2:
            assert await ask(egress, lines, method) == 200
        else:
            with pytest.raises(Broken) as caught:
                await ask(egress, lines, method)
            assert caught.value.sent
        assert len(asked) == 1 + made
        await egress.close()


@pytest.mark.parametrize("told", [True, False])
async def test_a_request_for_which_the_connection_ended_too_early_was_not_sent(told: bool) -> None:
    connection = HttpConnection(("http", "h", 80), SimpleNamespace(forget=lambda connection: None))
    transport = Prompt(connection)
    connection.connection_made(transport)
    transport.closing = True
    if told:
        connection.connection_lost(None)
    await connection.ask(b"request", HttpAnswer(), NEVER)
    connection.finish()
    error = missing_answer(connection, "http://h/", 1.0)
    assert (connection.wrote, error.sent, type(error)) == (False, False, Unreachable)


async def test_a_stream_whose_kept_connection_ends_is_opened_once_more(egress: Egress) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()

    async with speaking(talk) as lines:
        assert await ask(egress, lines) == 200
        assert await read(egress, lines) == b"ok"
        assert lines.came == 2


async def test_a_connection_that_was_ended_meanwhile_costs_nobody_anything(egress: Egress) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)

    async with speaking(talk) as lines, speaking(obliging) as other:
        for turn in range(1, 4):
            assert await ask(egress, lines, "POST") == 200
            await lines.over(turn)
            assert await ask(egress, other) == 204  # meanwhile the loop learns of the end


async def test_whoever_does_not_read_is_not_written_to(egress: Egress) -> None:
    whole, wrote = 64 * 1024 * 1024, 0
    piece = b"x" * 65536

    async def talk(line: Line) -> None:
        nonlocal wrote
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % whole)
        while wrote < whole:
            await line.says(piece)
            wrote += len(piece)
        await line.ended()

    async with speaking(talk) as lines, speaking(obliging) as other:
        async with egress.stream("GET", at(lines), head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
            before = -1
            while before != wrote:
                before = wrote
                for _ in range(20):
                    await ask(egress, other)
            assert wrote < whole / 2
            sizes = [len(piece) async for piece in flow.pieces]
            assert sizes[0] < HELD_BYTES_MAX * 10, "the first piece is everything that was held"
            assert sum(sizes) == whole
        assert await ask(egress, other) == 204
        await egress.close()


async def test_a_slow_reader_of_an_answer_that_has_come_whole_gets_it_and_the_connection_is_kept(
    egress: Egress,
) -> None:
    body = b"y" * (HELD_BYTES_MAX + 20_000)

    async def talk(line: Line) -> None:
        for _ in range(2):
            await line.asked()
            await line.says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await line.ended()

    async with speaking(talk) as lines:
        for _ in range(2):
            assert await read(egress, lines) == body
        assert lines.came == 1
        await egress.close()


async def test_there_are_never_more_connections_than_allowed_those_that_are_kept_included() -> None:
    egress, both = Egress(connections_max=2), asyncio.Barrier(2)

    async def meet(line: Line) -> None:
        while True:
            await line.asked()
            await both.wait()
            await line.says(NO_CONTENT)

    async with (
        asyncio.timeout(DEADLINE_S),
        speaking(obliging) as a,
        speaking(obliging) as b,
        speaking(obliging) as c,
        speaking(meet) as d,
    ):
        for lines in (a, b, c, a, b, c):
            await asyncio.gather(*(ask(egress, lines) for _ in range(3)))
            while a.open + b.open + c.open > 2:
                await asyncio.sleep(0)  # until the servers have seen that one was closed
        assert await asyncio.gather(ask(egress, d), ask(egress, d)) == [204, 204], "there is room for two"
        await egress.close()


async def test_whatever_goes_wrong_makes_room_again() -> None:
    egress = Egress(connections_max=1)
    go = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await go.wait()
        await line.says(b"SSH-2.0\r\n")

    async with asyncio.timeout(DEADLINE_S), speaking(talk) as lines, speaking(obliging) as other:
        for turns in range(12):  # canceled wherever it is
            call = asyncio.create_task(ask(egress, lines))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        go.set()
        with pytest.raises(Broken):
            await ask(egress, lines)
        with pytest.raises(Broken):
            async with egress.stream("GET", at(lines), head_timeout_s=60.0, idle_timeout_s=60.0):
                pass
        with pytest.raises(BadUrl):
            await egress.request("GET", at(lines), headers={"x": "a\r\nb"}, timeout_s=60.0)
        with pytest.raises(Unreachable):
            await egress.request("GET", "http://127.0.0.1:1/", timeout_s=60.0)
        for _ in range(2):
            assert await ask(egress, other) == 204
        await egress.close()


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", "GET / HTTP/1.1"),
        ("?x=1", "GET /?x=1 HTTP/1.1"),
        ("/a b/ü?q=%41 c#d", "GET /a%20b/%C3%BC?q=%41%20c HTTP/1.1"),
        ("/" + "a" * 3000, "GET /" + "a" * 3000 + " HTTP/1.1"),
    ],
)
async def test_a_url_of_the_operator_may_be_written_in_many_ways(egress: Egress, path: str, line: str) -> None:
    heads: list[str] = []

    async def talk(peer: Line) -> None:
        heads.append((await peer.asked())[0])
        await peer.says(NO_CONTENT)
        await peer.ended()

    async with speaking(talk) as lines:
        assert (await egress.request("GET", f"http://LocalHost:{lines.port}{path}", timeout_s=60.0)).status == 204
        assert heads[0].split("\r\n")[:2] == [line, f"Host: localhost:{lines.port}"]
        await egress.close()


async def test_a_user_and_password_in_a_url_go_into_a_header(egress: Egress) -> None:
    heads: list[str] = []

    async def talk(peer: Line) -> None:
        heads.append((await peer.asked())[0])
        await peer.says(NO_CONTENT)
        await peer.ended()

    async with speaking(talk) as lines:
        await egress.request("GET", f"http://me%40x:se%3Acret@127.0.0.1:{lines.port}/", timeout_s=60.0)
        assert f"Authorization: Basic {base64.b64encode(b'me@x:se:cret').decode()}" in heads[0].split("\r\n")
        await egress.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_on_either_loop_nothing_is_left_open(
    run: Callable[[Awaitable[None]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))

    async def endless(line: Line) -> None:
        await line.asked()
        await line.says(HEAD)
        while True:
            await line.says(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")

    async def calls() -> None:
        context = authority.server("localhost")
        async with (
            asyncio.timeout(DEADLINE_S),
            speaking(obliging) as plain,
            speaking(obliging, tls=context) as secret,
            speaking(endless) as flood,
            speaking(endless, tls=context) as secret_flood,
        ):
            egress = Egress()
            urls = (f"http://localhost:{plain.port}/", f"https://localhost:{secret.port}/")
            for url in urls:
                for _ in range(3):
                    assert (await egress.request("POST", url, body=b"{}", timeout_s=60.0)).status == 204
            assert (plain.came, secret.came) == (1, 1)
            for url in (f"http://localhost:{flood.port}/", f"https://localhost:{secret_flood.port}/"):
                async with egress.stream("GET", url, head_timeout_s=60.0, idle_timeout_s=60.0) as flow:
                    size = 0
                    async for piece in flow.pieces:
                        await egress.request("GET", urls[0], timeout_s=60.0)  # meanwhile more comes than may be held
                        if (size := size + len(piece)) > 1_000_000:
                            break
            with pytest.raises(Unreachable):
                await egress.request("GET", f"https://127.0.0.1:{secret.port}/", timeout_s=60.0)
            await egress.close()

    run(calls())
    gc.collect()
