"""The conformance suite of the Model Context Protocol against our client, as a model's tools use it.

The suite makes a server for each scenario, and starts a command with its URL. Here the command only hands the URL on to
this process, so that one process of the suite and one of ours are all that it takes.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.mcp.tools import McpGrant
from dragoman.agents.model.caller_questions import read_answer
from dragoman.agents.tools import ModelTool, ToolPending, ToolQuestion
from dragoman.model.message import Message, Part, Role
from tests.agents.mcp.peer import at, fake_run, tools
from tests.peers.test_mcp_conformance import Checks, run_suite

pytestmark = [pytest.mark.peer, pytest.mark.slow]

RAN = {
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
}
"""The scenarios of 2026-07-28, without those about a person's sign-in at an authorization server: a server of tools has
credentials in its table. Another eight are of an extension for skills."""

FOLDER = re.compile(r"(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
COMMAND = (
    "import os,socket,sys;"
    "s=socket.create_connection(('127.0.0.1',int(sys.argv[1])));"
    "e=os.environ.get;"
    "s.sendall(('\\\\t'.join((e('MCP_CONFORMANCE_SCENARIO',''),sys.argv[2],e('MCP_CONFORMANCE_CONTEXT','')))+'\\\\n').encode());"
    "s.recv(1)"
)
VALUES: dict[Any, Any] = {"string": "text", "integer": 7, "number": 5, "boolean": True, "array": []}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """Values for all properties of a schema."""
    return {
        name: filled(each) if each.get("type") == "object" else VALUES.get(each.get("type"), "x")
        for name, each in schema.get("properties", {}).items()
    }


def calls_for(scenario: str, context: dict[str, Any], offered: tuple[ModelTool, ...]) -> list[tuple[str, Any]]:
    """The calls that a scenario wants: each tool once, unless it says otherwise."""
    if scenario == "json-schema-2020-12-preservation":  # one tool is to be given the schema of the other
        rich, echo = sorted(offered, key=lambda tool: "schema" in tool.parameters["properties"])
        return [(echo.name, {"schema": rich.parameters})]
    if "toolCalls" in context:
        return [(each["name"], each.get("arguments", {})) for each in context["toolCalls"]]
    return [
        (tool.name, {"a": 5, "b": 3} if tool.name == "add_numbers" else filled(tool.parameters)) for tool in offered
    ]


async def use(scenario: str, url: str, context: dict[str, Any]) -> None:
    """Call the tools of a scenario's server, and answer what it asks."""
    async with tools(McpGrant(name="suite", reach=at(url))) as made:
        for name, arguments in calls_for(scenario, context, await made.list_tools()):
            came = await made.call(fake_run(), name, arguments, "call")
            while isinstance(came, ToolPending):
                answers = {question.id: answered(question) for question in came.questions}
                came = await made.resume(fake_run(), arguments, "call", came.handle, answers)


def answered(question: ToolQuestion) -> Any:
    said = Part(data=filled(question.form))
    return read_answer(question, Message(message_id="a", role=Role.USER, parts=(said,)))


async def collect(folder: Path) -> Checks:
    """The checks of all scenarios."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scenario, url, context = (await reader.readline()).decode().rstrip("\n").split("\t")
        try:
            if scenario in RAN:
                await use(scenario, url, json.loads(context or "{}"))
        finally:
            writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = f'{sys.executable} -I -S -c "{COMMAND}" {port}'
        flags = ("client", "--command", command, "--suite", "all", "--spec-version", "2026-07-28")
        return await run_suite(folder, FOLDER, *flags)


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Checks:
    return asyncio.run(collect(tmp_path_factory.mktemp("conformance")))


def test_nothing_fails_and_every_scenario_ran(checks: Checks) -> None:
    assert checks.keys() >= RAN
    wrong = [
        f"{name}: {check['status']} {check['id']}: {check.get('errorMessage', '')}"
        for name in RAN
        for check in checks[name]
        if check["status"] not in ("SUCCESS", "INFO", "SKIPPED")
    ]
    assert not wrong, "\n".join(wrong)
    assert all(any(check["status"] == "SUCCESS" for check in checks[name]) for name in RAN)
