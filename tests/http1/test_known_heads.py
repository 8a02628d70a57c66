"""Heads that come again: what a connection recognises is what its parser would have read."""

import asyncio

import pytest

from dragoman.bindings.http1.connection import KnownHead, learn_head
from dragoman.bindings.http1.exchange import NO_REQUEST_TARGET, AsgiExchange
from dragoman.bindings.request import Header
from tests.bindings.http1.test_exchange import Written
from tests.http1.readers import read_requests

BEFORE = b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: "
AFTER = b"\r\nA2A-Version: 1.0\r\n\r\n"

FIRST = BEFORE + b"3" + AFTER + b"one"

AGAIN = {
    "the same": FIRST,
    "another length": BEFORE + b"12" + AFTER + b"twelve bytes",
    "no body": BEFORE + b"0" + AFTER,
    "a zero in front": BEFORE + b"03" + AFTER + b"two",
    "two at once": FIRST + FIRST,
    "a longer one behind it": FIRST + BEFORE + b"5" + AFTER + b"later",
    "a signed length": BEFORE + b"+3" + AFTER + b"two",
    "a length with a blank": BEFORE + b"3 " + AFTER + b"two",
    "a length in hexadecimal": BEFORE + b"0x3" + AFTER + b"two",
    "no length": BEFORE + AFTER + b"two",
    "two lengths": BEFORE + b"3\r\nContent-Length: 4" + AFTER + b"twos",
    "chunked beside it": BEFORE + b"3\r\nTransfer-Encoding: chunked" + AFTER + b"0\r\n\r\n",
    "another method": b"PUT" + FIRST[4:],
    "another target": FIRST.replace(b"/a", b"/b"),
    "an empty line in front": b"\r\n" + FIRST,
    "to be the last": BEFORE + b"3\r\nConnection: close" + AFTER + b"two",
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_a_request_after_one_with_its_head_is_the_same(again: bytes) -> None:
    pieces = [FIRST, again, FIRST]
    parsed = read_requests([bytes([byte]) for byte in b"".join(pieces)])  # no head comes whole, so that none is known
    assert read_requests(pieces) == parsed


@pytest.mark.parametrize("cut", range(1, len(FIRST)))
def test_a_head_that_comes_again_may_come_in_pieces(cut: int) -> None:
    reading = read_requests([FIRST, FIRST[:cut], FIRST[cut:], FIRST])
    assert [each.body for each in reading.read] == [b"one"] * 3


def exchange_of(*headers: Header, version: str = "1.1", keep_alive: bool = True) -> AsgiExchange:
    each = [(b"content-length", b"3"), *headers]
    return AsgiExchange(
        Written(),
        asyncio.get_running_loop(),
        "POST",
        version,
        NO_REQUEST_TARGET,
        each,
        dict(each),
        keep_alive=keep_alive,
        continues=False,
    )


async def learned(data: bytes = FIRST) -> KnownHead | None:
    return learn_head(data, exchange_of())


async def test_a_head_is_recognised_whatever_its_length() -> None:
    known = await learned()
    assert known is not None
    twelve = AGAIN["another length"]
    assert twelve[known.find_body(twelve) :] == b"twelve bytes"
    assert known.headers_of(b"12") == ([(b"content-length", b"12")], {b"content-length": b"12"})
    assert known.headers_of(b"12")[0] is known.header_list


async def test_nothing_else_is_recognised() -> None:
    known = await learned()
    assert known is not None
    same = ["the same", "another length", "no body", "a zero in front"]
    assert [name for name, data in AGAIN.items() if known.find_body(data)] == same
    assert not known.find_body(FIRST[:-1])
    assert not known.find_body(FIRST + b"x")


async def test_a_head_that_says_more_is_not_learned() -> None:
    for name in (b"expect", b"transfer-encoding", b"upgrade"):
        assert learn_head(FIRST, exchange_of((name, b"x"))) is None
    assert learn_head(FIRST, exchange_of((b"content-length", b"3"))) is None
    assert learn_head(FIRST, exchange_of(version="1.0")) is None
    assert learn_head(FIRST, exchange_of(keep_alive=False)) is None
    assert await learned(FIRST + FIRST) is None
    assert await learned(BEFORE.replace(b"Length: ", b"Length:") + b"3" + AFTER + b"one") is None
