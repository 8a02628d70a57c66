"""Official MCP client of the second generation, which speaks 2026-07-28: `python mcp2_client.py BASE_URL [WORD …]`."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from report import Scenario, run, selected


@asynccontextmanager
async def client(base_url: str, **callbacks: Any) -> AsyncIterator[Client]:
    """A client as the documentation makes it. It has found out by itself that the server needs no session."""
    async with Client(f"{base_url}/mcp", **callbacks) as opened:
        assert opened.session.discover_result is not None
        assert opened.session.protocol_version == "2026-07-28", opened.session.protocol_version
        yield opened


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """The structured content of a result."""
    assert result.structured_content is not None
    return result.structured_content


async def tools(base_url: str) -> None:
    async with client(base_url) as mcp:
        listed = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert {"echo", "countdown", "trip", "papers"} <= listed.keys(), listed.keys()


async def call(base_url: str) -> None:
    async with client(base_url) as mcp:
        result = await mcp.call_tool("echo", {"message": "hello you", "data": {"a": 1}})
        assert not result.is_error
        told = structured(result)
        assert (told["text"], told["data"], told["state"]) == ("hello you", [{"a": 1}], "completed"), told


async def progress(base_url: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async with client(base_url) as mcp:
        result = await mcp.call_tool("countdown", {"message": "3 every 0.05"}, progress_callback=hear)
    assert structured(result)["text"] == "3\n2\n1\n", result
    assert [message for _, _, message in heard if message] == [f"Step {step} of 3" for step in (1, 2, 3)], heard


async def question(base_url: str) -> None:
    async with client(base_url) as mcp:
        asked = structured(await mcp.call_tool("trip", {"message": "book a trip"}))
        said = [asked["question"]]
        for word in ("Lyon", "Oslo"):
            answer = structured(await mcp.call_tool("trip", {"message": word, "task_id": asked["task_id"]}))
            said.append(answer.get("question") or answer["text"])
    assert said == ["From where?", "To where?", "Booked: from Lyon to Oslo"], said


async def elicitation(base_url: str) -> None:
    asked: list[str] = []

    async def fill_in(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": ("Lyon", "Oslo")[len(asked) - 1]})

    async with client(base_url, elicitation_callback=fill_in) as mcp:
        result = await mcp.call_tool("trip", {"message": "book a trip"})
    assert asked == ["From where?", "To where?"], asked
    assert structured(result)["text"] == "Booked: from Lyon to Oslo", result


async def declined(base_url: str) -> None:
    async def put_away(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with client(base_url, elicitation_callback=put_away) as mcp:
        told = structured(await mcp.call_tool("trip", {"message": "book a trip"}))
    assert (told["state"], told["question"]) == ("input-required", "From where?"), told


async def files(base_url: str) -> None:
    given = [{"url": "data:image/png;base64,iVBORw==", "name": "a.png"}]
    async with client(base_url) as mcp:
        kept = await mcp.call_tool("papers", {"message": "hi"})
        image, *_ = (await mcp.call_tool("papers", {"message": "", "files": given})).content
    assert isinstance(kept.content[0], types.EmbeddedResource)
    assert isinstance(image, types.ImageContent)
    assert (image.data, image.mime_type) == ("iVBORw==", "image/png")


async def failed(base_url: str) -> None:
    async with client(base_url) as mcp:
        for tool, state in (("fail", "failed"), ("reject", "rejected")):
            result = await mcp.call_tool(tool, {"message": "go"})
            assert result.is_error, result
            assert structured(result)["state"] == state, result


async def unknown_tool(base_url: str) -> None:
    refused: MCPError | None = None
    async with client(base_url) as mcp:
        try:
            await mcp.call_tool("nobody", {"message": "hello"})
        except MCPError as error:
            refused = error
    assert refused is not None
    assert "tools/list" in str(refused), refused


SCENARIOS = (tools, call, progress, question, elicitation, declined, files, failed, unknown_tool)


async def main(base_url: str, words: list[str]) -> int:
    """Run the scenarios whose names have one of the words."""
    scenarios: list[Scenario] = [
        (f"mcp/{scenario.__name__}", functools.partial(scenario, base_url)) for scenario in SCENARIOS
    ]
    return await run(selected(scenarios, words))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1].rstrip("/"), sys.argv[2:])))
