"""A courier on a real store, with real receivers on loopback, which the operator has allowed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dragoman.dialects import v1
from dragoman.dialects.api import PushForm
from dragoman.model.ids import Clock, SystemClock, new_id
from dragoman.model.operations import PushConfig
from dragoman.net.address import Guard, Resolver
from dragoman.net.target import target
from dragoman.push.caller import Caller, Posters
from dragoman.push.courier import Courier, CourierSettings, way_out
from dragoman.push.outcome import Schedule
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.store.outbox import Delivery, Outbox, Owed, Registration
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.job_group import JobGroup
from tests.store.cases.bench import new_task

DEADLINE_S = 60.0
"""Nothing here takes so long, unless it hangs."""

LOOPBACK = ("127.0.0.0/8",)

assert v1.JSONRPC.push is not None
FORM: PushForm = v1.JSONRPC.push

QUICK = CourierSettings(schedule=Schedule((0.01, 0.01), jitter=0.0), attempt_s=5.0, look_s=0.05)
"""Two more attempts, at once."""


class Rig:
    """Everything that a test needs to owe deliveries, and to see what became of them."""

    def __init__(self, store: Store, courier: Courier, counts: Counts) -> None:
        self.store = store
        self.courier = courier
        self.counts = counts

    async def task(self, url: str, **config: Any) -> str:
        """A task with a webhook; returns its id."""
        task_id = new_id()
        await self.store.create(new_task(task_id))
        await self.webhook(task_id, url, **config)
        return task_id

    async def webhook(self, task_id: str, url: str, deliveries: Sequence[Delivery] = (), **config: Any) -> None:
        """A webhook of a task, and what it is told at once."""
        kept = PushConfig(**{"id": "c", "task_id": task_id, "dialect": "1.0", **config, "url": url})
        await self.store.outbox.register(task_id, Registration(config=kept, host=target(url).origin), tuple(deliveries))

    async def owe(self, task_id: str, url: str, *bodies: bytes, **config: Any) -> None:
        """Owe deliveries of these bodies; the courier hears of it."""
        await self.webhook(task_id, url, [delivery(body, seq) for seq, body in enumerate(bodies, 1)], **config)
        self.courier.wake()

    async def deliver(self, url: str, *bodies: bytes) -> None:
        """Owe deliveries of a new task, and wait until none waits any more."""
        await self.owe(await self.task(url), url, *bodies)
        await self.settled()

    async def settled(self) -> None:
        """Until nothing waits any more: all has arrived, or is dead."""
        await self.until(lambda waiting, dead: waiting == 0)

    async def until(self, true: Callable[[int, int], bool]) -> None:
        """Until what waits and what is dead is as it should be."""
        async with asyncio.timeout(DEADLINE_S):
            while not true(*await self.store.outbox.owed_count()):
                await asyncio.sleep(0.005)  # nothing tells when the outbox has changed

    async def dead(self) -> tuple[Owed, ...]:
        """The dead letters."""
        return await self.store.outbox.owed(dead=True)


def delivery(body: bytes, seq: int = 1, **facts: Any) -> Delivery:
    """One that is owed."""
    given = {"id": f"msg_{new_id()}", "config_id": "c", "seq": seq, "kept": True, "body": body}
    return Delivery(**{**given, **facts})


@asynccontextmanager
async def rig(
    *,
    url: str = "memory:",
    settings: CourierSettings = QUICK,
    guard: Guard | None = None,
    clock: Clock | None = None,
    resolver: Resolver | None = None,
    started: bool = True,
    forms: Mapping[str, PushForm] | None = None,
    around: Callable[[Outbox], Any] = lambda outbox: outbox,
    **more: Any,
) -> AsyncIterator[Rig]:
    """A courier that runs until the block ends. `around`: what it is given as the store's outbox."""
    time, guarding, looking = clock or SystemClock(), guard or Guard((), LOOPBACK), resolver or Resolver()
    store = open_store(url, time)
    await store.open("courier")
    counts = Counts()
    posters = Posters(way_out(guarding, looking), way_out(lambda address: None, looking), guarding.named)
    caller = Caller({"1.0": FORM, **(forms or {})}, posters, time, **more)
    courier = Courier(around(store.outbox), caller, time, counts, settings)
    try:
        async with asyncio.TaskGroup() as tasks:
            if started:
                courier.start(JobGroup(tasks))
            yield Rig(store, courier, counts)
            await courier.drain(DEADLINE_S)
    finally:
        await looking.close()
        await store.close()
