"""A client of MCP over streamable HTTP, for tests: what it sends and reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from dragoman.dialects.sse import Parser

DEADLINE_S = 60.0
LATEST = "2025-11-25"
BOTH = "application/json, text/event-stream"


class Client:
    """An MCP client, with a session if it has one."""

    def __init__(self, http: aiohttp.ClientSession, **headers: str) -> None:
        self.http = http
        self.headers = {"Accept": BOTH, **headers}
        self.number = 0

    async def post(self, message: Any, *, status: int = 200, **headers: str) -> Any:
        """The JSON of an answer."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {"Content-Type": "application/json", **self.headers, **headers}
        async with self.http.post("/mcp", data=body, headers=sent) as answer:
            raw = await answer.read()
            assert answer.status == status, raw
            self.answered = answer.headers
            return json.loads(raw) if raw else None

    async def ask(self, method: str, params: Any = None, **more: Any) -> Any:
        """The answer to a request."""
        self.number += 1
        answer = await self.post({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}, **more)
        assert answer["id"] == self.number
        return answer

    async def begin(self, version: str = LATEST, **capabilities: Any) -> Any:
        """Begin a session."""
        hello = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        result = (await self.ask("initialize", hello))["result"]
        self.headers |= {"Mcp-Session-Id": self.answered["Mcp-Session-Id"]}
        self.headers |= {"MCP-Protocol-Version": result["protocolVersion"]}
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, status=202)
        return result

    async def call(self, name: str, **arguments: Any) -> Any:
        """The result of a tool, in one piece."""
        answer = await self.ask("tools/call", {"name": name, "arguments": arguments})
        assert self.answered["Content-Type"] == "application/json"
        return answer["result"]

    @asynccontextmanager
    async def streamed(self, name: str, token: Any = "tok", **arguments: Any) -> AsyncIterator["Messages"]:
        """The messages of a call that tells its progress."""
        self.number += 1
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        params = {"name": name, "arguments": arguments, **meta}
        body = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        async with self.http.post("/mcp", json=body, headers=self.headers) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield Messages(answer)

    async def told(self, name: str, **arguments: Any) -> tuple[list[Any], Any]:
        """All that is told on the way, and the result."""
        async with self.streamed(name, **arguments) as messages:
            *before, last = [message async for message in messages]
        assert last["id"] == self.number
        return before, last["result"]


class Messages:
    """The messages of a stream as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.parser = Parser()
        self.ready: list[Any] = []

    def __aiter__(self) -> "Messages":
        return self

    async def __anext__(self) -> Any:
        while not self.ready:
            piece = await self.answer.content.readany()
            if not piece:
                raise StopAsyncIteration
            self.ready += [json.loads(event.data) for event in self.parser.feed(piece)]
        return self.ready.pop(0)


async def next_of(messages: Messages, method: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        async for message in messages:
            if message.get("method") == method:
                return message
    raise AssertionError(f"no {method}")


TASKS = "io.modelcontextprotocol/tasks"
FORMS: dict[str, Any] = {"elicitation": {}}
WITH_TASKS: dict[str, Any] = {"extensions": {TASKS: {}}}


class Stateless:
    """A client of 2026-07-28: each request says what it can do."""

    def __init__(self, http: aiohttp.ClientSession, capabilities: Any = None, **headers: str) -> None:
        self.http = http
        self.capabilities = {} if capabilities is None else capabilities
        self.headers = {"Accept": BOTH, "MCP-Protocol-Version": "2026-07-28", **headers}
        self.number = 0

    def message(self, method: str, params: Any = None) -> tuple[dict[str, Any], dict[str, str]]:
        """The body of a request, and its headers."""
        self.number += 1
        params = dict(params or {})
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        params["_meta"] = {**meta, **params.get("_meta", {})}
        headers = {**self.headers, "Mcp-Method": method}
        if (named := params.get("name") or params.get("taskId")) is not None:
            headers["Mcp-Name"] = named
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}, headers

    async def ask(self, method: str, params: Any = None, *, status: int = 200, **headers: str | None) -> Any:
        """The answer to a request. A header that is None is not sent."""
        body, usual = self.message(method, params)
        sent = {name: value for name, value in {**usual, **headers}.items() if value is not None}
        async with self.http.post("/mcp", json=body, headers=sent) as answer:
            raw = await answer.read()
            assert answer.status == status, raw
            self.answered = answer.headers
            if answer.headers["Content-Type"] == "text/event-stream":
                (raw,) = (event.data for event in Parser().feed(raw))
            told = json.loads(raw)
            assert told["id"] == body["id"]
            return told

    async def result(self, method: str, params: Any = None) -> Any:
        """The result of a request."""
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        assert answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "dragoman"
        return answer["result"]

    async def refused(self, method: str, params: Any = None, *, status: int = 400, **headers: str | None) -> Any:
        """The error of a request."""
        return (await self.ask(method, params, status=status, **headers))["error"]

    async def call(self, name: str, arguments: Any = None, **params: Any) -> Any:
        """The result of a tool."""
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}, **params})

    async def task(self, task_id: str) -> Any:
        """A task as it stands."""
        return await self.result("tasks/get", {"taskId": task_id})

    async def task_until(self, task_id: str, *statuses: str) -> Any:
        """A task once it has one of the statuses."""
        async with asyncio.timeout(DEADLINE_S):
            while (task := await self.task(task_id))["status"] not in statuses:
                await asyncio.sleep(0.02)
        return task

    @asynccontextmanager
    async def streamed(self, method: str, params: Any) -> AsyncIterator["Messages"]:
        """The messages of a request that is answered with a stream."""
        body, headers = self.message(method, params)
        async with self.http.post("/mcp", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield Messages(answer)
