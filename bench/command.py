"""The row of programs: what a task pays for a program that is started for it, beside starting the same one directly."""

from __future__ import annotations

import statistics
import subprocess
import time
import uuid
from pathlib import Path

from generators import Generators, message
from plan import QUESTION, Figures, Plan
from servers import Broken, Kind, running

PROGRAM = "/bin/cat"
AT = "/agents/program"

CONFIG = f"""
[[agents]]
id = "program"
run = "command:{PROGRAM}"
input = "text"
"""


def command(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """One task after the other, in turn with direct starts that are given the same and read to their end; medians."""

    def configure(directory: Path) -> None:
        (directory / "dragoman.toml").write_text(CONFIG)

    with running(kind, prepare=configure) as server:

        def task_ms() -> float:
            params = message(QUESTION)
            params["message"]["messageId"] = str(uuid.uuid4())
            began = time.perf_counter()
            task = server.call(AT, "SendMessage", params)["task"]
            took = time.perf_counter() - began
            if task["artifacts"][0]["parts"][0]["text"] != QUESTION["text"]:
                raise Broken(f"the program's answer came as {str(task)[:300]}")
            return took * 1_000

        task_ms()
        tasks, bare = [], []
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            tasks.append(task_ms())
            bare.append(bare_ms())
    figures = {"task_ms": statistics.median(tasks), "bare_ms": statistics.median(bare)}
    added = [task - start for task, start in zip(tasks, bare, strict=True)]
    return figures | {"adds_ms": statistics.median(added), "adds_p99_ms": statistics.quantiles(added, n=100)[-1]}


def bare_ms() -> float:
    """Start the program directly, give it the question, read to its end, reap it."""
    began = time.perf_counter()
    done = subprocess.run([PROGRAM], input=QUESTION["text"].encode(), stdout=subprocess.PIPE, check=True)
    took = time.perf_counter() - began
    if done.stdout.decode() != QUESTION["text"]:
        raise Broken(f"{PROGRAM} wrote {done.stdout[:300]!r}")
    return took * 1_000
