"""PostgreSQL for the rows that need it.

One real server runs on the core of the load while rows are measured. As in production, a commit waits for the disk.
Each measurement has a database of its own.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.postgres import PostgresServer

LOAD_CORE = 1
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "256MB"}


@cache
def server() -> PostgresServer:
    """The server, started when the first row asks for it; it ends with this process."""
    mine = os.sched_getaffinity(0)
    if LOAD_CORE in mine:
        os.sched_setaffinity(0, {LOAD_CORE})  # what is started inherits it
    try:
        running = PostgresServer(DURABLE).__enter__()
        atexit.register(running.close)
        return running
    finally:
        os.sched_setaffinity(0, mine)


@contextmanager
def database() -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    with server().database() as url:
        yield url


def cpu_s() -> float:
    """Processor time that the server's processes have used so far; connections that have ended do not count."""
    total_ns = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server().pid:
                total_ns += int((process / "schedstat").read_text().split()[0])
        except OSError:  # it has just ended
            continue
    return total_ns / 1e9
