"""Official MCP client against a server: `python mcp_client.py BASE_URL [WORD …]`."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client
from report import Scenario, run, selected


@asynccontextmanager
async def session(base_url: str, **callbacks: Any) -> AsyncIterator[ClientSession]:
    """A session as the documentation makes it."""
    async with (
        streamable_http_client(f"{base_url}/mcp") as (read, write, _),
        ClientSession(read, write, **callbacks) as open_session,
    ):
        greeted = await open_session.initialize()
        assert greeted.serverInfo.name == "dragoman", greeted
        assert greeted.protocolVersion == types.LATEST_PROTOCOL_VERSION, greeted
        yield open_session


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """The structured content of a result. The client has checked that it fits the tool's schema."""
    assert result.structuredContent is not None
    return result.structuredContent


async def tools(base_url: str) -> None:
    async with session(base_url) as open_session:
        listed = {tool.name: tool for tool in (await open_session.list_tools()).tools}
        assert {"echo", "countdown", "trip", "papers"} <= listed.keys(), listed.keys()
        assert listed["echo"].outputSchema is not None
        assert "message" in listed["echo"].inputSchema["properties"]
        await open_session.send_ping()


async def call(base_url: str) -> None:
    async with session(base_url) as open_session:
        result = await open_session.call_tool("echo", {"message": "hello you", "data": {"a": 1}})
        assert not result.isError
        assert isinstance(result.content[0], types.TextContent)
        assert result.content[0].text == "hello you"
        told = structured(result)
        assert (told["text"], told["data"], told["state"]) == ("hello you", [{"a": 1}], "completed"), told
        assert told["usage"]["total_tokens"] == 4


async def message_or_task(base_url: str) -> None:
    """An agent that decides by its work makes a task for each: a result of MCP names one."""
    async with session(base_url) as open_session:
        for text in ("Rome", "plan Rome"):
            told = structured(await open_session.call_tool("guide", {"message": text}))
            assert (told["text"], told["state"]) == (f"About {text}", "completed"), told
            again = structured(await open_session.call_tool("guide", {"task_id": told["task_id"]}))
            assert (again["text"], again["task_id"]) == (told["text"], told["task_id"]), again


async def progress(base_url: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async with session(base_url) as open_session:
        result = await open_session.call_tool("countdown", {"message": "3 every 0.05"}, progress_callback=hear)
    assert structured(result)["text"] == "3\n2\n1\n", result
    said = [(total, message) for _, total, message in heard if message]
    assert said == [(3.0, f"Step {step} of 3") for step in (1, 2, 3)], heard
    numbers = [done for done, _, _ in heard]
    assert numbers == sorted(set(numbers)), numbers


async def logs(base_url: str) -> None:
    heard: list[types.LoggingMessageNotificationParams] = []

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params)

    async with session(base_url, logging_callback=hear) as open_session:
        await open_session.set_logging_level("info")
        await open_session.call_tool("countdown", {"message": "2 every 0.05"})
    assert [(params.level, params.data) for params in heard] == [("info", "Step 1 of 2"), ("info", "Step 2 of 2")]


async def cancel(base_url: str) -> None:
    begun = asyncio.Event()

    async def hear(*_: object) -> None:
        begun.set()

    async with session(base_url) as open_session:
        message = {"message": "977 every 0.5", "context_id": "to-be-canceled"}
        calling = asyncio.create_task(open_session.call_tool("countdown", message, progress_callback=hear))
        await begun.wait()
        params = types.CancelledNotificationParams(requestId=open_session._request_id - 1, reason="enough")  # noqa: SLF001  shown nowhere else
        await open_session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        states = await _states(base_url, "to-be-canceled")
        calling.cancel()
        await asyncio.wait([calling])
    assert states == ["TASK_STATE_CANCELED"], states


async def leave(base_url: str) -> None:
    begun = asyncio.Event()

    async def hear(*_: object) -> None:
        begun.set()

    async with session(base_url) as open_session:
        message = {"message": "978 every 0.5", "context_id": "to-be-left"}
        calling = asyncio.create_task(open_session.call_tool("countdown", message, progress_callback=hear))
        await begun.wait()
        calling.cancel()
        await asyncio.wait([calling])
    assert await _states(base_url, "to-be-left", other_than="") == ["TASK_STATE_WORKING"]


async def _states(base_url: str, context: str, other_than: str = "TASK_STATE_WORKING") -> list[str]:
    """The states of the tasks of a context, once they are other than that: a notification is not answered."""
    params = {"tenant": "countdown", "contextId": context}
    ask = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        while True:
            tasks = (await http.post(f"{base_url}/", json=ask)).json()["result"]["tasks"]
            states = [task["status"]["state"] for task in tasks]
            if states and other_than not in states:
                return states
            await asyncio.sleep(0.05)


async def question(base_url: str) -> None:
    async with session(base_url) as open_session:
        asked = structured(await open_session.call_tool("trip", {"message": "book a trip"}))
        said = [asked["question"]]
        for word in ("Lyon", "Oslo"):
            answer = structured(await open_session.call_tool("trip", {"message": word, "task_id": asked["task_id"]}))
            said.append(answer.get("question") or answer["text"])
    assert said == ["From where?", "To where?", "Booked: from Lyon to Oslo"], said


async def elicitation(base_url: str) -> None:
    asked: list[str] = []

    async def fill_in(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": ("Lyon", "Oslo")[len(asked) - 1]})

    async with session(base_url, elicitation_callback=fill_in) as open_session:
        result = await open_session.call_tool("trip", {"message": "book a trip"})
    assert asked == ["From where?", "To where?"], asked
    assert structured(result)["text"] == "Booked: from Lyon to Oslo", result


async def declined(base_url: str) -> None:
    async def put_away(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with session(base_url, elicitation_callback=put_away) as open_session:
        told = structured(await open_session.call_tool("trip", {"message": "book a trip"}))
    assert (told["state"], told["question"]) == ("input-required", "From where?"), told


async def files(base_url: str) -> None:
    given = [
        {"url": "data:image/png;base64,iVBORw==", "name": "a.png"},
        {"url": "https://files.example/b.pdf", "name": "b.pdf", "media_type": "application/pdf"},
    ]
    async with session(base_url) as open_session:
        kept = await open_session.call_tool("papers", {"message": "hi"})
        image, _, link, *_ = (await open_session.call_tool("papers", {"message": "", "files": given})).content
    assert isinstance(kept.content[0], types.EmbeddedResource)
    assert isinstance(kept.content[0].resource, types.TextResourceContents)
    assert kept.content[0].resource.text == "Hello from Dragoman.\n"
    assert isinstance(image, types.ImageContent)
    assert (image.data, image.mimeType) == ("iVBORw==", "image/png")
    assert isinstance(link, types.ResourceLink)
    assert str(link.uri) == "https://files.example/b.pdf"


async def failed(base_url: str) -> None:
    async with session(base_url) as open_session:
        for tool, state in (("fail", "failed"), ("reject", "rejected")):
            result = await open_session.call_tool(tool, {"message": "go"})
            assert result.isError, result
            assert structured(result)["state"] == state, result
        wrong = await open_session.call_tool("echo", {"text": "hello"})
        assert wrong.isError
        assert isinstance(wrong.content[0], types.TextContent)
        assert "arguments.text" in wrong.content[0].text


async def schemas(base_url: str) -> None:
    """Every result is what the tool's schema says, and nothing in it is left unsaid."""
    calls = {
        "echo": "hello", "fail": "go", "reject": "go", "trip": "book a trip", "papers": "hi", "countdown": "1",
    }  # fmt: skip
    async with session(base_url) as open_session:
        tools = {tool.name: tool for tool in (await open_session.list_tools()).tools}
        for tool in tools.values():
            assert tool.outputSchema is not None
            for schema in (tool.inputSchema, tool.outputSchema):
                Draft202012Validator.check_schema(schema)
        for name, message in calls.items():
            told = structured(await open_session.call_tool(name, {"message": message}))
            Draft202012Validator(closed(tools[name].outputSchema)).validate(told)


def closed(schema: Any) -> Any:
    """The schema, of which no object may have more than it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if "properties" in schema else {}
    return {**{name: closed(value) for name, value in schema.items()}, **more}


async def unknown_tool(base_url: str) -> None:
    async with session(base_url) as open_session:
        error = await refused(open_session.call_tool("nobody", {"message": "hello"}))
        assert "tools/list" in error.error.message, error
        assert (await refused(open_session.list_resources())).error.code == types.METHOD_NOT_FOUND


async def refused(asked: Awaitable[object]) -> McpError:
    """The error with which a request is answered."""
    try:
        answer = await asked
    except McpError as error:
        return error
    raise AssertionError(f"an error expected, got {answer}")


SCENARIOS = (
    tools, call, message_or_task,
    progress, logs, cancel, leave, question, elicitation, declined, files, failed, schemas, unknown_tool,
)  # fmt: skip


async def main(base_url: str, words: list[str]) -> int:
    """Run the scenarios whose names have one of the words."""
    scenarios: list[Scenario] = [
        (f"mcp/{scenario.__name__}", functools.partial(scenario, base_url)) for scenario in SCENARIOS
    ]
    return await run(selected(scenarios, words))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1].rstrip("/"), sys.argv[2:])))
