"""The rows of durable work: workflows of steps beside DBOS, the cost of a step, and tasks that sleep.

A workflow of ours is begun by a SendMessage that returns at once, and its stream is read to the end; one of DBOS is
begun and awaited in DBOS's own process (`dbos_workflows.py`). Each step waits for the disk on both sides, and every
result is checked.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import postgres
import servers
from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from servers import Broken, Kind, Server
from upstream import spent
from workers import Connection

STEPS_AT = "/agents/steps"
SLEEPER = "/agents/sleeper"
STEPS = 10
AT_ONCE = 32
WORK = f"{STEPS} {QUESTION['text']}"
DONE = " ".join([QUESTION["text"], *map(str, range(STEPS))])
HOUR = {"text": "3600"}
SUSPENDED_S = 2
"""How long a task has slept before the server keeps nothing of it, in this row."""


def workflows(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Workflows of ten steps a second, 32 at once and one after the other."""
    if kind.name.startswith("dbos"):
        return dbos(kind, plan)
    figures: Figures = {}
    with servers.running(kind) as server:
        asyncio.run(_finished(server, AT_ONCE, 1))
        for name, at_once, seconds in (("rate", AT_ONCE, plan.seconds), ("alone", 1, plan.seconds / 2)):
            before, began = server.cpu_s(), time.monotonic()
            count = asyncio.run(_finished(server, at_once, seconds))
            figures[name] = count / (time.monotonic() - began)
            figures[f"{name}_us"] = (server.cpu_s() - before) / count * 1e6
        blocking = rpc("SendMessage", message({"text": WORK}))
        figures["blocking"] = load.loop(server.port, STEPS_AT, blocking, "--seconds", str(plan.seconds)).requests_per_s
    return figures


def dbos(kind: Kind, plan: Plan) -> Figures:
    """The figures of dbos_workflows.py, on the servers' core."""
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as directory, ExitStack() as stack:
        url = stack.enter_context(postgres.database()) if kind.needs_postgres else ""
        command = [word.format(dir=directory, postgres=url, name=kind.name) for word in kind.command]
        return kind.run_program([*command, "--steps", str(STEPS), "--seconds", str(plan.seconds)])


async def _finished(server: Server, at_once: int, seconds: float) -> int:
    """How many workflows came to their end in that time."""
    until = time.monotonic() + seconds

    async def repeat() -> int:
        connection, count = Connection(server.port, STEPS_AT), 0
        while time.monotonic() < until:
            task_id = await connection.send(WORK)
            if DONE.encode() not in await connection.follow(task_id):  # it ended before it was followed
                task = await connection.call("GetTask", {"id": task_id})
                if DONE not in json.dumps(task):
                    raise Broken(f"a workflow ended as {str(task)[:300]}")
            count += 1
        connection.close()
        return count

    return sum(await asyncio.gather(*(repeat() for _ in range(at_once))))


def step(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The server's processor time for a step, to that for a blocking SendMessage of the echo.

    That of a step is what ten of them add to a task that has none. The three are measured in turn, at 32 connections.
    """
    question = QUESTION["text"]
    bodies = {
        "send": (ECHO, rpc("SendMessage", message(QUESTION))),
        "none": (STEPS_AT, rpc("SendMessage", message({"text": f"0 {question}"}))),
        "ten": (STEPS_AT, rpc("SendMessage", message({"text": WORK}))),
    }
    requests = max(200, round(500 * plan.seconds))
    found: dict[str, list[float]] = {name: [] for name in bodies}
    with servers.running(kind) as server:
        for path, body in bodies.values():
            spent(load, server, path, body, 200)
        for _ in range(max(3, round(plan.seconds))):
            for name, (path, body) in bodies.items():
                found[name].append(spent(load, server, path, body, requests).request_us)
    steps_us = [(ten - none) / STEPS for ten, none in zip(found["ten"], found["none"], strict=True)]
    ratios = [step_us / send_us for step_us, send_us in zip(steps_us, found["send"], strict=True)]
    costs = {f"{name}_us": statistics.median(seen) for name, seen in found.items()}
    return {"sends": statistics.median(ratios), "step_us": statistics.median(steps_us), **costs}


def asleep(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The memory of a task that sleeps, and how much later a server is ready that has many of them.

    The memory is that above the same number of finished tasks. A server is ready when `/ready` says 200, counted from
    the start of its process.
    """
    count = plan.sleeping_tasks
    more = ("--suspend-after-s", str(SUSPENDED_S))
    directory = Path(tempfile.mkdtemp(prefix="dragoman-bench-"))
    try:
        with ExitStack() as stack:
            database = stack.enter_context(postgres.database()) if kind.needs_postgres else ""
            empty_s = _ready_s(kind, more, directory, database)
            with servers.started(kind, more, 60, directory, database) as server:
                many = ("--requests", str(count), "--seconds", "600", "--warmup", "0")
                load.loop(server.port, ECHO, rpc("SendMessage", message(QUESTION)), *many)
                before_kb = server.rss_kb()
                load.loop(server.port, SLEEPER, rpc("SendMessage", message(HOUR, returnImmediately=True)), *many)
                time.sleep(SUSPENDED_S + 3)
                each_kb = (server.rss_kb() - before_kb) / count
                page = server.call(SLEEPER, "ListTasks", {"pageSize": 1, "status": "TASK_STATE_WORKING"})
                if page["totalSize"] != count:
                    raise Broken(f"{page['totalSize']} tasks of {count} sleep")
            full_s = _ready_s(kind, more, directory, database)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {"each_kb": each_kb, "later_s": full_s - empty_s, "empty_s": empty_s, "full_s": full_s}


def _ready_s(kind: Kind, more: tuple[str, ...], directory: Path, database: str) -> float:
    """The median time of three starts until the server is ready."""
    times = []
    for _ in range(3):
        with servers.started(kind, more, 120, directory, database) as server:
            began = time.monotonic() - server.started_s
            while not _ready(server):
                time.sleep(0.002)
            times.append(time.monotonic() - began)
    return statistics.median(times)


def _ready(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    finally:
        connection.close()
