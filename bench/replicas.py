"""The rows of several replicas on one PostgreSQL: what they cost, and how soon one takes over from another."""

from __future__ import annotations

import os
import signal
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import postgres
import servers
from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from postgres import database
from servers import Broken, Kind, Server

LEASE_S = 3

SETTLED_S = 12
"""A new replica says every hint for 10 s, until it knows what the others receive (`dragoman.bus.interest`)."""


@contextmanager
def replicas(
    kind: Kind, count: int, *more: str, prepare: Callable[[Path], None] | None = None
) -> Iterator[list[Server]]:
    """That many servers of one kind on one new database. `prepare` is given the directory of each before it starts."""
    with database() as url, ExitStack() as stack:
        started = (servers.running(kind, more, prepare=prepare, database=url) for _ in range(count))
        yield [stack.enter_context(each) for each in started]


def spread(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The processor time of all servers for one SendMessage, at three replicas and at one.

    All run at once, on two databases, and are measured in turn, a second each, so that other work on the machine weighs
    on all alike. The medians of the ratios within a turn count. `dearer` is three replicas that share 32 connections,
    to one that has them all, and `dearer_busy` three with 32 each, to the same one. `few` is one replica with as many
    as each of the three that share them, to one with 32: a small load costs more on any replica. `dearer_alike` is
    three that share them, to that one: it is what the other replicas add.
    """
    body = rpc("SendMessage", message(QUESTION))
    with replicas(kind, 1) as alone, replicas(kind, 3) as three:
        time.sleep(SETTLED_S)
        loads = {"one": (alone, 32), "few": (alone, 32 // 3), "three": (three, 32 // 3), "busy": (three, 32)}
        cost: dict[str, list[float]] = {name: [] for name in loads}
        stored: dict[str, list[float]] = {name: [] for name in loads}
        for _ in range(max(3, round(3 * plan.seconds))):
            for name, (measured, connections) in loads.items():
                ours_us, database_us = _cost_us(load, measured, body, connections)
                cost[name].append(ours_us)
                stored[name].append(database_us)
    return {
        **{f"{name}_us": statistics.median(seen) for name, seen in cost.items()},
        **{f"pg_{name}_us": statistics.median(seen) for name, seen in stored.items()},
        "pg_dearer": _ratio(stored["three"], stored["one"]),
        "dearer": _ratio(cost["three"], cost["one"]),
        "dearer_busy": _ratio(cost["busy"], cost["one"]),
        "few": _ratio(cost["few"], cost["one"]),
        "dearer_alike": _ratio(cost["three"], cost["few"]),
    }


def _cost_us(load: Generators, measured: Sequence[Server], body: str, connections: int) -> tuple[float, float]:
    """The processor time of servers, and of PostgreSQL, for a send, in a second with so many connections to each."""
    before, stored = sum(each.cpu_s() for each in measured), postgres.cpu_s()
    with ExitStack() as stack:
        options = "--conns", str(connections)
        finishers = [stack.enter_context(load.held("loop", each.port, ECHO, body, *options)) for each in measured]
        time.sleep(1)
        done = sum(finish(True).requests for finish in finishers)
    used, stored = sum(each.cpu_s() for each in measured) - before, postgres.cpu_s() - stored
    return used / done * 1e6, stored / done * 1e6


def _ratio(costs: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(cost / other for cost, other in zip(costs, others, strict=True))


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
