"""Servers of the official MCP SDK for tests, each in a process of its own, and the tools that stand before them."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.link import Reach
from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.tools import ToolPending, ToolResult
from dragoman.model.message import Message, Part, Role
from dragoman.telemetry.job_group import JobGroup
from dragoman.testing.run import FakeRun
from tests.kit.waiting import no_hang

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("DRAGOMAN_PEER_MCP", ROOT / ".venv-mcp" / "bin" / "python"))
SCRIPT = ROOT / "tests" / "peers" / "servers" / "mcp_server.py"
DEADLINE_S = 60.0


@contextmanager
def listening(*words: str) -> Iterator[str]:
    """The URL of a server that is there as long as the block lasts."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    process = subprocess.Popen(
        [PYTHON, SCRIPT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip() + "/mcp"
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def at(url: str) -> Reach:
    return HttpReach(url, lambda egress: None)


def program(*words: str) -> Reach:
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    return ProgramReach("peer", (str(PYTHON), str(SCRIPT), "stdio", *words), {"PATH": os.environ["PATH"]})


@asynccontextmanager
async def tools(*grants: McpGrant) -> AsyncIterator[McpTools]:
    """The tools of servers, open; none of what they began is left when the block ends."""
    made = McpTools(grants)
    async with no_hang(), asyncio.TaskGroup() as group:
        await made.open(JobGroup(group))
        try:
            yield made
        finally:
            await made.close()


def fake_run(kind: type[FakeRun] = FakeRun) -> FakeRun:
    return kind(Message(message_id="m", role=Role.USER, parts=(Part(text="x"),)))


async def begun(made: McpTools, name: str, run: FakeRun | None = None, **arguments: Any) -> ToolResult | ToolPending:
    """The first answer to a call."""
    return await made.call(fake_run() if run is None else run, name, arguments, "call-1")


async def call(made: McpTools, name: str, run: FakeRun | None = None, **arguments: Any) -> ToolResult:
    """The result of a call that is over at once."""
    result = await begun(made, name, run, **arguments)
    assert isinstance(result, ToolResult)
    return result
