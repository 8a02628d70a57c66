"""Server of the newer official MCP SDK (2.x): `python mcp2_server.py` prints its URL; `stdio` is spoken to there.

The SDK brings 2026-07-28: requests that stand for themselves, headers, questions. It has no Tasks extension of its own:
that is written here as SEP-2663 has it, by the SDK's interface for extensions. A file given as `tasks=FILE` keeps the
tasks when the process ends.
"""

import asyncio
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from listening import serve
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp_types import CallToolRequestParams, RequestParams
from pydantic import BaseModel, Field

WORDS = frozenset(sys.argv[1:])
KEPT = next((Path(word.removeprefix("tasks=")) for word in sys.argv[1:] if word.startswith("tasks=")), None)
TASKS = "io.modelcontextprotocol/tasks"
TIME = "2026-07-28T00:00:00Z"
FORM = {"type": "object", "properties": {"color": {"type": "string", "enum": ["red", "blue"]}}, "required": ["color"]}

seen: dict[str, Any] = {"begun": 0, "canceled": 0, "built": 0, "updates": 0, "tasks_canceled": 0, "polls": 0}


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(default={}, alias="inputResponses")


class Tasks(Extension):
    """Calls of `build` and `paint` become tasks: the first is over after some polls, the second asks for a color."""

    identifier = TASKS

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT and KEPT.exists() else {}

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/update", TaskParams, self.update),
            MethodBinding("tasks/cancel", TaskParams, self.cancel),
        ]

    async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Any, call_next: Any) -> Any:
        if params.name not in ("build", "paint"):
            return await call_next(ctx)
        seen["built"] += 1
        task_id = secrets.token_hex(16)
        self.tasks[task_id] = {"name": params.name, "arguments": params.arguments, "polls": 0, "color": None}
        return {"resultType": "task", **self.shape(task_id, "working", statusMessage="begun")}

    def shape(self, task_id: str, status: str, **more: Any) -> dict[str, Any]:
        if KEPT:
            KEPT.write_text(json.dumps(self.tasks))
        shape = {"taskId": task_id, "status": status, "createdAt": TIME, "lastUpdatedAt": TIME, "ttlMs": 60000}
        return {**shape, "pollIntervalMs": 50, **more}

    def find(self, params: TaskParams) -> dict[str, Any]:
        if (task := self.tasks.get(params.task_id)) is None:
            raise MCPError(-32602, "Failed to retrieve task: Task not found")
        return task

    async def get(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        task = self.find(params)
        seen["polls"] += 1
        task["polls"] += 1
        if task.get("canceled"):
            return self.shape(params.task_id, "cancelled")
        if task["name"] == "paint" and task["color"] is None:
            asked = {"method": "elicitation/create", "params": {"message": "Which color?", "requestedSchema": FORM}}
            return self.shape(params.task_id, "input_required", inputRequests={"c": asked})
        arguments = task["arguments"] or {}
        if arguments.get("endless") or task["polls"] < arguments.get("polls", 3):
            return self.shape(params.task_id, "working", statusMessage=f"poll {task['polls']}")
        if arguments.get("fails"):
            return self.shape(params.task_id, "failed", error={"code": -32603, "message": "out of paint"})
        said = f"{task['name']} is done" + (f" in {task['color']}" if task["color"] else "")
        return self.shape(params.task_id, "completed", result={"content": [{"type": "text", "text": said}]})

    async def update(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        seen["updates"] += 1
        answer = params.input_responses.get("c") or {}
        self.find(params)["color"] = (answer.get("content") or {}).get("color") or answer.get("action")
        return {}

    async def cancel(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        self.find(params)["canceled"] = True
        seen["tasks_canceled"] += 1
        return {}


server = MCPServer("newer", version="2", extensions=[Tasks()])


class Party(BaseModel):
    people: int


def ask_people(place: str) -> Elicit[Party]:
    return Elicit(f"How many people go to {place}?", Party)


@server.tool()
def forecast(city: str) -> str:
    """The forecast for a city."""
    return f"Sunny in {city}"


@server.tool()
def book(place: str, party: Annotated[Party, Resolve(ask_people)]) -> str:
    """Book a table."""
    return f"A table for {party.people} at {place}"


@server.tool()
def shard(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], ctx: Context) -> str:
    """The region in the header of the request."""
    request = ctx.request_context.request
    return "no header" if request is None else str(request.headers.get("mcp-param-region"))


@server.tool()
async def slow() -> str:
    """Does not end by itself."""
    seen["begun"] += 1
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        seen["canceled"] += 1
        raise
    return "over"


@server.tool()
async def steps(n: int, ctx: Context) -> str:
    """Tells how far it is."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n, f"step {step}")
        await asyncio.sleep(0.001)
    return "arrived"


@server.tool()
async def grow(ctx: Context) -> str:
    """Has one tool more."""
    server.add_tool(lambda: "new", name="grown", description="Was not there before.")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
def build(endless: bool = False, fails: bool = False, polls: int = 3) -> str:
    """Builds, as a task."""
    raise AssertionError("it is a task")


@server.tool()
def paint() -> str:
    """Paints in a color that it asks for, as a task."""
    raise AssertionError("it is a task")


@server.tool()
def saw() -> str:
    """What this server has seen."""
    return json.dumps(seen)


if __name__ == "__main__":
    if "stdio" in WORDS:
        server.run()
    else:
        asyncio.run(serve(lambda _: server.streamable_http_app()))
