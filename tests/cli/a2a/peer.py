"""HTTP servers on a thread of their own, since the commands have a loop of their own."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct


class Asked(Struct, frozen=True):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Asked], tuple[int, Mapping[str, Any] | str]]
"""Returns the status and the body of an answer."""


@contextmanager
def serve_http(answer: Answer) -> Iterator[str]:
    """Answer requests on a free port of loopback, and yield the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await respond(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller has left
        finally:
            writer.close()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        status, content = answer(Asked(head[0].rpartition(" ")[0], headers, body))
        encoded = (content if isinstance(content, str) else json.dumps(content)).encode()
        lines = (f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(encoded)}")
        writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode() + encoded)
        await writer.drain()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"}}


class FarAgent:
    """An agent with a card of the test's choice. It records its requests, and completes every task at once.

    `tasks` are the answers to GetTask, the last one for good; `status` is that of all answers to calls. `refused` are
    methods that are refused with a code.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemes: dict[str, Any] = {}
        self.interface: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.status = 200
        self.refused: dict[str, int] = {}
        self.tasks: list[dict[str, Any]] = [TASK]
        self.asked: list[Asked] = []

    @property
    def card(self) -> dict[str, Any]:
        """The agent's card."""
        plain = {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {
            "name": "far",
            "description": "An agent of a test",
            "version": "1",
            "capabilities": self.capabilities,
            "skills": [],
            "defaultInputModes": [],
            "defaultOutputModes": [],
            "supportedInterfaces": [{**plain, **self.interface}],
            "securitySchemes": self.schemes,
        }

    def answer(self, asked: Asked) -> tuple[int, Mapping[str, Any] | str]:
        """Answer a request."""
        self.asked.append(asked)
        if asked.line.startswith("GET"):
            return 200, self.card
        if self.status != 200:
            return self.status, "no"
        call = asked.json
        if (code := self.refused.get(call["method"])) is not None:
            return 200, {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": "no"}}
        result: Mapping[str, Any] = {"task": self.tasks[0]}
        if call["method"] == "GetTask":
            result = self.tasks.pop(0) if len(self.tasks) > 1 else self.tasks[0]
        return 200, {"jsonrpc": "2.0", "id": call["id"], "result": result}

    @property
    def calls(self) -> list[Asked]:
        """The calls, without requests for the card."""
        return [asked for asked in self.asked if asked.line.startswith("POST")]

    @property
    def card_requests(self) -> list[Asked]:
        """The requests for the card."""
        return [asked for asked in self.asked if asked.line.startswith("GET")]


@contextmanager
def far_agent() -> Iterator[FarAgent]:
    """Serve a FarAgent."""
    agent = FarAgent()
    with serve_http(agent.answer) as url:
        agent.url = url
        yield agent
