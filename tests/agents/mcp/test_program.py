"""Servers that are programs, and do what they should not: they babble, end, do not read, or are no servers at all."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from time import monotonic

import pytest

from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant
from tests.agents.mcp.peer import call, tools

pytestmark = pytest.mark.slow

SERVER = """
import json, os, sys

def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
            say({"id": message["id"], "result": result})
        case "tools/list":
            say({"id": message["id"], "result": {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]}})
        case "server/discover":
            say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        case "tools/call":
            done = {"content": [{"type": "text", "text": "done"}]}
            called(message["id"], done, message["params"])
"""


def server(tmp_path: Path, called: str) -> ProgramReach:
    """A server whose tool does `called` with the id of the call and the result that is expected."""
    body = "\n".join(f"    {line}" for line in called.splitlines())
    script = tmp_path / "server.py"
    script.write_text(f"def called(id, done, params):\n{body}\n{SERVER}")
    return ProgramReach("program", (sys.executable, str(script)), {})


async def once(reach: ProgramReach, **arguments: object) -> str:
    async with tools(McpGrant(name="program", reach=reach, call_s=5.0)) as made:
        assert [tool.name for tool in await made.list_tools()] == ["do"]
        return (await call(made, "do", **arguments)).text


async def test_what_is_no_message_is_passed_over(tmp_path: Path) -> None:
    babble = r'print("hello"); print(); print("{}"); print("\xff"); say({"id": 99, "result": {}})'
    assert await once(server(tmp_path, f'{babble}\nsay({{"id": id, "result": done}})')) == "done"


async def test_an_answer_of_a_megabyte_is_read(tmp_path: Path) -> None:
    text = await once(server(tmp_path, 'done["content"][0]["text"] = "x" * 150_000\nsay({"id": id, "result": done})'))
    assert text == "x" * 150_000


async def test_a_call_of_a_megabyte_is_written(tmp_path: Path) -> None:
    told = 'done["content"][0]["text"] = str(len(params["arguments"]["text"]))\nsay({"id": id, "result": done})'
    assert await once(server(tmp_path, told), text="x" * 1_000_000) == "1000000"


async def test_a_line_that_is_too_long_ends_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.agents.mcp.program.LINE_BYTES_MAX", 10_000)
    text = await once(server(tmp_path, 'done["content"][0]["text"] = "x" * 100_000\nsay({"id": id, "result": done})'))
    assert "has ended" in text


async def test_a_program_that_does_not_read_is_given_up_in_time(tmp_path: Path) -> None:
    reach = server(tmp_path, "import time; time.sleep(600)")
    async with tools(McpGrant(name="program", reach=reach, call_s=0.3)) as made:
        await made.list_tools()
        results = await asyncio.gather(*(call(made, "do", text="x" * 1_000_000) for _ in range(4)))
    assert all(result.error for result in results)


async def test_a_program_that_asks_without_end_is_answered_and_given_up_if_it_does_not_read(tmp_path: Path) -> None:
    asks = (
        'for n in range(50_000): say({"id": "q" * 100 + str(n), "method": "ping"})\n'
        'say({"id": id, "result": done})\n'
        "import time; time.sleep(600)"  # else it reads the answers, and ends, before they have piled up
    )
    async with tools(McpGrant(name="program", reach=server(tmp_path, asks), call_s=15.0)) as made:
        await made.list_tools()
        result = await call(made, "do")
        assert result.error, "its answers pile up, since it does not read them"


@pytest.mark.parametrize("words", [("/bin/true",), ("/bin/sh", "-c", "echo no server; exit 3")])
async def test_a_program_that_ends_at_once_is_not_waited_for(words: tuple[str, ...]) -> None:
    begun = monotonic()
    async with tools(McpGrant(name="program", reach=ProgramReach("program", words, {}), start_s=300.0)) as made:
        assert await made.list_tools() == ()
    assert monotonic() - begun < 60.0


async def test_its_standard_error_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = 'sys.stderr.write("one\\ntwo" + "x" * 100_000 + "\\n"); sys.stderr.flush(); say({"id": id, "result": done})'
    with caplog.at_level(logging.INFO, "dragoman.mcp"):
        assert await once(server(tmp_path, said)) == "done"
    assert "mcp server program: one" in caplog.messages
    assert max(map(len, caplog.messages)) < 9_000


async def test_what_has_left_its_group_does_not_hold_up_its_end(tmp_path: Path) -> None:
    leaves = (
        "import subprocess\n"
        'left = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)\n'
        'done["content"][0]["text"] = str(left.pid)\n'
        'say({"id": id, "result": done})'
    )
    begun = monotonic()
    left = int(await once(server(tmp_path, leaves)))
    os.kill(left, signal.SIGKILL)
    assert monotonic() - begun < 60.0
