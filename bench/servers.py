"""The servers that are compared, each a process of its own on core 0.

Every measurement starts its server anew, so no row sees what another left behind; every process is ended by its pid.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import postgres

HERE = Path(__file__).parent
SERVER_CORE = 0
LOAD_CORE = 1
AGAINST = "-against"
"""How the name of a kind ends if its code is that of another tree."""

CARD = "/.well-known/agent-card.json"


class Broken(Exception):
    """A server that did not start, or answered what the row cannot use."""


@dataclass(frozen=True)
class Kind:
    """One of the things compared. `{port}`, `{dir}` and `{name}` in the command are filled in at the start.

    So is `{postgres}`, with the URL of a database. It is ready when it serves its `card`.
    """

    name: str
    title: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    profiled: bool = False
    card: str = CARD

    def under(self, profiler: tuple[str, ...]) -> Kind:
        """The same server as the child of a program that records it."""
        return replace(self, command=(*profiler, "--", *self.command), profiled=True)

    def asked(self, name: str, *env: tuple[str, str]) -> Kind:
        """The same server under another name, with more in its environment."""
        return replace(self, name=name, env=(*self.env, *env))

    def of_tree(self, tree: Path) -> Kind:
        """The server with another tree's sources, on the same interpreter and with the same packages and agents."""
        source = ("PYTHONPATH", str(tree.absolute() / "src"))
        return replace(self, name=self.name + AGAINST, title=f"{self.title}, the other tree", env=(*self.env, source))

    def environment(self) -> dict[str, str]:
        """The environment of its processes: nothing of who runs the bench, and its own."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "PYTHON"))}
        return inherited | dict(self.env)

    @property
    def needs_postgres(self) -> bool:
        """Whether its command names a database of PostgreSQL."""
        return any("{postgres}" in word for word in self.command)

    def instead(self, *command: str) -> list[str]:
        """Another program in its place, with the same profiler, if any."""
        profiler = self.command[: self.command.index("--") + 1] if self.profiled else ()
        return [*(word.format(name=self.name) for word in profiler), *command]

    def run_program(self, command: Sequence[str]) -> dict[str, float]:
        """Runs a program to its end on the servers' core. Returns the figures in its last line of JSON, or Broken."""
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.environment(),
            preexec_fn=lambda: pin(SERVER_CORE),
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
        if not lines:
            raise Broken(f"{self.name}: {(done.stderr or done.stdout)[-600:].decode(errors='replace')}")
        figures: dict[str, float] = json.loads(lines[-1])
        return figures

    @property
    def python(self) -> str:
        """The interpreter beside its command."""
        return str(self.program.with_name("python"))

    @property
    def program(self) -> Path:
        """Its command, without who profiles it."""
        return Path(self.command[self.command.index("--") + 1 if self.profiled else 0])


@dataclass(frozen=True)
class Server:
    """A running server. `started_s` is the time from the start of the process to the first card."""

    kind: Kind
    pid: int
    port: int
    directory: Path
    started_s: float

    def rss_kb(self, field: str = "VmRSS") -> int:
        """Resident memory now, or since the last `forget_peak` with `VmHWM`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise Broken(f"{self.kind.name} has no {field}: it is gone")

    def cpu_s(self) -> float:
        """Processor time used so far, of all its threads, to the nanosecond: the clock of clock_getcpuclockid(3)."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def forget_peak(self) -> None:
        """Sets the peak that `VmHWM` reports back to the memory in use now (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def call(self, path: str, method: str, params: dict[str, Any], timeout_s: float = 60) -> dict[str, Any]:
        """One JSON-RPC call outside all measuring; the result, or Broken."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        try:
            connection.request("POST", path, body, headers)
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Broken(f"{self.kind.name}: {method}: {error}") from error
        finally:
            connection.close()
        if "result" not in answer:
            raise Broken(f"{self.kind.name}: {method}: {str(answer)[:300]}")
        result: dict[str, Any] = answer["result"]
        return result


def kinds(dragoman: str) -> dict[str, Kind]:
    """All kinds by name; `dragoman` is the path of that command."""
    serve = (dragoman, "serve", str(HERE / "agents.py"), "--port", "{port}", "--store")
    sdk = (sys.executable, str(HERE / "sdk_server.py"), "--port", "{port}")
    dbos = (sys.executable, str(HERE / "dbos_workflows.py"))
    # The SDK wraps its methods in spans when the OpenTelemetry API happens to be installed: it is faster without.
    fast = (("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false"),)
    # Nothing but the end of a measurement: streams that are held need not be waited for.
    brief = (("DRAGOMAN_SHUTDOWN_GRACE_S", "0"),)
    listed = (
        Kind("dragoman", "Dragoman", (*serve, "sqlite:///{dir}/bench.db"), brief),
        Kind("dragoman-memory", "Dragoman, memory:", (*serve, "memory:"), brief),
        Kind("sdk", "SDK, in memory", sdk, fast),
        Kind("sdk-sqlite", "SDK, SQLite WAL", (*sdk, "--store", "{dir}/sdk.db"), fast),
        Kind("dragoman-postgres", "Dragoman, PostgreSQL", (*serve, "{postgres}"), brief),
        Kind("sdk-postgres", "SDK, PostgreSQL", (*sdk, "--store", "{postgres}"), fast),
        # Its own choice is SQLite's rollback journal, which is slower, and waits for the disk as well.
        Kind("dbos", "DBOS, SQLite WAL", (*dbos, "sqlite:///{dir}/dbos.db", "--journal", "wal")),
        Kind("dbos-postgres", "DBOS, PostgreSQL", (*dbos, "{postgres}")),
        Kind("floor", "floor", (sys.executable, str(HERE / "floor.py"), "--port", "{port}")),
    )
    return {kind.name: kind for kind in listed}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pin(core: int) -> None:
    """Binds the calling process (and what it starts) to one core, where the machine has as many."""
    if core in os.sched_getaffinity(0):
        os.sched_setaffinity(0, {core})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def child(pid: int) -> int:
    """The process that this one started."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def end(process: subprocess.Popen[Any], pid: int | None = None) -> None:
    """Asks the process to stop (or its child `pid`, after which it stops itself), and kills it 5 seconds later."""
    if process.poll() is None:
        os.kill(pid or process.pid, signal.SIGTERM)
        try:
            process.wait(5 if pid is None else 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_port(port: int, timeout_s: float = 5) -> None:
    """Returns when something listens there."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.002)
    raise Broken(f"nothing listens on port {port}")


def first_card(process: subprocess.Popen[Any], card: str, port: int, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", card)
            if connection.getresponse().status == 200:
                return True
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.002)
    return False


def tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-1200:].decode(errors="replace").strip() or "empty"


@contextmanager
def running(
    kind: Kind,
    more: Sequence[str] = (),
    timeout_s: float = 60,
    prepare: Callable[[Path], None] | None = None,
    database: str = "",
) -> Iterator[Server]:
    """A server of that kind in a new directory, ready for its first request; gone when the block ends.

    `prepare` is given the directory before the server starts. A kind that needs PostgreSQL gets a database of its own,
    unless `database` is the URL of one.
    """
    directory = Path(tempfile.mkdtemp(prefix="dragoman-bench-"))
    try:
        if prepare is not None:
            prepare(directory)
        with ExitStack() as stack:
            if kind.needs_postgres and not database:
                database = stack.enter_context(postgres.database())
            yield stack.enter_context(started(kind, more, timeout_s, directory, database))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def started(kind: Kind, more: Sequence[str], timeout_s: float, directory: Path, database: str = "") -> Iterator[Server]:
    """A server of that kind in that directory."""
    port = free_port()
    filled = {"port": port, "dir": directory, "name": kind.name, "postgres": database}
    command = [word.format(**filled) for word in (*kind.command, *more)]
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        pid = None
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=kind.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: pin(SERVER_CORE),
        )
        try:
            if not first_card(process, kind.card, port, timeout_s):
                raise Broken(f"{kind.name} did not start")
            started_s = time.monotonic() - began
            pid = child(process.pid) if kind.profiled else None
            yield Server(kind, pid or process.pid, port, directory, started_s)
        except Broken as error:
            raise Broken(f"{error}\n    its log ends: {tail(log)}") from error
        finally:
            end(process, pid)
