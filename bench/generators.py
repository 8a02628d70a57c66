"""Drives the load side: wrk for unary calls, `load.c` for streams and for every check, both on core 1.

Invariant: a measurement with a wrong answer, a lost or a doubled event is Broken, never a number.
"""

from __future__ import annotations

import json
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import servers
from servers import HERE, Broken, Server

ID_SLOT = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Measured:
    """The observations of a generator. `busy` is the share of its core that it used; `last_chunk_at` is on the clock of
    `time.monotonic`; `finished` counts answers that came to their end."""

    requests: int
    seconds: float
    events: int
    p50_s: float
    p99_s: float
    max_s: float
    last_chunk_at: float
    finished: int
    busy: float

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds


def rpc(method: str, params: dict[str, Any], request_id: int | str = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, separators=(",", ":"))


def stream_rpc(method: str, params: dict[str, Any]) -> str:
    """A request whose own id is another for every connection, and checked in every event: callers share no frames."""
    return rpc(method, params, ID_SLOT)


def message(*parts: dict[str, Any], context_id: str = "", **configuration: Any) -> dict[str, Any]:
    """Params of a SendMessage whose message id the generator replaces by a new one in every request."""
    said: dict[str, Any] = {"messageId": ID_SLOT, "role": "ROLE_USER", "parts": list(parts)}
    if context_id:
        said["contextId"] = context_id
    return {"message": said, "configuration": configuration} if configuration else {"message": said}


class Generators:
    """The compiled generator and a directory for its inputs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.load = directory / "load"
        self.blast = directory / "blast"
        self.hooks = directory / "hooks"
        self.peer = directory / "peer"
        self.tokens = directory / "tokens"
        self.wrk = shutil.which("wrk")
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise Broken("the load generator needs a C compiler: apt-get install gcc libc6-dev")
        for program in (self.load, self.blast, self.hooks, self.peer, self.tokens):
            subprocess.run([compiler, "-O2", "-o", program, HERE / f"{program.name}.c"], check=True)

    def write(self, text: str) -> Path:
        path = self.directory / f"{uuid.uuid4().hex}.body"
        path.write_text(text)
        return path

    def loop(self, port: int, path: str, body: str, *options: str) -> Measured:
        """Repeats one request on some connections for some time, checking every answer."""
        file = self.write(body)
        command = [str(self.load), "loop", "--port", str(port), "--path", path, "--body", str(file), *options]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=lambda: servers.pin(servers.LOAD_CORE)
        )
        file.unlink()
        return read(done.stdout, done.stderr)

    def unary(
        self, port: int, path: str, body: str, script: str, argument: str, seconds: float, version: str = "1.0"
    ) -> Measured:
        """A rate at 32 connections: a checked warm-up, then wrk, or the checking generator where wrk is absent.

        With an empty `version` the requests have no `A2A-Version`.
        """
        ids = ["--version", version, *(["--ids", argument] if script == "get.lua" else [])]
        warm = self.loop(port, path, body, "--seconds", "0.5", "--warmup", "0.2", *ids)
        if self.wrk is None:
            return self.loop(port, path, body, "--seconds", str(seconds), "--warmup", "0", *ids)
        file = self.write(body)
        url = f"http://127.0.0.1:{port}{path}"
        command = [self.wrk, "-t1", "-c32", f"-d{max(1, round(seconds))}s", "--timeout", "10s"]
        command += ["-s", str(HERE / "wrk" / script), url, "--", str(file), argument, version or "none"]
        before, began = cpu_s(), time.monotonic()
        done = subprocess.run(command, capture_output=True, preexec_fn=lambda: servers.pin(servers.LOAD_CORE))
        busy = (cpu_s() - before) / (time.monotonic() - began)
        file.unlink()
        lines = done.stdout.splitlines()
        if done.returncode or not lines or not lines[-1].startswith(b"{"):
            raise Broken(f"wrk: {(done.stderr or done.stdout)[-300:].decode()}")
        said = json.loads(lines[-1])
        if said["errors"]:
            raise Broken(f"wrk saw {said['errors']} errors")
        if warm.requests == 0:
            raise Broken("no answer in the warm-up")
        return Measured(
            said["requests"],
            said["seconds"],
            0,
            said["p50_s"],
            said["p99_s"],
            said["max_s"],
            0.0,
            said["requests"],
            round(busy, 3),
        )

    @contextmanager
    def held(
        self, mode: str, port: int, path: str, body: str, *options: str, ready_s: float = 120
    ) -> Iterator[Callable[[bool], Measured]]:
        """A generator that runs beside the block, which begins when all its connections are ready.

        The yielded function returns what was measured: at the end of all streams, or, with True, after hanging up
        now. Leaving the block hangs up too.
        """
        file = self.write(body)
        command = [str(self.load), mode, "--port", str(port), "--path", path, "--body", str(file), "--seconds", "180"]
        process = subprocess.Popen(
            [*command, "--warmup", "0", "--hold", "1", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: servers.pin(servers.LOAD_CORE),
        )
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        try:
            if not select.select([stdout], [], [], ready_s)[0]:
                raise Broken(f"not all connections were ready within {ready_s:g} s")
            first = stdout.readline()
            if not first.startswith(b"ready"):
                raise Broken(f"not all connections were ready: {(first + stderr.read())[:400].decode()}")

            def finish(hang_up: bool) -> Measured:
                if hang_up:
                    stdin.close()
                process.wait(200)  # what it prints fits into the pipe
                return read(stdout.read(), stderr.read())

            yield finish
        finally:
            stdin.close()
            servers.end(process)
            stdout.close()
            stderr.close()
            file.unlink()

    def blasting(self, *arguments: str) -> AbstractContextManager[int]:
        """The server that only answers, on the servers' core; gives its port."""
        return self._listening([self.blast], servers.SERVER_CORE, *arguments)

    def peering(self, core: int = servers.LOAD_CORE) -> AbstractContextManager[int]:
        """The agent that others call; gives its port."""
        return self._listening([self.peer], core)

    def peering_over_grpc(self) -> AbstractContextManager[int]:
        """The same over gRPC."""
        return self._listening([sys.executable, HERE / "grpc_peer.py"], servers.LOAD_CORE)

    @contextmanager
    def _listening(self, program: Sequence[str | Path], core: int, *arguments: str) -> Iterator[int]:
        port = servers.free_port()
        process = subprocess.Popen([*program, str(port), *arguments], preexec_fn=lambda: servers.pin(core))
        try:
            servers.await_port(port)
            yield port
        finally:
            servers.end(process)


@contextmanager
def generators() -> Iterator[Generators]:
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-load-") as directory:
        yield Generators(Path(directory))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(stdout: bytes, stderr: bytes) -> Measured:
    """The last line of `load`, or Broken with the first thing that was wrong."""
    lines = stdout.splitlines()
    if not lines or not lines[-1].startswith(b"{"):
        raise Broken(f"load: {stderr[-300:].decode()}")
    said = json.loads(lines[-1])
    if said["errors"]:
        raise Broken(f"{said['errors']} errors, first {said['first_error']}")
    if said["gaps"]:
        raise Broken(f"{said['gaps']} gaps in the event ids")
    fields = ("requests", "seconds", "events", "p50_s", "p99_s", "max_s", "last_chunk_at", "finished", "busy")
    return Measured(*(said[field] for field in fields))


def ids_of(server: Server, path: str, count: int) -> list[str]:
    """Makes finished tasks and returns their ids."""
    made = []
    for _ in range(count):
        params = message({"text": "What is the weather in Lyon tomorrow?"})
        params["message"]["messageId"] = str(uuid.uuid4())
        made.append(server.call(path, "SendMessage", params)["task"]["id"])
    return made
