"""Looking hosts up with a name server of the tests' own."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from dragoman.net.address import ADDRESSES_MAX, Resolver
from dragoman.net.errors import Unresolved
from tests.kit.waiting import no_hang
from tests.net.nameserver import Nameserver, answering
from tests.net.peer import DEADLINE_S


@pytest.fixture
async def names() -> AsyncIterator[Nameserver]:
    async with no_hang(), answering() as names:
        yield names


@pytest.fixture
async def resolver(names: Nameserver) -> AsyncIterator[Resolver]:
    resolver = Resolver(servers=[names.address], timeout_s=DEADLINE_S)
    yield resolver
    await resolver.close()


async def test_all_addresses_of_a_host_are_told(names: Nameserver, resolver: Resolver) -> None:
    names.has("host.test", "198.41.0.4", "198.41.0.5", "2001:500:9f::42")
    assert sorted(await resolver.addresses("host.test")) == ["198.41.0.4", "198.41.0.5", "2001:500:9f::42"]


async def test_an_answer_through_other_names_is_followed_to_its_addresses(
    names: Nameserver, resolver: Resolver
) -> None:
    names.has("a.test", "b.test.")
    names.has("b.test", "c.test.")
    names.has("c.test", "10.0.0.1")
    assert await resolver.addresses("a.test") == ["10.0.0.1"]


async def test_a_name_without_an_address_leads_nowhere(names: Nameserver, resolver: Resolver) -> None:
    names.has("a.test")
    with pytest.raises(Unresolved, match="check its name"):
        await resolver.addresses("a.test")


async def test_an_answer_without_time_to_live_is_not_kept(names: Nameserver, resolver: Resolver) -> None:
    for address in ("198.41.0.4", "127.0.0.1", "198.41.0.5"):
        names.has("turning.test", address)
        assert await resolver.addresses("turning.test") == [address]


async def test_that_a_name_has_no_address_is_kept_no_longer_than_the_resolver_says(
    names: Nameserver,
) -> None:
    names.has("late.test")
    resolver = Resolver(servers=[names.address], timeout_s=DEADLINE_S, kept_s=0)
    with pytest.raises(Unresolved):
        await resolver.addresses("late.test")
    names.has("late.test", "198.41.0.4")
    assert await resolver.addresses("late.test") == ["198.41.0.4"]
    await resolver.close()


async def test_a_long_time_to_live_counts_no_longer_than_the_resolver_says(names: Nameserver) -> None:
    resolver = Resolver(servers=[names.address], timeout_s=DEADLINE_S, kept_s=0)
    for address in ("198.41.0.4", "127.0.0.1"):
        names.has("turning.test", address, ttl=3600)
        assert await resolver.addresses("turning.test") == [address]
    await resolver.close()


async def test_a_question_under_way_is_answered_although_a_newer_one_starts_anew(names: Nameserver) -> None:
    names.silent.add("slow.test")
    names.has("slow.test", "198.41.0.4")
    names.has("live.test", "198.41.0.5")
    resolver = Resolver(servers=[names.address], timeout_s=4.0, kept_s=0)
    waiting = asyncio.create_task(resolver.addresses("slow.test"))
    await names.questions(1)
    names.silent.clear()
    for _ in range(3):
        assert await resolver.addresses("live.test") == ["198.41.0.5"]
    assert await waiting == ["198.41.0.4"]  # by its second try
    await resolver.close()


@pytest.mark.parametrize("host", ["nobody.test", "a" * 64 + ".test", "a..test", "a b.test", "ä.test"])
async def test_a_host_that_is_not_there_is_unresolved(resolver: Resolver, host: str) -> None:
    with pytest.raises(Unresolved, match="check its name"):
        await resolver.addresses(host)


async def test_a_name_server_that_fails_says_nothing_about_the_host(names: Nameserver, resolver: Resolver) -> None:
    names.failing.add("host.test")
    with pytest.raises(Unresolved, match="DNS does not answer, or fails"):
        await resolver.addresses("host.test")


async def test_a_silent_name_server_is_given_up_in_time_and_keeps_nobody_else_waiting(names: Nameserver) -> None:
    names.has("live.test", "198.41.0.4")
    silent = [f"silent{number}.test" for number in range(200)]
    names.silent.update(silent)
    resolver = Resolver(servers=[names.address], timeout_s=2.0)
    waiting = [asyncio.create_task(resolver.addresses(host)) for host in silent]
    await names.questions(len(silent))
    assert await resolver.addresses("live.test") == ["198.41.0.4"]
    assert not any(task.done() for task in waiting), "a silent one was waited for"
    async with asyncio.timeout(DEADLINE_S):  # one after the other they would take longer
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unresolved}
    await resolver.close()


async def test_closing_ends_what_is_under_way_and_a_later_question_starts_anew(names: Nameserver) -> None:
    names.silent.add("silent.test")
    names.has("live.test", "198.41.0.4")
    resolver = Resolver(servers=[names.address], timeout_s=DEADLINE_S)
    waiting = asyncio.create_task(resolver.addresses("silent.test"))
    await names.questions(1)
    await resolver.close()
    with pytest.raises(Unresolved):
        await waiting
    assert await resolver.addresses("live.test") == ["198.41.0.4"]
    await resolver.close()


async def test_an_answer_of_very_many_addresses_is_cut(names: Nameserver, resolver: Resolver) -> None:
    names.has("many.test", *(f"10.0.0.{last}" for last in range(60)))
    assert len(await resolver.addresses("many.test")) == ADDRESSES_MAX


async def test_the_hosts_file_counts_before_dns(names: Nameserver, resolver: Resolver) -> None:
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    known = {(line[0], name) for line in lines for name in line[1:2] if "." in line[0]}
    for address, name in known:
        assert address in await resolver.addresses(name)
    assert set(await resolver.addresses("localhost")) <= {"127.0.0.1", "::1"}
    assert not {name for name, _ in names.asked} & {name for _, name in known}


async def test_an_address_stands_for_itself(resolver: Resolver) -> None:
    assert await resolver.addresses("198.41.0.4") == ["198.41.0.4"]
    assert await resolver.addresses("2001:500:9f::42") == ["2001:500:9f::42"]


def test_it_works_on_uvloop() -> None:
    async def ask() -> None:
        async with asyncio.timeout(DEADLINE_S), answering() as names:
            names.has("host.test", "198.41.0.4", "2001:500:9f::42")
            names.silent.add("silent.test")
            patient = Resolver(servers=[names.address], timeout_s=DEADLINE_S)
            assert len(await patient.addresses("host.test")) == 2
            await patient.close()
            resolver = Resolver(servers=[names.address], timeout_s=0.3)
            with pytest.raises(Unresolved):
                await resolver.addresses("silent.test")
            await resolver.close()

    main: Coroutine[Any, Any, None] = ask()
    uvloop.run(main)
