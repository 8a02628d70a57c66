"""Streamable HTTP with servers that do what few do: sessions that end, streams that break, statuses, batches."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from dragoman.agents.mcp.tools import McpGrant, McpTools
from tests.agents.mcp.peer import at, call, tools
from tests.kit.web import web_site

Json = dict[str, Any]
Answers = Callable[["Odd", web.Request, Json], Awaitable[web.StreamResponse | None]]

TEXT = {"content": [{"type": "text", "text": "done"}]}


class Odd:
    """A server with one tool. `answers` may answer in its place; what it was asked is in `asked`."""

    def __init__(self, answers: Answers | None = None, *, version: str = "2025-11-25") -> None:
        self.answers = answers
        self.version = version
        self.sessions = 0
        self.asked: list[tuple[str, Json, dict[str, str]]] = []

    def methods(self) -> list[str]:
        return [message.get("method", verb) for verb, message, _ in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        message: Json = json.loads(await request.read() or b"{}")
        self.asked.append((request.method, message, dict(request.headers)))
        if self.answers is not None and (answered := await self.answers(self, request, message)) is not None:
            return answered
        match message.get("method"):
            case "initialize":
                self.sessions += 1
                result = {
                    "protocolVersion": self.version,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "odd", "version": "1"},
                }
                return web.json_response(
                    answer(message, result), headers={"Mcp-Session-Id": f"session-{self.sessions}"}
                )
            case "tools/list":
                return web.json_response(answer(message, {"tools": [{"name": "do", "inputSchema": {}}]}))
            case "tools/call":
                return web.json_response(answer(message, TEXT))
            case _ if request.method == "GET":
                return web.Response(status=405)
            case _:
                return web.Response(status=202)


def answer(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@asynccontextmanager
async def served(odd: Odd) -> AsyncIterator[str]:
    async with web_site(web.route("*", "/mcp", odd.answer)) as url:
        yield f"{url}/mcp"


@asynccontextmanager
async def before(odd: Odd) -> AsyncIterator[McpTools]:
    async with served(odd) as url, tools(McpGrant(name="odd", reach=at(url), call_s=5.0)) as made:
        await made.list_tools()
        yield made


async def stream(request: web.Request, *events: str) -> web.StreamResponse:
    """A stream of events that ends after them."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event.encode())
    return response


async def test_session_and_version_go_with_every_request() -> None:
    odd = Odd(version="2025-06-18")
    async with before(odd) as made:
        assert (await call(made, "do")).text == "done"
    probe, first, *rest = odd.asked
    assert probe[1]["method"] == "server/discover"
    assert first[1]["params"]["protocolVersion"] == "2025-11-25"
    assert "Mcp-Session-Id" not in first[2]
    assert {headers["Mcp-Session-Id"] for _, _, headers in rest} == {"session-1"}
    assert {headers["MCP-Protocol-Version"] for _, _, headers in rest} == {"2025-06-18"}
    assert odd.asked[-1][0] == "DELETE", "the session was ended"


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, {}), (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No valid session ID"}})],
)
async def test_a_session_that_is_gone_is_replaced_and_the_call_made_once(status: int, body: Json) -> None:
    async def forgets(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        gone = message.get("method") == "tools/call" and request.headers["Mcp-Session-Id"] == "session-1"
        return web.json_response(body, status=status) if gone else None

    odd = Odd(forgets)
    async with before(odd) as made:
        assert (await call(made, "do")).text == "done"
        assert odd.sessions == 2
        assert odd.methods().count("tools/call") == 2


async def test_a_request_that_is_wrong_is_not_taken_for_the_end_of_the_session() -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        wrong = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no such thing"}}
        return web.json_response(wrong, status=400) if message.get("method") == "tools/call" else None

    odd = Odd(refuses)
    async with before(odd) as made:
        assert "no such thing" in (await call(made, "do")).text
    assert (odd.sessions, odd.methods().count("tools/call")) == (1, 1)


async def test_a_server_that_knows_no_session_fails_the_call() -> None:
    async def forgets(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.Response(status=404) if message.get("method") == "tools/call" else None

    odd = Odd(forgets)
    async with before(odd) as made:
        assert (await call(made, "do")).error
        assert odd.methods().count("tools/call") == 2


@pytest.mark.parametrize("status", [302, 401, 403, 500, 503])
async def test_another_status_fails_the_call_and_is_told(status: int) -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        headers = {"Location": "/elsewhere"}
        return web.Response(status=status, headers=headers) if message.get("method") == "tools/call" else None

    async with before(Odd(refuses)) as made:
        result = await call(made, "do")
        assert result.text == f"The tool failed: its server answered with HTTP status {status}."


async def test_what_a_server_says_of_credentials_is_not_told() -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        error = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -1, "message": "no such token: secret"}}
        return web.json_response(error, status=401) if message.get("method") == "tools/call" else None

    async with before(Odd(refuses)) as made:
        assert "secret" not in (await call(made, "do")).text


async def test_an_error_of_the_server_is_told_to_the_model() -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        error = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32602, "message": "no such city"}}
        return web.json_response(error) if message.get("method") == "tools/call" else None

    async with before(Odd(refuses)) as made:
        result = await call(made, "do")
        assert (result.text, result.error) == ("The tool failed: no such city.", True)


async def test_a_version_that_is_not_known_is_refused() -> None:
    odd = Odd(version="1999-01-01")
    async with before(odd) as made:
        assert await made.list_tools() == ()
        assert "tools/list" not in odd.methods()


@pytest.mark.parametrize("body", [b"", b"no", b"{}", b"[]", b"\xff", b'{"jsonrpc":"2.0","id":99,"result":{}}'])
async def test_an_answer_that_is_none_fails_the_call(body: bytes) -> None:
    async def babbles(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        called = message.get("method") == "tools/call"
        return web.Response(body=body, content_type="application/json") if called else None

    async with before(Odd(babbles)) as made:
        assert (await call(made, "do")).error


async def test_a_batch_may_hold_the_answer() -> None:
    async def batches(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") != "tools/call":
            return None
        return web.json_response([{"jsonrpc": "2.0", "method": "notifications/message"}, answer(message, TEXT)])

    async with before(Odd(batches)) as made:
        assert (await call(made, "do")).text == "done"


async def test_a_stream_that_ends_early_is_taken_up_where_it_stood() -> None:
    asked: Json = {}

    async def breaks(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") == "tools/call":
            asked.update(message)
            return await stream(request, "id: 7\nretry: 10\ndata:\n\n")
        if request.headers.get("Last-Event-ID") == "7":
            return await stream(request, "id: 8\ndata: \n\n")
        if request.headers.get("Last-Event-ID") == "8":
            return await stream(request, f"id: 9\ndata: {json.dumps(answer(asked, TEXT))}\n\n")
        return None

    async with before(Odd(breaks)) as made:
        assert (await call(made, "do")).text == "done"


async def test_a_stream_that_ends_early_and_has_no_place_fails_the_call() -> None:
    async def breaks(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return await stream(request, ": hello\n\n") if message.get("method") == "tools/call" else None

    odd = Odd(breaks)
    async with before(odd) as made:
        result = await call(made, "do")
        assert "broke off" in result.text
        assert odd.methods().count("tools/call") == 1, "it may have been done"


async def test_the_answer_is_not_held_up_by_a_stream_that_stays_open() -> None:
    ended = asyncio.Event()

    async def stays(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") != "tools/call":
            return None
        response = await stream(request, f"data: {json.dumps(answer(message, TEXT))}\n\n")
        await ended.wait()
        return response

    async with before(Odd(stays)) as made:
        assert (await call(made, "do")).text == "done"
        ended.set()


async def test_a_server_that_is_away_is_not_asked_by_every_run() -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.Response(status=503)

    odd = Odd(refuses)
    async with before(odd) as made:
        for _ in range(5):
            assert await made.list_tools() == ()
        assert len(odd.asked) == 1


async def test_a_server_that_does_not_list_its_tools_is_not_waited_for_by_every_run() -> None:
    async def stuck(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") == "tools/list":
            await asyncio.Event().wait()
        return None

    odd = Odd(stuck)
    async with served(odd) as url, tools(McpGrant(name="odd", reach=at(url), start_s=0.3)) as made:
        assert made.degraded is None
        assert await asyncio.gather(*(made.list_tools() for _ in range(5))) == [()] * 5
        assert odd.methods().count("tools/list") == 1
        assert made.degraded == "its tools of odd are away"


async def test_what_a_models_api_would_refuse_is_not_offered() -> None:
    offered = [{"name": "do", "inputSchema": {"type": "array"}}, {"name": "do", "inputSchema": {}}, {"name": ""}]

    async def lists(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.json_response(answer(message, {"tools": offered})) if message.get("method") == "tools/list" else None

    async with before(Odd(lists)) as made:
        assert [(tool.name, tool.parameters["type"]) for tool in await made.list_tools()] == [
            ("do", "object"),
            ("_", "object"),
        ]


async def test_a_tool_that_is_named_and_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Odd()) as url:
        grant = McpGrant(name="odd", reach=at(url), allow=frozenset({"do"}), approve=frozenset({"do", "doo"}))
        async with tools(grant) as made:
            for _ in range(3):
                assert [tool.name for tool in await made.list_tools()] == ["do"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "mcp server odd has no tool 'doo': fix `approve`"
    ]


@pytest.mark.parametrize(
    ("at_most_once", "names"),
    [
        ("hints", ["rm"]),
        ("always", ["do", "rm"]),
        ("never", []),
        (frozenset({"do"}), ["do", "rm"]),
    ],
)
async def test_a_tool_is_called_at_most_once_as_the_table_says_or_else_its_server(
    at_most_once: Any, names: list[str]
) -> None:
    offered = [
        {"name": "do", "inputSchema": {}},
        {"name": "rm", "inputSchema": {}, "annotations": {"destructiveHint": True}},
    ]

    async def lists(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.json_response(answer(message, {"tools": offered})) if message.get("method") == "tools/list" else None

    async with (
        served(Odd(lists)) as url,
        tools(McpGrant(name="odd", reach=at(url), at_most_once=at_most_once)) as made,
    ):
        await made.list_tools()
        assert [name for name in ("do", "rm", "invented") if made.at_most_once(name)] == names


async def test_a_call_has_the_key_of_its_step() -> None:
    odd = Odd()
    async with before(odd) as made:
        await call(made, "do")
    (params,) = [message["params"] for _, message, _ in odd.asked if message.get("method") == "tools/call"]
    assert params["_meta"]["dragoman/step-key"] == "call-1"


async def test_runs_share_one_session() -> None:
    odd = Odd()
    async with served(odd) as url, tools(McpGrant(name="odd", reach=at(url))) as made:
        await asyncio.gather(*(made.list_tools() for _ in range(5)))
        assert [result.text for result in await asyncio.gather(*(call(made, "do") for _ in range(5)))] == ["done"] * 5
    assert odd.methods().count("initialize") == 1
    assert odd.methods().count("tools/list") == 1


async def test_a_secret_in_a_query_is_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.Response(status=401)

    with caplog.at_level("DEBUG", "dragoman.mcp"):
        async with served(Odd(refuses)) as url, tools(McpGrant(name="odd", reach=at(f"{url}?key=hidden"))) as made:
            assert await made.list_tools() == ()
            found = [finding async for finding in made.check()]
    assert "check its credentials" in found[0].what
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("dragoman")]
    assert ours
    assert "hidden" not in f"{found} {ours}"


async def test_a_server_that_does_not_take_notifications_is_of_use() -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.Response(status=400) if message.get("method", "").startswith("notifications/") else None

    async with before(Odd(refuses)) as made:
        assert (await call(made, "do")).text == "done"
