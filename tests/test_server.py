"""The whole server: bindings, engine, store and agents behind a real listener."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman import Agent, Context, SyncContext
from dragoman.config import Config
from dragoman.dialects.sse import Parser, ServerSentEvent
from dragoman.engine.api import Runner
from dragoman.model.ids import SystemClock
from dragoman.server import StartError, running, serving
from dragoman.server.jobs import Job
from dragoman.server.retention import sweep
from dragoman.store.api import StoreError
from dragoman.store.replicas import LocalReplicas
from tests.kit.agents import echoing
from tests.processes import ENDS_WITH_US

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.2, cancel_grace_s=0.2)


def send(text: str = "hi", **configuration: Any) -> dict[str, Any]:
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message, "configuration": configuration}


class Gate:
    """An agent that gives out a chunk each time it is let on, and ends when it is told to."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[str | None] = asyncio.Queue()
        self.agent = Agent("gate")
        self.agent.skill(self.chunks)

    async def chunks(self, ctx: Context) -> AsyncIterator[str]:
        """Give out what is put in."""
        while (step := await self.steps.get()) is not None:
            yield step


@contextlib.asynccontextmanager
async def session(config: Config, *agents: Runner) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serving(config, agents) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        yield http


async def read(content: aiohttp.StreamReader, upto: int | None = None) -> list[ServerSentEvent]:
    """The events of a stream, all or so many."""
    parser, events = Parser(), list[ServerSentEvent]()
    async for piece in content.iter_any():
        events += parser.feed(piece)
        if upto is not None and len(events) >= upto:
            break
    return events


def kinds(events: list[ServerSentEvent]) -> list[str]:
    return [next(iter(json.loads(event.data))) for event in events]


async def test_a_message_is_answered_in_both_versions_over_both_bindings() -> None:
    old = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    async with session(CONFIG, echoing()) as http:
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send()}
        async with http.post("/", json=rpc, headers=V1) as answer:
            task = (await answer.json())["result"]["task"]
            assert task["artifacts"][0]["parts"] == [{"text": "hi"}]
        async with http.get(f"/tasks/{task['id']}", headers=V1) as answer:
            assert (await answer.json(content_type=None))["id"] == task["id"]
        async with http.post("/agents/echo/message:send", json=send(), headers=V1) as answer:
            assert answer.status == 200
        async with http.post("/echo/message:send", json=send(), headers=V1) as answer:
            assert answer.status == 200
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}}
        async with http.post("/agents/echo", json=rpc) as answer:
            assert (await answer.json())["result"]["status"]["state"] == "completed"
        async with http.post("/v1/message:send", json={"message": old}) as answer:
            assert answer.status == 200


async def test_a_task_of_another_mount_is_not_found() -> None:
    other = Agent("other")
    other.skill(echo_function)
    async with session(CONFIG, echoing(), other) as http:
        async with http.post("/message:send", json=send(), headers=V1) as answer:
            task_id = (await answer.json(content_type=None))["task"]["id"]
        for path, status in (("/agents/echo", 200), ("/agents/other", 404), ("/other", 404)):
            async with http.get(f"{path}/tasks/{task_id}", headers=V1) as answer:
                assert answer.status == status


async def echo_function(ctx: Context) -> str:
    """Say it again."""
    return ctx.text


@pytest.mark.parametrize("task_id", ["nope", "a%2Fb", "a%00b", "%ff", "..", "x" * 5000, "%F0%9F%8E%88", "t:cancel:x"])
async def test_weird_task_ids_are_not_found(task_id: str) -> None:
    async with serving(CONFIG, [echoing()]) as url:
        port = int(url.rpartition(":")[2])
        for method, action in (("GET", ""), ("POST", ":cancel"), ("GET", ":subscribe"), ("POST", ":subscribe")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"{method} /tasks/{task_id}{action} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"
            writer.write(head.encode() + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b"TASK_NOT_FOUND" in answer


async def test_a_broken_stream_goes_on_after_the_last_event_that_was_seen() -> None:
    gate = Gate()
    async with session(CONFIG, gate.agent) as http:
        for step in ("a", "b", "c", None):
            gate.steps.put_nowait(step)
        async with http.post("/message:stream", json=send(), headers=V1) as answer:
            whole = await read(answer.content)
        task_id = json.loads(whole[0].data)["task"]["id"]
        ids = [int(event.id) for event in whole]
        assert ids == [*range(ids[0], ids[-1] + 1)]
        for number, event in enumerate(whole[:-1]):
            for headers, query in (({"Last-Event-ID": event.id}, ""), ({}, f"?since={event.id}")):
                path = f"/tasks/{task_id}:subscribe{query}"
                async with http.get(path, headers={**V1, **headers}) as answer:
                    rest = await read(answer.content)
                assert [each.data for each in rest] == [each.data for each in whole[number + 1 :]]
        async with http.get(f"/tasks/{task_id}:subscribe?since=1000", headers=V1) as answer:
            assert answer.status == 400
        async with http.get(f"/tasks/{task_id}:subscribe", headers=V1) as answer:
            assert answer.status == 400  # it has ended (A2A 1.0 §3.1.6)


async def test_silence_is_broken_by_comments() -> None:
    gate = Gate()
    async with (
        session(replace(CONFIG, keepalive_s=0.02), gate.agent) as http,
        http.post("/message:stream", json=send(), headers=V1) as answer,
    ):
        while await answer.content.readline() != b": keepalive\n":
            pass
        gate.steps.put_nowait(None)
        assert kinds(await read(answer.content))[-1] == "statusUpdate"


async def test_a_client_that_leaves_changes_nothing_for_the_task() -> None:
    gate = Gate()
    async with session(CONFIG, gate.agent) as http:
        async with http.post("/message:stream", json=send(), headers=V1) as answer:
            task_id = json.loads((await read(answer.content, 1))[0].data)["task"]["id"]
            answer.close()
        async with http.get(f"/tasks/{task_id}:subscribe", headers=V1) as answer:
            gate.steps.put_nowait("still here")
            gate.steps.put_nowait(None)
            last = json.loads((await read(answer.content))[-1].data)
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_all_subscribers_see_the_same_in_the_same_order() -> None:
    gate = Gate()
    async with session(CONFIG, gate.agent) as http:
        async with http.post("/message:send", json=send(returnImmediately=True), headers=V1) as answer:
            task_id = (await answer.json(content_type=None))["task"]["id"]
        listening = asyncio.Semaphore(0)

        async def follow() -> list[tuple[str, str]]:
            async with http.get(f"/tasks/{task_id}:subscribe", headers=V1) as answer:
                listening.release()
                return [(event.id, event.data) for event in await read(answer.content)]

        followers = [asyncio.create_task(follow()) for _ in range(30)]
        for _ in followers:
            await listening.acquire()
        for number in range(50):
            gate.steps.put_nowait(f"{number} ")
        gate.steps.put_nowait(None)
        seen = await asyncio.gather(*followers)
        tails = [[event for event in each if int(event[0]) > 3] for each in seen]
        assert all(tail == tails[0] for tail in tails)
        assert len(tails[0]) >= 50


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1 port {port}: "):
            async with running(replace(CONFIG, port=port), [echoing()]):
                pytest.fail("it runs")


async def test_readiness_and_the_agents_are_served() -> None:
    async with session(CONFIG, echoing()) as http:
        for path in ("/health", "/ready", "/agents", "/.well-known/agent-card.json", "/echo/.well-known/agent.json"):
            async with http.get(path) as answer:
                assert answer.status == 200, path
                assert "Server" not in answer.headers


async def test_agents_that_take_all_threads_make_the_server_unready() -> None:
    blocked, started = threading.Event(), threading.Event()
    agent = Agent("threads")

    @agent.skill
    def block(ctx: SyncContext) -> str:
        """Wait."""
        started.set()
        blocked.wait(DEADLINE_S)
        return "done"

    async with session(replace(CONFIG, threads_max=1), agent) as http:
        try:
            async with http.post("/message:send", json=send(returnImmediately=True), headers=V1) as answer:
                assert answer.status == 200
            await asyncio.to_thread(started.wait, DEADLINE_S)
            async with http.get("/ready") as answer:
                assert answer.status == 503
                assert "threads_max" in (await answer.json())["reason"]
        finally:
            blocked.set()


class SweptRows:
    """Is asked what is too old."""

    def __init__(self) -> None:
        self.before_ms: list[int] = []

    async def sweep(self, before_ms: int) -> int:
        self.before_ms.append(before_ms)
        return 0


class SweptEntries:
    """Has no old entries."""

    async def sweep(self) -> int:
        return 0


class SweptStore:
    """Has so many batches of old rows; then fails once; then has nothing."""

    def __init__(self, batches: int) -> None:
        self.left = batches
        self.shared = SweptEntries()
        self.state = SweptEntries()
        self.budgets = SweptRows()
        self.audit = SweptRows()
        self.receipts = SweptRows()
        self.usage = SweptRows()
        self.ages: list[tuple[int, int, int]] = []
        self.clean = asyncio.Event()

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        self.ages.append((task_age_ms, log_age_ms, waiting_age_ms))
        self.left -= 1
        if self.left == 0:
            self.clean.set()
            raise StoreError("the disk is full")
        return 1


async def test_the_sweep_goes_on_until_nothing_is_left_and_outlives_a_store_that_fails() -> None:
    store = SweptStore(4)
    config = replace(CONFIG, task_retention=timedelta(seconds=2), log_retention=None)
    swept: Any = store  # a part of a store
    swept.replicas = LocalReplicas(SystemClock())
    sweeper = asyncio.create_task(
        sweep(swept, SystemClock(), config, Job(swept, "sweep", SimpleNamespace(replica_id="r1")))
    )
    async with asyncio.timeout(DEADLINE_S):
        await store.clean.wait()
    await asyncio.sleep(0)
    assert not sweeper.done()
    assert store.ages == [(2000, -1, 30 * 86_400_000)] * 4
    assert len(store.audit.before_ms) == 3
    assert len(store.budgets.before_ms) == 3
    assert len(store.receipts.before_ms) == 3
    assert store.usage.before_ms[0] in {SystemClock().now_ms() // 86_400_000 - days for days in (400, 401)}
    assert 0 <= SystemClock().now_ms() - 90 * 86_400_000 - store.audit.before_ms[0] < 60_000
    assert 0 <= SystemClock().now_ms() - 7 * 86_400_000 - store.receipts.before_ms[0] < 60_000
    sweeper.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeper


WAITING = """
import asyncio
from dragoman import Agent, Context
agent = Agent("waiting")
@agent.skill
async def wait(ctx: Context):
    "Wait."
    yield "begun"
    while ctx.text == "stubborn":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(float(ctx.text))
    yield "ended"
"""

PROGRAM = """
import sys
from pathlib import Path
from dragoman.config import Config
from dragoman.server import run
sys.path.insert(0, ".")
from waiting import agent
config = Config(port=0, store="sqlite:///t.db", shutdown_grace_s=float(sys.argv[1]))
run(config, [agent], lambda bound: print(bound.config.port, flush=True))
print("drained", flush=True)
"""


@contextlib.asynccontextmanager
async def process(directory: Path, grace_s: float) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server of its own, and its base URL."""
    (directory / "waiting.py").write_text(WAITING)
    server = await asyncio.create_subprocess_exec(
        *ENDS_WITH_US,
        sys.executable,
        "-c",
        PROGRAM,
        str(grace_s),
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            port = (await server.stdout.readline()).strip().decode()
        yield server, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.communicate()


@pytest.mark.slow
async def test_sigterm_ends_streams_with_a_hint_and_gives_running_tasks_their_time(tmp_path: Path) -> None:
    async with process(tmp_path, 5) as (server, url), aiohttp.ClientSession(url) as http:
        async with http.post("/message:stream", json=send("1"), headers=V1) as answer:
            task = json.loads((await read(answer.content, 1))[0].data)["task"]["id"]
            server.send_signal(signal.SIGTERM)
            rest = (await answer.content.read()).decode()
        assert rest.endswith("retry: 1000\n")
        async with http.get("/ready") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (503, "the server is stopping")
        async with http.post("/message:send", json=send("0"), headers=V1) as answer:
            assert (answer.status, "Retry-After" in answer.headers) == (503, True)
        async with http.get(f"/tasks/{task}", headers=V1) as answer:
            assert answer.status == 200
        async with asyncio.timeout(DEADLINE_S):
            out, err = await server.communicate()
        assert (server.returncode, out) == (0, b"drained\n")
        assert b"Traceback" not in err
    async with (
        process(tmp_path, 5) as (_, url),
        aiohttp.ClientSession(url) as http,
        http.get(f"/tasks/{task}", headers=V1) as answer,
    ):
        assert (await answer.json(content_type=None))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_run_that_outlasts_the_grace_period_does_not_hold_the_server_up(tmp_path: Path) -> None:
    async with process(tmp_path, 0.1) as (server, url), aiohttp.ClientSession(url) as http:
        async with http.post("/message:send", json=send("60", returnImmediately=True), headers=V1) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            out, err = await server.communicate()
        assert (server.returncode, out) == (0, b"drained\n")
        assert b"Traceback" not in err


@pytest.mark.slow
async def test_an_agent_that_cannot_be_canceled_does_not_hold_the_server_up(tmp_path: Path) -> None:
    async with process(tmp_path, 0.1) as (server, url), aiohttp.ClientSession(url) as http:
        async with http.post("/message:send", json=send("stubborn", returnImmediately=True), headers=V1) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            _, err = await server.communicate()
        assert server.returncode == 0
        assert b"is left behind" in err


@pytest.mark.slow
async def test_an_agent_that_cannot_be_canceled_does_not_hold_an_embedded_server_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.engine.drain.LEAVE_S", 0.02)
    let_go, over = asyncio.Event(), asyncio.Event()
    agent = Agent("stubborn")

    @agent.skill
    async def stay(ctx: Context) -> None:
        """Stay."""
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        over.set()

    try:
        async with asyncio.timeout(DEADLINE_S):
            async with (
                session(replace(CONFIG, shutdown_grace_s=0.02), agent) as http,
                http.post("/message:send", json=send(returnImmediately=True), headers=V1) as answer,
            ):
                assert answer.status == 200
            assert not over.is_set()
    finally:
        let_go.set()  # a loop waits for ever for what it cannot cancel
    await over.wait()


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, 60) as (server, url), aiohttp.ClientSession(url) as http:
        async with http.post("/message:send", json=send("60", returnImmediately=True), headers=V1) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                async with http.get("/ready") as answer:
                    if answer.status == 503:
                        break
            server.send_signal(signal.SIGTERM)
            assert await server.wait() == -signal.SIGTERM


async def test_a_second_server_on_the_same_store_says_why_it_does_not_start(tmp_path: Path) -> None:
    async with process(tmp_path, 1) as (first, _):
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, "1", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                out, err = await second.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                second.kill()
        assert (second.returncode, out) == (1, b"")
        assert err.startswith(b"dragoman: ")
        assert b"Traceback" not in err
        assert first.returncode is None


def test_the_server_imports_only_what_it_needs() -> None:
    program = "import sys, dragoman.server; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    imported = set(found.stdout.split())
    assert "httptools" in imported
    assert not imported & {
        "uvicorn",
        "aiohttp",
        "starlette",
        "h11",
        "websockets",
        "pytest",
        "rich",
        "anyio",
        "httpx",
        "yaml",
    }
