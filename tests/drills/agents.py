"""The agents of the drills. Each run signs what it writes, so that a log shows which run wrote what.

Invariant: a run writes `<run>/0 <run>/1 …` without a gap, where `<run>` is a name that no other run has. Each execution
of a step of a trip has a line in the ledger, which is on the disk before the step returns.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from dragoman import Agent, Context, SyncContext


async def signed(ctx: Context) -> AsyncIterator[str]:
    """`N every S`: that many signed chunks, one every S seconds."""
    total, pause_s = re.fullmatch(r"(\d+) every ([\d.]+)", ctx.text).groups()  # type: ignore[union-attr]
    run = uuid4().hex[:12]
    for number in range(int(total)):
        yield f"{run}/{number} "
        await asyncio.sleep(float(pause_s))


again = Agent("again", restartable=True)
again.skill(signed)

once = Agent("once")
once.skill(signed)

ask = Agent("ask")


@ask.skill
async def ask_twice(ctx: Context) -> str:
    """Two questions; the answers are the answer."""
    first = await ctx.ask("First?")
    second = await ctx.ask("Second?")
    return f"{first}, {second}"


LEDGER = Path("ledger.jsonl")
"""In the directory of the process: all processes of a drill have the same one."""


SHORT_S, LONG_S = 0.3, 2.5
"""The sleeps of a trip: the server keeps the run of a task that sleeps shortly, and nothing of one that sleeps long."""

PAUSE_S = 0.003
"""A step that is executed takes a moment more until it is done, in which its process may be killed."""


def carry_out(task_id: str, number: int, lot: str, *, step_key: str) -> str:
    """A step."""
    note_execution(LEDGER, task_id, number, lot, step_key)
    time.sleep(PAUSE_S)
    return f"{number}. {lot}"


def note_execution(file: Path, task_id: str, number: int, lot: str, key: str) -> None:
    """Write a line. It is one write at the end of the file, so those of several processes do not mix."""
    line = {"task_id": task_id, "number": number, "lot": lot, "key": key, "at_ms": time.time() * 1000}
    with file.open("ab", buffering=0) as ledger:
        ledger.write(json.dumps(line).encode() + b"\n")
        os.fsync(ledger.fileno())


def journey(steps: int, naps: Mapping[int, float], asks: int) -> Callable[[Context], AsyncIterator[str]]:
    """An agent that takes so many steps, sleeps before some of them, and asks before one, if at all."""

    async def travel(ctx: Context) -> AsyncIterator[str]:
        """Steps, sleeps and a question."""
        lot = str(await ctx.uuid())
        for number in range(1, steps + 1):
            if number in naps:
                await ctx.sleep(naps[number])
            if number == asks:
                yield f"{await ctx.ask('Go on?')}: "
            done = await ctx.step(f"step {number}", carry_out, ctx.task_id, number, lot)
            yield f"{done.replace(lot, ctx.text)} "

    return travel


def plain_journey(steps: int, naps: Mapping[int, float], asks: int) -> Callable[[SyncContext], Iterator[str]]:
    """The same as a plain function."""

    def travel(ctx: SyncContext) -> Iterator[str]:
        """Steps, sleeps and a question."""
        lot = str(ctx.uuid())
        for number in range(1, steps + 1):
            if number in naps:
                ctx.sleep(naps[number])
            if number == asks:
                yield f"{ctx.ask('Go on?')}: "
            done = ctx.step(f"step {number}", carry_out, ctx.task_id, number, lot)
            yield f"{done.replace(lot, ctx.text)} "

    return travel


TRIP = 10, {4: SHORT_S, 9: LONG_S}, 7
WALK = 20, {}, 0

trip = Agent("trip", restartable=True)
trip.skill(journey(*TRIP))

trip_once = Agent("trip-once")
trip_once.skill(journey(*TRIP))

plain_trip = Agent("plain-trip", restartable=True)
plain_trip.skill(plain_journey(*TRIP))

plain_trip_once = Agent("plain-trip-once")
plain_trip_once.skill(plain_journey(*TRIP))

walk = Agent("walk")
walk.skill(journey(*WALK))

plain_walk = Agent("plain-walk")
plain_walk.skill(plain_journey(*WALK))
