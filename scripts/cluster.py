"""Starts a whole cluster on this machine: PostgreSQL, NATS and three replicas of the example agents; for trying out.

Invariant: everything ends with this process, on Ctrl-C as in any other way, and nothing is left on the disk.
"""

import argparse
import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from tests.nats import NatsServer
from tests.postgres import PostgresServer
from tests.processes import ENDS_WITH_US

LEASE_S, BEAT_S = 5, 1
"""Shorter than by default, so that nobody waits long for a take-over."""

DURABLE = {"fsync": "on", "full_page_writes": "on"}
"""PostgreSQL as in production: it waits for the disk."""

START_S = 60.0
END_S = 15.0
V1 = "-H 'A2A-Version: 1.0' -H 'Content-Type: application/json'"


class Replica:
    """One `dragoman serve`, whose log is shown with its number."""

    def __init__(self, number: int, port: int, flags: tuple[str, ...]) -> None:
        self.number = number
        self.url = ""
        self._command = (sys.executable, "-m", "dragoman", "serve", *flags, "--port", str(port))
        self.process: Process | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start it, and wait until it listens. Raises RuntimeError if it ends before that."""
        # In a session of its own, so that Ctrl-C reaches this script alone, which stops all in order.
        process = await asyncio.create_subprocess_exec(
            *ENDS_WITH_US, *self._command, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self.process = process
        assert process.stdout is not None
        group.create_task(self._show(process))
        async with asyncio.timeout(START_S):
            while line := await process.stdout.readline():
                if (found := re.search(rb" listens on (http://\S+)/ ", line)) is not None:
                    self.url = found[1].decode()
                    group.create_task(_ignore(process.stdout))
                    return
        raise RuntimeError(f"replica {self.number} did not start")

    async def _show(self, process: Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            print(f"[{self.number}] {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)
        code = await process.wait()
        ended = signal.Signals(-code).name if code < 0 else f"code {code}"
        print(f"[{self.number}] ended with {ended} (pid {process.pid})", file=sys.stderr, flush=True)

    async def stop(self) -> None:
        """End it, if it runs."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(END_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()


async def _ignore(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass


def guide(replicas: list[Replica]) -> str:
    """Return commands to paste and try."""
    first, second = replicas[0], replicas[1]
    message = '"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "30"}]}'
    body = f'-d \'{{{message}, "configuration": {{"returnImmediately": true}}}}\''
    send = f"curl -s {first.url}/agents/countdown/message:send {V1} {body}"
    lines = ["", "Three replicas share one PostgreSQL and one NATS:", ""]
    for replica in replicas:
        assert replica.process is not None
        lines.append(f"  replica {replica.number}  {replica.url}  pid {replica.process.pid}")
    assert first.process is not None
    return "\n".join(
        [
            *lines,
            "",
            "Send to the first, which runs the task; in a second terminal:",
            f'  TASK=$({send} | grep -o \'"id":"[^"]*\' | head -1 | cut -c 7-)',
            "",
            "Follow on the second:",
            f"  curl -sN -H 'A2A-Version: 1.0' {second.url}/agents/countdown/tasks/$TASK:subscribe &",
            "",
            f"Kill the one that runs it. After {LEASE_S} s at most another takes over, and the stream continues:",
            f"  kill -9 {first.process.pid}",
            "",
            f"The replicas: curl -s {second.url}/ready",
            "Ctrl-C ends it all.",
        ]
    )


async def run(port: int, agents: str, store: str, bus: str) -> None:
    """Run the replicas until a signal."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    settings = ("--bus", bus, "--replica-lease-s", str(LEASE_S), "--replica-beat-s", str(BEAT_S))
    flags = (agents, "--store", store, *settings)
    replicas = [Replica(number, port + number - 1 if port else 0, flags) for number in (1, 2, 3)]
    async with asyncio.TaskGroup() as group:
        try:
            await asyncio.gather(*(replica.start(group) for replica in replicas))
            print(guide(replicas), flush=True)
            await stopped.wait()
        finally:
            await asyncio.gather(*(replica.stop() for replica in replicas))


def main() -> None:
    """Start everything, and end it with this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7870, help="the first of three ports; 0 picks free ones")
    parser.add_argument("--agents", default="examples/agents.py")
    given = parser.parse_args()
    if not Path(re.sub(r":\w+$", "", given.agents)).exists():
        parser.error(f"{given.agents}: no such file")
    print("Starting PostgreSQL and NATS …", flush=True)
    with PostgresServer(DURABLE) as postgres, NatsServer() as nats:
        try:
            asyncio.run(run(given.port, given.agents, postgres.url(), nats.url))
        except* (RuntimeError, TimeoutError) as errors:
            sys.exit(f"cluster: {errors.exceptions[0]}")


if __name__ == "__main__":
    main()
