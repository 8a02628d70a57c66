"""Sends through a gateway to servers of others that lose requests and answers: nothing is done twice, and nothing lost.

The truth is the ledger that each upstream's own agent writes. `make test-soak` sends a thousand messages over one and
three replicas, and ten thousand more in conversations.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dragoman.client import Connection, Retries, connect
from dragoman.client.errors import NoAnswer, PeerError
from dragoman.model.errors import A2AError, TaskNotFound
from dragoman.model.message import Message
from dragoman.model.task import Task, TaskState
from tests.drills.cluster import DrillProcess
from tests.drills.sends import UNCERTAIN, Outcome, outcome_of, read_ledgers, strays, wrong_sends
from tests.drills.upstreams import FAULTS, LOST, Door, Upstreams, upstreams
from tests.kit.waiting import DEADLINE_S
from tests.nats import NatsServer
from tests.net.lines import silent_port
from tests.peers.test_cut_streams import by_client, held, upstream_id
from tests.ports import kept_port
from tests.postgres import PostgresServer
from tests.soak import SOAK, times

pytestmark = [pytest.mark.slow, pytest.mark.drill, pytest.mark.peer]

AGENT = """
[[agents]]
id = "{id}"
{pool}
answer_s = 2
wait_s = 2
pause_s = 0.2
retry_wait_s = 0.5
"""

POOL = 2
"""So many upstreams has each agent."""

ONCE = Retries(attempts=1)
"""The callers of a drill ask once: who repeats a call cannot say what became of it."""


class Gateway:
    """Replicas of one gateway, and a caller of each of them."""

    def __init__(self, replicas: Sequence[DrillProcess], urls: Sequence[str], chance: random.Random) -> None:
        self.replicas = replicas
        self._urls = urls
        self._chance = chance
        self._callers: dict[tuple[str, str], Connection] = {}
        self._opened = AsyncExitStack()

    async def caller(self, agent: str) -> Connection:
        """A caller of that agent at any replica."""
        place = self._chance.choice(self._urls), agent.replace(".", "")
        if place not in self._callers:
            to = connect("/agents/".join(place), retries=ONCE, dialect="1.0")
            self._callers[place] = await self._opened.enter_async_context(to)
        return self._callers[place]

    async def aclose(self) -> None:
        """Hang up."""
        await self._opened.aclose()

    async def send(self, agent: str, text: str, context_id: str | None = None) -> tuple[Outcome, str | None]:
        """Send a message, and return its outcome and its conversation.

        A caller who hears nothing, since its replica is gone, sends the same message to another one.
        """
        message_id = str(uuid4())
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    to = await self.caller(agent)
                    answer = await to.send(text, message_id=message_id, context_id=context_id)
                except (A2AError, PeerError) as error:
                    return Outcome(text, refused=type(error).__name__), None
                except NoAnswer:
                    await asyncio.sleep(0.2)  # as a caller waits before it tries again
                    continue
                assert not isinstance(answer, Message)
                return outcome_of(text, answer), answer.context_id


@asynccontextmanager
async def gateway(folder: Path, config: str, replicas: int, chance: random.Random) -> AsyncIterator[Gateway]:
    """A gateway with that configuration: one server with its store in a file, or several on PostgreSQL and NATS."""
    (folder / "dragoman.toml").write_text(config)
    flags: tuple[str, ...] = ("--shutdown-grace-s", "1")
    async with AsyncExitStack() as stack:
        if replicas == 1:
            flags += ("--store", "sqlite:///gateway.db")
        else:
            postgres, nats = stack.enter_context(PostgresServer()), stack.enter_context(NatsServer())
            flags += ("--store", postgres.url(), "--bus", nats.url, "--replica-lease-s", "3", "--replica-beat-s", "1")
        ports = [kept_port() for _ in range(replicas)]
        made = [
            DrillProcess(f"g{port}", ("serve", "--port", str(port), *flags), folder, "listens on http://")
            for port in ports
        ]
        for replica in made:
            stack.push_async_callback(_end, replica)
        await asyncio.gather(*(replica.start() for replica in made))
        opened = Gateway(made, [f"http://127.0.0.1:{port}" for port in ports], chance)
        stack.push_async_callback(opened.aclose)
        yield opened


async def _end(replica: DrillProcess) -> None:
    if replica.process is not None:
        await replica.kill()


def configured(ups: Upstreams, kinds: Sequence[str], strategy: str = "round_robin") -> str:
    """An agent for each kind of server, with all the upstreams of that kind."""

    def agent(kind: str) -> str:
        urls = [f"a2a:{door.url}" for door in ups.of_kind(kind)]
        pool = f'run = {json.dumps(urls)}\nstrategy = "{strategy}"' if len(urls) > 1 else f'run = "{urls[0]}"'
        return AGENT.format(id=kind.replace(".", ""), pool=pool)

    return "".join(map(agent, kinds))


NOBODY = ("no-tls", "silent")
"""Agents whose first upstream speaks no TLS, or takes no connection."""


def beside_nobody(door: Door, silent: int) -> str:
    """Agents of which nobody reaches the first upstream, before one that works."""
    firsts = door.url.replace("http:", "https:"), f"http://127.0.0.1:{silent}"
    return "".join(
        AGENT.format(id=name, pool=f'run = ["a2a:{first}", "a2a:{door.url}"]\nconnect_timeout_s = 0.3')
        for name, first in zip(NOBODY, firsts, strict=True)
    )


async def send_many(at: Gateway, kinds: Sequence[str], count: int, name: str, callers: int = 8) -> list[Outcome]:
    """Send so many messages to the agents of these kinds in turn, some at a time."""
    left = iter(range(count))

    async def send() -> list[Outcome]:
        return [
            (await at.send(kinds[n % len(kinds)], f"{name} {n} {filler(kinds[n % len(kinds)], n)}"))[0] for n in left
        ]

    return [outcome for each in await asyncio.gather(*(send() for _ in range(callers))) for outcome in each]


def filler(kind: str, n: int) -> str:
    """Some messages fill every buffer on their way, so that they can be lost in the middle. Express takes 100 KB."""
    return "x" * 3_000_000 if n % 16 > 13 and not kind.startswith("js") else ""


PACED = ("python-1", "fasta2a")
"""The kinds whose agents tell of their own task's id, in pieces, at a pace."""

KINDS = ("python-1", "python-0.3", "js-1", "fasta2a", "dragoman")
CASES = [(1, KINDS), (3, KINDS)] if SOAK else [(3, ("fasta2a", "js-1", "dragoman"))]


@pytest.mark.parametrize(("replicas", "kinds"), CASES)
async def test_what_is_lost_on_the_way_is_neither_done_twice_nor_claimed(
    tmp_path: Path, replicas: int, kinds: Sequence[str]
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"{kind}/{number}" for kind in kinds for number in range(1, POOL + 1)]
    async with upstreams(tmp_path, names, chance) as ups, AsyncExitStack() as stack:
        config = configured(ups, kinds) + beside_nobody(ups.of_kind(kinds[0])[0], stack.enter_context(silent_port()))
        at = await stack.enter_async_context(gateway(tmp_path, config, replicas, chance))
        undisturbed = await send_many(at, kinds, len(kinds), "warm")
        moved = await send_many(at, NOBODY, times(4, 40), "moved")
        undisturbed += await talk_much(at, kinds)
        differing = await compare_streams(at, ups, [kind for kind in kinds if kind in PACED])
        outcomes = await send_among_faults(at, ups, kinds)
        said = [replica.said() for replica in at.replicas]
        executed = read_ledgers(ups.ledgers)
    print(f"{replicas} replicas: {Counter(outcome.kind for outcome in outcomes)}")
    completed = sum(outcome.state is TaskState.COMPLETED for outcome in undisturbed)
    assert {outcome.kind for outcome in moved} <= {TaskState.COMPLETED.value, *UNCERTAIN}, "nobody else was asked"
    assert completed >= 0.9 * len(undisturbed), Counter(outcome.kind for outcome in undisturbed)
    assert differing == []
    executed = [execution for execution in executed if not execution.text.startswith("pace")]
    wrong = [*strays(executed), *wrong_sends([*undisturbed, *moved, *outcomes], executed)]
    assert wrong == [], "\n".join(wrong[:20])
    assert "Traceback" not in "".join(said)


async def talk_much(at: Gateway, kinds: Sequence[str]) -> list[Outcome]:
    """Conversations with the agents of these kinds in turn, some at a time."""
    numbers = iter(range(times(4, 100)))

    async def talks() -> list[Outcome]:
        return [outcome for n in numbers for outcome in await talk(at, kinds[n % len(kinds)], n)]

    return [outcome for each in await asyncio.gather(*(talks() for _ in range(16))) for outcome in each]


async def talk(at: Gateway, kind: str, number: int) -> list[Outcome]:
    """A conversation, each message of which goes to any replica. One of these is killed in the middle."""
    outcome, context_id = await at.send(kind, f"talk {number} 0")
    outcomes = [outcome]
    for n in range(times(4, 100)):
        if len(at.replicas) > 1 and number == n == 1:
            await at.replicas[0].kill()
            await at.replicas[0].start()
        outcomes.append((await at.send(kind, f"talk {number} {n + 1}", context_id))[0])
    return outcomes


async def compare_streams(at: Gateway, ups: Upstreams, kinds: Sequence[str]) -> list[tuple[Any, Any]]:
    """Streams that are cut behind the gateway: the tasks that differ from the upstream's own, which has the truth."""
    for kind in kinds:
        for door in ups.of_kind(kind):
            door.share, door.faults = 0.7, ("stream cut",)

    async def follow(kind: str) -> tuple[Any, Any] | None:
        task = await by_client(await at.caller(kind))
        if outcome_of("", task).reason in UNCERTAIN:
            return None  # the upstream was too slow for `answer_s`, and has named no task
        theirs = [await task_at(url, upstream_id(task)) for name, url in ups.urls.items() if name.startswith(kind)]
        (truth,) = [held(each) for each in theirs if each is not None]
        return None if held(task) == truth else (held(task), truth)

    found: list[tuple[Any, Any] | None] = []
    for _ in range(times(1, 50)):
        found += await asyncio.gather(*(follow(kind) for kind in kinds for _ in range(3)))
    for kind in kinds:
        for door in ups.of_kind(kind):
            door.faults = (LOST, *FAULTS)
    return [each for each in found if each is not None]


async def task_at(url: str, task_id: str) -> Task | None:
    """The task at a server of others, None if it is not there."""
    async with connect(url) as there:
        try:
            return await there.get(task_id)
        except TaskNotFound:
            return None


async def send_among_faults(at: Gateway, ups: Upstreams, kinds: Sequence[str]) -> list[Outcome]:
    """Send messages to upstreams of which half the sends go wrong, and while some upstreams let nobody in."""
    for door in ups.doors.values():
        door.share = 0.5
    outcomes = await send_many(at, kinds, times(18, 750), "faults")
    for number in range(POOL):
        closed = [ups.of_kind(kind)[number] for kind in kinds]
        await asyncio.gather(*(door.close() for door in closed))
        outcomes += await send_many(at, kinds, times(12, 250) // POOL, f"closed-{number}")
        await asyncio.gather(*(door.open() for door in closed))
    met = sum((door.met for door in ups.doors.values()), Counter[str]())
    print(f"met {met}")
    assert not SOAK or set(met) == {*FAULTS, LOST}
    return outcomes
