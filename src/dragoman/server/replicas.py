"""Replicas of one store: the rules for their settings, and the bus between them.

Invariant: a setting that cannot work with the store, or with another setting, is refused at start, with the fix. A
server that is alone on its store has no bus, and makes no key for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.auth.signatures import SigningRoom
from dragoman.bus.api import Bus, BusError, NoBus
from dragoman.bus.open import make_bus
from dragoman.config import Config
from dragoman.server.errors import StartError
from dragoman.store.api import Store
from dragoman.store.open import database_dsns
from dragoman.store.path import hide_password, is_shared

ALONE = Config()
"""The settings of a server that shares its store with nobody."""

SHARE = "store = 'postgresql://user@host/database'"
BEATS_PER_LEASE = 3
"""A lease survives two lost heartbeats."""


def check_replicas(config: Config) -> None:
    """Raises StartError for settings of replicas that contradict each other or the store."""
    if config.replica_beat_s > config.replica_lease_s / BEATS_PER_LEASE:
        raise StartError(
            f"replica_beat_s = {config.replica_beat_s:g} is more than a third of replica_lease_s = "
            f"{config.replica_lease_s:g}, so that one late heartbeat could end the lease: set replica_beat_s to "
            f"{config.replica_lease_s / BEATS_PER_LEASE:.3g} or less"
        )
    if config.bus_listen_url is not None and config.bus not in ("auto", "postgres"):
        raise StartError(
            f"bus_listen_url is for bus = 'postgres', and bus is {hide_password(config.bus)!r}: remove one"
        )
    if is_shared(config.store):
        return
    own = f"the store {config.store} has one server only: set {SHARE}"
    if config.processes > 1:
        raise StartError(f"processes = {config.processes} runs several replicas, and {own}, or remove processes")
    if config.bus not in ("auto", "none") or config.bus_listen_url is not None:
        name = "bus" if config.bus not in ("auto", "none") else "bus_listen_url"
        raise StartError(f"{name} is for replicas, and {own}, or remove {name}")
    for name in ("replica_lease_s", "replica_beat_s", "replica_address"):
        if getattr(config, name) != getattr(ALONE, name):
            raise StartError(f"{name} is for replicas, and {own}, or remove {name}")


def bus_name(config: Config) -> str:
    """The kind of bus that a configuration asks for: `none`, `postgres` or `nats`."""
    if config.bus == "auto":
        return "postgres" if is_shared(config.store) else "none"
    return config.bus if config.bus in ("none", "postgres") else "nats"


async def server_bus(config: Config, store: Store, signing: SigningRoom) -> Bus:
    """The bus, not yet open. The store is. Raises StartError for settings that cannot work, StoreError."""
    name = bus_name(config)
    if not store.replicas.shared or name == "none":
        return NoBus()
    await signing.signer()  # makes the key, on a new store
    key = await store.keys.signing_key()
    assert key is not None  # the line above has made it
    try:
        if name == "postgres":
            return make_bus(name, key.jwk, database_dsns(config.bus_listen_url or config.store))
        return make_bus(config.bus, key.jwk)
    except BusError as error:
        raise StartError(str(error)) from error


@asynccontextmanager
async def opened_bus(bus: Bus) -> AsyncIterator[None]:
    """Have the bus open until the block ends, unless it is closed before. Raises StartError if it can never work."""
    try:
        await bus.open()
    except BusError as error:
        raise StartError(str(error)) from error
    try:
        yield
    finally:
        await bus.close()
