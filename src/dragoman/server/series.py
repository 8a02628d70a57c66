"""Series: how many tasks ended, how long they took, what they used: by minutes, quarters of an hour, and days.

Invariant: nothing is counted here, so that a task costs nothing more. Once a minute the differences of the counts of
this process, and of the store's usage, are added to the buckets that are under way, and these are written as shared
entries. Each process has entries of its own, whose sums are the figures of all; one replica alone adds the usage.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from dragoman.admin.series import SHOW_SERIES, SeriesAgent, SeriesPoint, SeriesQuery, SeriesReport, Span
from dragoman.admin.tasks import ENDS
from dragoman.config.prices import Prices
from dragoman.engine.admin.answers import Asked, Functions, bind
from dragoman.engine.costs import Cost, amount_text, cost_of_run, sum_costs
from dragoman.model.ids import timestamp
from dragoman.store.api import Store, StoreError
from dragoman.store.shared import decode_entry
from dragoman.store.usage import DAY_MS, UsageDay, read_sum
from dragoman.telemetry.counts import BOUNDS_MS, Counts
from dragoman.telemetry.pulse import BOUNDS_S, quantiles

log = logging.getLogger("dragoman.series")

SAMPLE_S = 60.0

DAY_S = DAY_MS // 1000

UNWRITTEN_MAX = 200
"""Most buckets that wait for the store: more than an hour of them."""

AGENTS_MAX = 500
"""Most agents in a report."""


class SeriesStep(Struct, frozen=True):
    """A span has `points` of `step_s`. An entry stays for twice as long."""

    step_s: int
    points: int

    @property
    def prefix(self) -> str:
        """The beginning of the keys of its entries."""
        return f"series/{self.step_s}/"

    @property
    def ttl_ms(self) -> int:
        """How long an entry stays."""
        return 2 * self.step_s * self.points * 1000


STEPS: dict[Span, SeriesStep] = {"hour": SeriesStep(60, 60), "day": SeriesStep(900, 96), "month": SeriesStep(DAY_S, 30)}


class AgentTasks(Struct, array_like=True):
    """The tasks of an agent that ended, by `ENDS`, and their durations, by `BOUNDS_MS`."""

    ended: list[int]
    durations: list[int]

    def add(self, other: "AgentTasks") -> None:
        """Add others."""
        self.ended = [one + more for one, more in zip(self.ended, other.ended, strict=True)]
        self.durations = [one + more for one, more in zip(self.durations, other.durations, strict=True)]


UsedKey = tuple[str, str]
"""An agent, and the name of what it used: see `store.usage.Used.name`."""


class Bucket(Struct, array_like=True):
    """What happened in one step: `tasks` by agent, and what was `used`: the numbers of `store.usage.Used`."""

    tasks: dict[str, AgentTasks] = {}
    used: list[tuple[str, str, list[int]]] = []

    def add(self, other: "Bucket") -> None:
        """Add what another one has."""
        for agent, tasks in other.tasks.items():
            self.tasks.setdefault(agent, _no_tasks()).add(tasks)
        if other.used:
            sums = {(agent, name): numbers for agent, name, numbers in self.used}
            for agent, name, numbers in other.used:
                known = sums.get((agent, name))
                sums[agent, name] = numbers if known is None else [a + b for a, b in zip(known, numbers, strict=True)]
            self.used = [(*key, numbers) for key, numbers in sums.items()]


class Look(NamedTuple):
    """The sums of usage of a day, as they were at a moment of it."""

    at_ms: int
    sums: dict[UsedKey, list[int]]


def _no_tasks() -> AgentTasks:
    return AgentTasks([0] * len(ENDS), [0] * (len(BOUNDS_MS) + 1))


class Series:
    """Samples `counts`, None if there are none, and answers with what was sampled.

    `holder` is this process's own word in the keys of its entries. `leads` says whether it is this replica that adds
    the usage.
    """

    def __init__(
        self,
        store: Store,
        counts: Counts | None,
        holder: str,
        prices: Prices,
        leads: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._counts = counts
        self._holder = holder
        self._prices = prices
        self._leads = leads
        self._sampled_ms = self._clock.now_ms()
        self._tasks = self._now()
        self._looked: Look | None = None
        """The last look at the usage; None if this replica did not look."""
        self._gathering = asyncio.Lock()
        self._buckets: dict[str, Bucket] = {}
        """Those of this process that are under way, or wait for the store, by key."""
        self._unwritten: dict[str, int] = {}
        """How long each of them that is not written stays, by key."""

    @property
    def answers(self) -> Functions:
        """The functions that answer, by the names of the questions."""
        return dict((bind(SHOW_SERIES, self._show),))

    async def run(self) -> None:
        """Sample for ever, at the full minutes."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S - self._clock.now_ms() / 1000 % SAMPLE_S)

    async def sample(self) -> None:
        """Add what happened since the last sample, and write it. What the store cannot take now is written later."""
        try:
            await self._gather()
            for key in tuple(self._unwritten):
                await self._write(key)
        except StoreError as error:
            log.warning("figures of the last minute are written later, because the store cannot take them: %s", error)
        present = {self._key(step, self._sampled_ms) for step in STEPS.values()}
        for key in tuple(self._buckets):
            if key not in present and (key not in self._unwritten or len(self._unwritten) > UNWRITTEN_MAX):
                del self._buckets[key]
                self._unwritten.pop(key, None)

    async def _write(self, key: str) -> None:
        """Write a bucket, unless it is written. What is added meanwhile is written next time. Raises StoreError."""
        ttl_ms = self._unwritten.pop(key, None)
        if ttl_ms is None:
            return
        try:
            await self._store.shared.put(key, msgspec.msgpack.encode(self._buckets[key]), ttl_ms)
        except BaseException:
            self._unwritten[key] = ttl_ms
            raise

    async def close(self) -> None:
        """Write what is left."""
        await self.sample()

    async def _gather(self) -> None:
        """Add what happened since the last time. Raises StoreError."""
        self._add_tasks()
        async with self._gathering:  # else two would find the same usage
            await self._add_usage()

    def _add_tasks(self) -> None:
        """Add the differences of the counts to the buckets."""
        now_ms, now = self._clock.now_ms(), self._now()
        found = Bucket(tasks={})
        for agent, tasks in now.items():
            before = self._tasks.get(agent) or _no_tasks()
            ended = [later - earlier for later, earlier in zip(tasks.ended, before.ended, strict=True)]
            if any(ended):
                pairs = zip(tasks.durations, before.durations, strict=True)
                found.tasks[agent] = AgentTasks(ended, [later - earlier for later, earlier in pairs])
        self._tasks = now
        middle_ms, self._sampled_ms = (self._sampled_ms + now_ms) // 2, now_ms
        if found.tasks:
            self._add(found, middle_ms)

    async def _add_usage(self) -> None:
        """Add the differences of the store's usage to the buckets, if that is for this replica to do."""
        if not await self._leads():
            self._looked = None
            return
        now_ms, looked = self._clock.now_ms(), self._looked
        today, first = now_ms // DAY_MS, (now_ms if looked is None else looked.at_ms) // DAY_MS
        days: dict[int, dict[UsedKey, list[int]]] = {day: {} for day in range(first, today + 1)}
        for used in await self._store.usage.by_agent(first, today):
            days[used.day][used.agent, used.name] = list(used.numbers)
        self._looked = Look(now_ms, days[today])
        if looked is None:
            return
        found = []
        for day, sums in days.items():
            for (agent, name), numbers in sums.items():
                before = looked.sums.get((agent, name)) if day == first else None
                more = numbers if before is None else [max(0, a - b) for a, b in zip(numbers, before, strict=True)]
                if any(more):
                    found.append((agent, name, more))
        if found:
            self._add(Bucket({}, found), (looked.at_ms + now_ms) // 2)

    def _add(self, found: Bucket, at_ms: int) -> None:
        """Add to the buckets of a moment. The store has the usage of days already."""
        for step in STEPS.values():
            if step.step_s == DAY_S and not found.tasks:
                continue
            key = self._key(step, at_ms)
            self._buckets.setdefault(key, Bucket({}, [])).add(found)
            self._unwritten[key] = step.ttl_ms

    def _key(self, step: SeriesStep, at_ms: int) -> str:
        return f"{step.prefix}{at_ms // 1000 // step.step_s:012d}/{self._holder}"

    def _now(self) -> dict[str, AgentTasks]:
        if self._counts is None:
            return {}
        tasks = self._counts.tasks
        return {
            agent: AgentTasks([tasks.get((agent, state), 0) for state in ENDS], list(durations.counts))
            for agent, durations in self._counts.durations.items()
        }

    # -- the question --------------------------------------------------------------------------------------------------

    async def _show(self, asked: Asked[SeriesQuery]) -> SeriesReport:
        """The figures of a span. Raises StoreError."""
        span, only = asked.given.span, asked.given.agent
        await self._gather()
        step = STEPS[span]
        last = self._clock.now_ms() // 1000 // step.step_s
        first = last - step.points + 1
        found: dict[int, Bucket] = {number: Bucket({}, []) for number in range(first, last + 1)}
        entries = await self._store.shared.scan(step.prefix)
        kept = [(entry.key, decode_entry(entry, Bucket)) for entry in entries if entry.key not in self._buckets]
        for key, bucket in (*kept, *self._buckets.items()):
            if bucket is not None and key.startswith(step.prefix):
                number = int(key.split("/")[2])
                if number in found:
                    found[number].add(bucket)
        if step.step_s == DAY_S:
            for used in await self._store.usage.by_agent(first, last):
                found[used.day].used.append((used.agent, used.name, list(used.numbers)))
        return await asyncio.to_thread(self._report, span, found, only)

    def _report(self, span: Span, found: dict[int, Bucket], only: str | None) -> SeriesReport:
        step_s, at_s = STEPS[span].step_s, min(found) * STEPS[span].step_s
        whole = Bucket({}, [])
        for bucket in found.values():
            whole.add(bucket)
        used: dict[str, list[UsageDay]] = {}
        for name, of, numbers in whole.used:
            used.setdefault(name, []).append(read_sum(of, numbers, 0, "", name))
        agents = [
            SeriesAgent(
                agent=name,
                ended=tuple(sum(each.tasks[name].ended) if name in each.tasks else 0 for each in found.values()),
                **self._figures(at_s, whole.tasks.get(name) or _no_tasks(), used.get(name, ())),
            )
            for name in {*whole.tasks, *used}
        ]
        agents.sort(key=lambda each: (-sum(each.ended), -(each.output_tokens or 0), each.agent))
        return SeriesReport(
            span=span,
            step_s=step_s,
            points=tuple(
                SeriesPoint(**self._figures(number * step_s, *_fold(bucket, only))) for number, bucket in found.items()
            ),
            agents=tuple(agents[:AGENTS_MAX]),
            currency=self._prices.currency or None,
            counted=self._counts is not None,
        )

    def _figures(self, at_s: int, tasks: AgentTasks, used: Sequence[UsageDay]) -> dict[str, Any]:
        """The fields of a point."""
        times = quantiles(BOUNDS_S, tasks.durations)
        reported = any(each.reported or each.total_tokens for each in used)
        cost: Cost = sum_costs([cost_of_run(self._prices, each.agent, (each,)) for each in used])
        return {
            "at": timestamp(at_s * 1000),
            **dict(zip(ENDS, tasks.ended, strict=True)),
            "p50_s": None if times is None else times.p50_s,
            "p95_s": None if times is None else times.p95_s,
            "input_tokens": sum(each.input_tokens for each in used) if reported else None,
            "output_tokens": sum(each.output_tokens for each in used) if reported else None,
            "cost": None if cost.amount is None else amount_text(cost.amount),
        }


def _fold(bucket: Bucket, agent: str | None) -> tuple[AgentTasks, list[UsageDay]]:
    """The tasks of one agent, or of all, and what was used."""
    tasks = _no_tasks()
    for name, some in bucket.tasks.items():
        if agent in (None, name):
            tasks.add(some)
    used = [read_sum(of, numbers, 0, "", name) for name, of, numbers in bucket.used if agent in (None, name)]
    return tasks, used
