"""Drives `hooks.c`: a receiver of webhooks on the load's core that counts, and messages sent at a fixed rate."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import servers
from generators import Generators
from servers import Broken, Server

TELLS_WITHIN_S = 10


@dataclass(frozen=True)
class Told:
    """The calls since the receiver began, and latencies of messages that were due since it was last asked.

    `arrived` are webhook calls, `told` messages of which one came; `behind` are messages that should have been sent.
    """

    at_s: float
    sent: int
    answered: int
    behind: int
    arrived: int
    told: int
    callers: int
    latencies: int
    p50_s: float
    p99_s: float
    max_s: float


class Hooks:
    """A running receiver."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def pace(self, per_s: float) -> None:
        """From now on so many messages a second are sent."""
        self._stdin.write(f"rate {per_s}\n".encode())
        self._stdin.flush()
        time.sleep(0.01)  # each line is to come alone

    def tell(self) -> Told:
        """Return the calls so far. Raises Broken if anything was not as it should be."""
        self._stdin.write(b"tell\n")
        self._stdin.flush()
        if not select.select([self._stdout], [], [], TELLS_WITHIN_S)[0]:
            raise Broken("the receiver of webhooks does not answer")
        said = json.loads(self._stdout.readline() or b'{"errors": "all", "first_error": "it ended"}')
        if said["errors"]:
            raise Broken(f"webhooks: {said['errors']} errors, first {said['first_error']}")
        return Told(**{name: said[name] for name in Told.__dataclass_fields__})

    def quiet(self, within_s: float = 60, for_s: float = 1.5) -> Told:
        """Send nothing more, and wait until no webhook has come for some time."""
        self.pace(0)
        until, last, since = time.monotonic() + within_s, self.tell(), time.monotonic()
        while time.monotonic() < until:
            time.sleep(0.1)
            now = self.tell()
            if now.arrived != last.arrived or now.answered < now.sent:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > for_s:
                return now
        raise Broken(f"webhooks still come {within_s:g} s after the last message")


@contextmanager
def receiving(load: Generators, port: int, *options: str) -> Iterator[Hooks]:
    """A receiver on that port that sends nothing yet; gone when the block ends."""
    process = subprocess.Popen(
        [load.hooks, "--listen", str(port), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: servers.pin(servers.LOAD_CORE),
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        if stdout.readline() != b"ready\n":
            raise Broken("the receiver of webhooks did not start")
        yield Hooks(stdin, stdout)
    finally:
        stdin.close()
        servers.end(process)
        stdout.close()


def to_server(load: Generators, server: Server, path: str, body: str) -> tuple[str, ...]:
    """Options for a receiver that sends messages, too."""
    return ("--port", str(server.port), "--path", path, "--body", str(load.write(body)))
