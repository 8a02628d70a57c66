"""Retention: the sweep deletes what has outlived it, and the watch over the sweep says how far behind it is.

Invariant: a writer waits for at most one short batch of deletions. A kind of row that cannot be deleted keeps no other
kind from being deleted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from enum import IntEnum, auto

from dragoman.config import Config
from dragoman.model.ids import Clock
from dragoman.server.jobs import Job
from dragoman.store.api import Store, StoreError
from dragoman.store.figures import StoreFigures
from dragoman.store.retention import BATCH_TASKS
from dragoman.store.usage import DAY_MS
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 60.0
SWEEP_PAUSE_S = 0.02
PAUSE_SHARE = 2.0
"""The pause between two rounds of batches: at least `SWEEP_PAUSE_S`, and so many times as long as the round took."""

TRICKLE_PAUSE_S = 1.0
"""The pause after a round in which no batch was full: a batch of some rows costs hardly less than one of many."""

BEHIND_WARN_S = 3600.0
"""How far behind the sweep has to be, at two looks, for a warning. It is at most a minute behind, unless it fails, is
too slow, or was not running until just now."""

LOOK_AGAIN_S = 5.0
"""How soon the second look comes. By then the sweep of a new server has deleted some thousand rows."""

KINDS = {
    "tasks": "task_retention",
    "logs": "log_retention",
    "waiting": "waiting_retention",
    "audit": "audit_retention",
    "deliveries": "delivered_retention",
    "usage": "usage_retention",
}
"""The kinds of rows that are deleted, by the setting that says when."""


def read_ages(config: Config) -> dict[str, int]:
    """Return the retention of each kind in milliseconds, -1 for those that are kept forever."""
    ages: dict[str, timedelta | None] = {kind: getattr(config, setting) for kind, setting in KINDS.items()}
    return {kind: -1 if age is None else int(age.total_seconds() * 1000) for kind, age in ages.items()}


async def sweep(store: Store, clock: Clock, config: Config, job: Job) -> None:
    """Delete what is older than its retention, in short batches with pauses, until canceled, while the job is ours."""
    ages, loop = read_ages(config), asyncio.get_running_loop()
    while True:
        pause_s, began_s = SWEEP_EVERY_S, loop.time()
        try:
            found = await _sweep_once(store, clock.now_ms(), ages) if await job.take() else Found.NOTHING
        except StoreError as error:
            log.warning("the sweep of old tasks failed, the next one is in %g s: %s", SWEEP_EVERY_S, error)
        else:
            if found is Found.MUCH:
                pause_s = max(SWEEP_PAUSE_S, PAUSE_SHARE * (loop.time() - began_s))
            elif found is Found.LITTLE:
                pause_s = min(SWEEP_EVERY_S, TRICKLE_PAUSE_S)
        await asyncio.sleep(pause_s)


class Found(IntEnum):
    """What a round of batches found to delete. If it was much, more is probably left."""

    NOTHING = auto()
    LITTLE = auto()
    MUCH = auto()


async def _sweep_once(store: Store, now_ms: int, ages: Mapping[str, int]) -> Found:
    """Delete a batch of each kind. Raises the first fault, once every kind has had its turn."""
    tasks, audit, deliveries, usage = store.sweep, store.audit.sweep, store.receipts.sweep, store.usage.sweep
    batches: list[tuple[int, Callable[[], Awaitable[int]]]] = [
        (BATCH_TASKS, lambda: tasks(now_ms, ages["tasks"], ages["logs"], ages["waiting"])),
        (BATCH_TASKS, store.shared.sweep),
        (1, store.state.sweep),  # a batch is the state of one conversation
        (BATCH_TASKS, lambda: store.budgets.sweep(now_ms)),
    ]
    if ages["audit"] >= 0:
        batches.append((BATCH_TASKS, lambda: audit(now_ms - ages["audit"])))
    if ages["deliveries"] >= 0:
        batches.append((BATCH_TASKS, lambda: deliveries(now_ms - ages["deliveries"])))
    if ages["usage"] >= 0:
        batches.append((BATCH_TASKS, lambda: usage((now_ms - ages["usage"]) // DAY_MS)))
    found, fault = Found.NOTHING, None
    for much, batch in batches:
        try:
            deleted = await batch()
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  it is raised again below
            fault = fault or error
        else:
            found = max(found, Found.MUCH if deleted >= much else Found.LITTLE if deleted else Found.NOTHING)
    if fault is not None:
        raise fault
    return found


class RetentionWatch:
    """Watches what the sweep has still to delete, whoever sweeps. `figures` reads the figures of the store."""

    def __init__(self, figures: Callable[[], Awaitable[StoreFigures]], clock: Clock, config: Config) -> None:
        self._figures = figures
        self._clock = clock
        self._ages = read_ages(config)
        self._late: set[str] = set()
        """The kinds that were too far behind at the last look, which the log tells of at the next one."""
        self._told: set[str] = set()
        self.behind_s: dict[str, float] = {}
        """How long each kind that is not kept forever has been overdue at the last look; 0 if nothing is."""

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            try:
                figures = await self._figures()
            except StoreError:
                pass  # the log says so elsewhere
            else:
                self._note(figures)
            await asyncio.sleep(LOOK_AGAIN_S if self._late - self._told else SWEEP_EVERY_S)

    def _note(self, figures: StoreFigures) -> None:
        now_ms, oldest = self._clock.now_ms(), figures.oldest
        since_ms = {
            "tasks": oldest.tasks_ms,
            "logs": oldest.logs_ms,
            "waiting": oldest.waiting_ms,
            "audit": oldest.audit_ms,
            "deliveries": oldest.receipts_ms,
            "usage": None if oldest.usage_day is None else (oldest.usage_day + 1) * DAY_MS,
        }
        for kind, age_ms in self._ages.items():
            if age_ms >= 0:
                begun_ms = since_ms[kind]
                self.behind_s[kind] = 0.0 if begun_ms is None else max(0, now_ms - age_ms - begun_ms) / 1000
        late = {kind for kind, behind_s in self.behind_s.items() if behind_s >= BEHIND_WARN_S}
        told = late & (self._late | self._told)
        for kind in sorted(told - self._told):
            log.warning(
                "the sweep is %.1f h behind with %s: what %s lets go stays in the store",
                self.behind_s[kind] / 3600,
                kind,
                KINDS[kind],
                extra=about(kind, kind=kind),
            )
        for kind in sorted(self._told - late):
            log.info("the sweep has caught up with %s", kind, extra=about(kind, kind=kind))
        self._late, self._told = late, told
