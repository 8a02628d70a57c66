"""Deletion of what has outlived its retention: tasks, their logs, deliveries to nobody, the audit trail.

Invariant: a writer waits for at most one short batch of deletions.
"""

import asyncio
import logging
from datetime import timedelta

from dragoman.config import Config
from dragoman.model.ids import Clock
from dragoman.server.jobs import Job
from dragoman.store.api import Store, StoreError

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 60.0
SWEEP_PAUSE_S = 0.05
"""The pause between two batches of a sweep."""


async def sweep(store: Store, clock: Clock, config: Config, job: Job) -> None:
    """Delete what is older than its retention, in short batches with pauses, until canceled, while the job is ours."""
    ages = [_age_ms(age) for age in (config.task_retention, config.log_retention, config.waiting_retention)]
    audit_ms = _age_ms(config.audit_retention)
    while True:
        try:
            deleted = 0
            if await job.take():
                now_ms = clock.now_ms()
                deleted += await store.sweep(now_ms, *ages)
                if audit_ms >= 0:
                    deleted += await store.audit.sweep(now_ms - audit_ms)
                deleted += await store.shared.sweep()
        except StoreError as error:
            log.warning("the sweep of old tasks failed, the next one is in %g s: %s", SWEEP_EVERY_S, error)
            deleted = 0
        await asyncio.sleep(SWEEP_PAUSE_S if deleted else SWEEP_EVERY_S)


def _age_ms(age: timedelta | None) -> int:
    return -1 if age is None else int(age.total_seconds() * 1000)
