"""Kills a server again and again while its agents take steps: `python -m tests.drills.kills python 1000`.

Each kind of agent that has steps is a row of `KINDS`. After each kill the server starts again on the same file; in the
end every step is recorded once, and none was executed that its log held by then. If workers do the tasks of a kind,
each kill takes one of them or the server. A framework's kind is served from its own environment, which
`make .venv-fw-langgraph/.ready` makes.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from dragoman.store.sqlite.schema import check
from tests.drills.agents import LEDGER
from tests.drills.checker import Kept
from tests.drills.clients import TRIPS, Clients
from tests.drills.cluster import DRAGOMAN, ROOT, DrillProcess, ReplicaProcess, WorkerProcess
from tests.drills.drill import ALLOWED, SLEEPY, drill, read_beside
from tests.drills.models import CLERKS, model_beside
from tests.drills.record import Record


@asynccontextmanager
async def nothing_beside(folder: Path) -> AsyncIterator[Sequence[str]]:
    """No flags: the agents need nothing but the server."""
    yield ()


WORKED = """
[[agents]]
id = "{agent}"
run = "worker"
offline = "queue"
lease_s = 1
"""
FAR = {"far-walk": "walk", "far-plain-walk": "plain_walk"}
"""The agents of workers, with those of `tests.drills.agents` whose code they run, by the names there."""


@asynccontextmanager
async def workers_beside(folder: Path) -> AsyncIterator[Sequence[str]]:
    """The flags of a server with the agents of `FAR`."""
    (folder / "dragoman.toml").write_text("".join(WORKED.format(agent=agent) for agent in FAR))
    yield "--config", str(folder / "dragoman.toml")


GRAPH = """
[[agents]]
id = "graph"
run = "{file}:graph"
"""


@asynccontextmanager
async def graph_beside(folder: Path) -> AsyncIterator[Sequence[str]]:
    """The flags of a server with the graph of `tests.drills.graph`."""
    (folder / "dragoman.toml").write_text(GRAPH.format(file=Path(__file__).with_name("graph.py")))
    yield "--config", str(folder / "dragoman.toml")


class Kind(NamedTuple):
    """The agents of a kind, and what they need `beside` the server, which is as long as the drill lasts. It gets the
    folder of the server, and gives flags for it. Workers do the tasks of `far` agents. `dragoman` is the server's
    program."""

    agents: tuple[str, ...]
    beside: Callable[[Path], AbstractAsyncContextManager[Sequence[str]]] = nothing_beside
    far: bool = False
    dragoman: Path = DRAGOMAN


KINDS = {
    "python": Kind(("walk", "plain-walk")),
    "trips": Kind(TRIPS),
    "model": Kind(tuple(CLERKS), model_beside),
    "worker": Kind(tuple(FAR), workers_beside, far=True),
    "langgraph": Kind(("graph",), graph_beside, dragoman=ROOT / ".venv-fw-langgraph" / "bin" / "dragoman"),
}

LIFE_S = 0.5
"""How long a server lives at most once it listens."""

KILL_S = 10.0
"""How long it takes at most from one kill to the next, on a busy machine."""

STARTING_S = 0.5
STARTING_SHARE = 0.2
"""So many servers are killed earlier, so long after their start at most."""

TOLD_EVERY = 50
"""After so many kills it is said how long they took."""


async def kill_often(
    folder: Path,
    count: int,
    chance: random.Random,
    *,
    journeys: Sequence[str],
    flags: Sequence[str] = (),
    senders: int = 0,
    followers: int = 0,
    travelers: int = 8,
    far: bool = False,
    dragoman: Path = DRAGOMAN,
) -> Record:
    """Kill the only server so many times; or, if `far`, the server and each of its workers in turns of a random order.
    Raises AssertionError for whatever its clients, its store and the ledger of its steps have against it."""
    file = folder / "tasks.db"
    url = f"sqlite:///{file}"
    server = ReplicaProcess("only", ("--store", url, *SLEEPY, *ALLOWED, *flags), folder, dragoman=dragoman)
    workers = [WorkerProcess(folder, server.url, agent, source) for agent, source in FAR.items()] if far else []
    victims: list[DrillProcess] = [server, *workers]

    async def kill(clients: Clients) -> None:
        began_s = monotonic()
        turn: list[DrillProcess] = []
        for number in range(1, count + 1):
            turn = turn or chance.sample(victims, len(victims))
            victim = turn.pop()
            await asyncio.sleep(chance.uniform(0, LIFE_S))  # the random moment
            await victim.kill()
            while chance.random() < STARTING_SHARE:
                await victim.start(wait=False)
                await asyncio.sleep(chance.uniform(0, STARTING_S))  # the random moment
                await victim.kill()
            await victim.start()
            if not number % TOLD_EVERY:
                print(f"{number} kills in {monotonic() - began_s:.0f} s, {clients.count} tasks", flush=True)

    async def read() -> dict[str, Kept]:
        await server.kill()
        assert check(file) == []
        try:
            return await read_beside(url)
        finally:
            await server.start()

    try:
        for process in victims:
            await process.start()
        return await drill(
            read,
            [server.url],
            kill,
            senders=senders,
            followers=followers,
            travelers=travelers,
            journeys=journeys,
            lasts_s=count * KILL_S,
            seed=chance.randrange(1 << 30),
            ledger=folder / LEDGER,
        )
    finally:
        for process in reversed(victims):
            await process.kill()


async def kill_kind(name: str, folder: Path, count: int, chance: random.Random) -> Record:
    """Kill a server so many times while the agents of a kind work."""
    kind = KINDS[name]
    async with kind.beside(folder) as flags:
        return await kill_often(
            folder, count, chance, journeys=kind.agents, flags=flags, far=kind.far, dragoman=kind.dragoman
        )


def main() -> None:
    """Kill a server as often as the command line says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("count", type=int)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="dragoman-kills-") as folder:
        chance = random.Random(given.seed)
        asyncio.run(kill_kind(given.kind, Path(folder), given.count, chance))


if __name__ == "__main__":
    main()
