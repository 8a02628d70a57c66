"""`dragoman serve --processes N`: several replicas on one port."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from tests.kit.processes import serving_process
from tests.kit.waiting import DEADLINE_S

AGENT = """
from dragoman import Agent, Context
agent = Agent("{name}")

@agent.skill
async def echo(ctx: Context) -> str:
    return ctx.text
"""
WHO = """
import os
from dragoman import Agent, Context
agent = Agent("who")

@agent.skill
async def say(ctx: Context) -> str:
    return str(os.getpid())
"""


def test_several_processes_on_a_store_of_one_server_are_refused(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", "nothing:at_all", "--processes", "2", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "dragoman: processes = 2 runs several replicas, and the store sqlite:///data/dragoman.db has one server only: "
        "set store = 'postgresql://user@host/database', or remove processes\n"
    )


async def cluster(url: str, fits: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The replicas as `/ready` shows them, once they fit. Each look has a connection of its own."""
    deadline, told = time.monotonic() + DEADLINE_S, ""
    while time.monotonic() < deadline:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http:
            try:
                async with http.get(f"{url}/ready") as answer:
                    told = await answer.text()
                    answer.raise_for_status()
            except aiohttp.ClientError:  # the replica that was killed had this connection
                continue
        replicas: list[dict[str, Any]] = json.loads(told)["cluster"]["replicas"]
        if fits(replicas):
            return replicas
    raise AssertionError(told)


def pids(replicas: list[dict[str, Any]]) -> set[int]:
    """The processes of replicas, whose ids are `host/pid/…`."""
    return {int(replica["id"].split("/")[1]) for replica in replicas}


@pytest.mark.slow
async def test_processes_are_replicas_of_one_store_on_one_port(tmp_path: Path, postgres_url: str) -> None:
    module = tmp_path / "served.py"
    module.write_text(AGENT.format(name="first"))
    flags = ("--processes", "2", "--port", "0", "--replica-lease-s", "3", "--replica-beat-s", "1")
    async with serving_process(tmp_path, *flags, "--store", postgres_url, str(module)) as server:
        before = pids(await cluster(server.url, lambda replicas: len(replicas) == 2))
        module.write_text(AGENT.format(name="second"))
        server.signal(signal.SIGHUP)
        await cluster(server.url, lambda replicas: [replica["agents"] for replica in replicas] == [["second"]] * 2)
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        after = pids(await cluster(server.url, lambda replicas: len(replicas) == 2 and killed not in pids(replicas)))
        assert len(after & before) == 1
        server.signal()
        assert await server.ended() == 0
    said = server.said()
    assert "replica 1 ended with SIGKILL" in said or "replica 2 ended with SIGKILL" in said
    assert re.search(r" info    \[[12]\] dragoman\.reload: reloaded: added second, removed first", said)


def who(port: int, number: int) -> int:
    """The process that answers over a connection of its own."""
    message = pb.Message(message_id=f"m{number}", role=pb.ROLE_USER, parts=[pb.Part(text="who")])
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        stub: Any = A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.SendMessage(pb.SendMessageRequest(message=message), timeout=DEADLINE_S, wait_for_ready=True)
    return int(answer.task.artifacts[0].parts[0].text)


@pytest.mark.slow
async def test_processes_share_the_port_of_grpc(tmp_path: Path, postgres_url: str) -> None:
    module = tmp_path / "served.py"
    module.write_text(WHO)
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))  # nobody else is given it, and who shares it may listen
        port = kept.getsockname()[1]
        flags = ("--processes", "2", "--port", "0", "--grpc-port", str(port), "--store", postgres_url)
        async with serving_process(tmp_path, *flags, str(module)) as server:
            both = pids(await cluster(server.url, lambda replicas: len(replicas) == 2))
            seen: set[int] = set()
            deadline, number = time.monotonic() + DEADLINE_S, 0
            while seen != both and time.monotonic() < deadline:
                seen.add(await asyncio.to_thread(who, port, number))
                number += 1
            assert seen == both
            server.signal()
            assert await server.ended() == 0
