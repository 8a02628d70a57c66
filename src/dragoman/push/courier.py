"""The courier: claims due deliveries, calls webhooks, and records the outcomes.

`outcome` decides what an attempt amounts to, `lanes` counts what is under way, and `caller` makes the calls. The states
of a delivery are those of `store.deliveries`; here is what happens in this process to one that is in flight:

    claimed ─┬─── its host has room ──► calling ──► called ── before the next claim ──► writing ──► written
             │                          ▲ ▲ │ │                                          ▲   │
             └─► waiting ── has room ───┘ │ │ └─ cut off by `drain` ─► released          │   └─ failed
                   │  │                   └─┘ arrived, one behind it is pending          │       │
                   │  └─ `drain` ─► released                              after `look_s` └───────┤
                   ▼                                                                             ▼
         left to its claim: its host is paused, or its claim ends too soon         abandoned, after `WRITES_MAX`

A delivery that is released is due at once. One that is left to its claim, or abandoned, is due when its claim runs out,
and so is one of a process that dies, if nobody finds that out before: it is sent again. A call holds a slot of its lane
(`lanes.Slot`): taken, after `SLOW_S` lingering in the lanes where calls may linger, then released.

Invariant: a delivery without a recorded outcome is sent again: at least once, with the same `webhook-id`. Slow, dead
and unknown hosts have their own slots, so that they take none from healthy hosts.
"""

import asyncio
import logging
import math
from asyncio import Future
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.ids import Clock
from dragoman.net.address import Resolves
from dragoman.net.dialer import Policy
from dragoman.net.egress import Poster
from dragoman.push.caller import Caller
from dragoman.push.lanes import LARGE_BYTES_MAX, LINGERING, PACE_S, Host, Hosts, Lanes, Slot
from dragoman.push.outcome import SLOW_S, WINDOW_START, Abandon, Rewrite, Schedule, Written, judge_write
from dragoman.store.api import StoreError
from dragoman.store.outbox import Due, Lane, Outbox, Settled, covering_names
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger(__name__)

ATTEMPT_S = 10.0
"""The time for one attempt. A receiver that confirms later gets the delivery again."""

CONNECT_S = 3.0
"""The part of an attempt's time for connecting."""

FIRST_S = 2.0
"""The time for a first call to a host while many such calls are unanswered: so a thousand silent hosts delay a new one
only by seconds. The second call has the full time, in the lane of failing hosts."""

BATCH_MAX = 64
"""Most deliveries in one claim: as many as can be started without holding up the loop."""

CLAIM_S = 60.0
"""How long a claim lasts: longer than an attempt and the three that may precede it in the queue of a host that has
become slow."""

FOLLOWING_S = 1.0
"""How long after a claim the deliveries behind it go out without a claim of their own; then others get their turn."""

LOOK_S = 5.0
"""How often the outbox is checked without a wake-up: another process may have revived a dead letter, or a claim may
have expired."""


def way_out(policy: Policy, resolver: Resolves) -> Poster:
    """Make a Poster for a courier. Its connections are not limited here, because the lanes limit the calls."""
    return Poster(policy, resolver, connect_timeout_s=CONNECT_S)


class CourierSettings(Struct, frozen=True, kw_only=True):
    """The courier's times, which only tests change. `keeps_receipts`: deliveries that arrive leave a receipt."""

    schedule: Schedule = Schedule()
    attempt_s: float = ATTEMPT_S
    first_s: float = FIRST_S
    claim_s: float = CLAIM_S
    look_s: float = LOOK_S
    keeps_receipts: bool = True


class Courier:
    """Delivers what the outbox holds, from `start` to `drain`."""

    def __init__(
        self,
        outbox: Outbox,
        caller: Caller,
        clock: Clock,
        counts: Counts | None = None,
        settings: CourierSettings = CourierSettings(),  # noqa: B008 — it is frozen
    ) -> None:
        self._outbox = outbox
        self._caller = caller
        self._clock = clock
        self._counts = counts
        self._settings = settings
        self._hosts = Hosts()
        self._lanes = Lanes()
        self._asked = set(Lane)
        self._not_before = dict.fromkeys(Lane, 0.0)
        self._claimed_ms = dict.fromkeys(Lane, 0)
        self._next_due_ms: int | None = None
        self._paused: frozenset[str] = frozenset()
        """The names of paused hosts at the last look. The outbox itself lets nothing be claimed for them."""
        self._moved = asyncio.Event()
        self._attempts: set[asyncio.Task[None]] = set()
        self._unwritten: list[tuple[Settled, int]] = []  # outcomes, each with how often writing it has failed
        self._writes: set[Future[None]] = set()
        self._held_ms: dict[int, int] = {}
        """Until when the claims last that are not settled, by the number of their delivery."""
        self._overtaken = False
        """Whether a claim was made while outcomes were being written, so that it may not have seen them."""
        self._stopping = False
        self._reclaimed: int | None = None
        """How often the store had gone back when claims were last voided that nobody has under way."""
        self._jobs: JobGroup | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, jobs: JobGroup) -> None:
        """Begin. Deliveries that the previous process had in flight are due at once."""
        self._jobs = jobs
        self._running = jobs.keep("courier", self._run)

    async def drain(self, grace_s: float) -> None:
        """Stop: claim nothing more, and give calls under way `grace_s`. The rest is due at once, for others.

        Closes both Posters.
        """
        self._stopping = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        if self._attempts:
            _, late = await asyncio.wait(self._attempts, timeout=grace_s)
            for attempt in late:
                attempt.cancel()
            if late:
                await asyncio.wait(late)
        self._write_outcomes()
        if self._writes:
            await asyncio.wait(self._writes)
        await self._release()
        await self._caller.close()

    async def _release(self) -> None:
        """Give up the claims of calls that were cut off, or had to wait for their host."""
        now_ms = self._clock.now_ms()
        held = [number for number, until_ms in self._held_ms.items() if until_ms > now_ms]
        self._held_ms.clear()
        if held:
            try:
                await self._outbox.release(held, now_ms)
            except StoreError as error:
                log.warning("%d webhook calls wait for the end of their claims: %s", len(held), error)

    def wake(self) -> None:
        """Look for due deliveries soon, because some were committed."""
        if len(self._asked) < len(Lane):
            self._asked.update(Lane)
            self._moved.set()

    async def _run(self) -> None:
        loop, look_at = asyncio.get_running_loop(), 0.0
        self._asked.update(Lane)
        while True:
            self._moved.clear()
            try:
                if self._reclaimed != (rewinds := self._outbox.rewinds):
                    await self._reclaim()
                    self._reclaimed = rewinds
                for lane in Lane:
                    if lane in self._asked and loop.time() >= self._not_before[lane]:
                        self._asked.discard(lane)
                        self._write_outcomes()
                        self._not_before[lane] = loop.time() + PACE_S[lane]
                        if await self._claim(lane):
                            self._not_before[lane] = 0.0
                            self._asked.add(lane)
                if look := loop.time() >= look_at:
                    look_at = loop.time() + self._settings.look_s
                    await self._look()
                if look or not self._asked:
                    await self._foresee(look=look)
            except StoreError as error:
                log.warning("webhooks wait %g s because the store fails: %s", self._settings.look_s, error)
                self._asked.update(Lane)
                await asyncio.sleep(self._settings.look_s)
                continue
            await self._wait(look_at)

    async def _reclaim(self) -> None:
        """Void the claims of processes that are gone, and those of this one whose outcomes the store has lost."""
        self._write_outcomes()
        if self._writes:
            await asyncio.wait(self._writes)
        await self._outbox.reclaim(self._clock.now_ms(), tuple(self._held_ms))

    async def _wait(self, look_at: float) -> None:
        """Wait until something moves, or until a lane's next claim, the next delivery or the next look is due."""
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

        A delivery that was already due at the last claims waits for a slot or for its host, so the end of a call will
        wake it. A look does not rely on that.
        """
        self._next_due_ms = None  # an outcome recorded meanwhile may set it
        next_due_ms = await self._outbox.next_due_ms()
        if next_due_ms is not None and (look or next_due_ms > min(self._claimed_ms.values())):
            self._next_due_ms = min(next_due_ms, self._next_due_ms or next_due_ms)

    async def _claim(self, lane: Lane) -> bool:
        """Claim what a lane has room for, and begin with it. Returns whether there may be more to claim at once."""
        self._claimed_ms[lane] = self._clock.now_ms()
        self._overtaken = self._overtaken or bool(self._writes)
        limit = min(BATCH_MAX, self._lanes.room(lane))
        if limit == 0:
            return False
        if lane is not Lane.HEALTHY:
            return await self._claim_batch(lane, limit, 1, self._hosts.without_room()) == limit
        before = {name: host.in_flight for name, host in self._hosts.busy.items()}
        found = await self._claim_batch(lane, limit, WINDOW_START, self._hosts.without_room(WINDOW_START))
        return found == limit or (found > 0 and await self._claim_more(limit - found, before))

    async def _claim_more(self, limit: int, before: Mapping[str, int]) -> bool:
        """Claim more for hosts that are quick and had a full batch, up to the room that they have."""
        wide = {
            name: host.room
            for name, host in self._hosts.busy.items()
            if host.room and host.in_flight - before.get(name, 0) >= WINDOW_START
        }
        if not wide:
            return False
        others = [name for name in self._hosts.without_room() if name not in wide]
        return await self._claim_batch(Lane.HEALTHY, limit, min(wide.values()), others) == limit

    async def _claim_batch(self, lane: Lane, limit: int, per_host: int, busy: list[str]) -> int:
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
            self._accept(due, lane, until_ms)
        return len(claimed)

    def _accept(self, due: Due, lane: Lane, until_ms: int) -> None:
        """Begin with a claimed delivery, or let it wait for its host."""
        self._held_ms[due.number] = until_ms
        host = self._hosts.engage(due.host)
        self._lanes.take_bytes(lane, due.delivery.body)
        if host.in_flight < host.window.size:
            self._begin(due, host, lane)
        else:
            host.waiting.append((due, lane, until_ms))

    def _begin(self, due: Due, host: Host, lane: Lane) -> None:
        assert self._jobs is not None
        host.begin()
        hurried = lane is Lane.UNKNOWN and due.attempts == 0 and self._lanes.crowded(lane)
        timeout_s = min(self._settings.first_s if hurried else math.inf, self._settings.attempt_s)
        attempt = self._jobs.create_task(self._attempt(due, host, self._lanes.take(lane), timeout_s))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def _attempt(self, due: Due, host: Host, slot: Slot, timeout_s: float) -> None:
        """Send a delivery, then those behind it as long as they arrive, and record the outcomes.

        If this is canceled, the outcome of the last call is unknown, and its claim is given up.
        """
        loop, lingers = asyncio.get_running_loop(), slot.lane in LINGERING
        leaving = loop.call_later(SLOW_S, self._linger, slot) if lingers else None
        until_s, schedule = loop.time() + FOLLOWING_S, self._settings.schedule
        done: list[Settled] = []
        try:
            done.append(self._log(due, await self._caller.attempt(due, host, timeout_s, schedule)))
            for following in due.behind:
                if self._stopping or done[-1].outcome != "delivered" or loop.time() > until_s:
                    break
                if not await self._is_pending(following):
                    break
                outcome = await self._caller.attempt(following, host, self._settings.attempt_s, schedule)
                done.append(self._log(following, outcome))
        finally:
            if leaving is not None:
                leaving.cancel()
            self._lanes.release(slot)
            self._lanes.release_bytes(slot.lane, due.delivery.body)
            host.end()
            if done:
                self._held_ms.pop(due.number, None)
                self._unwritten.append((self._together(done), 0))
            self._begin_waiting(host)
        self._ask(slot.lane)
        if done[-1].reached:
            self._ask(Lane.HEALTHY)

    def _together(self, done: Sequence[Settled]) -> Settled:
        """The last of some outcomes, as the one outcome of all: those before it arrived."""
        last = done[-1]
        if len(done) == 1 and self._settings.keeps_receipts:
            return last
        arrivals = chain.from_iterable(one.arrivals for one in done) if self._settings.keeps_receipts else ()
        return replace(last, before=tuple(one.number for one in done[:-1]), arrivals=tuple(arrivals))

    def _log(self, due: Due, settled: Settled) -> Settled:
        """Log a call that failed. Returns its outcome."""
        if settled.outcome != "delivered":
            attempt, most = due.attempts + 1, len(self._settings.schedule.delays_s) + 1
            if settled.outcome == "retry":
                next_s = max(0, settled.due_ms - self._clock.now_ms()) / 1000
                then = f"the next attempt is in {next_s:.0f} s"
            else:
                then = "it is given up"
            log.warning(
                "webhook call %d to %s failed, attempt %d of %d: %s; %s",
                due.number,
                due.host,
                attempt,
                most,
                settled.reason,
                then,
                extra=about(due.host, host=due.host, agent=due.agent, outcome=settled.outcome),
            )
        return settled

    async def _is_pending(self, following: Due) -> bool:
        """Whether a delivery is still pending. If the store fails, it waits for a claim of its own."""
        try:
            return await self._outbox.owes(following)
        except StoreError as error:
            log.warning("webhook call %d waits because the store fails: %s", following.number, error)
            return False

    def _linger(self, slot: Slot) -> None:
        if self._lanes.linger(slot):
            self._ask(slot.lane)

    def _begin_waiting(self, host: Host) -> None:
        """Begin the waiting deliveries of a host, as far as it has room and their claims last long enough."""
        enough_ms = self._clock.now_ms() + round(self._settings.attempt_s * 1000)
        while host.waiting and not self._stopping and host.in_flight < host.window.size:
            due, lane, until_ms = host.waiting.popleft()
            if until_ms > enough_ms and self._paused.isdisjoint(covering_names(host.name)):
                self._begin(due, host, lane)
            else:  # its claim runs out, and it is due again
                self._held_ms.pop(due.number, None)
                self._lanes.release_bytes(lane, due.delivery.body)
        self._hosts.release(host)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _write_outcomes(self) -> None:
        """Write the outcomes since the last call: in one batch, before the claims that depend on it."""
        done, self._unwritten = self._unwritten, []
        for settled, failed in done:
            written = self._outbox.settle(settled)
            self._writes.add(written)
            written.add_done_callback(partial(self._record_write, settled, failed))

    def _record_write(self, settled: Settled, failed: int, written: "Future[None]") -> None:
        self._writes.discard(written)
        if self._overtaken and not self._writes:
            self._overtaken = False
            self._ask(Lane.HEALTHY)  # a delivery behind one that has just arrived is due only now
        if written.cancelled():
            return
        error = written.exception()
        match judge_write(settled, error, failed, stopping=self._stopping):
            case Rewrite(failed):
                asyncio.get_running_loop().call_later(self._settings.look_s, self._rewrite, settled, failed)
            case Abandon():
                log.warning("the outcome of a webhook call could not be stored, so it is made again: %s", error)
            case Written(counted, retry_ms):
                if retry_ms is not None:
                    self._note_retry(retry_ms)
                if self._counts is not None:
                    for outcome in counted:
                        self._counts.pushed(outcome)

    def _rewrite(self, settled: Settled, failed: int) -> None:
        self._unwritten.append((settled, failed))
        self._ask(Lane.HEALTHY)

    # -- wake-ups ------------------------------------------------------------------------------------------------------

    def _note_retry(self, due_ms: int) -> None:
        """Note that a delivery is to be retried at `due_ms`."""
        if self._next_due_ms is None or due_ms < self._next_due_ms:
            self._next_due_ms = due_ms
            self._moved.set()

    def _ask(self, lane: Lane) -> None:
        if lane not in self._asked:
            self._asked.add(lane)
            self._moved.set()

    async def _look(self) -> None:
        """Learn which hosts are paused, and count what is pending."""
        self._paused = frozenset(host.name for host in await self._outbox.paused())
        if self._counts is not None:
            waiting, dead = await self._outbox.owed_count()
            self._counts.owed(waiting, dead, await self._outbox.paused_count() if self._paused else 0)
