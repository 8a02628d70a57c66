"""Server of the official MCP SDK: `python mcp_server.py` prints its URL.

Words after that: `stdio` is spoken to there, `json` answers without streams, `stateless` without sessions, `pages`
lists its tools two at a time, and `deaf` is a program that stays when it is asked to end.
"""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from typing import Any

from listening import serve
from mcp import McpError
from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.lowlevel import NotificationOptions
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    ClientCapabilities,
    EmbeddedResource,
    ListToolsRequest,
    ListToolsResult,
    ResourceLink,
    SamplingMessage,
    ServerResult,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

WORDS = frozenset(sys.argv[1:])
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)

server = FastMCP("peer", json_response="json" in WORDS, stateless_http="stateless" in WORDS)
seen: dict[str, Any] = {"canceled": 0, "begun": 0}


class Sum(BaseModel):
    total: int
    of: list[int]


class Form(BaseModel):
    name: str


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def echo(text: str) -> str:
    """Says the same."""
    return text


@server.tool()
def add(a: int, b: int) -> Sum:
    """Adds."""
    return Sum(total=a + b, of=[a, b])


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("the disk is full")


@server.tool()
async def steps(n: int, ctx: Context) -> str:  # type: ignore[type-arg]  # the tool needs none of its three
    """Tells how far it is."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n, f"step {step}")
    return "arrived"


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
def saw() -> str:
    """The requests that this server saw."""
    return json.dumps(seen)


@server.tool(structured_output=False)
def everything() -> list[Any]:
    """Content of every kind."""
    return [
        TextContent(type="text", text="words"),
        Image(data=PNG, format="png"),
        AudioContent(type="audio", data=base64.b64encode(b"RIFF").decode(), mimeType="audio/wav"),
        EmbeddedResource(
            type="resource",
            resource=TextResourceContents(uri="memo://one", mimeType="text/markdown", text="# A memo"),  # type: ignore[arg-type]  # pydantic reads a URL from text
        ),
        EmbeddedResource(
            type="resource",
            resource=BlobResourceContents(uri="file:///a.bin", blob=base64.b64encode(b"\0\1").decode()),  # type: ignore[arg-type]  # pydantic reads a URL from text
        ),
        ResourceLink(type="resource_link", name="report", uri="https://host/report.pdf", mimeType="application/pdf"),  # type: ignore[arg-type]  # pydantic reads a URL from text
    ]


@server.tool(annotations=ToolAnnotations(destructiveHint=True))
def die() -> str:
    """Ends the server in the midst of a call."""
    os._exit(3)


@server.tool()
async def grow(ctx: Context) -> str:  # type: ignore[type-arg]  # the tool needs none of its three
    """Has one tool more."""
    server.add_tool(lambda: "new", name="grown", description="Was not there before.")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def ask(ctx: Context) -> str:  # type: ignore[type-arg]  # the tool needs none of its three
    """Wants to know something of the client: what it is told."""
    told = [f"ping {type(await ctx.session.send_ping()).__name__}"]
    try:
        await ctx.session.elicit("Your name?", Form.model_json_schema())
    except McpError as error:
        told.append(f"elicit {error}")
    try:
        await ctx.session.create_message(
            [SamplingMessage(role="user", content=TextContent(type="text", text="hi"))], max_tokens=5
        )
    except McpError as error:
        told.append(f"sample {error}")
    told.append(str(ctx.session.check_client_capability(ClientCapabilities())))
    return "; ".join(told)


@server.tool()
def environment() -> str:
    """The names of what it sees of the environment."""
    return " ".join(sorted(os.environ))


@server.tool()
def shown(ctx: Context) -> str:  # type: ignore[type-arg]  # the tool needs none of its three
    """The credentials that the client showed."""
    request = ctx.request_context.request
    return "" if request is None else str(request.headers.get("authorization", ""))


@server.tool()
def child() -> str:
    """Starts a process that stays, in the group of this one."""
    return str(subprocess.Popen(["sleep", "600"]).pid)


@server.tool(name="odd name/é")
def odd() -> str:
    """Has a name that no model's API takes."""
    return "odd"


def paged() -> None:
    """List two tools at a time."""
    handlers = server._mcp_server.request_handlers  # noqa: SLF001  FastMCP has no other way to its pages
    whole = handlers[ListToolsRequest]

    async def page(request: ListToolsRequest) -> ServerResult:
        tools = (await whole(request)).root.tools  # type: ignore[union-attr]  # the handler of tools returns tools
        at = int(request.params.cursor or 0) if request.params else 0
        cursor = str(at + 2) if at + 2 < len(tools) else None
        return ServerResult(ListToolsResult(tools=tools[at : at + 2], nextCursor=cursor))

    handlers[ListToolsRequest] = page


def main() -> None:
    """Serve."""
    if "pages" in WORDS:
        paged()
    low_level = server._mcp_server  # noqa: SLF001  nor to its capabilities
    made = low_level.create_initialization_options
    low_level.create_initialization_options = lambda *_: made(NotificationOptions(tools_changed=True))  # type: ignore[method-assign]  # FastMCP has no setting for it
    if "stdio" not in WORDS:
        asyncio.run(serve(lambda _: server.streamable_http_app()))
        return
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("ready\n")
    print("a line that is no message", flush=True)
    asyncio.run(server.run_stdio_async())
    if "deaf" in WORDS:
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
