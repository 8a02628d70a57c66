"""Skills as tools of MCP: a whole server, and what an MCP client sends and reads."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context, Part, Reject
from dragoman.config import AgentEntry, Config
from dragoman.dialects.mcp.tools import PAGE, name_of
from dragoman.model.principal import Scope
from dragoman.server import running
from tests.bindings.mcp_client import BOTH, LATEST, Client, Messages, next_of
from tests.kit import places
from tests.kit.places import add_keys, sqlite_url

DEADLINE_S = 60.0

poet = Agent("poet", name="Poet", description="Writes as it is told")


@poet.skill("write", tags=["read-only"], examples=["write a b"])
async def write(ctx: Context) -> AsyncIterator[str]:
    """Writes each word, and ends as the first one says."""
    verb, *words = ctx.text.split()
    for number, word in enumerate(words, 1):
        await ctx.progress(number, len(words), f"writing {word}")
        yield f"{word} "
    ctx.usage(input=3, output=len(words))
    match verb:
        case "ask":
            yield await ctx.ask("Which one?")
            yield await ctx.ask("And then?")
        case "auth":
            yield await ctx.require_auth("Log in at the bank")
        case "reject":
            raise Reject("not in the mood")
        case "fail":
            raise RuntimeError("secret")
        case _:
            return


@poet.skill("everything")
async def everything(ctx: Context) -> dict[str, Any]:
    """Tells all that it was given."""
    return {
        "parts": [
            [part.text, part.url, part.media_type, part.filename, len(part.raw or b""), ctx.data] for part in ctx.parts
        ],
        "history": [message.text for message in await ctx.history()],
        "context": ctx.context_id,
        "traceparent": ctx.traceparent,
    }


@poet.skill("files")
async def files(ctx: Context) -> None:
    """Gives out files of all kinds."""
    image = Part(raw=b"\x89PNG", media_type="image/png", filename="a.png")
    sound = Part(raw=b"RIFF", media_type="audio/wav")
    link = Part(url="https://files.example/b.pdf", filename="b.pdf", media_type="application/pdf")
    table = Part(raw=b"a,b", media_type="text/csv", filename="t.csv")
    other = Part(raw=b"\0\1", media_type="application/zip", filename="ä z.zip")
    await ctx.artifact([image, sound, link], name="first")
    await ctx.artifact([table, other], name="second", description="The rest")


slow = Agent("slow.one", description="Never ends by itself")
begun: dict[str, asyncio.Event] = {}
stopped: dict[str, asyncio.Event] = {}


@slow.skill
async def wait(ctx: Context) -> AsyncIterator[str]:
    """Says something, and then nothing until it is stopped."""
    name = ctx.text
    yield "so far"
    await ctx.status("at it")
    begun[name].set()
    try:
        await asyncio.Event().wait()
    finally:
        stopped[name].set()


busy = Agent("busy", description="Writes for ever")


@busy.skill
async def write_on(ctx: Context) -> AsyncIterator[str]:
    """Writes a word again and again."""
    while True:
        yield "on "
        await asyncio.sleep(0.01)


at_once = Agent("at-once", direct=True, description="Answers directly")


@at_once.skill
async def reply(ctx: Context) -> str:
    """Answers with a message where there are such answers."""
    return f"you said {ctx.text}"


in_one_piece = Agent("in-one-piece", streams=False)


@in_one_piece.skill
async def say(ctx: Context) -> str:
    """Answers what it is asked."""
    return f"you said {await ctx.ask('What?')}"


@asynccontextmanager
async def server(*agents: Agent, **settings: Any) -> AsyncIterator[Client]:
    async with places.server(*agents, **{"cancel_grace_s": 0.1, **settings}) as http:
        yield Client(http)


@pytest.fixture(scope="module")
async def place() -> AsyncIterator[Client]:
    async with server(poet, slow, at_once) as client:
        yield client


@pytest.fixture
async def hasty() -> AsyncIterator[Client]:
    """A client, without a session, of a server that soon answers with the task as it is."""
    async with server(poet, slow, at_once, blocking_timeout_s=1.0) as client:
        yield client


@pytest.fixture
def client(place: Client) -> Client:
    """A client without a session."""
    return Client(place.http)


def texts(result: Any) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [(LATEST, LATEST), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"), ("2024-11-05", LATEST)],
)
async def test_the_version_is_that_of_the_client_if_it_is_spoken(client: Client, asked: str, spoken: str) -> None:
    result = await client.begin(asked)
    assert result["protocolVersion"] == spoken
    assert result["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
    assert result["serverInfo"]["name"] == "dragoman"
    assert (await client.ask("ping"))["result"] == {}


async def test_a_session_is_ended_and_a_foreign_one_is_not_found(client: Client) -> None:
    await client.begin()
    async with client.http.delete("/mcp", headers=client.headers) as answer:
        assert answer.status == 204
    for method in ("tools/list", "tools/call"):
        answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": method}, status=404)
        assert "the session has ended" in answer["error"]["message"]
    client.headers["Mcp-Session-Id"] = "of-another-server"
    answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, status=404)
    assert "initialize" in answer["error"]["message"]


async def test_a_call_needs_no_session(client: Client) -> None:
    result = await client.call("poet__write", message="write one two")
    assert result["structuredContent"]["text"] == "one two "


async def test_outside_of_a_session_nobody_listens(client: Client) -> None:
    async with client.http.get("/mcp", headers={"Accept": "text/event-stream"}) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST, DELETE, OPTIONS")


async def test_who_listens_reads_events(client: Client) -> None:
    await client.begin()
    async with client.http.get("/mcp", headers={**client.headers, "Accept": "application/json"}) as answer:
        assert answer.status == 406
    async with client.http.get("/mcp", headers={**client.headers, "Mcp-Session-Id": "made-up"}) as answer:
        assert answer.status == 404


async def test_who_listens_hears_that_the_server_is_there_and_is_one_of_so_many() -> None:
    async with server(poet, keepalive_s=0.05, max_streams=1) as client:
        await client.begin()
        async with client.http.get("/mcp", headers=client.headers) as listening:
            assert listening.headers["Content-Type"] == "text/event-stream"
            assert (await listening.content.readline()).startswith(b":")
            async with client.http.get("/mcp", headers=client.headers) as another:
                assert another.status == 429
                assert "max_streams" in await another.text()
        async with asyncio.timeout(DEADLINE_S):
            while True:  # that one has left is known a moment later
                async with client.http.get("/mcp", headers=client.headers) as another:
                    if another.status == 200:
                        return


@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "completion/complete", "tools/nope"])
async def test_what_is_not_declared_is_not_there(client: Client, method: str) -> None:
    assert (await client.ask(method))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":"x/1","result":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":"nothing","result":{}}', -32600),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}', -32600),
    ],
)
async def test_what_is_no_message_is_a_bad_request(client: Client, body: bytes, code: int) -> None:
    assert (await client.post(body, status=400))["error"]["code"] == code


async def test_params_are_an_object(client: Client) -> None:
    answer = await client.post(b'{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}')
    assert (answer["id"], answer["error"]["code"]) == ("a", -32602)


async def test_a_version_that_is_not_spoken_is_refused(client: Client) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    answer = await client.post(ping, status=400, **{"MCP-Protocol-Version": "2024-11-05"})
    assert "2025-06-18" in answer["error"]["message"]


async def test_an_answer_must_be_acceptable(client: Client) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "at-once", "arguments": {}}}
    await client.post(call, status=406, Accept="text/html")
    await client.post(call, Accept="*/*")
    await client.post(call, Accept="application/json")


async def test_pages_of_other_origins_stay_outside(client: Client) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[", "x"):
        answer = await client.post(ping, status=403, Origin=origin)
        assert "cors_origins" in answer["error"]["message"]
    async with client.http.get("/health") as well:
        own = str(well.url.origin())
    await client.post(ping, Origin=own)
    async with server(at_once, cors_origins=("https://app.example",)) as open_to_one:
        await open_to_one.post(ping, Origin="https://app.example")
        await open_to_one.post(ping, status=403, Origin="https://evil.example")


# -- tools -------------------------------------------------------------------------------------------------------------


async def test_every_skill_is_a_tool(client: Client) -> None:
    tools = (await client.ask("tools/list"))["result"]["tools"]
    names = [tool["name"] for tool in tools]
    assert names[:4] == ["at-once", "poet__everything", "poet__files", "poet__write"]
    assert names[4].startswith("slow-one-")
    assert len(names) == 5
    write = tools[3]
    assert write["title"].startswith("Poet")
    assert "Writes each word" in write["description"]
    assert "write a b" in write["description"]
    assert write["annotations"]["readOnlyHint"] is True
    assert "readOnlyHint" not in tools[1]["annotations"]
    assert write["inputSchema"]["required"] == ["message"]
    assert write["outputSchema"]["type"] == "object"


async def test_tools_come_in_pages() -> None:
    many = Agent("many", description="Has many skills")
    for number in range(PAGE + 1):
        many.skill(f"s{number:03d}")(reply)
    async with server(many) as client:
        first = (await client.ask("tools/list"))["result"]
        assert len(first["tools"]) == PAGE
        second = (await client.ask("tools/list", {"cursor": first["nextCursor"]}))["result"]
        assert [tool["name"] for tool in second["tools"]] == [f"many__s{PAGE:03d}"]
        assert "nextCursor" not in second
        assert (await client.ask("tools/list", {"cursor": "a b"}))["error"]["code"] == -32602


async def test_a_result_says_how_to_go_on(client: Client) -> None:
    result = await client.call("poet__write", message="write one two")
    assert result["isError"] is False
    structured = result["structuredContent"]
    assert (structured["state"], structured["text"]) == ("completed", "one two ")
    assert structured["usage"] == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    first, last = result["content"]
    assert first == {"type": "text", "text": "one two "}
    assert structured["context_id"] in last["text"]
    assert last["annotations"]["audience"] == ["assistant"]
    again = await client.call("poet__everything", message="again", context_id=structured["context_id"])
    told = again["structuredContent"]["data"][0]
    assert told["context"] == structured["context_id"]
    assert "write one two" in told["history"]


async def test_an_agent_that_answers_directly_makes_a_task_here(client: Client) -> None:
    structured = (await client.call("at-once", message="hi"))["structuredContent"]
    assert (structured["text"], structured["state"]) == ("you said hi", "completed")
    assert structured["task_id"]


async def test_an_agent_that_does_not_stream_is_a_tool_too() -> None:
    async with server(in_one_piece) as client:
        await client.begin(elicitation={})
        asked = (await client.call("in-one-piece", message="hi"))["structuredContent"]
        assert (asked["state"], asked["question"]) == ("input-required", "What?")
        task = {"task_id": asked["task_id"]}
        assert (await client.call("in-one-piece", message="", **task))["structuredContent"] == asked
        told = (await client.call("in-one-piece", message="this", **task))["structuredContent"]
        assert told["text"] == "you said this"


async def test_text_data_and_files_reach_the_agent(client: Client) -> None:
    data = base64.b64encode(b"1234").decode()
    given = [
        {"url": f"data:text/csv;base64,{data}", "name": "t.csv"},
        {"url": "https://files.example/x", "media_type": "image/png"},
    ]
    result = await client.call("poet__everything", message="hi", data={"a": 1}, files=given)
    parts = [part[:5] for part in result["structuredContent"]["data"][0]["parts"]]
    assert parts == [
        ["hi", None, None, None, 0],
        [None, None, None, None, 0],
        [None, None, "text/csv", "t.csv", 4],
        [None, "https://files.example/x", "image/png", None, 0],
    ]


async def test_files_come_as_what_they_are(client: Client) -> None:
    await client.begin()
    result = await client.call("poet__files", message="go")
    image, sound, link, table, other, _ = result["content"]
    assert image == {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}
    assert (sound["type"], sound["mimeType"]) == ("audio", "audio/wav")
    assert (link["type"], link["uri"], link["name"]) == ("resource_link", "https://files.example/b.pdf", "b.pdf")
    assert table["resource"]["text"] == "a,b"
    assert base64.b64decode(other["resource"]["blob"]) == b"\0\1"
    first, second = result["structuredContent"]["artifacts"]
    assert (first["name"], second["description"]) == ("first", "The rest")
    assert second["files"][1]["uri"] == other["resource"]["uri"]
    assert second["files"][1]["name"] == "ä z.zip"
    assert second["files"][1]["bytes"] == 2


async def test_a_version_without_links_is_given_addresses_as_text(client: Client) -> None:
    await client.begin("2025-03-26")
    result = await client.call("poet__files", message="go")
    assert result["content"][2] == {"type": "text", "text": "https://files.example/b.pdf"}


@pytest.mark.parametrize(
    ("message", "state", "said"),
    [("reject so far", "rejected", "not in the mood"), ("fail so far", "failed", "reference")],
)
async def test_what_goes_wrong_is_an_error_of_the_tool(client: Client, message: str, state: str, said: str) -> None:
    result = await client.call("poet__write", message=message)
    assert result["isError"] is True
    assert result["structuredContent"]["state"] == state
    assert said in " ".join(texts(result))
    assert "secret" not in json.dumps(result)
    assert texts(result)[0] == "so far "


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "arguments.message"),
        ({"message": 1}, "arguments.message"),
        ({"message": "", "query": "x"}, "arguments.query"),
        ({"message": "x", "data": []}, "arguments.data"),
        ({"message": "x", "files": [{"url": "data:x"}]}, "arguments.files[0].url"),
        ({"message": "x", "task_id": "y" * 2000}, "arguments.task_id"),
        ({"message": "x", "task_id": "nobody"}, "Task not found"),
        ({"message": "", "task_id": "nobody"}, "Task not found"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model(client: Client, arguments: Any, field: str) -> None:
    result = await client.call("poet__write", **arguments)
    assert result["isError"] is True
    assert field in texts(result)[0]


async def test_an_unknown_tool_is_refused(client: Client) -> None:
    answer = await client.ask("tools/call", {"name": "nobody", "arguments": {}})
    assert answer["error"]["code"] == -32602
    assert "tools/list" in answer["error"]["message"]


async def test_the_trace_goes_on(client: Client) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    params = {"name": "poet__everything", "arguments": {"message": "x"}, "_meta": {"traceparent": trace}}
    result = (await client.ask("tools/call", params))["result"]
    assert trace.split("-")[1] in result["structuredContent"]["data"][0]["traceparent"]


# -- progress, logs, cancel --------------------------------------------------------------------------------------------


async def test_progress_is_told_and_grows(client: Client) -> None:
    before, result = await client.told("poet__write", token=7, message="write a b c")
    told = [message["params"] for message in before]
    assert {message["method"] for message in before} == {"notifications/progress"}
    assert {params["progressToken"] for params in told} == {7}
    numbers = [params["progress"] for params in told]
    assert all(earlier < later for earlier, later in itertools.pairwise(numbers))
    reported = [(params["progress"], params.get("total"), params["message"]) for params in told if "message" in params]
    assert [report[1:] for report in reported] == [(3, "writing a"), (3, "writing b"), (3, "writing c")]
    assert result["structuredContent"]["text"] == "a b c "


async def test_logs_come_only_to_sessions_that_asked(client: Client) -> None:
    await client.begin()
    other = Client(client.http)
    await other.begin()
    assert (await client.ask("logging/setLevel", {"level": "debug"}))["result"] == {}
    assert (await client.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
    before, _ = await client.told("poet__write", token=None, message="write a b")
    assert [(m["method"], m["params"]["level"], m["params"]["data"]) for m in before] == [
        ("notifications/message", "info", "writing a"),
        ("notifications/message", "info", "writing b"),
    ]
    before, _ = await other.told("poet__write", message="write a b")
    assert {message["method"] for message in before} == {"notifications/progress"}
    await client.ask("logging/setLevel", {"level": "error"})
    assert (await client.call("poet__write", message="write a"))["isError"] is False


def slow_tool(name: str) -> str:
    begun[name], stopped[name] = asyncio.Event(), asyncio.Event()
    return name_of("slow.one", None)


async def test_canceling_the_request_cancels_the_task(client: Client) -> None:
    await client.begin()
    tool = slow_tool("cancel")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": client.number + 1}}
    stranger = Client(client.http)
    await stranger.begin()
    async with asyncio.timeout(DEADLINE_S), client.streamed(tool, message="cancel") as messages:
        await begun["cancel"].wait()
        await stranger.post(cancel, status=202)
        assert not stopped["cancel"].is_set()
        await client.post(cancel, status=202)
        await stopped["cancel"].wait()
        left = [message async for message in messages]
    assert not [message for message in left if "id" in message]  # 2025-11-25, Cancellation: no response
    await client.post(cancel, status=202)


async def test_leaving_does_not_cancel_and_the_task_can_be_waited_for(hasty: Client) -> None:
    client = hasty
    await client.begin()
    tool = slow_tool("leave")
    async with client.streamed(tool, message="leave") as messages:
        await next_of(messages, "notifications/progress")
    tasks = await listed(client, "slow.one")
    task_id = next(task["id"] for task in tasks if task["status"]["state"] == "TASK_STATE_WORKING")
    result = await client.call(tool, message="", task_id=task_id)
    assert (result["structuredContent"]["state"], result["isError"]) == ("working", False)
    assert result["structuredContent"]["text"] == "so far"
    assert task_id in texts(result)[-1]
    async with asyncio.timeout(DEADLINE_S), client.streamed(tool, message="", task_id=task_id) as messages:
        cancel = {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": task_id, "tenant": "slow.one"}}
        async with client.http.post("/", json=cancel, headers={"A2A-Version": "1.0"}) as answer:
            assert answer.status == 200
        *_, last = [message async for message in messages]
    assert last["result"]["structuredContent"]["state"] == "canceled"
    assert last["result"]["isError"] is True
    ended = await client.call(tool, message="", task_id=task_id)
    assert ended["structuredContent"]["state"] == "canceled"


async def test_who_leaves_while_it_waits_holds_no_place() -> None:
    tool = slow_tool("gone")
    async with server(slow, max_streams=1) as client:
        calling = asyncio.create_task(client.call(tool, message="gone"))
        async with asyncio.timeout(DEADLINE_S):
            await begun["gone"].wait()
            calling.cancel()
            await asyncio.wait([calling])
            (task,) = await listed(client, "slow.one")
            look = {"name": tool, "arguments": {"message": "", "task_id": task["id"]}, "_meta": {"progressToken": 1}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": look}
            while True:
                async with client.http.post("/mcp", json=body, headers=client.headers) as answer:
                    if answer.headers["Content-Type"] == "text/event-stream":
                        break  # until the first has been seen to leave, it is one too many
            assert not stopped["gone"].is_set()


async def listed(client: Client, agent: str) -> list[Any]:
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"tenant": agent}}
    async with client.http.post("/", json=call, headers={"A2A-Version": "1.0"}) as answer:
        tasks: list[Any] = (await answer.json())["result"]["tasks"]
        return tasks


async def test_an_answer_in_one_piece_comes_in_time(hasty: Client) -> None:
    tool = slow_tool("late")
    result = await hasty.call(tool, message="late")
    assert result["structuredContent"]["state"] == "working"
    assert "still working" in texts(result)[-1]


async def test_a_stopping_server_says_how_to_go_on() -> None:
    tool = slow_tool("stop")
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=0.1)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http:
        async with running(config, [slow]) as bound:
            body = {"name": tool, "arguments": {"message": "stop"}, "_meta": {"progressToken": "t"}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}
            answer = await http.post(f"{bound.url}/mcp", json=call, headers={"Accept": BOTH})
            messages = Messages(answer)
            await next_of(messages, "notifications/progress")
        *_, last = [message async for message in messages]
    assert last["result"]["isError"] is False
    assert last["result"]["structuredContent"]["task_id"] in texts(last["result"])[-1]


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_the_result_where_nobody_can_be_asked(client: Client) -> None:
    result = await client.call("poet__write", message="ask so far")
    structured = result["structuredContent"]
    assert result["isError"] is False
    assert (structured["state"], structured["question"], structured["text"]) == (
        "input-required",
        "Which one?",
        "so far ",
    )
    assert structured["task_id"] in texts(result)[-1]
    again = await client.call("poet__write", message="this", task_id=structured["task_id"])
    assert again["structuredContent"]["question"] == "And then?"
    done = await client.call("poet__write", message="that", task_id=structured["task_id"])
    assert done["structuredContent"]["text"] == "so far \n\nthis\n\nthat"


async def test_a_call_is_kept_alive_while_its_agent_does_what_is_not_reported() -> None:
    async with server(busy, keepalive_s=0.05) as client:
        await client.begin(elicitation={})
        async with client.streamed("busy", token=None, message="x") as messages:
            async with asyncio.timeout(DEADLINE_S):
                await messages.answer.content.readuntil(b": keepalive\n")


async def test_the_user_is_asked_with_a_form(client: Client) -> None:
    await client.begin(elicitation={})
    async with client.streamed("poet__write", token=None, message="ask so far") as messages:
        for question, text in (("Which one?", "this"), ("And then?", "that")):
            form = await next_of(messages, "elicitation/create")
            assert form["params"]["message"] == question
            assert form["params"]["requestedSchema"]["required"] == ["answer"]
            answer = {"action": "accept", "content": {"answer": text}}
            reply = {"jsonrpc": "2.0", "id": form["id"], "result": answer}
            await client.post(reply, status=202)
            await client.post(reply, status=202)  # a client that did not see it arrive
        *_, last = [message async for message in messages]
    assert last["result"]["structuredContent"]["text"] == "so far \n\nthis\n\nthat"


@pytest.mark.parametrize("reply", [{"result": {"action": "decline"}}, {"error": {"code": -1, "message": "no"}}])
async def test_a_form_put_away_leaves_the_question_to_the_model(client: Client, reply: Any) -> None:
    await client.begin(elicitation={"form": {}})
    async with client.streamed("poet__write", message="ask so far") as messages:
        form = await next_of(messages, "elicitation/create")
        await client.post({"jsonrpc": "2.0", "id": form["id"], **reply}, status=202)
        *_, last = [message async for message in messages]
    structured = last["result"]["structuredContent"]
    assert (structured["state"], structured["question"]) == ("input-required", "Which one?")


async def test_a_wrong_answer_to_a_form_names_the_field(client: Client) -> None:
    await client.begin(elicitation={})
    async with client.streamed("poet__write", message="ask so far") as messages:
        form = await next_of(messages, "elicitation/create")
        for result, field in (({}, "action"), ({"action": "accept"}, "content"), ({"action": "maybe"}, "action")):
            answer = await client.post({"jsonrpc": "2.0", "id": form["id"], "result": result}, status=400)
            assert answer["error"]["message"].startswith(field)


async def test_an_answer_that_comes_after_the_end_is_left_alone(client: Client) -> None:
    await client.begin(elicitation={})
    number = client.number + 1
    async with client.streamed("poet__write", message="ask so far") as messages:
        form = await next_of(messages, "elicitation/create")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        await client.post(cancel, status=202)
    answer = {"action": "accept", "content": {"answer": "at last"}}
    await client.post({"jsonrpc": "2.0", "id": form["id"], "result": answer}, status=202)
    told = await Client(client.http).call("poet__write", message="", task_id=form["id"].split("/")[0])
    assert told["structuredContent"]["state"] == "canceled"


async def test_a_form_is_no_place_for_a_password(client: Client) -> None:
    await client.begin(elicitation={})
    _, result = await client.told("poet__write", message="auth so far")
    assert result["structuredContent"]["state"] == "auth-required"


@pytest.mark.parametrize("capability", [{"url": {}}, None])
async def test_who_has_no_forms_is_not_asked(client: Client, capability: Any) -> None:
    await client.begin(**({} if capability is None else {"elicitation": capability}))
    _, result = await client.told("poet__write", message="ask so far")
    assert result["structuredContent"]["state"] == "input-required"


# -- who may -----------------------------------------------------------------------------------------------------------


async def test_without_a_key_nobody_comes_in() -> None:
    async with server(poet, at_once, api_key="secret-key-of-all") as client:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": LATEST}}
        await client.post(ping, status=401)
        assert client.answered["WWW-Authenticate"].startswith("Bearer")
        await client.post(ping, Authorization="Bearer secret-key-of-all")


async def test_tools_are_those_of_the_agents_that_the_caller_may_use() -> None:
    entries = (AgentEntry(id="poet", run="m:o", api_key="key-of-the-poet"),)
    async with server(poet, at_once, agents=entries) as client:
        names = [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]]
        assert names == ["at-once"]
        refused = await client.ask("tools/call", {"name": "poet__write", "arguments": {"message": "write"}})
        unknown = await client.ask("tools/call", {"name": "nobody", "arguments": {"message": "write"}})
        assert refused["error"]["code"] == unknown["error"]["code"] == -32602
        client.headers["X-API-Key"] = "key-of-the-poet"
        names = [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]]
        assert names == ["poet__everything", "poet__files", "poet__write"]
        await client.call("poet__write", message="write a")


async def test_what_is_over_a_limit_is_told_to_the_model() -> None:
    async with server(at_once, max_requests_per_s=1) as client:
        results = [await client.call("at-once", message="hi") for _ in range(12)]
        refused = [result for result in results if result["isError"]]
        assert refused
        assert "max_requests_per_s" in texts(refused[0])[0]


@pytest.mark.parametrize("profile", ["kaos", "beeos"])
async def test_a_system_that_has_no_mcp_has_none_here(profile: str) -> None:
    async with server(at_once, profile=profile) as client:
        for method in ("GET", "POST"):
            async with client.http.request(method, "/mcp", json={}) as answer:
                assert answer.status == 404


@pytest.fixture(scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[[str], Client]]:
    """Clients of a server whose callers have keys, by name. `limited` may use one agent, and `reader` only read."""
    url = sqlite_url(tmp_path_factory.mktemp("keyed"))
    limits: dict[str, Any] = {"limited": {"agents": ("at-once",)}, "reader": {"scopes": frozenset({Scope.READ})}}
    keys = await add_keys(url, anna={}, ben={}, **limits)
    async with server(poet, slow, at_once, store=url) as client:
        yield lambda name: Client(client.http, **{"X-API-Key": keys[name]})


async def test_a_strangers_task_is_none(keyed: Callable[[str], Client]) -> None:
    anna, ben = keyed("anna"), keyed("ben")
    await anna.begin(elicitation={})
    ben.headers |= {"Mcp-Session-Id": anna.headers["Mcp-Session-Id"]}  # which he has read somewhere
    number = anna.number + 1
    async with anna.streamed("poet__write", message="ask so far") as messages:
        form = await next_of(messages, "elicitation/create")
        task_id = form["id"].split("/")[0]
        for arguments in ({"message": ""}, {"message": "mine now"}):
            found = await ben.call("poet__write", **arguments, task_id=task_id)
            none = await ben.call("poet__write", **arguments, task_id="nobody")
            assert texts(found) == texts(none) == ["Task not found"]
        reply = {"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {"answer": "his"}}}
        assert await ben.post(reply, status=202) == await ben.post({**reply, "id": "nobody/7"}, status=202)
        await ben.post({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}}, status=202)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        await ben.post(cancel, status=202)
        await anna.post({**reply, "result": {"action": "accept", "content": {"answer": "hers"}}}, status=202)
        form = await next_of(messages, "elicitation/create")
        await anna.post({**reply, "id": form["id"]}, status=202)
        *_, last = [message async for message in messages]
    assert last["result"]["structuredContent"]["text"] == "so far \n\nhers\n\nhis"


async def test_a_key_sees_the_tools_it_may_use(keyed: Callable[[str], Client]) -> None:
    limited, reader = keyed("limited"), keyed("reader")
    names = [tool["name"] for tool in (await limited.ask("tools/list"))["result"]["tools"]]
    assert names == ["at-once"]
    refused = await reader.call("at-once", message="hi")
    assert refused["isError"] is True
    assert "may not send" in texts(refused)[0]
