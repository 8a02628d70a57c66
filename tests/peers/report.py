"""Runs a peer's scenarios side by side and prints one JSON line for each.

Standard library only: every official SDK runs it in an environment of its own.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

SCENARIO_TIMEOUT_S = 120.0
CONCURRENT = 6

Scenario = tuple[str, Callable[[], Coroutine[Any, Any, None]]]


def explain(error: BaseException) -> str:
    """The error and the lines of the peer script that led to it, short enough for a test report."""
    here = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
    trail = " > ".join(f"{frame.name}:{frame.lineno} `{frame.line}`" for frame in frames)
    return f"{type(error).__name__}: {error}"[:2_000] + f" | {trail}"


async def run(scenarios: Sequence[Scenario]) -> int:
    """Run them, at most `CONCURRENT` at a time, each with a deadline; the exit code is 1 if any failed."""
    slots = asyncio.Semaphore(CONCURRENT)

    async def report(name: str, scenario: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        async with slots:
            task = asyncio.create_task(scenario())
            await asyncio.wait([task], timeout=SCENARIO_TIMEOUT_S)
        if task.done():
            error = task.exception()
            detail = explain(error) if error else ""
        else:
            task.cancel()
            detail = f"still running after {SCENARIO_TIMEOUT_S:.0f} s in {task.get_stack(limit=1)}"
        sys.stdout.write(json.dumps({"scenario": name, "ok": not detail, "detail": detail}) + "\n")
        sys.stdout.flush()
        return not detail

    outcomes = await asyncio.gather(*(report(name, scenario) for name, scenario in scenarios))
    return 0 if outcomes and all(outcomes) else 1


def selected(scenarios: Sequence[Scenario], words: Sequence[str]) -> list[Scenario]:
    """The scenarios whose name contains one of the words, all if there are none."""
    return [(name, scenario) for name, scenario in scenarios if not words or any(word in name for word in words)]
