"""The rows of several replicas on one PostgreSQL: what they cost, and how soon one takes over from another."""

from __future__ import annotations

import os
import signal
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import servers
from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from postgres import database
from servers import Broken, Kind, Server

LEASE_S = 3


@contextmanager
def replicas(kind: Kind, count: int, *more: str) -> Iterator[list[Server]]:
    """That many servers of one kind on one new database."""
    with database() as url, ExitStack() as stack:
        yield [stack.enter_context(servers.running(kind, more, database=url)) for _ in range(count)]


def spread(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The processor time of all servers for one SendMessage: of three replicas, to that of one with 32 connections.

    `dearer` is with 32 connections to all three together, `dearer_busy` with 32 to each.
    """
    body = rpc("SendMessage", message(QUESTION))
    cost: dict[tuple[int, int], list[float]] = {(1, 32): [], (3, 32): [], (3, 96): []}
    for _ in range(3):
        for count, connections in cost:
            with replicas(kind, count) as all_of_them:
                before = sum(each.cpu_s() for each in all_of_them)
                options = "--conns", str(connections // count)
                with ExitStack() as stack:
                    finishers = [
                        stack.enter_context(load.held("loop", each.port, ECHO, body, *options)) for each in all_of_them
                    ]
                    time.sleep(plan.seconds)
                    done = sum(finish(True).requests for finish in finishers)
                used = sum(each.cpu_s() for each in all_of_them) - before
                cost[count, connections].append(1e6 * used / done)
    one, three, busy = map(statistics.median, cost.values())
    return {"one_us": one, "three_us": three, "busy_us": busy, "dearer": three / one, "dearer_busy": busy / one}


def taken_over(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """From `kill -9` of a replica until its restartable task runs on the other one."""
    waits = []
    for _ in range(3):
        lease = ("--replica-lease-s", str(LEASE_S), "--replica-beat-s", "1")
        with (
            database() as url,
            servers.running(kind, lease, database=url) as survivor,
            servers.running(kind, lease, database=url) as victim,
        ):
            params = message({"text": "begin"}, returnImmediately=True)
            params["message"]["messageId"] = str(uuid.uuid4())
            task_id = victim.call("/agents/patient", "SendMessage", params)["task"]["id"]
            seen: set[str] = set()
            _await_runs(survivor, task_id, seen, 1)
            os.kill(victim.pid, signal.SIGKILL)
            began = time.monotonic()
            _await_runs(survivor, task_id, seen, 2)
            waits.append(time.monotonic() - began)
    return {"seconds": statistics.median(waits), "worst_s": max(waits)}


def _await_runs(server: Server, task_id: str, seen: set[str], runs: int) -> None:
    """Wait until that many runs of the task have begun. Each says its process, in place of what the one before said."""
    until = time.monotonic() + 60
    while len(seen) < runs:
        if time.monotonic() > until:
            raise Broken(f"{len(seen)} runs of the task began within a minute, {runs} expected")
        task = server.call("/agents/patient", "GetTask", {"id": task_id})
        seen |= {part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"]}
        time.sleep(0.01)
