"""MCP of 2026-07-28 with servers that do what few do, and how a server of an earlier version is told from one of it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from dragoman.agents.mcp import calls, session
from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.tools import ToolAnswer, ToolPending, ToolResult
from tests.agents.mcp.peer import at, begun, call, fake_run, tools
from tests.agents.mcp.test_http import TEXT, Json, Odd, answer, before, stream
from tests.kit.waiting import until
from tests.kit.web import web_site

META = "io.modelcontextprotocol/"
VERSION, CLIENT, CAPABILITIES = (f"{META}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities"))
Replies = Callable[["Modern", web.Request, Json], Awaitable[web.StreamResponse | None]]
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}, "extensions": {f"{META}tasks": {}}},
    "_meta": {f"{META}serverInfo": {"name": "modern", "version": "1"}},
    "ttlMs": 0,
    "cacheScope": "public",
}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ELICIT = {"method": "elicitation/create", "params": {"message": "Your name?", "requestedSchema": FORM}}


def refuse(message: Json, code: int, status: int = 400, **data: Any) -> web.Response:
    error = {"code": code, "message": "refused", **({"data": data} if data else {})}
    return web.json_response({"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=status)


class Modern:
    """A server of that version alone, with one tool. `replies` may reply in its place; `asked` is what came."""

    def __init__(self, replies: Replies | None = None, *, ttl_ms: int = 300_000, schema: Json | None = None) -> None:
        self.replies = replies
        self.ttl_ms = ttl_ms
        self.schema = schema or {"type": "object"}
        self.asked: list[tuple[Json, dict[str, str]]] = []
        self.changed = asyncio.Event()

    def methods(self) -> list[str]:
        return [message.get("method", "") for message, _ in self.asked]

    def params(self, method: str) -> list[Json]:
        return [message["params"] for message, _ in self.asked if message.get("method") == method]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message: Json = json.loads(await request.read())
        self.asked.append((message, dict(request.headers)))
        params = message.get("params", {})
        stated = params.get("_meta", {}).get(VERSION), request.headers.get("MCP-Protocol-Version")
        if stated != ("2026-07-28", "2026-07-28"):
            return refuse(message, -32022, supported=["2026-07-28"])
        named = params.get("name") or params.get("taskId")
        if (request.headers.get("Mcp-Method"), request.headers.get("Mcp-Name")) != (message["method"], named):
            return refuse(message, -32020)
        if self.replies is not None and (replied := await self.replies(self, request, message)) is not None:
            return replied
        match message["method"]:
            case "server/discover":
                return web.json_response(answer(message, DISCOVERED))
            case "tools/list":
                listed = {"tools": [{"name": "do", "inputSchema": self.schema}], "ttlMs": self.ttl_ms}
                return web.json_response(answer(message, {"resultType": "complete", "cacheScope": "public", **listed}))
            case "tools/call":
                return web.json_response(answer(message, {"resultType": "complete", **TEXT}))
            case "subscriptions/listen":
                meta = {"_meta": {f"{META}subscriptionId": message["id"]}}
                response = await stream(request, event("notifications/subscriptions/acknowledged", meta))
                await self.changed.wait()
                await response.write(event("notifications/tools/list_changed", meta).encode())
                return response
            case _:
                return refuse(message, -32601, 404)


def event(method: str, params: Json) -> str:
    return f"data: {json.dumps({'jsonrpc': '2.0', 'method': method, 'params': params})}\n\n"


@asynccontextmanager
async def served(modern: Modern, **more: Any) -> AsyncIterator[McpTools]:
    async with (
        web_site(web.route("*", "/mcp", modern.answer)) as url,
        tools(McpGrant(name="modern", reach=at(f"{url}/mcp"), **{"call_s": 5.0, **more})) as made,
    ):
        await made.list_tools()
        yield made


async def test_every_request_states_version_client_and_capabilities() -> None:
    modern = Modern()
    async with served(modern) as made:
        assert (await call(made, "do")).text == "done"
    assert [method for method in modern.methods() if method != "subscriptions/listen"] == [
        "server/discover",
        "tools/list",
        "tools/call",
    ]
    for message, headers in modern.asked:
        meta = message["params"]["_meta"]
        assert meta[VERSION] == "2026-07-28"
        assert meta[CLIENT]["name"] == "dragoman"
        assert meta[CAPABILITIES] == {"elicitation": {"form": {}, "url": {}}, "extensions": {f"{META}tasks": {}}}
        assert not {"Mcp-Session-Id", "Last-Event-ID"} & set(headers)


async def test_a_server_that_is_not_to_ask_is_told_of_no_elicitation() -> None:
    modern = Modern()
    async with served(modern, elicitation=False):
        assert modern.params("tools/list")[0]["_meta"][CAPABILITIES] == {"extensions": {f"{META}tasks": {}}}


# -- which version a server speaks -------------------------------------------------------------------------------------


async def test_an_earlier_server_is_asked_once_which_version_it_speaks() -> None:
    """Also if its session ends: it is known by then."""

    async def forgets(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        gone = message.get("method") == "tools/call" and request.headers["Mcp-Session-Id"] == "session-1"
        return web.Response(status=404) if gone else None

    odd = Odd(forgets)
    async with before(odd) as made:
        assert (await call(made, "do")).text == "done"
    assert odd.methods().count("server/discover") == 1
    assert odd.sessions == 2


async def test_an_earlier_server_that_was_away_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    away = False

    async def is_away(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        gone = message.get("method") == "tools/call" and request.headers["Mcp-Session-Id"] == "session-1"
        if away and message.get("method") == "initialize":
            return web.Response(status=503)
        return web.Response(status=404) if gone else None

    odd = Odd(is_away)
    async with before(odd) as made:
        away = True
        assert (await call(made, "do")).error
        away = False
        assert (await call(made, "do")).text == "done"
    assert odd.methods().count("server/discover") == 1


async def test_a_server_that_has_become_a_newer_one_while_it_was_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    modern = Modern()
    present: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = [Odd().answer]

    async def forgets(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    async def answer_now(request: web.Request) -> web.StreamResponse:
        return await present[0](request)

    async with (
        web_site(web.route("*", "/mcp", answer_now)) as url,
        tools(McpGrant(name="modern", reach=at(f"{url}/mcp"), call_s=5.0)) as made,
    ):
        await made.list_tools()
        present[0] = forgets
        assert (await call(made, "do")).error
        present[0] = modern.answer
        assert (await call(made, "do")).text == "done"


@pytest.mark.parametrize("status", [200, 400, 404, 405, 500])
@pytest.mark.parametrize("code", [-32600, -32601, -32000, 0])
async def test_any_other_refusal_is_that_of_an_earlier_server(status: int, code: int) -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") != "server/discover":
            return None
        return refuse(message, code, status) if code else web.Response(status=status, text="no")

    async with before(Odd(refuses)) as made:
        assert (await call(made, "do")).text == "done"


@pytest.mark.parametrize("supported", [["2025-11-25"], ["2030-01-01", "2025-06-18"]])
async def test_a_server_says_that_it_speaks_an_earlier_version(supported: list[str]) -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        asked = message.get("method") == "server/discover"
        return refuse(message, -32022, supported=supported) if asked else None

    async with before(Odd(refuses)) as made:
        assert (await call(made, "do")).text == "done"


async def test_a_server_that_names_the_version_in_its_refusal_is_asked_once_more() -> None:
    refusals = 1

    async def refuses(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        nonlocal refusals
        refusals -= 1
        return refuse(message, -32022, supported=["2026-07-28"]) if refusals >= 0 else None

    modern = Modern(refuses)
    async with served(modern) as made:
        assert (await call(made, "do")).text == "done"
    assert modern.methods()[:3].count("server/discover") == 2
    refusals = 1000
    async with served(modern) as made:
        assert await made.list_tools() == ()


async def test_a_server_of_a_later_version_alone_is_away_and_says_which_it_speaks() -> None:
    async def refuses(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse:
        return refuse(message, -32022, supported=["2030-01-01"])

    modern = Modern(refuses)
    async with served(modern) as made:
        assert await made.list_tools() == ()
        (found,) = [finding async for finding in made.check()]
        assert "the server speaks MCP 2030-01-01, here it is 2026-07-28, 2025-11-25" in found.what
    assert "initialize" not in modern.methods()


@pytest.mark.parametrize("status", [401, 403, 429, 502, 503])
async def test_a_status_that_says_nothing_of_versions_is_no_reason_to_take_it_for_an_earlier_one(status: int) -> None:
    async def refuses(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse:
        return web.Response(status=status)

    odd = Odd(refuses)
    async with before(odd) as made:
        assert await made.list_tools() == ()
    assert set(odd.methods()) == {"server/discover"}


async def test_a_server_that_is_silent_is_taken_for_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PROBE_S", 0.1)

    async def is_silent(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message.get("method") == "server/discover":
            await asyncio.Event().wait()
        return None

    async with before(Odd(is_silent)) as made:
        assert (await call(made, "do")).text == "done"


@pytest.mark.parametrize("refused", [True, False])
async def test_a_newer_server_that_is_slow_to_start_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """It does not open sessions, whether it says so or answers with a version that has none."""
    monkeypatch.setattr(session, "PROBE_S", 0.1)
    slow = True

    async def is_slow(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        nonlocal slow
        if message["method"] == "server/discover" and slow:
            slow = False
            await asyncio.Event().wait()
        return None

    modern = Modern(is_slow)

    async def answer_now(request: web.Request) -> web.StreamResponse:
        message: Json = json.loads(await request.read())
        if message.get("method") == "initialize" and not refused:
            hello = {"protocolVersion": "2026-07-28", "capabilities": {}, "serverInfo": {}}
            return web.json_response(answer(message, hello))
        return await modern.answer(request)

    async with (
        web_site(web.route("*", "/mcp", answer_now)) as url,
        tools(McpGrant(name="modern", reach=at(f"{url}/mcp"), call_s=5.0)) as made,
    ):
        await made.list_tools()
        assert (await call(made, "do")).text == "done"
    assert modern.methods().count("server/discover") == 2


async def test_a_server_that_changes_its_version_is_asked_again() -> None:
    """From an earlier version to the newer one, and back."""

    async def wants_session(odd: Odd, request: web.Request, message: Json) -> web.StreamResponse | None:
        lacks = message.get("method") != "initialize" and "Mcp-Session-Id" not in request.headers
        return refuse(message, -32000) if lacks else None

    modern = Modern()
    present: list[Odd | Modern] = [Odd(wants_session)]

    async def answer_now(request: web.Request) -> web.StreamResponse:
        return await present[0].answer(request)

    async with (
        web_site(web.route("*", "/mcp", answer_now)) as url,
        tools(McpGrant(name="modern", reach=at(f"{url}/mcp"), call_s=5.0)) as made,
    ):
        await made.list_tools()
        present[0] = modern
        assert (await call(made, "do")).text == "done"
        assert "initialize" not in modern.methods()
        present[0] = Odd(wants_session)
        assert (await call(made, "do")).error, "it may have been made"
        assert (await call(made, "do")).text == "done"


PROGRAM = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        sys.exit("expected initialize")
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}},
        "tools/list": {"tools": [{"name": "do", "inputSchema": {}}]},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"""


async def test_a_program_that_ends_at_a_question_it_does_not_know_is_started_without_it() -> None:
    reach = ProgramReach("old", (sys.executable, "-c", PROGRAM), {})
    async with tools(McpGrant(name="old", reach=reach)) as made:
        assert [tool.name for tool in await made.list_tools()] == ["do"]
        assert (await call(made, "do")).text == "done"


# -- lists of tools ----------------------------------------------------------------------------------------------------


async def test_a_server_tells_of_changes_in_the_answer_to_a_request_that_stays_open() -> None:
    modern = Modern()
    async with served(modern) as made:
        await made.list_tools()
        assert modern.methods().count("tools/list") == 1
        assert modern.params("subscriptions/listen")[0]["notifications"] == {"toolsListChanged": True}
        modern.changed.set()

        async def listed_anew() -> bool:
            await made.list_tools()
            return modern.methods().count("tools/list") > 1

        await until(listed_anew)


async def test_a_list_is_used_for_as_long_as_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LIST_S_MIN", 0.0)
    modern = Modern(ttl_ms=0)
    async with served(modern) as made:
        await made.list_tools()
        await made.list_tools()
    assert modern.methods().count("tools/list") == 3


async def test_a_tool_with_an_annotation_that_is_not_allowed_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    async with served(Modern(schema=wrong)) as made:
        assert await made.list_tools() == ()
    assert "its tool 'do' is left out: x-mcp-header of 'a'" in caplog.text


async def test_a_tool_that_wants_another_header_is_listed_and_called_again() -> None:
    async def wants(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message["method"] != "tools/call" or request.headers.get("Mcp-Param-Region") == "eu":
            return None
        modern.schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        return refuse(message, -32020)

    modern = Modern(wants)
    async with served(modern) as made:
        assert (await call(made, "do", region="eu")).text == "done"
    assert modern.methods().count("tools/call") == 2


# -- answers to calls --------------------------------------------------------------------------------------------------


def calls_answered(*results: Json) -> Replies:
    """One after the other; then the usual result."""
    left = list(results)

    async def replies(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        return web.json_response(answer(message, left.pop(0))) if message["method"] == "tools/call" and left else None

    return replies


async def test_the_state_of_a_server_comes_back_unchanged_with_the_answers_to_its_questions() -> None:
    state = "not {our business\u2028"
    asks = {"resultType": "input_required", "inputRequests": {"who": ELICIT, "whom": ELICIT}, "requestState": state}
    modern = Modern(calls_answered(asks))
    async with served(modern) as made:
        pending = await begun(made, "do", a=1)
        assert isinstance(pending, ToolPending)
        assert [(question.id, question.text) for question in pending.questions] == [
            ("who", "Your name?"),
            ("whom", "Your name?"),
        ]
        answers = {"who": ToolAnswer("accept", {"name": "Ada"}), "whom": ToolAnswer("decline")}
        done = await made.resume(fake_run(), {"a": 1}, "call-2", pending.handle, answers)
        assert isinstance(done, ToolResult)
        assert done.text == "done"
    first, second = modern.params("tools/call")
    assert not {"requestState", "inputResponses"} & set(first)
    assert (second["requestState"], second["arguments"]) == (state, {"a": 1})
    assert second["inputResponses"] == {
        "who": {"action": "accept", "content": {"name": "Ada"}},
        "whom": {"action": "decline"},
    }
    assert len({message["id"] for message, _ in modern.asked}) == len(modern.asked)


async def test_a_state_alone_is_sent_back_at_once_and_none_if_there_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "AGAIN_S", 0.0)
    asks = {"resultType": "input_required", "inputRequests": {"who": ELICIT}}
    modern = Modern(calls_answered({"resultType": "input_required", "requestState": "1"}, asks))
    async with served(modern) as made:
        pending = await begun(made, "do")
        assert isinstance(pending, ToolPending)
        assert pending.questions == ()
        pending = await made.resume(fake_run(), {}, "call-2", pending.handle, {})
        assert isinstance(pending, ToolPending)
        await made.resume(fake_run(), {}, "call-3", pending.handle, {"who": ToolAnswer("cancel")})
    _, second, third = modern.params("tools/call")
    assert (second["requestState"], "inputResponses" in second) == ("1", False)
    assert ("requestState" in third, third["inputResponses"]) == (False, {"who": {"action": "cancel"}})


async def test_a_state_that_is_too_long_to_be_recorded_ends_the_call() -> None:
    given = {"resultType": "input_required", "requestState": "x" * (calls.STATE_CHARS_MAX + 1)}
    async with served(Modern(calls_answered(given))) as made:
        result = await call(made, "do")
    assert (result.error, "a state that is too long" in result.text) == (True, True)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"method": "sampling/createMessage", "params": {"messages": []}}, "asks for an answer of a model"),
        ({"method": "roots/list"}, "asks for directories"),
        ({"method": "odd/one"}, "asks for odd/one"),
        (
            {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "javascript:alert(1)"}},
            "an address that is none of the web",
        ),
        ({"method": "elicitation/create", "params": {"message": "x" * 70_000}}, "a question that is too long"),
    ],
)
async def test_what_a_server_may_not_ask_for_ends_the_call(asked: Json, told: str) -> None:
    async with served(Modern(calls_answered({"resultType": "input_required", "inputRequests": {"x": asked}}))) as made:
        result = await call(made, "do")
        assert result.error
        assert told in result.text


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "odd"},
        {"resultType": "input_required"},
        {"resultType": "task", "taskId": "", "status": "working"},
        {"resultType": "task", "taskId": "x" * 5000, "status": "working"},
        {"resultType": "task", "taskId": "t", "status": "odd"},
        {
            "resultType": "input_required",
            "inputRequests": {"x": {"method": "elicitation/create", "params": {"mode": 1}}},
        },
    ],
)
async def test_an_answer_that_is_not_known_is_no_outcome(result: Json) -> None:
    async with served(Modern(calls_answered(result))) as made:
        told = await call(made, "do")
        assert told == ToolResult(text="The tool failed: its server gave an answer that cannot be read.", error=True)


async def test_a_stream_that_breaks_off_is_not_resumed() -> None:
    async def breaks(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message["method"] != "tools/call":
            return None
        return await stream(request, "id: 1\ndata:\n\n")

    modern = Modern(breaks)
    async with served(modern) as made:
        assert "broke off" in (await call(made, "do")).text
    assert modern.methods().count("tools/call") == 1


# -- tasks -------------------------------------------------------------------------------------------------------------


def task(status: str, **more: Any) -> Json:
    kind = "task" if status == "new" else "complete"
    shape = {"taskId": "t/1", "status": "working" if status == "new" else status, "pollIntervalMs": 50, "ttlMs": None}
    return {"resultType": kind, "createdAt": "", "lastUpdatedAt": "", **shape, **more}


def tasks_answered(*polls: Json | web.Response | int) -> Replies:
    """A call becomes a task, whose polls are answered one after the other, the last time and again."""
    left = list(polls)

    async def replies(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        match message["method"]:
            case "tools/call":
                return web.json_response(answer(message, task("new")))
            case "tasks/update" | "tasks/cancel":
                return web.json_response(answer(message, {"resultType": "complete"}))
            case "tasks/get":
                poll = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(poll, int):
                    return web.Response(status=poll)
                return web.json_response(answer(message, poll))  # type: ignore[arg-type]  # no response is among them
            case _:
                return None

    return replies


async def followed(made: McpTools) -> ToolResult | ToolPending:
    pending = await begun(made, "do")
    assert isinstance(pending, ToolPending)
    return await made.resume(fake_run(), {}, "call-2", pending.handle, {})


DONE = task("completed", result=TEXT)


async def test_a_task_is_polled_over_what_passes() -> None:
    modern = Modern(tasks_answered(503, task("working"), DONE))
    async with served(modern) as made:
        result = await followed(made)
    assert isinstance(result, ToolResult)
    assert result.text == "done"
    assert [params["taskId"] for params in modern.params("tasks/get")] == ["t/1"] * 3


async def test_a_server_that_stays_away_from_its_task_is_given_up_after_call_s() -> None:
    async with served(Modern(tasks_answered(503)), call_s=0.2) as made:
        result = await followed(made)
        assert result == ToolResult(text="The tool failed: its server answered with HTTP status 503.", error=True)


async def test_a_question_is_answered_once_however_long_the_server_repeats_it() -> None:
    asks = task("input_required", inputRequests={"who": ELICIT})
    modern = Modern(tasks_answered(asks, asks, asks, DONE))
    async with served(modern) as made:
        pending = await followed(made)
        assert isinstance(pending, ToolPending)
        answers = {"who": ToolAnswer("accept", {"name": "Ada"})}
        result = await made.resume(fake_run(), {}, "call-3", pending.handle, answers)
        assert isinstance(result, ToolResult)
        assert result.text == "done"
    (update,) = modern.params("tasks/update")
    assert update["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.mark.parametrize(("then", "text"), [(DONE, "done"), (None, "The tool failed: refused.")])
async def test_an_answer_that_a_later_run_gives_again_may_be_refused_by_a_task_that_is_over(
    then: Json | None, text: str
) -> None:
    asks = task("input_required", inputRequests={"who": ELICIT})
    answers = tasks_answered(asks, then or asks)

    async def refuses(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        if message["method"] == "tasks/update":
            return refuse(message, -32602)
        return await answers(modern, request, message)

    async with served(Modern(refuses)) as made:
        pending = await followed(made)
        assert isinstance(pending, ToolPending)
        result = await made.resume(fake_run(), {}, "call-3", pending.handle, {"who": ToolAnswer("decline")})
        assert isinstance(result, ToolResult)
        assert result.text == text


async def test_an_answer_is_given_again_to_a_server_that_was_away() -> None:
    asks = task("input_required", inputRequests={"who": ELICIT})
    answers = tasks_answered(asks, DONE)
    away = True

    async def is_away(modern: Modern, request: web.Request, message: Json) -> web.StreamResponse | None:
        nonlocal away
        if message["method"] == "tasks/update" and away:
            away = False
            return web.Response(status=503)
        return await answers(modern, request, message)

    modern = Modern(is_away)
    async with served(modern) as made:
        pending = await followed(made)
        assert isinstance(pending, ToolPending)
        result = await made.resume(fake_run(), {}, "call-3", pending.handle, {"who": ToolAnswer("decline")})
        assert isinstance(result, ToolResult)
        assert result.text == "done"
    assert len(modern.params("tasks/update")) == 2


async def test_a_task_that_asks_for_what_it_is_not_given_is_canceled() -> None:
    modern = Modern(tasks_answered(task("input_required", inputRequests={"x": {"method": "roots/list"}})))
    async with served(modern) as made:
        result = await followed(made)
        assert isinstance(result, ToolResult)
        assert "asks for directories" in result.text
    assert [params["taskId"] for params in modern.params("tasks/cancel")] == ["t/1"]
