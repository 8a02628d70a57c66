"""The rows of workers: what a worker's word costs, and what a task costs that waits for one or is held by one.

The workers are coroutines of this process, on the core of the load, with connections that they keep. A word is one
chunk of an artifact. Every answer is checked: a refused word, or a task without its words, is Broken.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from replicas import SETTLED_S, replicas
from servers import Broken, Kind, Server, running

WORKERS = 8
WORDS = 100
LONG_WORDS = 10_000
LONG_S = 60
"""After so long the task of many chunks stays shorter, and the row says how long it became."""

FEW = 10
SAMPLES = 50

AGENT = "/agents/work"
CONFIG = """
[[agents]]
id = "work"
run = "worker"
description = "Waits for workers"
offline = "queue"
lease_s = 3600

[[agents.skills]]
id = "work"
description = "Works"
tags = ["bench"]
"""


def configure(directory: Path) -> None:
    """Declare the agent whose tasks workers take."""
    (directory / "dragoman.toml").write_text(CONFIG)


class Connection:
    """A connection that is kept, to one agent of a server: one call after the other."""

    def __init__(self, port: int, agent: str = AGENT) -> None:
        self._port = port
        self._agent = agent
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, *headers: str) -> bytes:
        """The content of the answer, that of a stream to its end; Broken if it is a refusal."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers)
        writer.write("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        content = await _content(reader, head)
        if not head.startswith((b"http/1.1 200", b"http/1.1 204")):
            raise Broken(f"{path}: {head.splitlines()[0].decode()}: {content[:300].decode()}")
        return content

    async def work(self, action: str, **body: Any) -> Any:
        """A call of the worker API."""
        content = await self.post(f"/workers/work/{action}", json.dumps(body).encode())
        return json.loads(content) if content else None

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """A call of A2A 1.0 over JSON-RPC; its result."""
        answer = json.loads(await self.post(self._agent, rpc(method, params).encode(), "A2A-Version: 1.0"))
        if "result" not in answer:
            raise Broken(f"{method}: {str(answer)[:300]}")
        return answer["result"]

    async def follow(self, task_id: str) -> bytes:
        """The events of a task's stream to their end, or the refusal of a task that has ended."""
        return await self.post(self._agent, rpc("SubscribeToTask", {"id": task_id}).encode(), "A2A-Version: 1.0")

    async def send(self, text: str, task_id: str = "") -> str:
        """Send a message, and return the id of its task at once."""
        params = message({"text": text}, returnImmediately=True)
        params["message"] |= {"messageId": str(uuid.uuid4())} | ({"taskId": task_id} if task_id else {})
        task: str = (await self.call("SendMessage", params))["task"]["id"]
        return task

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def _content(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The content behind that head: of so many bytes, or in chunks to the last one."""
    if b"transfer-encoding: chunked" in head:
        return await reader.readuntil(b"\r\n0\r\n\r\n")  # no event has a line that says 0
    return await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r")[0] or 0))


class Worker:
    """A worker that makes each call at the next of its servers."""

    def __init__(self, at: Sequence[Server]) -> None:
        self._connections = [Connection(server.port) for server in at]
        self._next = cycle(self._connections)
        self._task: dict[str, Any] = {}
        self._words = 0

    async def take(self) -> None:
        """Make a task, and take it, or one that another worker made at the same time."""
        await next(self._next).send("begin")
        taken = await next(self._next).work("lease", worker="bench", wait_s=30)
        if taken is None:
            raise Broken("no task came")
        self._task, self._words = taken, 0

    async def words(self, count: int) -> None:
        """Say that many words, one after the other."""
        for _ in range(count):
            artifact = {"artifactId": "words", "parts": [{"text": f"chunk {self._words:06d} "}]}
            said = {"lease": self._task["lease"], "artifact": artifact, "append": self._words > 0}
            self._words += 1
            await next(self._next).work("artifact", number=self._words, **said)

    async def complete(self) -> None:
        """End the task, which must hold every word once and in order."""
        ended = await next(self._next).work("complete", lease=self._task["lease"])
        task = ended.get("task", ended)
        text = "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])
        if text != "".join(f"chunk {i:06d} " for i in range(self._words)):
            raise Broken(f"the task of {self._words} words has {text.count('chunk')}: {text[:100]}")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@contextmanager
def workers(at: Sequence[Server], count: int) -> Iterator[list[Worker]]:
    """That many workers of these servers, each beginning at another one."""
    made = [Worker([*at[i % len(at) :], *at[: i % len(at)]]) for i in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            worker.close()


async def _all(each: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*each)


async def _spoken(at: Sequence[Server], count: int) -> tuple[float, float]:
    """The processor time of all servers, and the time that passed, for one word of `count` workers with a task each."""
    with workers(at, count) as speakers:
        await _all([speaker.take() for speaker in speakers])
        before, began = sum(server.cpu_s() for server in at), time.monotonic()
        await _all([speaker.words(WORDS) for speaker in speakers])
        used, passed = sum(server.cpu_s() for server in at) - before, time.monotonic() - began
        await _all([speaker.complete() for speaker in speakers])
    return used / (count * WORDS) * 1e6, passed / WORDS * 1e3


def words(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The server's processor time for a word of eight workers, and of one alone; `ms` is the time until its answer."""
    found: dict[str, list[float]] = {"word_us": [], "word_ms": [], "alone_us": [], "alone_ms": []}
    with running(kind, prepare=configure) as server:
        asyncio.run(_spoken([server], WORKERS))
        until = time.monotonic() + max(1, plan.seconds) * 2
        while time.monotonic() < until:
            for name, count in (("word", WORKERS), ("alone", 1)):
                us, ms = asyncio.run(_spoken([server], count))
                found[f"{name}_us"].append(us)
                found[f"{name}_ms"].append(ms)
    return {name: statistics.median(values) for name, values in found.items()}


def words_at_three(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The same at three replicas, another one at every call, to one; and in a task of 10,000 words, to tasks of 100.

    One replica and three run at once, on two databases, and are measured in turn. `few` is one replica with as many
    workers as call each of the three: words of few workers share few commits, on any replica. `dearer_alike` is three
    to that: it is what the other replicas add. `long` compares one worker's task of
    10,000 words with one hundred tasks of 100, all at three replicas, a thousand words of each in turn.
    """
    one_us: list[float] = []
    three_us: list[float] = []
    few_us: list[float] = []
    with replicas(kind, 1, prepare=configure) as alone, replicas(kind, 3, prepare=configure) as three:
        time.sleep(SETTLED_S)
        for at in (alone, three):
            asyncio.run(_spoken(at, WORKERS))
        for _ in range(max(3, round(plan.seconds))):
            one_us.append(asyncio.run(_spoken(alone, WORKERS))[0])
            three_us.append(asyncio.run(_spoken(three, WORKERS))[0])
            few_us.append(asyncio.run(_spoken(alone, WORKERS // 3 + 1))[0])
        long = asyncio.run(_long(three, LONG_WORDS if plan.seconds > 1 else LONG_WORDS // 10))
    costs = {"one": one_us, "three": three_us, "few": few_us}
    return {
        **{f"{name}_us": statistics.median(seen) for name, seen in costs.items()},
        "dearer": _ratio(three_us, one_us),
        "dearer_alike": _ratio(three_us, few_us),
        **long,
    }


def _ratio(costs: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(cost / other for cost, other in zip(costs, others, strict=True))


async def _long(at: Sequence[Server], count: int) -> Figures:
    """The cost of a word in a task of `count` words, and of the last thousand of them, to that in tasks of 100."""
    long_s, short_s, said, began = 0.0, 0.0, 0, time.monotonic()
    with workers(at, 1) as (speaker,):
        await speaker.take()
        while said < count and time.monotonic() - began < LONG_S:
            turn = min(1_000, count - said)
            before = sum(server.cpu_s() for server in at)
            await speaker.words(turn)
            last_s = sum(server.cpu_s() for server in at) - before
            long_s, said = long_s + last_s, said + turn
            short_s += sum([(await _spoken(at, 1))[0] * WORDS / 1e6 for _ in range(turn // WORDS)])
        await speaker.complete()
    short_us, long_us = short_s / said * 1e6, long_s / said * 1e6
    figures = {"short_us": short_us, "long_us": long_us, "last_us": last_s / turn * 1e6}
    return figures | {"long_words": float(said), "longer": long_us / short_us}


def waiting(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The memory of a task that waits for a worker, and of one that a worker holds, while nobody follows it.

    Beside them the times of a GetTask, a cancel and an answer to a question with that many tasks, to those with ten of
    each kind; the worst ratio of medians counts (`slower`).
    """
    with running(kind, prepare=configure) as server:
        few = asyncio.run(_times(server, [], []))
    figures: Figures = {}
    many: dict[str, list[float]] = {}
    count = plan.waiting_tasks
    for name in ("queued", "held"):
        with running(kind, prepare=configure) as server:
            warm = rpc("SendMessage", message(QUESTION))
            load.loop(server.port, ECHO, warm, "--requests", str(count), "--seconds", "300", "--warmup", "0")
            before_kb = server.rss_kb()
            queued, leases = asyncio.run(_kept(server, count, hold=name == "held"))
            time.sleep(2)
            figures[f"{name}_kb"] = (server.rss_kb() - before_kb) / count
            for what, seen in asyncio.run(_times(server, queued, leases)).items():
                many.setdefault(what, []).extend(seen)
    for what, seen in few.items():
        figures[f"{what}_ms"] = statistics.median(many[what])
        figures[f"{what}_few_ms"] = statistics.median(seen)
    return figures | {"slower": max(figures[f"{what}_ms"] / figures[f"{what}_few_ms"] for what in few)}


async def _kept(server: Server, count: int, *, hold: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """The tasks that wait, or those that are held, with their leases."""
    queued: list[str] = []
    held: list[tuple[str, str]] = []

    async def keep(connection: Connection) -> None:
        for _ in range(count // WORKERS):
            queued.append(await connection.send("begin"))
            if hold:
                taken = await connection.work("lease", worker="bench", wait_s=30)
                held.append((taken["task"]["id"], taken["lease"]))
        connection.close()

    await _all([keep(Connection(server.port)) for _ in range(WORKERS)])
    return ([], held) if hold else (queued, [])


async def _times(server: Server, queued: list[str], held: list[tuple[str, str]]) -> dict[str, list[float]]:
    """Milliseconds of each call about samples of the tasks; without any, about ten of each kind, made anew for each."""
    chosen = random.Random(7)
    times: dict[str, list[float]] = {}
    few = not queued and not held
    connection = Connection(server.port)

    async def timed(what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        began = time.perf_counter()
        answer = await call()
        times.setdefault(what, []).append((time.perf_counter() - began) * 1e3)
        return answer

    async def about(task_id: str, lease: str) -> None:
        kept = "held" if lease else "queued"
        await timed(f"get_{kept}", lambda: connection.call("GetTask", {"id": task_id}))
        if lease:
            await connection.work("ask", lease=lease, question=1, message="Which?", wait_s=0)
            await timed("answer", lambda: connection.send("This one", task_id))
        canceled = await timed(f"cancel_{kept}", lambda: connection.call("CancelTask", {"id": task_id}))
        if canceled["status"]["state"] != "TASK_STATE_CANCELED":
            raise Broken(f"a canceled task is {canceled['status']['state']}")

    for _ in range(SAMPLES // FEW if few else 1):
        if few:
            _, held = await _kept(server, WORKERS, hold=True)
            queued = [await connection.send("begin") for _ in range(FEW)]
        for task_id, lease in [(each, "") for each in chosen.sample(queued, min(SAMPLES, len(queued)))]:
            await about(task_id, lease)
        for task_id, lease in chosen.sample(held, min(SAMPLES, len(held))):
            await about(task_id, lease)
    connection.close()
    return times
