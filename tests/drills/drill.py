"""One drill: load on all replicas, a fault in the middle of it, quiet, and the comparison with the store.

Invariant: a drill that returns has kept every promise of the checker, and has done what it says: clients were at work
before, during and after the fault.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, time

import aiohttp
from aiohttp import web

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from tests.drills.checker import ENDS, JOURNEYS, WAITS, Kept, faults, taken_over
from tests.drills.clients import PATIENCE_S, TRIPS, Clients
from tests.drills.kept import read_all
from tests.drills.record import Called, Executed, Record
from tests.soak import times

AGENTS = ("again", "once", "ask", *JOURNEYS)

SETTLED_S = 90.0
"""How long after the last fault the last task ends: a lease, the longest run, and the retries of a busy machine."""

SLEEPY = ("--suspend-after-s", "1")
"""With these flags the second sleep of a trip is a long one."""

ALLOWED = ("--push-allowed-cidrs", "127.0.0.0/8")
WARM = times(20, 200)
"""So many tasks are made before the fault, and after it."""

CALL_S = 0.02
"""How long a webhook call takes at most."""


class Webhook:
    """A receiver that puts each call into the record, with the time that it took."""

    def __init__(self, record: Record, chance: random.Random) -> None:
        self.url = ""
        self._record = record
        self._chance = chance

    async def take(self, request: web.Request) -> web.Response:
        """One call."""
        began_s, body = monotonic(), await request.read()
        await asyncio.sleep(self._chance.uniform(0, CALL_S))  # so that calls can overlap
        ((name, told),) = json.loads(body).items()
        self._record.called.append(
            Called(
                webhook_id=request.headers["webhook-id"],
                task_id=str(told["id"] if name == "task" else told["taskId"]),
                seq=int(request.headers["x-dragoman-seq"].partition(".")[0]),
                state=str(told.get("status", {}).get("state", "")),
                body=body,
                began_s=began_s,
                ended_s=monotonic(),
            )
        )
        return web.Response(status=204)


@asynccontextmanager
async def receiving(record: Record, chance: random.Random) -> AsyncIterator[str]:
    """A receiver of webhook calls; its URL."""
    app = web.Application()
    app.router.add_post("/", Webhook(record, chance).take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


Fault = Callable[[Clients], Awaitable[None]]
"""Does harm while clients are at work, and heals it. Every replica runs when it returns."""


async def drill(
    read: Callable[[], Awaitable[dict[str, Kept]]],
    urls: Sequence[str],
    fault: Fault,
    *,
    senders: int,
    followers: int,
    seed: int,
    ledger: Path,
    travelers: int = 4,
    journeys: Sequence[str] = TRIPS,
    journeys_min: int = 0,
    lasts_s: float = 0.0,
    stopped: bool = False,
    takeover_s: float = 0.0,
) -> Record:
    """Run a drill on the replicas at `urls`, and return what its clients were told. Raises AssertionError for faults.

    `read` returns what the store holds in the end. `ledger` is the file in which steps write themselves down. The fault
    `lasts_s` seconds at most, if it is a long one.
    """
    chance, record = random.Random(seed), Record()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    async with (
        receiving(record, chance) as hook,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
    ):
        clients = Clients(http, urls, hook, record, chance, journeys)
        async with asyncio.timeout(lasts_s + SETTLED_S + 3 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(clients.run(senders, followers, travelers))
            await clients.made(WARM)
            began_ms = time() * 1000
            await fault(clients)
            record.disturbed.append((began_ms, time() * 1000))
            await clients.made(clients.count + WARM)
            await clients.traveled(journeys_min)
            clients.stop()
        kept = await settled(read, record)
    record.taken_over = taken_over(kept)
    record.executed = read_ledger(ledger)
    found = faults(record, kept, stopped=stopped, takeover_s=takeover_s)
    print(f"seed {seed}: {len(kept)} tasks, {record.counts()}")
    assert found == [], "\n".join(found[:20])
    assert record.failed == [], "\n".join(record.failed[:20])
    return record


async def settled(read: Callable[[], Awaitable[dict[str, Kept]]], record: Record) -> dict[str, Kept]:
    """The contents of the store once no task is at work and every webhook has been told; the last ones if it never
    comes to that.
    """
    deadline, pause_s = monotonic() + SETTLED_S, 0.2
    while True:
        kept = await read()
        at_work = any(task.state not in ENDS | WAITS for task in kept.values())
        told = {(call.task_id, call.webhook_id) for call in record.called}
        owed = sum(len(kept[task_id].tells) for task_id in record.pushed if task_id in kept)
        if (not at_work and len(told) >= owed) or monotonic() > deadline:
            return kept
        await asyncio.sleep(pause_s)
        pause_s *= 1.5  # reading may restart a server, whose tasks then begin anew


def read_ledger(file: Path) -> list[Executed]:
    """The executions that are written there; one that a kill cut off is none."""
    lines = file.read_bytes().split(b"\n")[:-1]
    return [Executed(**json.loads(line)) for line in lines]


async def read_beside(store_url: str) -> dict[str, Kept]:
    """The contents of the store, read beside the replicas."""
    store = open_store(store_url, SystemClock())
    await store.open("the checker")
    try:
        return await read_all(store, AGENTS)
    finally:
        await store.close()
