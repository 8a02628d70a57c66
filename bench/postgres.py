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
