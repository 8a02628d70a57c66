"""One drill: load on all replicas, a fault in the middle of it, quiet, and the comparison with the store.

Invariant: a drill that returns has kept every promise of the checker, and has done what it says: clients were at work
before, during and after the fault.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
from aiohttp import web

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from tests.drills.checker import ENDS, WAITS, Kept, faults, taken_over
from tests.drills.clients import PATIENCE_S, Clients
from tests.drills.kept import read_all
from tests.drills.record import Called, Record
from tests.soak import times

AGENTS = ("again", "once", "ask")

SETTLED_S = 90.0
"""How long after the last fault the last task ends: a lease, the longest run, and the retries of a busy machine."""

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
    stopped: bool = False,
) -> Record:
    """Run a drill on the replicas at `urls`, and return what its clients were told. Raises AssertionError for faults.

    `read` returns what the store holds in the end.
    """
    chance, record = random.Random(seed), Record()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    async with (
        receiving(record, chance) as hook,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
    ):
        clients = Clients(http, urls, hook, record, chance)
        async with asyncio.timeout(SETTLED_S + 3 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(clients.run(senders, followers))
            await clients.made(WARM)
            await fault(clients)
            await clients.made(clients.count + WARM)
            clients.stop()
        kept = await settled(read, record)
    record.taken_over = taken_over(kept)
    found = faults(record, kept, stopped=stopped)
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


async def read_beside(store_url: str) -> dict[str, Kept]:
    """The contents of the store, read beside the replicas."""
    store = open_store(store_url, SystemClock())
    await store.open("the checker")
    try:
        return await read_all(store, AGENTS)
    finally:
        await store.close()
