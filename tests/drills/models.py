"""A model, and the MCP server of its tools, beside a server that is killed: both outlive it.

Invariant: what the model says follows from what it is told, but for the lot of each call, which it draws anew. So a
conversation that goes on otherwise than an undisturbed one is seen, and so is an answer that is asked for again though
its call was made: the call comes with another lot.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web

from dragoman.dialects.mcp.client import STEP_KEY
from tests.drills.agents import LEDGER, PAUSE_S, WALK, note_execution
from tests.kit.web import web_site

Json = dict[str, Any]

STEPS = WALK[0]

CONFIG = """
[[agents]]
id = "{agent}"
run = "openai:{url}/v1"
model = "small"
tool_rounds = {steps}
coalesce_ms = 0
[[agents.tools]]
run = "mcp:{url}/mcp"
at_most_once = "{once}"
"""
CLERKS = {"clerk": "never", "careful-clerk": "always"}


def told(number: int, text: str) -> str:
    """The words of the model after so many steps."""
    return f"{number}. {text} " if number else ""


class Desk:
    """The model and the tools. `faults` are conversations that no undisturbed run has."""

    def __init__(self, ledger: Path) -> None:
        self.faults: list[str] = []
        self.answers = 0
        """How often the model was asked."""
        self._ledger = ledger
        self._heard: dict[str, list[Json]] = {}
        """The longest conversation of each task, by the lot of its first call."""

    # -- the model -----------------------------------------------------------------------------------------------------

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Call the tool of the next step, or say the last words."""
        self.answers += 1
        messages: list[Json] = (await request.json())["messages"]
        self._compare(messages)
        text, number = messages[0]["content"], len(messages) // 2
        words = told(number, text)
        deltas: list[Json] = [{"content": words[:2]}, {"content": words[2:]}] if words else []
        finish = "stop"
        if number < STEPS:
            arguments = json.dumps({"number": number + 1, "lot": uuid4().hex})
            function = {"name": f"step-{number + 1}", "arguments": arguments}
            deltas.append({"tool_calls": [{"index": 0, "id": "call", "type": "function", "function": function}]})
            finish = "tool_calls"
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionResetError):  # the server was killed
            await response.prepare(request)
            for delta in deltas:
                await response.write(event({"delta": delta, "finish_reason": None}))
                await asyncio.sleep(PAUSE_S)
            await response.write(event({"delta": {}, "finish_reason": finish}) + b"data: [DONE]\n\n")
        return response

    def _compare(self, messages: list[Json]) -> None:
        text, *rest = messages
        for number, (said, result) in enumerate(zip(rest[::2], rest[1::2], strict=False)):
            (call,) = said["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            expected = (told(number, text["content"]) or None, f"step-{number + 1}", done(number + 1, arguments["lot"]))
            if (said["content"], call["function"]["name"], result["content"]) != expected:
                self.faults.append(f"{expected} has become {said} and {result}")
        if rest:
            first = json.loads(rest[0]["tool_calls"][0]["function"]["arguments"])["lot"]
            before = self._heard.get(first, [])
            shared = min(len(before), len(messages))
            if messages[:shared] != before[:shared]:
                self.faults.append(f"{before} has become {messages}")
            if len(messages) > len(before):
                self._heard[first] = messages

    # -- its tools -----------------------------------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer as a server of MCP."""
        message: Json = json.loads(await request.read() or b"{}")
        match message.get("method"):
            case "initialize":
                result: Json = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "desk", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": f"step-{n}", "inputSchema": {}} for n in range(1, STEPS + 1)]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": await self._carry_out(message["params"])}]}
            case _:
                return web.Response(status=405 if request.method == "GET" else 202)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _carry_out(self, params: Json) -> str:
        number, lot, key = params["arguments"]["number"], params["arguments"]["lot"], params["_meta"][STEP_KEY]
        note_execution(self._ledger, key.partition(":")[0], number, lot, key)
        await asyncio.sleep(PAUSE_S)
        return done(number, lot)


def done(number: int, lot: str) -> str:
    """The result of a step."""
    return f"{number}. {lot}"


def event(choice: Json) -> bytes:
    """An event of the model's stream."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}], "usage": usage}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@asynccontextmanager
async def model_beside(folder: Path) -> AsyncIterator[Sequence[str]]:
    """The flags of a server with the `CLERKS`. Raises AssertionError for conversations that went wrong."""
    desk = Desk(folder / LEDGER)
    routes = web.post("/v1/chat/completions", desk.complete), web.route("*", "/mcp", desk.serve)
    async with web_site(*routes) as url:
        config = folder / "dragoman.toml"
        tables = (CONFIG.format(agent=agent, once=once, url=url, steps=STEPS) for agent, once in CLERKS.items())
        config.write_text("".join(tables))
        yield "--config", str(config)
    print(f"the model was asked {desk.answers} times")
    assert desk.faults == [], "\n".join(desk.faults[:20])
