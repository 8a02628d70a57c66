"""The proxy spoils connections as it says, and nothing else."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.drills.proxy import SYNC, Proxy, before

DEADLINE_S = 30.0


class Peer:
    """A server that gives back what it gets. `got` is all of that."""

    def __init__(self) -> None:
        self.got = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1000):
                self.got += piece
                writer.write(piece)
        except ConnectionError:
            pass
        writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, Proxy]]:
    """A peer, and a proxy before it."""
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    async with server, before("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield peer, proxy


class Client:
    """One connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, text: bytes) -> bytes:
        """The bytes that come back for `text`; none if the connection ends."""
        try:
            self.writer.write(text)
            async with asyncio.timeout(DEADLINE_S):
                return await self.reader.readexactly(len(text))
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""


@asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Client]:
    """A connection, closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def test_bytes_pass_in_both_directions(peer: tuple[Peer, Proxy]) -> None:
    async with connected(peer[1]) as client:
        assert await client.say(b"one") == b"one"
        client.writer.write_eof()
        assert await client.reader.read() == b""


async def test_an_address_that_moves_leads_to_another_server(peer: tuple[Peer, Proxy]) -> None:
    old, proxy = peer
    new = Peer()
    async with await asyncio.start_server(new.serve, "127.0.0.1", 0) as server, connected(proxy) as client:
        assert await client.say(b"one") == b"one"
        proxy.lead_to(server.sockets[0].getsockname()[1])
        assert await client.say(b"two") == b""
        async with connected(proxy) as again:
            assert await again.say(b"three") == b"three"
    assert (old.got, new.got) == (b"one", b"three")


async def test_a_cut_ends_the_open_connections_and_new_ones_pass(peer: tuple[Peer, Proxy]) -> None:
    _, proxy = peer
    async with connected(proxy) as client:
        assert await client.say(b"one") == b"one"
        proxy.cut()
        assert await client.say(b"two") == b""
    async with connected(proxy) as client:
        assert await client.say(b"three") == b"three"
    assert proxy.cuts == 1


async def test_nobody_gets_through_a_port_that_refuses_until_it_is_healed(peer: tuple[Peer, Proxy]) -> None:
    _, proxy = peer
    proxy.refuse()
    async with connected(proxy) as client:
        assert await client.say(b"one") == b""
    proxy.heal()
    async with connected(proxy) as client:
        assert await client.say(b"two") == b"two"


async def test_what_is_said_in_a_stall_arrives_after_it(peer: tuple[Peer, Proxy]) -> None:
    there, proxy = peer
    async with connected(proxy) as client:
        assert await client.say(b"one") == b"one"
        proxy.stall()
        answer = asyncio.create_task(client.say(b"two"))
        async with connected(proxy) as fresh:
            assert there.got == b"one"
            proxy.heal()
            assert await answer == b"two"
            assert await fresh.say(b"three") == b"three"


async def test_a_request_that_is_cut_has_reached_the_server(peer: tuple[Peer, Proxy]) -> None:
    there, proxy = peer
    async with connected(proxy) as client:
        proxy.cut_requests(1.0, random.Random(0))
        assert await client.say(b"no request") == b"no request"
        assert await client.say(b"a request" + SYNC) == b""
    async with asyncio.timeout(DEADLINE_S):
        while not there.got.endswith(SYNC):
            await asyncio.sleep(0)
