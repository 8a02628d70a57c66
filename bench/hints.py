"""How long an event takes from a run on one replica to a follower on another: `python -m bench.hints [BUS ...]`.

It starts a PostgreSQL that waits for the disk, a NATS, and for each bus (nats, postgres, none) two servers on one
database. The agent, which is below, gives out the time. Clients of the other server follow its task.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from dragoman import Agent, Context

EVENTS = 400
PAUSE_S = 0.02
POLLED_EVENTS = 40
POLLED_PAUSE_S = 0.173
"""So many that polls every second show all phases."""

START_S = 30
HEADERS = "Host: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\nConnection: close\r\n"

clock = Agent("clock", description="Gives out the time", version="1.0.0")


@clock.skill("tell", tags=["bench"])
async def tell(ctx: Context) -> AsyncIterator[str]:
    """Give out `count` times, `pause_s` apart, as lines filled up to `size` bytes."""
    count, pause_s, size = ctx.text.split()
    for _ in range(int(count)):
        await asyncio.sleep(float(pause_s))
        yield f"{time.monotonic_ns()} ".ljust(int(size), "-")


def main() -> None:
    """Print a line for each bus and size of event."""
    from tests.nats import NatsServer
    from tests.postgres import PostgresServer

    wanted = sys.argv[1:] or ["nats", "postgres", "none"]
    durable = {"fsync": "on", "full_page_writes": "on"}
    print(f"{'bus':<10}{'bytes':>7}{'followers':>11}{'events':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    with NatsServer() as nats, PostgresServer(durable) as postgres:
        for bus in wanted:
            polled = bus == "none"
            for size, followers in ((30, 1),) if polled else ((30, 1), (30, 50), (6000, 1)):
                with postgres.database() as url, two_servers(url, nats.url if bus == "nats" else bus) as ports:
                    count, pause_s = (POLLED_EVENTS, POLLED_PAUSE_S) if polled else (EVENTS, PAUSE_S)
                    times = asyncio.run(follow(*ports, f"{count} {pause_s} {size}", followers))
                print(f"{bus:<10}{size:>7}{followers:>11}{len(times):>8}{_percentiles(times)}", flush=True)


def _percentiles(times_ms: list[float]) -> str:
    ordered = sorted(times_ms)
    chosen = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]
    return "".join(f"{value:>9.1f}" for value in chosen)


@contextmanager
def two_servers(store: str, bus: str) -> Iterator[tuple[int, int]]:
    """Two replicas, as their ports."""
    from tests.ports import kept_port

    servers, ports = [], (kept_port(), kept_port())
    try:
        for port in ports:
            command = [sys.executable, "-m", "dragoman", "serve", str(Path(__file__)), "--port", str(port)]
            servers.append(
                subprocess.Popen(
                    [*command, "--store", store, "--bus", bus, "--log-level", "error"], stdout=subprocess.DEVNULL
                )
            )
        for port in ports:
            _await_ready(port)
        yield ports
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            server.wait()


def _await_ready(port: int) -> None:
    """Return once the server is ready and its bus, if it has one, is healthy."""
    until = time.monotonic() + START_S
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
                cluster = json.load(answer).get("cluster") or {}
            found = cluster.get("bus") or {}
            if found.get("healthy") or found.get("name") == "none":
                return
        except OSError:
            pass
        if time.monotonic() > until:
            raise SystemExit(f"the server on port {port} did not become ready")
        time.sleep(0.05)


async def follow(here: int, there: int, text: str, followers: int) -> list[float]:
    """Start a task on one server, follow it on the other, and return how many ms each event took."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    sent = await _call(here, "SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
    task_id = sent["result"]["task"]["id"]
    times: list[float] = []
    await asyncio.gather(*(_subscribe(there, task_id, times) for _ in range(followers)))
    return times


async def _call(port: int, method: str, params: dict[str, Any]) -> Any:
    reader, writer = await _post(port, method, params)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def _subscribe(port: int, task_id: str, times: list[float]) -> None:
    reader, writer = await _post(port, "SubscribeToTask", {"id": task_id})
    while line := await reader.readline():
        if b'"artifactUpdate"' in line:
            now_ns = time.monotonic_ns()
            update = json.loads(line.partition(b":")[2])["result"]["artifactUpdate"]
            text = update["artifact"]["parts"][0]["text"]
            times.append((now_ns - int(text.split()[0])) / 1e6)
    writer.close()


async def _post(port: int, method: str, params: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    writer.write(f"POST / HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


if __name__ == "__main__":
    main()
