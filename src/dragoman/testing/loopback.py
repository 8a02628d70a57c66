"""A client of agents in a test: a real server in the same process, and a connection to it over loopback.

Invariant: a test sees what callers see: bytes pass through every layer of a server. Nothing is left when the block
ends.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec.structs import replace

from dragoman.client import Connection, Timeouts, connect
from dragoman.client.credentials import Credentials
from dragoman.config import Config
from dragoman.dialects.registry import DIALECTS, load_system
from dragoman.dialects.system import AGENT
from dragoman.engine.api import Runner
from dragoman.server import serving

CONFIG = Config(
    port=0,
    store="memory:",
    shutdown_grace_s=0,
    cancel_grace_s=1,
    push_allowed_hosts=("127.0.0.1", "localhost"),
)
"""The server of a test: at a free port, without a file, gone at once; it may call webhooks of the test's own."""

TIMEOUTS = Timeouts(answer_s=30, idle_s=30)
"""Short, so that a test that hangs fails soon."""

ClientFixture = Callable[..., AbstractAsyncContextManager[Connection]]
"""The type of the fixture `dragoman_client`: `client` without its `config`."""


@asynccontextmanager
async def client(
    agents: Runner | Sequence[Runner],
    *,
    agent: str | None = None,
    binding: str | None = None,
    dialect: str | None = None,
    credentials: Credentials | None = None,
    headers: Mapping[str, str] | None = None,
    config: Config = CONFIG,
    timeouts: Timeouts = TIMEOUTS,
) -> AsyncGenerator[Connection, None]:
    """A connection to an agent, on a server that has all the `agents` and ends with the block.

    It leads to the first agent, or to the one with the id `agent`. `binding`, `credentials` and `headers` are those of
    `connect`. With a `dialect` the agent is called at the path of that dialect, else by its card. Tasks that run when
    the block ends are canceled. Raises ValueError for an unknown agent, and the errors of `connect`.
    """
    served = list(agents) if isinstance(agents, Sequence) else [agents]
    ids = [each.profile.id for each in served]
    chosen = ids[0] if agent is None and ids else agent
    if chosen not in ids:
        raise ValueError(f"agent {chosen!r} is not among {', '.join(ids) or 'no agents'}")
    mount = (load_system(dialect).mount if dialect in DIALECTS else None) or AGENT
    try:
        async with (
            serving(replace(config, default=chosen), served) as url,
            connect(
                url + mount.path.format(id=chosen),
                binding=binding,
                dialect=dialect,
                credentials=credentials,
                headers=headers,
                timeouts=timeouts,
            ) as connection,
        ):
            yield connection
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None  # what went wrong in the block, which the server's tasks wrap
