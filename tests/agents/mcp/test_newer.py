"""Servers of the newer official MCP SDK (2.x) as tools: its server falls back to the versions that are spoken here."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant
from tests.agents.mcp.peer import DEADLINE_S, ROOT, at, call, tools

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PYTHON = Path(os.environ.get("DRAGOMAN_PEER_MCP2", ROOT / ".venv-mcp2" / "bin" / "python"))
SCRIPT = ROOT / "tests" / "peers" / "servers" / "mcp2_server.py"


@contextmanager
def listening() -> Iterator[str]:
    """The URL of a server that is there as long as the block lasts."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    with subprocess.Popen([PYTHON, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip() + "/mcp"
            process.stdin.close()
            process.wait(DEADLINE_S)
        finally:
            process.kill()


async def test_a_program_is_spoken_to() -> None:
    reach = ProgramReach("newer", (str(PYTHON), str(SCRIPT), "stdio"), {"PATH": os.environ["PATH"]})
    async with tools(McpGrant(name="newer", reach=reach, start_s=DEADLINE_S, call_s=DEADLINE_S)) as made:
        assert [tool.name for tool in await made.list_tools()] == ["forecast"]
        assert (await call(made, "forecast", city="Lyon")).text == "Sunny in Lyon"


async def test_a_url_is_spoken_to() -> None:
    with listening() as url:
        async with tools(McpGrant(name="newer", reach=at(url), start_s=DEADLINE_S, call_s=DEADLINE_S)) as made:
            assert [tool.name for tool in await made.list_tools()] == ["forecast"]
            assert (await call(made, "forecast", city="Lyon")).text == "Sunny in Lyon"
