"""The bus that a server gets: one for all replicas of its store, and none for a server that is alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dragoman.auth.signatures import SigningRoom
from dragoman.bus.api import Bus, NoBus
from dragoman.config import Config
from dragoman.model.ids import SystemClock, new_id
from dragoman.server.replicas import opened_bus, server_bus
from dragoman.store.open import open_store
from tests.nats import NatsServer


@asynccontextmanager
async def bus_of(config: Config) -> AsyncIterator[Bus]:
    """The bus of one more server with that configuration, not yet open."""
    clock = SystemClock()
    store = open_store(config.store, clock)
    await store.open(new_id())
    try:
        yield await server_bus(config, store, SigningRoom(store.keys, clock))
    finally:
        await store.close()


async def test_a_server_alone_on_its_store_has_none() -> None:
    async with bus_of(Config(store="memory:")) as bus:
        assert isinstance(bus, NoBus)


async def test_replicas_can_do_without(postgres_url: str) -> None:
    async with bus_of(Config(store=postgres_url, bus="none")) as bus:
        assert isinstance(bus, NoBus)


@pytest.mark.parametrize("kind", ["auto", "nats"])
async def test_replicas_of_one_store_hear_each_other_and_nobody_else(postgres_url: str, kind: str) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    with NatsServer() as nats:
        config = Config(store=f"{postgres_url}?schema=mine&pool_size=2", bus=nats.url if kind == "nats" else kind)
        foreign = Config(store=f"{postgres_url}?schema=theirs&pool_size=2", bus=config.bus)
        async with bus_of(config) as one, bus_of(config) as other, bus_of(foreign) as stranger:
            other.on_signal("s", heard)
            async with opened_bus(one), opened_bus(other), opened_bus(stranger), asyncio.timeout(60):
                while not (one.healthy and other.healthy and stranger.healthy):
                    await asyncio.sleep(0.002)
                stranger.signal("s", b"theirs")
                one.signal("s", b"ours")
                assert await heard.get() == b"ours"
        assert heard.empty()
