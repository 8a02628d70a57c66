"""The agents that the benchmark measures: `dragoman serve bench/agents.py`.

`sdk_server.py` has the same ones for the official SDK, but those of durable work: same names, same texts, same events.
The pace of chunks is `burst` (the agent waits for nothing) or `turns` (the loop gets a turn before each).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from dragoman import Agent, Context, Part, Reject

echo = Agent("echo", description="Gives back the parts it got", version="1.0.0")
chunks = Agent("chunks", description="Yields as many chunks as the text says", version="1.0.0")
idle = Agent("idle", description="Works until it is canceled, and says nothing", version="1.0.0")
gate = Agent("gate", description="Waits for its release, then yields chunks", version="1.0.0")
release = Agent("release", description="Releases the gate that the text names", version="1.0.0")
patient = Agent("patient", description="Says who runs it, then waits", version="1.0.0", restartable=True)
judge = Agent("judge", description='Rejects the text "reject", gives back any other', version="1.0.0")
sleeper = Agent("sleeper", description="Sleeps as many seconds as the text says", version="1.0.0")
steps = Agent("steps", description="Takes as many steps as the text says, and gives back the rest", version="1.0.0")


@echo.skill("echo", tags=["bench"])
async def run_echo(ctx: Context) -> tuple[Part, ...]:
    return ctx.parts


@chunks.skill("chunks", tags=["bench"])
async def run_chunks(ctx: Context) -> AsyncIterator[str]:
    count, pace = ctx.text.split()
    for i in range(int(count)):
        if pace == "turns":
            await asyncio.sleep(0)
        yield f"chunk {i:06d} "


@idle.skill("idle", tags=["bench"])
async def run_idle(ctx: Context) -> None:
    await asyncio.Event().wait()


@patient.skill("patient", tags=["bench"])
async def run_patient(ctx: Context) -> AsyncIterator[str]:
    yield f"process {os.getpid()}"
    await asyncio.Event().wait()


@judge.skill("judge", tags=["bench"])
async def run_judge(ctx: Context) -> tuple[Part, ...]:
    if ctx.text == "reject":
        raise Reject("the bench asked for it")
    return ctx.parts


async def give_back(text: str, number: int) -> str:
    """A step that returns at once; `dbos_workflows.py` has the same one."""
    return f"{text} {number}"


@steps.skill("steps", tags=["bench"])
async def run_steps(ctx: Context) -> str:
    count, _, said = ctx.text.partition(" ")
    for number in range(int(count)):
        said = await ctx.step("give_back", give_back, said, number)
    return said


@sleeper.skill("sleeper", tags=["bench"])
async def run_sleeper(ctx: Context) -> str:
    await ctx.sleep(float(ctx.text))
    return "awake"


def join_gates() -> None:
    """Both skills share the gates, so that subscribers are all there before the first chunk."""
    gates: dict[str, asyncio.Event] = {}

    @gate.skill("gate", tags=["bench"])
    async def run_gate(ctx: Context) -> AsyncIterator[str]:
        name, count, size, pace = ctx.text.split()
        await gates.setdefault(name, asyncio.Event()).wait()
        for i in range(int(count)):
            if pace == "turns":
                await asyncio.sleep(0)
            yield f"chunk {i:06d} ".ljust(int(size), "x")

    @release.skill("release", tags=["bench"])
    async def run_release(ctx: Context) -> str:
        gates.setdefault(ctx.text, asyncio.Event()).set()
        return "released"


join_gates()
