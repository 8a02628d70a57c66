"""Runs DBOS workflows of steps that return at once, as fast as DBOS does, and prints how many a second.

Run by the Python of the bench environment: `dbos_workflows.py URL`. Workflows are started in DBOS's own process by
`start_workflow_async`, and their results are taken from the handle: no HTTP, and nothing else in the process. Every
result is checked. The database has to wait for the disk at each commit, or the program ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig

TEXT = "What is the weather in Lyon tomorrow?"


@DBOS.step()
async def give_back(text: str, number: int) -> str:
    """A step that returns at once."""
    return f"{text} {number}"


@DBOS.workflow()
async def take_steps(text: str, steps: int) -> str:
    """A workflow of that many steps, one after the other."""
    said = text
    for number in range(steps):
        said = await give_back(text, number)
    return said


async def finish(steps: int) -> None:
    """One workflow, from its start to its checked result."""
    handle: Any = await DBOS.start_workflow_async(take_steps, TEXT, steps)
    if (said := await handle.get_result()) != f"{TEXT} {steps - 1}":
        raise SystemExit(f"the result of a workflow is {said!r}")


async def per_second(steps: int, at_once: int, seconds: float) -> tuple[float, float]:
    """The workflows that ended in a second with that many at once, and the processor time of one in microseconds."""

    async def repeat(until: float) -> int:
        count = 0
        while time.monotonic() < until:
            await finish(steps)
            count += 1
        return count

    cpu, began = time.process_time(), time.monotonic()
    count = sum(await asyncio.gather(*(repeat(began + seconds) for _ in range(at_once))))
    return count / (time.monotonic() - began), (time.process_time() - cpu) / count * 1e6


async def measure(steps: int, seconds: float) -> dict[str, float]:
    await per_second(steps, 32, min(1, seconds))  # the connections are there, and all code has run
    many, many_us = await per_second(steps, 32, seconds)
    alone, alone_us = await per_second(steps, 1, seconds / 2)
    return {"rate": many, "workflow_us": many_us, "alone": alone, "alone_us": alone_us}


def waits_for_the_disk(dbos: Any) -> bool:
    """Whether a commit on the connections of DBOS waits until the disk has it."""
    with dbos._sys_db.engine.connect() as connection:  # noqa: SLF001  what DBOS itself has set counts
        if connection.dialect.name == "sqlite":
            return int(connection.execute(sa.text("PRAGMA synchronous")).scalar_one()) >= 2  # FULL
        settings = (
            connection.execute(sa.text(f"SHOW {name}")).scalar_one() for name in ("fsync", "synchronous_commit")
        )
        return all(value == "on" for value in settings)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url")
    options.add_argument("--seconds", type=float, default=2)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--journal", default="", help="the journal mode of an SQLite file, if not DBOS's own")
    given = options.parse_args()
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": given.url,
        "log_level": "WARNING",
        "application_version": "1",
    }
    if given.journal:
        engine = sa.create_engine(given.url)
        with engine.connect() as connection:
            connection.execute(sa.text(f"PRAGMA journal_mode={given.journal}"))
        engine.dispose()
    dbos = DBOS(config=config)
    DBOS.launch()
    try:
        if not waits_for_the_disk(dbos):
            raise SystemExit("DBOS's database does not wait for the disk")
        print(json.dumps(asyncio.run(measure(given.steps, given.seconds))))
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()
