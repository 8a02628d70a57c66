"""The guard at work: nothing that a stranger can write, or answer, leads to somebody who listens on this machine."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop
from msgspec import Struct

from dragoman.net.address import Guard, Resolver, parse_address
from dragoman.net.egress import Egress, Poster
from dragoman.net.errors import AddressRefused, BadUrl, EgressError, Unreachable
from dragoman.net.target import Target, target
from tests.kit.waiting import no_hang
from tests.net.hostile import INWARD, NAMES, ODD
from tests.net.nameserver import Nameserver, answering
from tests.net.peer import DEADLINE_S, Peer, hangs, listening, says

PUBLIC = "198.41.0.4"
"""Somebody's address on the open internet. Nothing is ever sent there: see `Street.policy`."""


class Trap(Struct):
    """Somebody on loopback, on all its addresses, to whom nobody may come."""

    port: int
    came: int = 0


@pytest.fixture
async def trap() -> AsyncIterator[Trap]:
    trap = Trap(0)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        trap.came += 1
        writer.close()

    async with no_hang(), await asyncio.start_server(connected, "0.0.0.0", 0) as server:
        trap.port = server.sockets[0].getsockname()[1]
        try:
            other = await asyncio.start_server(connected, "::1", trap.port)
        except OSError:  # a machine without IPv6
            yield trap
            return
        async with other:
            yield trap


class Street:
    """An Egress and a Poster under a guard, with a DNS that strangers fill; neither gets out to the open internet."""

    def __init__(self, names: Nameserver, guard: Guard) -> None:
        self.names = names
        self.guard = guard
        self.resolver = Resolver(servers=[names.address], timeout_s=3.0, kept_s=0)
        self.egress = Egress(self.policy, resolver=self.resolver, max_answer_bytes=100)
        self.poster = Poster(self.policy, self.resolver, max_answer_bytes=100)
        self.outward: list[str] = []
        self.asked: list[str] = []

    def policy(self, address: str) -> str | None:
        self.asked.append(address)
        if (reason := self.guard(address)) is not None:
            return reason
        if address.startswith("127."):
            return None
        self.outward.append(address)
        return "left alone by this test"

    async def check(self, to: Target) -> None:
        await self.guard.check(to, self.resolver)

    async def post(self, to: Target) -> int:
        return (await self.poster.post(to, body=b"{}", headers={}, timeout_s=60.0)).status

    async def close(self) -> None:
        await self.egress.close()
        await self.poster.close()
        await self.resolver.close()


@pytest.fixture
async def names() -> AsyncIterator[Nameserver]:
    async with answering() as names:
        for name, values in NAMES.items():
            names.has(name, *values)
        yield names


@pytest.fixture
async def street(names: Nameserver) -> AsyncIterator[Street]:
    street = Street(names, Guard())
    yield street
    await street.close()


def test_the_table_is_long_enough() -> None:
    assert len(set(ODD + INWARD)) >= 100


@pytest.mark.parametrize("url", [*ODD, *INWARD])
async def test_a_hostile_url_is_refused_when_it_is_registered(street: Street, trap: Trap, url: str) -> None:
    with pytest.raises((BadUrl, AddressRefused)):
        await street.check(target(url.replace("PORT", str(trap.port))))
    assert trap.came == 0


@pytest.mark.parametrize("url", [*ODD, *INWARD])
async def test_a_hostile_url_is_not_dialled_even_if_nobody_checked_it(street: Street, trap: Trap, url: str) -> None:
    url = url.replace("PORT", str(trap.port))
    with pytest.raises(EgressError) as caught:
        await street.egress.request("GET", url, timeout_s=60.0)
    assert not caught.value.sent
    assert trap.came == 0


@pytest.mark.parametrize("url", INWARD)
async def test_a_hostile_target_is_not_dialled_even_if_nobody_checked_it(street: Street, trap: Trap, url: str) -> None:
    to = target(url.replace("PORT", str(trap.port)))
    with pytest.raises((AddressRefused, Unreachable)) as caught:
        await street.post(to)
    assert not caught.value.sent
    assert trap.came == 0
    if parse_address(to.host) is not None:
        assert isinstance(caught.value, AddressRefused)
        assert to.host in street.asked


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["::ffff:127.0.0.1"], ["::1"], ["0.0.0.0"], ["10.0.0.1"]])
async def test_a_name_that_changes_its_address_after_the_check_is_not_dialled(
    street: Street, trap: Trap, answer: list[str]
) -> None:
    to = target(f"http://rebind.test:{trap.port}/hook")
    street.names.has("rebind.test", PUBLIC)
    await street.check(to)
    street.names.has("rebind.test", *answer)
    for _ in range(3):
        with pytest.raises(AddressRefused, match="its host stands for"):
            await street.post(to)
    assert trap.came == 0
    assert street.outward == []


async def test_a_name_that_changes_its_address_each_time_is_never_dialled_inward(street: Street, trap: Trap) -> None:
    to = target(f"http://rebind.test:{trap.port}/hook")
    for turn in range(6):
        street.names.has("rebind.test", "127.0.0.1" if turn % 2 else PUBLIC)
        with pytest.raises(AddressRefused):
            await street.post(to)
    assert trap.came == 0
    assert street.outward == [PUBLIC] * len(street.outward)
    assert street.outward


async def test_of_several_addresses_only_those_that_may_be_dialled_are(street: Street, trap: Trap) -> None:
    street.names.has("mixed.test", "10.0.0.1", "127.0.0.1", PUBLIC, "::1", "fd00::1")
    to = target(f"http://mixed.test:{trap.port}/hook")
    with pytest.raises(AddressRefused, match="resolves to"):
        await street.check(to)
    with pytest.raises(AddressRefused):
        await street.post(to)
    assert trap.came == 0
    assert set(street.outward) == {PUBLIC}


async def test_an_answer_of_very_many_addresses_costs_little(street: Street, trap: Trap) -> None:
    street.names.has("many.test", *(f"127.0.0.{last}" for last in range(1, 61)))
    with pytest.raises(AddressRefused):
        await street.post(target(f"http://many.test:{trap.port}/"))
    assert len(street.asked) < 300
    assert trap.came == 0


async def test_a_chain_of_names_is_checked_where_it_ends(street: Street, trap: Trap) -> None:
    to = target(f"http://chain.test:{trap.port}/")
    street.names.has("chain3.test", PUBLIC)
    await street.check(to)
    street.names.has("chain3.test", "127.0.0.1")
    with pytest.raises(AddressRefused):
        await street.post(to)
    assert trap.came == 0


async def test_a_host_whose_name_cannot_be_looked_up_is_refused_and_not_dialled(street: Street, trap: Trap) -> None:
    street.names.failing.add("failing.test")
    to = target(f"http://failing.test:{trap.port}/")
    with pytest.raises(AddressRefused, match=r"failing\.test could not be looked up"):
        await street.check(to)
    with pytest.raises(Unreachable, match="could not be looked up"):
        await street.post(to)


async def test_allowed_networks_are_dialled_and_no_others(names: Nameserver, trap: Trap) -> None:
    street = Street(names, Guard(allowed_cidrs=["127.0.0.2/32"]))
    async with listening() as peer:
        peer.scripts["POST /hook"] = says({})
        port = int(peer.url.rpartition(":")[2])
        guard_of_peer = Street(names, Guard(allowed_cidrs=["127.0.0.1/32"]))
        names.has("worker.test", "127.0.0.1")
        to = target(f"http://worker.test:{port}/hook")
        await guard_of_peer.check(to)
        assert await guard_of_peer.post(to) == 200
        with pytest.raises(AddressRefused):
            await street.check(to)
        with pytest.raises(AddressRefused):
            await street.post(to)
        with pytest.raises(AddressRefused):
            await guard_of_peer.post(target(f"http://127.0.0.2:{trap.port}/"))
        assert peer.paths == ["POST /hook"]
        await guard_of_peer.close()
    await street.close()
    assert trap.came == 0


async def test_a_redirect_inward_is_an_answer_and_is_not_followed(names: Nameserver, trap: Trap) -> None:
    street = Street(names, Guard(allowed_cidrs=["127.0.0.1/32"]))
    async with listening() as peer:
        for code in (301, 302, 303, 307, 308):
            location = {
                "Location": f"http://127.0.0.2:{trap.port}/",
                "Refresh": f"0; url=http://127.0.0.2:{trap.port}/",
            }
            peer.scripts["POST /"] = peer.scripts["GET /"] = says(b"", code, location)
            assert await street.post(target(peer.url + "/")) == code
            assert (await street.egress.request("GET", target(peer.url + "/"), timeout_s=60.0)).status == code
    await street.close()
    assert trap.came == 0
    assert set(street.asked) == {"127.0.0.1"}


async def test_a_name_is_not_asked_for_again_while_its_connection_is_kept(names: Nameserver) -> None:
    street = Street(names, Guard(allowed_cidrs=["127.0.0.1/32"]))
    names.has("worker.test", "127.0.0.1")
    came = 0

    async def keeps(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        try:
            while await reader.readuntil(b"\r\n\r\n{}"):
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    async with await asyncio.start_server(keeps, "127.0.0.1", 0) as server:
        to = target(f"http://worker.test:{server.sockets[0].getsockname()[1]}/")
        assert await street.post(to) == 204
        names.has("worker.test", "10.0.0.1")
        assert await street.post(to) == 204
        assert came == 1
        await street.poster.close()
        with pytest.raises(AddressRefused):
            await street.post(to)
        await street.close()


async def test_tls_is_made_with_the_name_of_the_host(names: Nameserver) -> None:
    street = Street(names, Guard(allowed_cidrs=["127.0.0.1/32"]))
    names.has("worker.test", "127.0.0.1")
    begun = asyncio.get_running_loop().create_future()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set_result(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(listens, "127.0.0.1", 0) as server:
        with pytest.raises(Unreachable):
            await street.post(target(f"https://worker.test:{server.sockets[0].getsockname()[1]}/"))
        assert b"worker.test" in await begun
    await street.close()


def test_it_works_on_uvloop() -> None:
    async def ask() -> None:
        async with asyncio.timeout(DEADLINE_S), answering() as names, listening() as peer:
            peer.scripts["POST /"] = says({})
            names.has("worker.test", "127.0.0.1")
            url = peer.url.replace("127.0.0.1", "worker.test") + "/"
            allowed, guarded = Street(names, Guard(allowed_cidrs=["127.0.0.1/32"])), Street(names, Guard())
            assert await allowed.post(target(url)) == 200
            for hostile in (url, peer.url + "/"):
                with pytest.raises(AddressRefused):
                    await guarded.post(target(hostile))
            await allowed.close()
            await guarded.close()
            assert len(peer.asked) == 1

    uvloop.run(ask())


async def test_one_slow_host_leaves_connections_for_others(peer: Peer, other: Peer) -> None:
    egress = Egress(connections_max=10, connections_per_host_max=1)
    peer.scripts["POST /"] = hangs()
    other.scripts["POST /"] = says({})
    slow = [asyncio.create_task(_post(egress, peer)) for _ in range(20)]
    await peer.came.wait()
    assert await _post(egress, other) == 200
    with pytest.raises(Unreachable, match="no connection in time"):
        await egress.request("POST", target(peer.url + "/"), body=b"{}", timeout_s=0.5)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert len(peer.asked) == 1
    await egress.close()


async def _post(egress: Egress, peer: Peer) -> int:
    return (await egress.request("POST", target(peer.url + "/"), body=b"{}", timeout_s=DEADLINE_S)).status


@pytest.fixture
async def other() -> AsyncIterator[Peer]:
    async with listening() as peer:
        yield peer
