"""Makes a store with unfinished tasks, as a version of Dragoman leaves it that is killed.

`python -m tests.store.releases.unfinished COMMIT sqlite|postgres` serves `unfinished_agents.py` with the code of that
commit, has tasks of five kinds, ends the server with SIGKILL, and writes two files beside this one:
`unfinished-<driver>-<version of the tables>.db.gz` or `….sql.gz`, and `….json`, the ids of the tasks
and the worker's lease.

| Name | The task |
|---|---|
| `queued` | waits for a worker |
| `leased` | is with a worker, which has given out an artifact |
| `asks` | waits for its caller |
| `delegates` | has given work to `hands`: a task that waits for a worker |
| `told` | waits for its caller, and owes webhook calls that nobody takes |
"""

import asyncio
import gzip
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.postgres import PostgresServer, binaries
from tests.store.releases.make import (
    HERE,
    HOOK,
    STATE_S,
    V1,
    Caller,
    begin,
    checked_out,
    environment_of,
    url_of,
    wait_until,
)

HANDS = """
[[agents]]
id = "hands"
description = "Works"
run = "worker"
offline = "queue"

[[agents.skills]]
id = "hands"
description = "Works"
tags = ["test"]
"""


def main() -> None:
    """Make the store of the commit and the driver that the command names."""
    named, driver = sys.argv[1:]
    locks = ("core", "grpc", "container") if driver == "postgres" else ("core",)
    with checked_out(named, locks) as (folder, dragoman, commit), stored(driver, folder) as url:
        tasks, lease = have_tasks(folder, dragoman, url)
        version, pending, packed = keep(driver, folder, url)
    name = f"unfinished-{driver}-{version:02}"
    (HERE / f"{name}.{'sql' if driver == 'postgres' else 'db'}.gz").write_bytes(packed)
    text = json.dumps({"commit": commit[:8], "pending": pending, "lease": lease, "tasks": tasks}, indent=1)
    (HERE / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    print(f"{name}: {pending} pending calls, {len(packed)} bytes")


@contextmanager
def stored(driver: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if driver == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    with PostgresServer() as server, server.database() as url:
        yield url


def have_tasks(folder: Path, dragoman: list[str], store: str) -> tuple[dict[str, str], str]:
    """Serve the agents, have tasks begun, kill the server; the tasks' ids by their names, and the worker's lease."""
    (folder / "agents.py").write_text((HERE / "unfinished_agents.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "dragoman.toml").write_text(HANDS, encoding="utf-8")
    log = folder / "log"
    flags = ["--config", "dragoman.toml", "--port", "0", "--store", store, "--push-allowed-hosts", "127.0.0.1"]
    with log.open("w") as output:
        command = [*dragoman, "serve", "agents.py", *flags]
        server = subprocess.Popen(command, cwd=folder, env=environment_of(folder), stdout=output, stderr=output)
    try:
        caller = Caller(url_of(server, log), None)
        tasks = {"leased": begin(caller, "hands", "leased")}
        given = caller.post("/workers/hands/lease", {"worker": "w1", "wait_s": 20})
        assert given["task"]["id"] == tasks["leased"]
        artifact = {"artifactId": "half", "parts": [{"text": "half of it"}]}
        caller.post("/workers/hands/artifact", {"lease": given["lease"], "artifact": artifact})
        tasks["queued"] = begin(caller, "hands", "queued")
        tasks["asks"] = begin(caller, "desk", "asks")
        tasks["delegates"] = begin(caller, "lead", "delegated")
        hook = {"url": HOOK, "token": "t0ken", "authentication": {"scheme": "Bearer", "credentials": "cr3d"}}
        tasks["told"] = begin(caller, "desk", "told", configuration={"taskPushNotificationConfig": hook})
        for name in ("asks", "told"):
            wait_until(caller, "desk", tasks[name], "INPUT_REQUIRED")
        wait_until(caller, "hands", tasks["leased"], "WORKING")
        wait_until(caller, "lead", tasks["delegates"], "WORKING")
        deadline_s = time.monotonic() + STATE_S
        while not (child := worked_on(caller) - set(tasks.values())):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"nothing was delegated:\n{log.read_text()}")
            time.sleep(0.05)
        (tasks["child"],) = child
    finally:
        server.kill()
        server.wait()
    return tasks, given["lease"]


def worked_on(caller: Caller) -> set[str]:
    """The tasks of workers."""
    return {task["id"] for task in caller.result("/agents/hands", "ListTasks", {}, **V1)["tasks"]}


def keep(driver: str, folder: Path, url: str) -> tuple[int, int, bytes]:
    """The version of the tables, how many webhook calls are owed, and the store, packed."""
    if driver == "sqlite":
        file = sqlite3.connect(folder / "store.db")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        (pending,) = file.execute("SELECT count(*) FROM deliveries").fetchone()
        file.close()
        return version, pending, gzip.compress((folder / "store.db").read_bytes(), 9, mtime=0)
    version, pending = asyncio.run(count(url))
    command = [str(binaries() / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", "--schema", "dragoman", url]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Settings of the session, which other versions of PostgreSQL lack, and lines for psql.
    lines = [line for line in dump.splitlines() if not line.startswith(("SET ", "\\", "--", "SELECT pg_catalog.set_c"))]
    return version, pending, gzip.compress("\n".join(filter(None, lines)).encode(), 9, mtime=0)


async def count(url: str) -> tuple[int, int]:
    """The version of the tables of PostgreSQL, and how many webhook calls are owed."""
    import asyncpg

    connection: Any = await asyncpg.connect(url)
    try:
        version = await connection.fetchval("SELECT version FROM dragoman.schema_version")
        return version, await connection.fetchval("SELECT count(*) FROM dragoman.deliveries")
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
