"""The row of the console: what ten open consoles take from the rate of SendMessage.

Run as a program, it is the browsers: ten sessions, each with a stream of changes and the reads of its view. It reads
again after a change as the pages do, each read so long after the one before as `live.svelte.ts` says.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import servers
from generators import Generators, rpc
from generators import message as message_of
from plan import ECHO, QUESTION, Figures, Plan
from servers import HERE, LOAD_CORE, Broken, Kind, Server, running

CONSOLES = 10
PAUSE_S, PAUSE_S_MAX, PAUSE_GROWTH = 0.5, 2.0, 1.25
"""As in `console/src/lib/live.svelte.ts`: the pauses between two reads grow while changes do not end."""

OVERVIEW = ("/stats", "/agents", "/tasks?limit=8")
TASKS = ("/tasks?limit=50", "/agents")
VIEWS = (OVERVIEW, TASKS)
SENDING_S = 2.0


def consoles(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """SendMessage at 32 connections with ten consoles, to the same without: always between two without, in turn."""
    body = rpc("SendMessage", message_of(QUESTION))
    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    reads: list[float] = []

    def measure(server: Server) -> tuple[float, float]:
        """The rate, and the rate to a second of the server's processor time, which strangers do not change."""
        before, began = server.cpu_s(), time.monotonic()
        found = load.unary(server.port, ECHO, body, "send.lua", uuid.uuid4().hex[:8], SENDING_S).requests_per_s
        return found, found * (time.monotonic() - began) / (server.cpu_s() - before)

    with running(kind) as server:
        measure(server)
        alone.append(measure(server))
        for _ in range(max(3, round(plan.seconds))):
            with open_consoles(server) as read:
                beside.append(measure(server))
                reads.append(read())
            alone.append(measure(server))

    def kept(figure: int) -> float:
        pairs = [statistics.mean((one[figure], other[figure])) for one, other in pairwise(alone)]
        return statistics.median(found[figure] / pair for found, pair in zip(beside, pairs, strict=True))

    rate = statistics.median(found for found, _ in alone)
    return {"rate": rate, "kept": kept(0), "kept_per_cpu": kept(1), "reads_per_s": statistics.median(reads)}


@contextmanager
def open_consoles(server: Server) -> Iterator[Callable[[], float]]:
    """Ten consoles on the load's core, each of which has read its view once. Yields their reads a second so far."""
    cookies = [sign_in(server) for _ in range(CONSOLES)]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "consoles.py"), str(server.port), *cookies],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: servers.pin(LOAD_CORE),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told = process.stdout

    def read() -> float:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(told.readline())

    try:
        if told.readline() != "open\n":
            raise Broken("the consoles did not open")
        yield read
    finally:
        servers.end(process)
        process.stdin.close()
        told.close()


def sign_in(server: Server) -> str:
    """The cookie of a new session."""
    token = (server.directory / "bench.db.operator").read_text().strip()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/console/session", json.dumps({"secret": token}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != http.client.OK:
        raise Broken(f"nobody can sign in: {answer.status}")
    return answer.headers["Set-Cookie"].partition(";")[0]


class Console:
    """One browser with one view open."""

    def __init__(self, port: int, cookie: str, paths: tuple[str, ...]) -> None:
        self.reads = 0
        self._port = port
        self._cookie = cookie
        self._changes = {path: asyncio.Event() for path in paths}

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the changes, and return once each part of the view has been read."""
        tasks.create_task(self._follow(*await self._ask("/events")))
        for path, changed in self._changes.items():
            reader, writer = await self._ask(path)
            await self._take(reader)
            tasks.create_task(self._keep(path, changed, reader, writer))

    async def _ask(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        writer.write(self._request(path))
        return reader, writer

    def _request(self, path: str) -> bytes:
        head = f"GET /admin/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nCookie: {self._cookie}\r\n\r\n"
        return head.encode()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise Broken(head.decode())
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        self.reads += 1

    async def _follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 18):
            if b"event: task" in data or b"event: reset" in data:
                for changed in self._changes.values():
                    changed.set()
        writer.close()  # a writer that nobody holds would close the connection at once

    async def _keep(
        self, path: str, changed: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        while True:
            last_s = loop.time()
            await asyncio.sleep(pause_s)
            await changed.wait()
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX) if loop.time() - last_s < 2 * pause_s else PAUSE_S
            changed.clear()
            writer.write(self._request(path))
            await self._take(reader)


async def browse(port: int, cookies: list[str]) -> None:
    opened = [Console(port, cookie, VIEWS[place % len(VIEWS)]) for place, cookie in enumerate(cookies)]
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        for one in opened:
            await one.open(tasks)
        print("open", flush=True)
        began_s, before = loop.time(), sum(one.reads for one in opened)

        def tell() -> None:
            sys.stdin.readline()
            print((sum(one.reads for one in opened) - before) / (loop.time() - began_s), flush=True)

        loop.add_reader(sys.stdin, tell)


if __name__ == "__main__":
    asyncio.run(browse(int(sys.argv[1]), sys.argv[2:]))
