"""The courier: takes deliveries that are due, calls webhooks, and writes down what became of it.

Invariant: whatever is not written down is called again: at least once, with the same `webhook-id`. Hosts that are slow,
dead or unknown have slots of their own, so that they keep none from those that do well.
"""

import asyncio
import logging
import math
import random
from asyncio import TaskGroup
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.api import PushForm
from dragoman.model.ids import Clock
from dragoman.net.address import Resolves
from dragoman.net.dialer import Policy
from dragoman.net.poster import Poster
from dragoman.push.caller import Caller
from dragoman.push.headers import Token
from dragoman.push.hosts import SLOW_S, WINDOW_START, Host, Hosts
from dragoman.push.lanes import LARGE_BYTES_MAX, LINGERING, PACE_S, Lanes, Slot
from dragoman.push.receipts import Receipts
from dragoman.push.schedule import Schedule
from dragoman.store.api import StoreError
from dragoman.store.outbox import Due, Lane, Outbox, Settled
from dragoman.telemetry.counts import Counts

log = logging.getLogger(__name__)

ATTEMPT_S = 10.0
"""DESIGN §7: a receiver that takes longer than this to say that it has it, has to take it again."""

CONNECT_S = 3.0
"""Of that, for a connection."""

FIRST_S = 2.0
"""All that a first call to a host has while many such calls have no answer: so a thousand hosts that keep silent keep a
new one waiting for seconds. The second call has its full time, among those of hosts that fail."""

BATCH_MAX = 64
"""Most deliveries in one claim: as many as can be begun without keeping the loop from others."""

CLAIM_S = 60.0
"""A claim outlasts an attempt, and the three that may be before it in the queue of a host that has become slow."""

FOLLOWING_S = 1.0
"""So long after a claim what is behind goes out without another; then it is the turn of those that have waited."""

LOOK_S = 5.0
"""How often the outbox is looked at although nobody said that anything is due: another process may have sent a dead
letter again, and a claim may have run out."""


def way_out(policy: Policy, resolver: Resolves) -> Poster:
    """A Poster as a courier needs it; how many connections it has is for the lanes to bound."""
    return Poster(policy, resolver, connect_timeout_s=CONNECT_S)


class CourierSettings(Struct, frozen=True, kw_only=True):
    """What tests set otherwise."""

    schedule: Schedule = Schedule()
    attempt_s: float = ATTEMPT_S
    claim_s: float = CLAIM_S
    look_s: float = LOOK_S


class Courier:
    """Delivers what the outbox holds, from `start` to `drain`.

    `forms` are the dialects' ways of telling, by name. `guarded` and `unguarded` are two `way_out`s: the second for
    hosts of which `named` says that the operator allows them whatever their address. With a `token` every call carries
    a JWT.
    """

    def __init__(
        self,
        outbox: Outbox,
        forms: Mapping[str, PushForm],
        *,
        guarded: Poster,
        unguarded: Poster,
        named: Callable[[str], bool],
        clock: Clock,
        token: Token | None = None,
        counts: Counts | None = None,
        settings: CourierSettings = CourierSettings(),  # noqa: B008 — it is frozen
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._counts = counts
        self._settings = settings
        self._caller = Caller(
            forms,
            guarded=guarded,
            unguarded=unguarded,
            named=named,
            clock=clock,
            token=token,
            schedule=settings.schedule,
            chance=chance,
        )
        self._hosts = Hosts()
        self._lanes = Lanes()
        self._asked = set(Lane)
        self._not_before = dict.fromkeys(Lane, 0.0)
        self._claimed_ms = dict.fromkeys(Lane, 0)
        self._next_due_ms: int | None = None
        self._moved = asyncio.Event()
        self._attempts: set[asyncio.Task[None]] = set()
        self._receipts = Receipts(
            outbox, counts, settings.look_s, retries=self._retries, waits=partial(self._ask, Lane.HEALTHY)
        )
        self._stopping = False
        self._tasks: TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, tasks: TaskGroup) -> None:
        """Begin. What the process before had in flight is due at once."""
        self._tasks = tasks
        self._running = tasks.create_task(self._run(), name="courier")

    async def drain(self, grace_s: float) -> None:
        """Stop: nothing more is claimed; calls under way get their time, then they are left to their claims.

        Closes both ways out.
        """
        self._stopping = self._receipts.stopping = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        if self._attempts:
            _, late = await asyncio.wait(self._attempts, timeout=grace_s)
            for attempt in late:
                attempt.cancel()
            if late:
                await asyncio.wait(late)
        self._receipts.write()
        await self._receipts.written()
        await self._caller.close()

    def wake(self) -> None:
        """Deliveries were committed."""
        if len(self._asked) < len(Lane):
            self._asked.update(Lane)
            self._moved.set()

    async def _run(self) -> None:
        loop, look_at, reclaimed = asyncio.get_running_loop(), 0.0, False
        while True:
            self._moved.clear()
            try:
                if not reclaimed:
                    await self._outbox.reclaim(self._clock.now_ms())
                    reclaimed = True
                for lane in Lane:
                    if lane in self._asked and loop.time() >= self._not_before[lane]:
                        self._asked.discard(lane)
                        self._receipts.write()
                        self._not_before[lane] = loop.time() + PACE_S[lane]
                        if await self._claim(lane):
                            self._not_before[lane] = 0.0
                            self._asked.add(lane)
                if look := loop.time() >= look_at:
                    look_at = loop.time() + self._settings.look_s
                    await self._count()
                if look or not self._asked:
                    await self._foresee(look=look)
            except StoreError as error:
                log.warning("webhooks wait %g s, as the store does not answer: %s", self._settings.look_s, error)
                self._asked.update(Lane)
                await asyncio.sleep(self._settings.look_s)
                continue
            await self._rest(look_at)

    async def _rest(self, look_at: float) -> None:
        """Until something moves, or it is time for what was asked for, for the next delivery, or for a look."""
        loop = asyncio.get_running_loop()
        until = min((self._not_before[lane] for lane in self._asked), default=look_at)
        if self._next_due_ms is not None:
            until = min(until, loop.time() + (self._next_due_ms - self._clock.now_ms()) / 1000)
        alarm = loop.call_at(min(until, look_at), self._moved.set)
        await self._moved.wait()
        alarm.cancel()
        if self._next_due_ms is not None and self._next_due_ms <= self._clock.now_ms():
            self._next_due_ms = None
            self._asked.update(Lane)

    async def _foresee(self, *, look: bool) -> None:
        """Find out when the next delivery is due.

        One that was due at the last claims already waits for a slot, or for its host: the end of a call is what it
        waits for. A look does not rely on that.
        """
        self._next_due_ms = None  # what is settled meanwhile may set it
        next_due_ms = await self._outbox.next_due_ms()
        if next_due_ms is not None and (look or next_due_ms > min(self._claimed_ms.values())):
            self._next_due_ms = min(next_due_ms, self._next_due_ms or next_due_ms)

    async def _claim(self, lane: Lane) -> bool:
        """Take what a lane has room for, and begin with it; whether there may be more to take at once."""
        self._claimed_ms[lane] = self._clock.now_ms()
        limit = min(BATCH_MAX, self._lanes.room(lane))
        if limit == 0:
            return False
        if lane is not Lane.HEALTHY:
            return await self._claimed(lane, limit, 1, self._hosts.under_way()) == limit
        before = {name: host.in_flight for name, host in self._hosts.busy.items()}
        found = await self._claimed(lane, limit, WINDOW_START, self._hosts.under_way(WINDOW_START))
        return found == limit or (found > 0 and await self._claim_more(limit - found, before))

    async def _claim_more(self, limit: int, before: Mapping[str, int]) -> bool:
        """Of hosts that are quick, and that gave all they were asked for: as much as they have room for."""
        wide = {
            name: host.room
            for name, host in self._hosts.busy.items()
            if host.room and host.in_flight - before.get(name, 0) >= WINDOW_START
        }
        if not wide:
            return False
        others = [name for name in self._hosts.under_way() if name not in wide]
        return await self._claimed(Lane.HEALTHY, limit, min(wide.values()), others) == limit

    async def _claimed(self, lane: Lane, limit: int, per_host: int, busy: list[str]) -> int:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + round(self._settings.claim_s * 1000)
        room = self._lanes.room_bytes(lane)
        claimed = await self._outbox.claim(
            lane,
            now_ms,
            until_ms,
            limit,
            per_host,
            busy,
            bytes_max=LARGE_BYTES_MAX[lane] if room is None else room,
            alone=room is None,
            with_behind=lane is Lane.HEALTHY,
        )
        for due in claimed:
            self._took(due, lane, until_ms)
        return len(claimed)

    def _took(self, due: Due, lane: Lane, until_ms: int) -> None:
        """Begin with what was claimed, or let it wait for its host."""
        host = self._hosts.busied(due.host)
        self._lanes.hold(lane, due.delivery.body)
        if host.in_flight < host.window:
            self._begin(due, host, lane)
        else:
            host.waiting.append((due, lane, until_ms))

    def _begin(self, due: Due, host: Host, lane: Lane) -> None:
        assert self._tasks is not None
        host.in_flight += 1
        hurried = lane is Lane.UNKNOWN and due.attempts == 0 and self._lanes.crowded(lane)
        timeout_s = min(FIRST_S if hurried else math.inf, self._settings.attempt_s)
        attempt = self._tasks.create_task(self._attempt(due, host, self._lanes.take(lane), timeout_s))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def _attempt(self, due: Due, host: Host, slot: Slot, timeout_s: float) -> None:
        """Call once, and on with what is behind as long as it arrives; write down what became of it.

        If it was canceled, nothing is known of the last call: its claim runs out.
        """
        loop, lingers = asyncio.get_running_loop(), slot.lane in LINGERING
        leaving = loop.call_later(SLOW_S, self._linger, slot) if lingers else None
        until_s = loop.time() + FOLLOWING_S
        done: list[Settled] = []
        try:
            done.append(await self._caller.called(due, host, timeout_s))
            for following in due.behind:
                if self._stopping or done[-1].outcome != "delivered" or loop.time() > until_s:
                    break
                if not self._owes(following):
                    break
                done.append(await self._caller.called(following, host, self._settings.attempt_s))
        finally:
            if leaving is not None:
                leaving.cancel()
            self._lanes.end(slot)
            self._lanes.let_go(slot.lane, due.delivery.body)
            host.in_flight -= 1
            if done:
                *before, last = done
                self._receipts.add(replace(last, before=tuple(one.number for one in before)))
            self._go_on(host)
        self._ask(slot.lane)
        if done[-1].reached:
            self._ask(Lane.HEALTHY)

    def _owes(self, following: Due) -> bool:
        """Whether it is to go out still; if the store does not say so, it waits for a claim of its own."""
        try:
            return self._outbox.owes(following)
        except StoreError as error:
            log.warning("webhook call %d waits, as the store does not answer: %s", following.number, error)
            return False

    def _linger(self, slot: Slot) -> None:
        if self._lanes.linger(slot):
            self._ask(slot.lane)

    def _go_on(self, host: Host) -> None:
        """Begin what waits for a host, as far as it has room and the claims have time for it."""
        enough_ms = self._clock.now_ms() + round(self._settings.attempt_s * 1000)
        while host.waiting and not self._stopping and host.in_flight < host.window:
            due, lane, until_ms = host.waiting.popleft()
            if until_ms > enough_ms:
                self._begin(due, host, lane)
            else:
                self._lanes.let_go(lane, due.delivery.body)
        self._hosts.settled(host)

    def _retries(self, due_ms: int) -> None:
        """A call is to be made again then."""
        if self._next_due_ms is None or due_ms < self._next_due_ms:
            self._next_due_ms = due_ms
            self._moved.set()

    def _ask(self, lane: Lane) -> None:
        if lane not in self._asked:
            self._asked.add(lane)
            self._moved.set()

    async def _count(self) -> None:
        if self._counts is not None:
            self._counts.pushes_waiting, self._counts.pushes_dead = await self._outbox.owed_count()
