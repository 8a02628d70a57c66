"""Exchanges: what is sent leaves in order, with few system calls, and as long as its head says."""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman.bindings.http1.exchange import HELD_BYTES, JOINED_BYTES, NO_REQUEST_TARGET, AsgiExchange
from dragoman.bindings.request import Header

DATE = b"date: Fri, 20 Nov 2026 07:00:00 GMT\r\n"


class Written:
    """A connection that keeps what is written to it, write by write."""

    write_paused = False
    date = DATE

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.answers: list[AsgiExchange] = []
        self.resumed = 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    async def drain(self) -> None:
        raise AssertionError("its reader takes everything")

    def resume_reading(self) -> None:
        self.resumed += 1

    def answered(self, exchange: AsgiExchange) -> None:
        self.answers.append(exchange)


def exchanged(
    method: str = "GET", version: str = "1.1", *, keep_alive: bool = True, continues: bool = False
) -> tuple[AsgiExchange, Written]:
    written = Written()
    loop = asyncio.get_running_loop()
    exchange = AsgiExchange(
        written, loop, method, version, NO_REQUEST_TARGET, [], {}, keep_alive=keep_alive, continues=continues
    )
    return exchange, written


async def start(exchange: AsgiExchange, *headers: Header, status: int = 200) -> None:
    await exchange.send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def send(exchange: AsgiExchange, body: bytes, *, more: bool = False) -> None:
    await exchange.send({"type": "http.response.body", "body": body, "more_body": more})


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\n%s%s\r\n" % (status, DATE, b"".join(line + b"\r\n" for line in lines))


FOUR = (b"content-length", b"4")
CHUNKED = b"transfer-encoding: chunked"


async def test_head_and_body_leave_in_one_write() -> None:
    exchange, written = exchanged()
    await start(exchange, FOUR)
    await asyncio.sleep(0)
    assert written.writes == []
    await send(exchange, b"body")
    assert written.writes == [head(b"content-length: 4") + b"body"]
    assert written.answers == [exchange]
    assert exchange.complete


async def test_a_stream_comes_in_chunks() -> None:
    exchange, written = exchanged()
    await start(exchange)
    await send(exchange, b"body", more=True)
    await asyncio.sleep(0)
    await send(exchange, b"", more=True)
    await send(exchange, b"more", more=True)
    assert not exchange.complete
    await send(exchange, b"")
    assert written.writes == [head(CHUNKED) + b"4\r\nbody\r\n", b"4\r\nmore\r\n", b"0\r\n\r\n"]


async def test_the_head_of_a_stream_leaves_in_the_next_turn() -> None:
    exchange, written = exchanged()
    await start(exchange)
    await asyncio.sleep(0)
    assert written.writes == [head(CHUNKED)]


async def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection() -> None:
    exchange, written = exchanged(version="1.0", keep_alive=False)
    await start(exchange)
    await send(exchange, b"body", more=True)
    await send(exchange, b"")
    assert written.writes == [head(b"connection: close") + b"body"]
    assert not exchange.keep_alive


async def test_a_long_body_is_not_copied() -> None:
    exchange, written = exchanged()
    body = b"x" * (JOINED_BYTES + 1)
    await start(exchange, (b"content-length", b"%d" % len(body)))
    await send(exchange, body)
    assert written.writes == [head(b"content-length: %d" % len(body)), body]
    assert written.writes[1] is body


@pytest.mark.parametrize(("status", "line"), [(204, b"204 No Content"), (304, b"304 Not Modified")])
async def test_an_answer_without_a_body_has_no_chunks(status: int, line: bytes) -> None:
    exchange, written = exchanged()
    await start(exchange, status=status)
    await send(exchange, b"")
    assert written.writes == [head(status=line)]


@pytest.mark.parametrize("headers", [[FOUR], []], ids=["length", "stream"])
async def test_the_answer_to_head_has_no_body(headers: Sequence[Header]) -> None:
    exchange, written = exchanged("HEAD")
    await start(exchange, *headers)
    await send(exchange, b"body")
    assert written.writes == [head(*(b": ".join(header) for header in headers))]
    assert exchange.complete


async def test_an_answer_may_say_that_the_connection_is_kept() -> None:
    exchange, written = exchanged()
    await start(exchange, FOUR, (b"connection", b"keep-alive"))
    await send(exchange, b"body")
    assert written.writes == [head(b"content-length: 4", b"connection: keep-alive") + b"body"]
    assert exchange.keep_alive


async def test_an_answer_may_close_the_connection() -> None:
    exchange, written = exchanged()
    await start(exchange, FOUR, (b"connection", b"close"))
    await send(exchange, b"body")
    assert written.writes == [head(b"content-length: 4", b"connection: close") + b"body"]
    assert not exchange.keep_alive


@pytest.mark.parametrize(("body", "wrong"), [(b"bodies", "longer"), (b"bod", "shorter")])
async def test_a_body_that_is_not_as_long_as_its_head_says_is_refused(body: bytes, wrong: str) -> None:
    exchange, written = exchanged()
    await start(exchange, FOUR)
    with pytest.raises(RuntimeError, match=wrong):
        await send(exchange, body)
    assert written.writes == []


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"\x00"])
async def test_a_header_cannot_add_another(value: bytes) -> None:
    exchange, _ = exchanged()
    with pytest.raises(RuntimeError, match="x-named"):
        await start(exchange, (b"x-named", value))


async def test_messages_come_in_their_order() -> None:
    exchange, _ = exchanged()
    with pytest.raises(RuntimeError, match=r"http\.response\.body"):
        await send(exchange, b"body")
    await start(exchange, FOUR)
    with pytest.raises(RuntimeError, match=r"http\.response\.start"):
        await start(exchange, FOUR)
    await send(exchange, b"body")
    with pytest.raises(RuntimeError, match=r"http\.response\.body"):
        await send(exchange, b"")


async def test_nothing_is_sent_to_a_client_that_has_left() -> None:
    exchange, written = exchanged()
    receiving = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    exchange.disconnect()
    assert (await receiving)["type"] == "http.disconnect"
    await start(exchange, FOUR)
    await send(exchange, b"body")
    assert written.writes == []


async def test_a_body_is_received_as_it_comes() -> None:
    exchange, _ = exchanged("POST")
    exchange.add(b"a ")
    exchange.add(b"bo")
    assert await exchange.receive() == {"type": "http.request", "body": b"a bo", "more_body": True}
    receiving = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    exchange.add(b"dy")
    exchange.end_body()
    assert await receiving == {"type": "http.request", "body": b"dy", "more_body": False}
    waiting = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    await start(exchange, FOUR)
    await send(exchange, b"body")
    assert (await waiting)["type"] == "http.disconnect"


async def test_one_who_no_longer_waits_takes_nothing_from_the_next() -> None:
    exchange, _ = exchanged("POST")
    left = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    receiving = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    exchange.end_body()
    assert await receiving == {"type": "http.request", "body": b"", "more_body": False}


async def test_reading_goes_on_once_a_long_body_is_received() -> None:
    exchange, written = exchanged("POST")
    exchange.add(b"x" * HELD_BYTES)
    assert not exchange.full
    exchange.add(b"x")
    assert exchange.full
    await exchange.receive()
    assert (exchange.full, written.resumed) == (False, 1)


async def test_a_client_that_asks_may_send_its_body() -> None:
    exchange, written = exchanged("POST", continues=True)
    receiving = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert written.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    exchange.end_body()
    await receiving


async def test_a_client_whose_body_has_come_is_not_told_to_send_it() -> None:
    exchange, written = exchanged("POST", continues=True)
    exchange.add(b"body")
    exchange.end_body()
    assert (await exchange.receive())["body"] == b"body"
    assert written.writes == []


async def test_a_client_that_is_refused_may_not() -> None:
    exchange, written = exchanged("POST", continues=True)
    await start(exchange, FOUR)
    await send(exchange, b"body")
    await exchange.receive()
    assert written.writes == [head(b"content-length: 4") + b"body"]


async def test_a_body_that_is_here_is_taken_once() -> None:
    exchange, written = exchanged("POST")
    exchange.add(b"bo")
    assert exchange.take_body() is None
    exchange.add(b"x" * HELD_BYTES)
    exchange.end_body()
    assert exchange.take_body() == b"bo" + b"x" * HELD_BYTES
    assert written.resumed == 1
    receiving = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert not receiving.done()
    exchange.disconnect()
    assert (await receiving)["type"] == "http.disconnect"


async def test_nobody_takes_the_body_of_a_client_that_left() -> None:
    exchange, _ = exchanged("POST")
    exchange.end_body()
    exchange.disconnect()
    assert exchange.take_body() is None


async def test_a_whole_answer_leaves_in_one_write() -> None:
    exchange, written = exchanged()
    assert exchange.send_whole(200, [FOUR], b"body")
    assert written.writes == [head(b"content-length: 4") + b"body"]
    assert written.answers == [exchange]
    with pytest.raises(RuntimeError, match="does not follow"):
        exchange.send_whole(200, [FOUR], b"body")


async def test_a_whole_answer_waits_for_a_slow_reader_and_reaches_none_that_left() -> None:
    exchange, written = exchanged()
    written.write_paused = True
    assert not exchange.send_whole(200, [FOUR], b"body")
    assert not exchange.started
    exchange.disconnect()
    assert exchange.send_whole(200, [FOUR], b"body")
    assert (written.writes, written.answers) == ([], [])


@pytest.mark.parametrize("kind", [b"application/json", b"application/a2a+json", b"text/html"])
@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
async def test_a_whole_answer_of_json_is_as_any_other(kind: bytes, method: str, keep_alive: bool) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"4")]
    whole, written = exchanged(method, keep_alive=keep_alive)
    assert whole.send_whole(200, headers, b"body")
    exchange, by_pieces = exchanged(method, keep_alive=keep_alive)
    await start(exchange, *headers)
    await send(exchange, b"body")
    assert written.writes == by_pieces.writes
    assert (whole.started, whole.complete, written.answers) == (True, True, [whole])


async def test_a_whole_answer_has_the_length_that_it_says() -> None:
    exchange, _ = exchanged()
    with pytest.raises(RuntimeError, match="shorter"):
        exchange.send_whole(200, [(b"content-type", b"application/json"), (b"content-length", b"5")], b"body")
