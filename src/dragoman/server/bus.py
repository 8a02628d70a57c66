"""The bus of a server: which one the configuration asks for, and the key that all replicas of its store share.

Invariant: a server that is alone on its store has none, and makes no key for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.auth.signatures import SigningRoom
from dragoman.bus.api import Bus, BusError, NoBus
from dragoman.bus.open import make_bus
from dragoman.config import Config
from dragoman.server.errors import StartError
from dragoman.server.replicas import bus_name
from dragoman.store.api import Store
from dragoman.store.open import database_dsns


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
async def opened(bus: Bus) -> AsyncIterator[None]:
    """Have the bus open until the block ends, unless it is closed before. Raises StartError if it can never work."""
    try:
        await bus.open()
    except BusError as error:
        raise StartError(str(error)) from error
    try:
        yield
    finally:
        await bus.close()
