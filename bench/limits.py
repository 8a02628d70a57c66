"""Measures what hostile clients cost the server, and what others notice.

`python bench/limits.py` prints the table. Each row starts a server of its own (as `servers.py` does, on core 0), does
its worst to it from here, and meanwhile lets `load.c` send messages on four connections and measure each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import servers
from generators import Generators, generators, message, rpc
from servers import LOAD_CORE, Server, kinds, pin, running

ECHO = "/agents/echo"
GATE = "/agents/gate"
QUESTION = rpc("SendMessage", message({"text": "What is the weather in Lyon tomorrow?"}))
HEAD = f"POST {ECHO} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
DRIP_EVERY_S = 1.0
CHUNK_BYTES = 16_384
POURED_BYTES = 20_000_000
TASK_BYTES = 3_200_000
SPARE_FILES = 200


@dataclass(frozen=True)
class Found:
    """The result of one row. `p99_ms` and `max_ms` are of the others' messages; `grown_mb` is the server's memory."""

    title: str
    connections: int
    grown_mb: float
    p99_ms: float
    max_ms: float
    rate: float

    def line(self) -> str:
        memory = f"{self.grown_mb:.0f} MB" if self.connections else ""
        each = f"{self.grown_mb * 1000 / self.connections:.0f} KB" if self.connections >= 100 else ""
        noticed = f"{self.p99_ms:.1f} ms | {self.max_ms:.0f} ms | {self.rate:,.0f}/s"
        return f"| {self.title} | {self.connections or ''} | {memory} | {each} | {noticed} |"


@contextmanager
def connected(
    server: Server, many: int, begun: bytes, answer: bytes = b"", room_bytes: int = 0
) -> Iterator[list[socket.socket]]:
    """So many connections with that sent, and the beginning of an answer read if one is named.

    With `room_bytes` the system keeps so much of an answer for a client that does not read, and no more.
    """
    opened: list[socket.socket] = []
    try:
        for _ in range(many):
            one = socket.socket()
            opened.append(one)
            one.settimeout(30)
            if room_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
            one.connect(("127.0.0.1", server.port))
            one.sendall(begun)
            if answer and not one.recv(4096).startswith(answer):
                raise servers.Broken("the answer is another")
        yield opened
    finally:
        for one in opened:
            one.close()


@contextmanager
def dripping(clients: list[socket.socket]) -> Iterator[None]:
    """Each of them sends one more byte every second, as long as the server lets it."""
    over = threading.Event()

    def drip() -> None:
        while not over.wait(DRIP_EVERY_S):
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(load: Generators, server: Server, title: str, many: int, before_kb: int, seconds: float) -> Found:
    """Measure for some seconds what others notice, and how much memory the server has at most meanwhile."""
    server.forget_peak()
    others = load.loop(server.port, ECHO, QUESTION, "--conns", "4", "--seconds", str(seconds))
    grown_mb = (server.rss_kb("VmHWM") - before_kb) / 1000
    return Found(title, many, grown_mb, others.p99_s * 1000, others.max_s * 1000, others.requests_per_s)


def warmed(load: Generators, server: Server) -> int:
    """Its memory in KB once it has worked a while."""
    load.loop(server.port, ECHO, QUESTION, "--conns", "4", "--seconds", "2")
    return server.rss_kb()


def alone(load: Generators, server: Server, seconds: float) -> Found:
    return measured(load, server, "nobody else", 0, warmed(load, server), seconds)


def slow_heads(load: Generators, server: Server, seconds: float) -> Found:
    before_kb = warmed(load, server)
    with connected(server, 500, HEAD.encode() + b"X-Slow: ") as clients, dripping(clients):
        return measured(load, server, "heads of requests, a byte a second", 500, before_kb, seconds)


def slow_bodies(load: Generators, server: Server, seconds: float) -> Found:
    before_kb = warmed(load, server)
    begun = HEAD.encode() + b"Content-Length: 10000000\r\n\r\n{"
    with connected(server, 500, begun) as clients, dripping(clients):
        return measured(load, server, "bodies of requests, a byte a second", 500, before_kb, seconds)


def idle(load: Generators, server: Server, seconds: float) -> Found:
    before_kb = warmed(load, server)
    many = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(server, many, get, b"HTTP/1.1 200 "):
        return measured(load, server, "idle connections", many, before_kb, seconds)


def unread(load: Generators, server: Server, seconds: float) -> Found:
    return poured(load, server, seconds, "a stream of 20 MB that is read once, and that ten clients never read", 10)


def pages(load: Generators, server: Server, seconds: float) -> Found:
    """Callers who ask for a page of 160 MB, if it were not cut, and read nothing."""
    warmed(load, server)  # before, since the newest tasks are listed first
    text = "x" * (TASK_BYTES // 2)  # it is in the history and in the artifact
    for _ in range(50):
        params = message({"text": text})
        params["message"]["messageId"] = str(uuid.uuid4())
        server.call(ECHO, "SendMessage", params)
    before_kb = server.rss_kb()
    body = rpc("ListTasks", {"includeArtifacts": True})
    begun = f"{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    with connected(server, 100, begun, room_bytes=32_768):
        return measured(load, server, "pages of 50 tasks of 3.2 MB that nobody reads", 100, before_kb, seconds)


def readable(load: Generators, server: Server, seconds: float) -> Found:
    return poured(load, server, seconds, "for comparison: a stream of 20 MB that is read once", 0)


def poured(load: Generators, server: Server, seconds: float, title: str, unreading: int) -> Found:
    """Much pours into a stream that one client reads to its end, while others have it open and read nothing."""
    before_kb = warmed(load, server)
    name, chunks = uuid.uuid4().hex[:8], POURED_BYTES // CHUNK_BYTES

    def said(text: str, **configuration: bool) -> dict[str, Any]:
        params = message({"text": text}, **configuration)
        params["message"]["messageId"] = str(uuid.uuid4())
        return params

    gated = said(f"{name} {chunks} {CHUNK_BYTES} turns", returnImmediately=True)
    task_id = server.call(GATE, "SendMessage", gated)["task"]["id"]
    body = rpc("SubscribeToTask", {"id": task_id})
    begun = f"{HEAD.replace(ECHO, GATE)}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    with (
        connected(server, unreading, begun, b"HTTP/1.1 200 "),
        connected(server, 1, begun, b"HTTP/1.1 200 ") as (reader,),
    ):
        read: list[int] = []
        reading = threading.Thread(target=lambda: read.extend(pieces(reader)))
        reading.start()
        server.call("/agents/release", "SendMessage", said(name))
        found = measured(load, server, title, unreading + 1, before_kb, seconds)
        reading.join()
        if sum(read) < chunks * CHUNK_BYTES:
            raise servers.Broken("the reader did not get all")
        return found


def pieces(reader: socket.socket) -> Iterator[int]:
    """How much came at a time, until the task is completed or the server hangs up."""
    reader.settimeout(120)
    last = b""
    while b"TASK_STATE_COMPLETED" not in last and (piece := reader.recv(1 << 20)):
        yield len(piece)
        last = (last + piece)[-4096:]


ROWS: tuple[Callable[[Generators, Server, float], Found], ...] = (
    alone,
    slow_heads,
    slow_bodies,
    idle,
    pages,
    readable,
    unread,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help=f"rows, with commas: {', '.join(row.__name__ for row in ROWS)}")
    parser.add_argument("--seconds", type=float, default=5, help="how long others are measured in each row")
    parser.add_argument("--rounds", type=int, default=3, help="the median round of each row is shown")
    parser.add_argument("--dragoman", default=str(servers.HERE.parent / ".venv/bin/dragoman"), help="the command")
    given = parser.parse_args()
    pin(LOAD_CORE)
    wanted = [row for row in ROWS if not given.only or row.__name__ in given.only.split(",")]
    kind = kinds(os.path.abspath(given.dragoman))["dragoman"]
    found: dict[str, list[Found]] = {row.__name__: [] for row in wanted}
    with generators() as load:
        for _ in range(given.rounds):  # in turn, so that other work on the machine weighs on all of them
            for row in wanted:
                with running(kind) as server:
                    found[row.__name__].append(row(load, server, given.seconds))
    print("| what they do | clients | memory | each | others' p99 | others' worst | others' rate |")
    print("|---|---|---|---|---|---|---|")
    for rounds in found.values():
        middle = statistics.median_low([one.p99_ms for one in rounds])
        print(next(one for one in rounds if one.p99_ms == middle).line())


if __name__ == "__main__":
    main()
