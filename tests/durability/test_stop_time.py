"""SIGTERM ends the process within its grace period, whatever it is busy with, and without a traceback in its log."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.durability.caller import Caller, Refusal, message
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.push.receiver import receiving

pytestmark = pytest.mark.slow

Call = Callable[[Server], Caller]

GRACE_S = 2.0
WHOLE_S = 4.0
"""How long a stop may take with that grace period: half of it for the runs, and 3 s for closing."""

LOADED_S = 25.0
"""The time that a machine which runs other tests may add."""

NEVER_S = 600
"""A grace period that no test waits for."""

DEAF_PROGRAM = "trap '' TERM; echo up; while true; do sleep 1; done"

DEAF_MCP = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
results = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "deaf", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], {})}), flush=True)
time.sleep(60)
"""


async def stopped(server: Server) -> float:
    """Seconds from SIGTERM to the end of the process, which ended well."""
    began = time.monotonic()
    server.signal()
    assert await server.ended() == 0
    took_s = time.monotonic() - began
    print(f"{took_s:.2f} s")
    return took_s


async def working(caller: Caller, agent: str, text: str = "900 every 0.1") -> str:
    """The id of a task of `agent` that is at work."""
    task = await caller.send(agent, message(text), at_once=True)
    async with asyncio.timeout(DEADLINE_S):
        while (await caller.get(agent, task["id"]))["status"]["state"] != "TASK_STATE_WORKING":
            await asyncio.sleep(0.02)
    return str(task["id"])


@asynccontextmanager
async def raw(server: Server, sent: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which `sent` was sent."""
    reader, writer = await asyncio.open_connection(urlsplit(server.url).hostname, urlsplit(server.url).port)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader
    finally:
        writer.close()


def posted(path: str, body: bytes, *, length: int | None = None) -> bytes:
    """A request as bytes."""
    length = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


async def test_an_idle_server_ends_at_once(serve: Serve) -> None:
    assert await stopped(await serve("--shutdown-grace-s", f"{NEVER_S}")) < DEADLINE_S


async def test_a_busy_server_ends_within_the_default_grace_period(serve: Serve, call: Call) -> None:
    server = await serve()
    await working(call(server), "count")
    assert 5.0 <= await stopped(server) < 8.0 + LOADED_S


@pytest.mark.parametrize("agent", ["count", "again", "stuck", "deaf"])
async def test_an_agent_that_goes_on_does_not_keep_the_server(serve: Serve, call: Call, agent: str) -> None:
    server = await serve("--shutdown-grace-s", f"{GRACE_S}")
    await working(call(server), agent)
    assert GRACE_S / 2 <= await stopped(server) < WHOLE_S + LOADED_S


async def test_without_grace_and_without_a_file_nothing_is_said_of_what_is_cut_off(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", "0", "--store", "memory:")
    caller = call(server)
    for agent in ("count", "again", "stuck", "ask"):
        await caller.send(agent, message("900 every 0.1"), at_once=True)
    await working(caller, "count")
    assert await stopped(server) < 3.0 + LOADED_S
    lines = [line for line in server.said().splitlines() if "stopping" not in line]
    assert not [line for line in lines if "count" in line or "stays as it is" in line], lines


@pytest.mark.parametrize("sent", ["head", "body"])
async def test_half_a_request_is_not_waited_for(serve: Serve, sent: str) -> None:
    server = await serve("--shutdown-grace-s", f"{NEVER_S}")
    whole = posted("/agents/echo/message:send", b'{"message": {', length=1000)
    async with raw(server, whole[:40] if sent == "head" else whole) as reader:
        await asyncio.sleep(0)
        async with raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as other:
            assert (await other.readline()).startswith(b"HTTP/1.1 200")  # so the first has been read, too
        assert await stopped(server) < DEADLINE_S
        assert await reader.read() == b""


async def test_open_streams_end_and_readers_that_do_not_read_are_cut_off(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", f"{GRACE_S}")
    caller = call(server)
    gated = await caller.send("gated", message("1500"))
    pouring = await caller.send("gated", message("go", task_id=gated["id"]), at_once=True)
    counting = await working(caller, "count")
    completion = {"model": "count", "stream": True, "messages": [{"role": "user", "content": "900 every 0.1"}]}
    body = json.dumps(completion).encode()
    async with AsyncExitStack() as stack:
        for path in (f"/agents/gated/tasks/{pouring['id']}:subscribe", f"/agents/count/tasks/{counting}:subscribe"):
            await stack.enter_async_context(raw(server, posted(path, b"{}")))
        await stack.enter_async_context(raw(server, posted("/v1/chat/completions", body)))
        blocking = json.dumps({"message": message("900 every 0.1")}).encode()
        two = posted("/agents/count/message:send", blocking) * 2  # the second is pipelined
        await stack.enter_async_context(raw(server, two))
        left = await stack.enter_async_context(raw(server, posted("/v1/chat/completions", body)))
        assert (await left.readline()).startswith(b"HTTP/1.1 200")
        server.signal()
    assert await server.ended() == 0


async def test_readers_that_do_not_read_do_not_keep_the_server(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", f"{GRACE_S}")
    caller = call(server)
    gated = await caller.send("gated", message("500"))
    task = await caller.send("gated", message("go", task_id=gated["id"]))
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((urlsplit(server.url).hostname, urlsplit(server.url).port))
        deaf.sendall(
            f"GET /agents/gated/tasks/{task['id']} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n".encode()
        )
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert await stopped(server) < WHOLE_S + LOADED_S


async def test_a_webhook_that_does_not_answer_does_not_keep_the_server(serve: Serve, call: Call) -> None:
    server = await serve("--push-allowed-cidrs", "127.0.0.0/8", "--shutdown-grace-s", f"{GRACE_S}")
    async with receiving() as receiver:
        receiver.hold.clear()
        body = {"message": message("3 every 0"), "configuration": {"taskPushNotificationConfig": {"url": receiver.url}}}
        await call(server).post("/agents/count/message:send", body)
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)
        assert await stopped(server) < WHOLE_S + LOADED_S


async def test_programs_that_ignore_sigterm_do_not_keep_the_server(serve: Serve, call: Call, tmp_path: Path) -> None:
    program = tmp_path / "deaf.sh"
    program.write_text(f"#!/usr/bin/env bash\n{DEAF_PROGRAM}\n")
    program.chmod(0o755)
    (tmp_path / "mcp.py").write_text(DEAF_MCP)
    (tmp_path / "dragoman.toml").write_text(
        f"""shutdown_grace_s = {GRACE_S}
[[agents]]
id = "program"
run = "command:{program}"
[[agents]]
id = "model"
run = "openai:http://127.0.0.1:9/v1"
model = "m"
[[agents.tools]]
run = "mcp:command:{sys.executable} {tmp_path / "mcp.py"}"
name = "deaf"
"""
    )
    server = await serve()
    caller = call(server)
    await working(caller, "program", "go")
    with pytest.raises(Refusal, match="model cannot be reached"):  # by then its tools have been listed
        await caller.send("model", message("hello"))
    assert await stopped(server) < WHOLE_S + LOADED_S
