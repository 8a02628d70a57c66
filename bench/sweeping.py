"""The rows of the sweep: how many expired tasks it deletes beside messages, and what it takes from them."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import postgres
from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from servers import HERE, Broken, Kind, Server, running

EXPIRED = "/agents/judge"
"""The agent whose tasks have expired; messages go to another one."""

GROWN_S = 1.0
"""The sweep of a server that has just started begins with small batches, and has large ones after this time."""


def sweep(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Messages at 32 connections while expired tasks are deleted, between two measurements in which all are kept.

    `deleted` and `rate` are a second's; `times` is the first to the second, and `kept` the second to the rate without.
    """
    with _filled(kind, plan.expired_tasks) as (directory, database):
        rates, deleted = [], []
        for retention in ("forever", "1d", "forever"):
            more = ("--task-retention", retention, "--log-retention", "forever")
            with running(_there(kind, directory), more, database=database) as server:
                time.sleep(GROWN_S)
                before, began_s = _expired(server), time.monotonic()
                body = rpc("SendMessage", message(QUESTION))
                measured = load.unary(server.port, ECHO, body, "send.lua", uuid.uuid4().hex[:8], plan.seconds)
                left, took_s = _expired(server), time.monotonic() - began_s
                if retention == "1d" and not left:
                    raise Broken(f"all {before} expired tasks were deleted within {took_s:.1f} s")
                rates.append(measured.requests_per_s)
                deleted.append((before - left) / took_s)
    return {
        "deleted": deleted[1],
        "rate": rates[1],
        "times": deleted[1] / rates[1],
        "kept": rates[1] / statistics.mean((rates[0], rates[2])),
    }


def _expired(server: Server) -> int:
    return int(server.call(EXPIRED, "ListTasks", {"pageSize": 1})["totalSize"])


def _there(kind: Kind, directory: Path) -> Kind:
    """The same server with its store in a directory that stays."""
    return Kind(kind.name, kind.title, tuple(word.replace("{dir}", str(directory)) for word in kind.command), kind.env)


@contextmanager
def _filled(kind: Kind, tasks: int) -> Iterator[tuple[Path, str]]:
    """The directory, or the database, of a store with expired tasks."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-bench-")))
        database = stack.enter_context(postgres.database()) if kind.needs_postgres else ""
        command = [kind.program.with_name("python"), HERE / "expired.py", database or f"sqlite:///{directory}/bench.db"]
        done = subprocess.run([*command, str(tasks)], capture_output=True, env=kind.environment())
        if done.returncode:
            raise Broken(f"the store was not filled: {done.stderr[-300:].decode()}")
        yield directory, database
