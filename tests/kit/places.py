"""Where tests have their servers: in this process, one or several on a store, with keys in it."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from dragoman.auth.keys import digest_of, make_key
from dragoman.auth.operator_token import read_token
from dragoman.cli.entries import make_added_agent
from dragoman.client import Connection, connect
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from dragoman.model.task import Task
from dragoman.server import serving
from dragoman.store.api import Store
from dragoman.store.keyring import StoredKey
from dragoman.store.open import open_store
from tests.kit.waiting import DEADLINE_S

T = TypeVar("T")

V1 = {"A2A-Version": "1.0"}
"""The header of a call in 1.0."""

LOOPBACK: dict[str, Any] = {"push_allowed_hosts": (), "push_allowed_cidrs": ("127.0.0.0/8",)}
"""Settings of a server that may call webhooks on this machine, by network alone."""


def quick(**settings: Any) -> Config:
    """The settings of a server that stops at once, on a free port, with a store in memory unless one is given."""
    usual = {"port": 0, "store": "memory:", "shutdown_grace_s": 0.2, "cancel_grace_s": 0.2}
    return Config(**{**usual, **settings})


def sqlite_url(folder: Path) -> str:
    """The URL of a store in a file."""
    return f"sqlite:///{folder}/dragoman.db"


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose paths are those of a server. `options` are of `ClientSession`."""
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with aiohttp.ClientSession(url, timeout=timeout, **options) as http:
        yield http


@asynccontextmanager
async def server(*agents: Runner, **settings: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A server in this process, and a session at it."""
    async with serving(quick(**settings), list(agents), make_added_agent) as url, calling(url) as http:
        yield http


@asynccontextmanager
async def servers(
    count: int, agents: Callable[[], Sequence[Runner]], **settings: Any
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """So many servers with the same settings, each with agents of its own, and a session at each."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server(*agents(), **settings)) for _ in range(count)]


@asynccontextmanager
async def connection(agent: Runner, config: Config | None = None, **options: Any) -> AsyncIterator[Connection]:
    """A server with that agent alone, and our client at it. `options` are of `connect`."""
    async with (
        serving(config or quick(), [agent]) as url,
        connect(f"{url}/agents/{agent.profile.id}", **options) as made,
    ):
        yield made


async def asked(agent: Connection, content: Any, **fields: Any) -> Task:
    """The task with which a message is answered."""
    async with asyncio.timeout(DEADLINE_S):
        answer = await agent.send(content, **fields)
    assert isinstance(answer, Task)
    return answer


@asynccontextmanager
async def beside(store: str, holder: str | None = None) -> AsyncIterator[Store]:
    """The store, as a command opens it while the server runs, or as the server `holder` does."""
    opened = open_store(store, SystemClock())
    await opened.open(holder)
    try:
        yield opened
    finally:
        await opened.close()


def work_on(store: str, work: Callable[[Store], Awaitable[T]], holder: str | None = None) -> T:
    """The result of some work on a store, for a test outside of a loop."""

    async def open_and_work() -> T:
        async with beside(store, holder) as opened:
            return await work(opened)

    return asyncio.run(open_and_work())


async def add_key(store: Store, name: str, **limits: Any) -> tuple[str, str]:
    """Add a key of a caller, or of another `role`. Returns its id and the key."""
    made = make_key(secrets.token_bytes)
    usual = {"role": AccessRole.CALLER, "agents": None, "scopes": None, "made_ms": 1}
    await store.keys.add(StoredKey(id=made.id, name=name, digest=digest_of(made.text), **{**usual, **limits}))
    return made.id, made.text


async def add_keys(url: str, **holders: dict[str, Any]) -> dict[str, str]:
    """Add a key for each holder, with these limits. Returns the keys."""
    async with beside(url) as store:
        return {name: (await add_key(store, name, **limits))[1] for name, limits in holders.items()}


def bearer(store: str) -> dict[str, str]:
    """The headers of the operator of this machine."""
    token = read_token(store, 0)
    assert token is not None
    return {"Authorization": f"Bearer {token}"}
