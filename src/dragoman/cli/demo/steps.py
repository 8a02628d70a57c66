"""The work of the demo: steps that write to a file, with fsync, when they begin and when they are done.

Both servers call `perform`. So the file tells what was executed, whatever a server says. Nothing of Dragoman is
imported: a server of the official SDK runs it, too.
"""

import asyncio
import os
import re
from collections import Counter
from pathlib import Path

STEPS = 20

KILLED_IN = 11
"""The step in which the servers are killed."""

FILE_ENV = "DEMO_KILL_STEPS"
"""The variable that names the file."""

STEP_S_ENV = "DEMO_KILL_STEP_S"
"""The variable that says how long a step takes, in seconds."""

_LINE = re.compile(r"(begun|done) (\d+) (\d+)")


async def perform(number: int) -> str:
    """Do one step. Returns what it reports."""
    file = os.environ[FILE_ENV]
    _write(file, f"begun {number}")
    await asyncio.sleep(float(os.environ[STEP_S_ENV]))
    _write(file, f"done {number}")
    return f"step {number} of {STEPS}"


def _write(file: str, line: str) -> None:
    with open(file, "a", encoding="ascii") as out:
        out.write(f"{line} {os.getpid()}\n")
        out.flush()
        os.fsync(out.fileno())


class StepCounts:
    """How often each step was begun, and how often it was done, by its file."""

    def __init__(self, file: Path) -> None:
        lines = file.read_text("ascii").splitlines() if file.exists() else []
        found = [match for line in lines if (match := _LINE.fullmatch(line))]
        self.begun = Counter(int(match[2]) for match in found if match[1] == "begun")
        self.done = Counter(int(match[2]) for match in found if match[1] == "done")
        self.begun_by = {int(match[2]): int(match[3]) for match in found if match[1] == "begun"}
        """The process that has begun each step, the last time."""

    @property
    def done_again(self) -> int:
        """How many steps that were done were done again."""
        return sum(count - 1 for count in self.done.values())

    @property
    def begun_again(self) -> int:
        """How many steps were begun again, those included that were cut the first time."""
        return sum(count - 1 for count in self.begun.values())
