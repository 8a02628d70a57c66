"""MCP 2026-07-28 and its extension for tasks: a whole server, and what a client without a session sends and reads."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context, Part, Reject, form
from dragoman.config import TeamEntry
from dragoman.model.principal import Scope
from tests.bindings.mcp_client import BOTH as BOTH_TYPES
from tests.bindings.mcp_client import FORMS, WITH_TASKS, Client, Stateless
from tests.kit import places
from tests.kit.places import add_key, add_keys, beside, sqlite_url

DEADLINE_S = 60.0
BOTH = {**FORMS, **WITH_TASKS}
JSON = "application/json"

talker = Agent("talker", description="Asks, answers and fails", restartable=True)


@talker.skill("say")
async def say(ctx: Context) -> AsyncIterator[Any]:
    """Does as the first word says."""
    verb, *words = ctx.text.split()
    match verb:
        case "ask":
            yield f"Hello, {await ctx.ask('Your name?')}"
        case "twice":
            first = await ctx.ask("First?")
            yield f"{first} and {await ctx.ask('Second?')}"
        case "slowly":
            await ctx.progress(1, 2, "at it")
            await asyncio.sleep(float(words[0]))
            yield "done"
        case "ask-slowly":
            await asyncio.sleep(float(words[0]))
            yield f"Hello, {await ctx.ask('Your name?')}"
        case "for-ever":
            try:
                await ctx.status("waiting")
                begun.set()
                await asyncio.Event().wait()
            finally:
                stopped.set()
        case "file":
            yield Part(raw=b"a,b", media_type="text/csv", filename="t.csv")
        case "auth":
            yield await ctx.require_auth("Log in")
        case "fail":
            await ctx.fail("no luck")
        case "reject":
            raise Reject("not in the mood")
        case "crash":
            raise RuntimeError("secret")
        case _:
            yield f"you said {ctx.text}"


long = Agent("long", description="Takes long")


@long.skill("work", tags=["task-only"])
async def work(ctx: Context) -> str:
    """Works."""
    return f"worked on {ctx.text}"


whole = Agent("whole", streams=False)


@whole.skill
async def wholly(ctx: Context) -> str:
    """Answers in one piece."""
    return f"you said {await ctx.ask('What?')}"


late = Agent("late", deadline_s=1.0)


@late.skill
async def work_on(ctx: Context) -> None:
    """Takes longer than it may."""
    await asyncio.Event().wait()


begun, stopped = asyncio.Event(), asyncio.Event()
SERVED = (talker, long, whole, late)


@asynccontextmanager
async def server(*agents: Agent, **settings: Any) -> AsyncIterator[Any]:
    usual = {"mcp_task_after_s": 0.6, "cancel_grace_s": 0.1, "keepalive_s": 0.1}
    async with places.server(*(agents or SERVED), **{**usual, **settings}) as http:
        yield http


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[Any]:
    async with server() as place:
        yield place


@pytest.fixture
def plain(http: Any) -> Stateless:
    """A client that can do nothing but call."""
    return Stateless(http)


@pytest.fixture
def asking(http: Any) -> Stateless:
    """A client that shows forms."""
    return Stateless(http, FORMS)


@pytest.fixture
def tasked(http: Any) -> Stateless:
    """A client that shows forms and knows tasks."""
    return Stateless(http, BOTH)


def filled(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


# -- the core ----------------------------------------------------------------------------------------------------------


async def test_the_server_says_what_it_can_do(plain: Stateless) -> None:
    told = await plain.result("server/discover")
    assert told["resultType"] == "complete"
    assert told["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]
    assert told["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert told["capabilities"]["tools"] == {"listChanged": True}
    assert (told["ttlMs"], told["cacheScope"]) == (60_000, "public")


async def test_a_call_needs_nothing_before_it(plain: Stateless) -> None:
    result = await plain.call("talker", {"message": "hi"})
    assert (result["resultType"], result["isError"]) == ("complete", False)
    assert result["structuredContent"]["text"] == "you said hi"
    assert "Mcp-Session-Id" not in plain.answered


async def test_tools_say_how_long_they_may_be_kept(plain: Stateless) -> None:
    told = await plain.result("tools/list")
    assert [tool["name"] for tool in told["tools"]] == ["late", "long", "talker", "whole"]
    assert (told["resultType"], told["ttlMs"], told["cacheScope"]) == ("complete", 60_000, "private")


@pytest.mark.parametrize(
    "gone", ["initialize", "ping", "logging/setLevel", "tasks/list", "tasks/result", "prompts/list"]
)
async def test_methods_of_other_versions_are_not_found(tasked: Stateless, gone: str) -> None:
    assert (await tasked.refused(gone, status=404))["code"] == -32601


META = "io.modelcontextprotocol/"


@pytest.mark.parametrize(
    ("meta", "named"),
    [
        ({f"{META}protocolVersion": None}, "protocolVersion"),
        ({f"{META}clientCapabilities": None}, "clientCapabilities"),
        ({f"{META}clientCapabilities": []}, "clientCapabilities"),
        ({f"{META}logLevel": "loud"}, "logLevel"),
        ({"progressToken": 1.5}, "progressToken"),
    ],
)
async def test_a_request_says_what_it_must(plain: Stateless, meta: Any, named: str) -> None:
    error = await plain.refused("server/discover", {"_meta": meta})
    assert error["code"] in (-32602, -32600)
    assert named in error["message"]


async def test_a_request_without_meta_names_what_is_missing(plain: Stateless) -> None:
    headers = {**plain.headers, "Mcp-Method": "tools/list"}
    body = {"jsonrpc": "2.0", "id": "x", "method": "tools/list"}
    async with plain.http.post("/mcp", json=body, headers=headers) as answer:
        assert answer.status == 400
        told = await answer.json()
    assert (told["id"], told["error"]["code"]) == ("x", -32602)
    assert "params._meta" in told["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": None},
        {"Mcp-Name": "long"},
        {"Mcp-Name": "=?base64?bG9u!?="},
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": "2025-11-25"},
    ],
)
async def test_headers_say_what_the_body_says(plain: Stateless, headers: dict[str, str | None]) -> None:
    error = await plain.refused("tools/call", {"name": "talker", "arguments": {"message": "hi"}}, **headers)
    assert error["code"] == -32020


async def test_a_name_may_come_in_base64(plain: Stateless) -> None:
    name = f"=?base64?{base64.b64encode(b'talker').decode()}?="
    answer = await plain.ask("tools/call", {"name": "talker", "arguments": {"message": "hi"}}, **{"Mcp-Name": name})
    assert answer["result"]["structuredContent"]["text"] == "you said hi"


async def test_a_version_of_the_future_is_told_which_are_spoken(plain: Stateless) -> None:
    meta = {f"{META}protocolVersion": "2027-01-01"}
    error = await plain.refused("tools/list", {"_meta": meta}, **{"MCP-Protocol-Version": "2027-01-01"})
    assert error["code"] == -32022
    assert error["data"]["requested"] == "2027-01-01"
    assert error["data"]["supported"][0] == "2026-07-28"


async def test_sessions_work_beside_it(plain: Stateless) -> None:
    client = Client(plain.http)
    await client.begin()
    assert (await client.call("talker", message="hi"))["structuredContent"]["text"] == "you said hi"
    # The words of a meta field in an argument are no meta field.
    told = await client.call("talker", message=f"about {META}protocolVersion")
    assert "resultType" not in told


async def test_a_stream_of_a_session_or_its_end_is_not_of_this_version(plain: Stateless) -> None:
    for method in ("GET", "DELETE"):
        async with plain.http.request(method, "/mcp", headers=plain.headers) as answer:
            assert answer.status == 405


async def test_notifications_mean_nothing_and_answers_are_refused(plain: Stateless) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with plain.http.post("/mcp", json=note, headers=plain.headers) as answer:
        assert answer.status == 202
    async with plain.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "result": {}}, headers=plain.headers) as answer:
        assert answer.status == 400


async def test_progress_and_log_messages_come_when_the_request_asks(plain: Stateless) -> None:
    params = {"name": "talker", "arguments": {"message": "slowly 0.05"}}
    async with plain.streamed("tools/call", {**params, "_meta": {"progressToken": "p"}}) as messages:
        *before, last = [message async for message in messages]
    assert before[0]["params"] | {"progress": 1, "total": 2, "message": "at it"} == before[0]["params"]
    assert {message["method"] for message in before} == {"notifications/progress"}
    assert last["result"]["structuredContent"]["text"] == "done"
    status = {"name": "talker", "arguments": {"message": "slowly 0.05"}}
    async with plain.streamed("tools/call", {**status, "_meta": {f"{META}logLevel": "info"}}) as messages:
        *before, last = [message async for message in messages]
    assert {message["method"] for message in before} == {"notifications/message"}


async def test_arguments_are_refused_so_that_a_model_can_correct_them(plain: Stateless) -> None:
    result = await plain.call("talker", {"massage": "hi"})
    assert (result["resultType"], result["isError"]) == ("complete", True)
    assert "arguments.massage" in result["content"][0]["text"]
    assert (await plain.refused("tools/call", {"name": "nobody", "arguments": {}}))["code"] == -32602


async def test_the_end_of_an_agent_is_a_result_and_that_by_the_server_an_error(plain: Stateless) -> None:
    for verb in ("fail", "reject", "crash"):
        result = await plain.call("talker", {"message": verb})
        assert result["isError"] is True
        assert "secret" not in str(result)
    error = await plain.refused("tools/call", {"name": "late", "arguments": {"message": "go"}}, status=200)
    assert error["code"] == -32603
    assert "deadline_s" in error["message"]
    assert error["data"]["task_id"]


async def test_files_come_as_in_every_version(plain: Stateless) -> None:
    result = await plain.call("talker", {"message": "file"})
    assert result["content"][0]["resource"]["text"] == "a,b"


# -- notifications -----------------------------------------------------------------------------------------------------


async def test_who_listens_says_for_what(plain: Stateless) -> None:
    assert (await plain.refused("subscriptions/listen"))["code"] == -32602
    told = await plain.refused("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
    assert told["code"] == -32021
    assert told["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    async with plain.streamed("subscriptions/listen", {"notifications": {"promptsListChanged": True}}) as messages:
        assert (await anext(messages))["params"]["notifications"] == {}


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_a_form_and_its_answer_goes_on_with_the_call(asking: Stateless) -> None:
    asked = await asking.call("talker", {"message": "ask"})
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["answer"]["method"] == "elicitation/create"
    assert asked["inputRequests"]["answer"]["params"]["message"] == "Your name?"
    assert "taskId" not in asked
    responses = {"answer": filled(answer="Ada"), "another": filled(x=1)}
    result = await asking.call(
        "talker", {"message": "ask"}, inputResponses=responses, requestState=asked["requestState"]
    )
    assert result["structuredContent"]["text"] == "Hello, Ada"


async def test_questions_follow_each_other(asking: Stateless) -> None:
    asked = await asking.call("talker", {"message": "twice"})
    again = await asking.call(
        "talker", {}, inputResponses={"answer": filled(answer="one")}, requestState=asked["requestState"]
    )
    assert again["requestState"] != asked["requestState"]
    assert again["inputRequests"]["answer"]["params"]["message"] == "Second?"
    # The first answer once more, because its result was lost: nothing is answered twice.
    repeated = await asking.call(
        "talker", {}, inputResponses={"answer": filled(answer="other")}, requestState=asked["requestState"]
    )
    assert repeated["inputRequests"]["answer"]["params"]["message"] == "Second?"
    result = await asking.call(
        "talker", {}, inputResponses={"answer": filled(answer="two")}, requestState=repeated["requestState"]
    )
    assert result["structuredContent"]["text"] == "one and two"


async def test_what_is_not_filled_in_is_asked_again(asking: Stateless) -> None:
    asked = await asking.call("talker", {"message": "ask"})
    for responses in ({}, {"wrong": filled(answer="x")}):
        again = await asking.call("talker", {}, inputResponses=responses, requestState=asked["requestState"])
        assert list(again["inputRequests"]) == ["answer"]
    params = {"name": "talker", "arguments": {}, "requestState": asked["requestState"]}
    for wrong, named in ((7, "inputResponses.answer"), (filled(answer=7), "content.answer"), ({}, "action")):
        error = await asking.refused("tools/call", {**params, "inputResponses": {"answer": wrong}})
        assert (error["code"], named in error["message"]) == (-32602, True)


async def test_a_dismissed_form_leaves_the_question_to_the_model(asking: Stateless) -> None:
    asked = await asking.call("talker", {"message": "ask"})
    told = await asking.call(
        "talker", {}, inputResponses={"answer": {"action": "decline"}}, requestState=asked["requestState"]
    )
    assert told["structuredContent"]["state"] == "input-required"
    task_id = told["structuredContent"]["task_id"]
    result = await asking.call("talker", {"message": "Ada", "task_id": task_id})
    assert result["structuredContent"]["text"] == "Hello, Ada"


async def test_a_client_without_forms_is_told_the_question(plain: Stateless) -> None:
    told = await plain.call("talker", {"message": "ask"})
    assert told["resultType"] == "complete"
    assert told["structuredContent"]["question"] == "Your name?"


async def test_an_agent_in_one_piece_asks_too(asking: Stateless) -> None:
    asked = await asking.call("whole", {"message": "go"})
    result = await asking.call(
        "whole", {}, inputResponses={"answer": filled(answer="this")}, requestState=asked["requestState"]
    )
    assert result["structuredContent"]["text"] == "you said this"


async def test_a_state_is_of_one_caller_and_one_tool_and_not_forged(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    keys = await add_keys(url, ada={}, bob={})
    async with server(store=url) as http:
        hers, his = (Stateless(http, BOTH, Authorization=f"Bearer {keys[name]}") for name in ("ada", "bob"))
        asked = await hers.call("talker", {"message": "ask"})
        state, answer = asked["requestState"], {"answer": filled(answer="x")}
        for client, tool, shown in (
            (his, "talker", state),
            (hers, "whole", state),
            (hers, "talker", f"{state}-TAMPERED"),
            (hers, "talker", state[:-1] + ("A" if state[-1] != "A" else "B")),
            (hers, "talker", "x"),
        ):
            error = await client.refused(
                "tools/call", {"name": tool, "arguments": {}, "requestState": shown, "inputResponses": answer}
            )
            assert (error["code"], "requestState" in error["message"]) == (-32602, True)
        result = await hers.call("talker", {}, requestState=state, inputResponses=answer)
        assert result["structuredContent"]["text"] == "Hello, x"


async def test_a_state_outlives_the_server(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    async with server(store=url) as http:
        asked = await Stateless(http, FORMS).call("talker", {"message": "ask"})
    async with server(store=url) as http:
        result = await Stateless(http, FORMS).call(
            "talker", {}, requestState=asked["requestState"], inputResponses={"answer": filled(answer="Ada")}
        )
    assert result["structuredContent"]["text"] == "Hello, Ada"


# -- tasks -------------------------------------------------------------------------------------------------------------


async def test_a_call_that_ends_soon_is_no_task(tasked: Stateless) -> None:
    result = await tasked.call("talker", {"message": "hi"})
    assert (result["resultType"], "taskId" in result) == ("complete", False)


async def test_a_call_that_works_on_becomes_a_task(tasked: Stateless) -> None:
    handle = await tasked.call("talker", {"message": "slowly 1.5"}, task={"ttl": 1})
    assert (handle["resultType"], handle["status"]) == ("task", "working")
    assert not {"result", "error", "inputRequests", "requestState", "content"} & set(handle)
    assert handle["ttlMs"] > 0
    assert handle["pollIntervalMs"] > 0
    task = await tasked.task(handle["taskId"])
    assert (task["resultType"], task["status"], task["statusMessage"]) == ("complete", "working", "at it")
    task = await tasked.task_until(handle["taskId"], "completed")
    assert task["result"]["structuredContent"]["text"] == "done"
    assert (task["result"]["isError"], task["result"]["resultType"]) == (False, "complete")
    assert task["ttlMs"] >= 30 * 86_400_000


async def test_a_stream_ends_with_the_task(tasked: Stateless) -> None:
    params = {"name": "talker", "arguments": {"message": "slowly 1.5"}, "_meta": {"progressToken": 1}}
    async with tasked.streamed("tools/call", params) as messages:
        *before, last = [message async for message in messages]
    assert last["result"]["resultType"] == "task"
    assert before[0]["method"] == "notifications/progress"
    assert (await tasked.task_until(last["result"]["taskId"], "completed"))["status"] == "completed"


async def test_nobody_is_told_of_a_task_who_did_not_say_that_it_knows_them(plain: Stateless, asking: Stateless) -> None:
    for client in (plain, asking):
        result = await client.call("talker", {"message": "slowly 1.5"})
        assert result["resultType"] == "complete"
        assert result["structuredContent"]["text"] == "done"
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = await plain.refused(method, {"taskId": "x", "inputResponses": {}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


async def test_one_request_may_say_it_for_itself(plain: Stateless) -> None:
    meta = {f"{META}clientCapabilities": WITH_TASKS}
    handle = await plain.call("talker", {"message": "slowly 1.5"}, _meta=meta)
    assert handle["resultType"] == "task"


async def test_a_skill_may_be_called_as_a_task_only(plain: Stateless, tasked: Stateless) -> None:
    error = await plain.refused("tools/call", {"name": "long", "arguments": {"message": "it"}})
    assert error["code"] == -32021
    handle = await tasked.call("long", {"message": "it"})
    assert handle["resultType"] == "task"
    task = await tasked.task_until(handle["taskId"], "completed")
    assert task["result"]["structuredContent"]["text"] == "worked on it"
    session = Client(plain.http)
    await session.begin()
    assert (await session.call("long", message="it"))["structuredContent"]["text"] == "worked on it"


async def test_at_once_every_call_is_a_task() -> None:
    async with server(mcp_task_after_s=0) as http:
        tasked = Stateless(http, BOTH)
        handle = await tasked.call("talker", {"message": "hi"})
        assert handle["resultType"] == "task"
        task = await tasked.task_until(handle["taskId"], "completed")
        assert task["result"]["structuredContent"]["text"] == "you said hi"
        assert (await Stateless(http).call("talker", {"message": "hi"}))["resultType"] == "complete"


async def test_a_task_asks_and_is_answered(tasked: Stateless) -> None:
    handle = await tasked.call("talker", {"message": "ask-slowly 1.5"})
    task = await tasked.task_until(handle["taskId"], "input_required")
    ((key, form),) = task["inputRequests"].items()
    assert form["params"]["message"] == "Your name?"
    for responses in ({}, {"answer.old": filled(answer="x")}, {"answer": filled(answer="x")}):
        update = {"taskId": handle["taskId"], "inputResponses": responses}
        assert (await tasked.result("tasks/update", update))["resultType"] == "complete"
        assert (await tasked.task(handle["taskId"]))["status"] == "input_required"
    update = {"taskId": handle["taskId"], "inputResponses": {key: filled(answer="Ada")}}
    acknowledged = await tasked.result("tasks/update", update)
    assert set(acknowledged) == {"resultType", "_meta"}
    assert set(await tasked.result("tasks/update", update)) == {"resultType", "_meta"}
    task = await tasked.task_until(handle["taskId"], "completed")
    assert task["result"]["structuredContent"]["text"] == "Hello, Ada"


async def test_a_question_before_the_task_comes_with_the_call(tasked: Stateless) -> None:
    asked = await tasked.call("talker", {"message": "ask"})
    assert asked["resultType"] == "input_required"


async def test_a_dismissed_form_of_a_task_ends_the_call_with_the_question(tasked: Stateless) -> None:
    handle = await tasked.call("talker", {"message": "ask-slowly 1.5"})
    task = await tasked.task_until(handle["taskId"], "input_required")
    (key,) = task["inputRequests"]
    await tasked.result("tasks/update", {"taskId": handle["taskId"], "inputResponses": {key: {"action": "cancel"}}})
    task = await tasked.task(handle["taskId"])
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"]["state"] == "input-required"


async def test_the_ends_of_tasks() -> None:
    async with server(mcp_task_after_s=0) as http:
        tasked = Stateless(http, BOTH)
        for verb, status, fault in (
            ("fail", "completed", True),
            ("reject", "completed", True),
            ("crash", "completed", True),
            ("auth", "completed", False),
            ("late", "failed", None),
        ):
            handle = await tasked.call("late" if verb == "late" else "talker", {"message": verb})
            task = await tasked.task_until(handle["taskId"], "completed", "failed")
            assert task["status"] == status
            if fault is None:
                assert task["error"]["code"] == -32603
                assert "result" not in task
            else:
                assert task["result"]["isError"] is fault


async def test_a_task_is_canceled_and_what_has_ended_stays(tasked: Stateless) -> None:
    begun.clear()
    stopped.clear()
    handle = await tasked.call("talker", {"message": "for-ever"})
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    acknowledged = await tasked.result("tasks/cancel", {"taskId": handle["taskId"]})
    assert set(acknowledged) == {"resultType", "_meta"}
    await asyncio.wait_for(stopped.wait(), DEADLINE_S)
    task = await tasked.task(handle["taskId"])
    assert (task["status"], "result" in task) == ("cancelled", False)
    assert set(await tasked.result("tasks/cancel", {"taskId": handle["taskId"]})) == {"resultType", "_meta"}


async def test_an_id_that_nobody_was_told_finds_nothing(tasked: Stateless) -> None:
    handle = await tasked.call("talker", {"message": "slowly 1.5"})
    task_id, _, tag = handle["taskId"].rpartition(".")
    assert len(tag) * 6 >= 128
    for guessed in (task_id, f"{task_id}.", f"{task_id}.{'A' * len(tag)}", "x", "ä", "x.y"):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            headers = {"Mcp-Name": f"=?base64?{base64.b64encode(guessed.encode()).decode()}?="}
            error = await tasked.refused(method, {"taskId": guessed, "inputResponses": {}}, **headers)
            assert (error["code"], "no such task" in error["message"]) == (-32602, True)


async def test_a_task_is_its_owners_alone(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    keys = await add_keys(url, ada={}, bob={})
    async with server(store=url) as http:
        hers, his = (Stateless(http, BOTH, Authorization=f"Bearer {keys[name]}") for name in ("ada", "bob"))
        handle = await hers.call("talker", {"message": "ask-slowly 1.5"})
        task = await hers.task_until(handle["taskId"], "input_required")
        (key,) = task["inputRequests"]
        responses = {"inputResponses": {key: filled(answer="Bob")}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await his.refused(method, {"taskId": handle["taskId"], **responses}))["code"] == -32602
        assert (await hers.task(handle["taskId"]))["status"] == "input_required"


@pytest.mark.parametrize("shared", ["read", "all"])
async def test_forms_are_filled_in_or_dismissed_by_those_alone_who_may_answer(tmp_path: Path, shared: Any) -> None:
    """A colleague who may read the task, or a key that may only read, changes nothing of the question."""
    url = sqlite_url(tmp_path)
    one = {"team": "one"}
    async with beside(url) as store:
        ada, bob = [(await add_key(store, name, **one))[1] for name in ("ada", "bob")]
        _, reader = await add_key(store, "ada", **one, scopes=(Scope.READ,))
    async with server(store=url, teams=(TeamEntry(id="one", shared=shared),)) as http:
        hers, his, read = (Stateless(http, BOTH, Authorization=f"Bearer {key}") for key in (ada, bob, reader))
        handle = await hers.call("talker", {"message": "ask-slowly 1.0"})
        task = await hers.task_until(handle["taskId"], "input_required")
        (key,) = task["inputRequests"]
        dismissed = {"taskId": handle["taskId"], "inputResponses": {key: {"action": "cancel"}}}
        for other in (read, his) if shared == "read" else (read,):
            assert (await other.task(handle["taskId"]))["status"] == "input_required"
            await other.refused("tasks/update", dismissed, status=403)
        assert (await hers.task(handle["taskId"]))["status"] == "input_required"
        if shared == "all":
            await his.result("tasks/update", dismissed)
            assert (await hers.task(handle["taskId"]))["status"] == "completed"


async def test_a_task_goes_on_at_another_server_of_the_store(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    async with server(store=url) as http:
        handle = await Stateless(http, BOTH).call("talker", {"message": "ask-slowly 1.5"})
        await Stateless(http, BOTH).task_until(handle["taskId"], "input_required")
    async with server(store=url) as http:
        tasked = Stateless(http, BOTH)
        task = await tasked.task(handle["taskId"])
        (key,) = task["inputRequests"]
        update = {"taskId": handle["taskId"], "inputResponses": {key: filled(answer="Ada")}}
        await tasked.result("tasks/update", update)
        task = await tasked.task_until(handle["taskId"], "completed")
    assert task["result"]["structuredContent"]["text"] == "Hello, Ada"


async def test_one_of_several_answers_counts_and_all_learn_what_came_of_it(tasked: Stateless) -> None:
    asked = await tasked.call("talker", {"message": "ask"})
    state = {"requestState": asked["requestState"]}
    results = await asyncio.gather(
        *(tasked.call("talker", {}, inputResponses={"answer": filled(answer=name)}, **state) for name in "abcd")
    )
    assert len({result["structuredContent"]["text"] for result in results}) == 1
    handle = await tasked.call("talker", {"message": "ask-slowly 1"})
    (key,) = (await tasked.task_until(handle["taskId"], "input_required"))["inputRequests"]
    updates = [{"taskId": handle["taskId"], "inputResponses": {key: filled(answer=name)}} for name in "abcd"]
    await asyncio.gather(*(tasked.result("tasks/update", update) for update in updates))
    task = await tasked.task_until(handle["taskId"], "completed")
    assert task["result"]["structuredContent"]["text"] in {f"Hello, {name}" for name in "abcd"}


async def test_an_answer_never_answers_the_next_question(tasked: Stateless) -> None:
    asked = await tasked.call("talker", {"message": "twice"})
    state = {"requestState": asked["requestState"]}
    results = await asyncio.gather(
        *(tasked.call("talker", {}, inputResponses={"answer": filled(answer=name)}, **state) for name in "abcd")
    )
    assert {result["resultType"] for result in results} == {"input_required"}
    assert {form["params"]["message"] for result in results for form in result["inputRequests"].values()} == {"Second?"}


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_a_call_counts_as_a_task_of_its_caller() -> None:
    async with server(max_open_tasks=1) as http:
        tasked = Stateless(http, BOTH)
        handle = await tasked.call("talker", {"message": "for-ever"})
        for client in (tasked, Stateless(http)):
            refused = await client.call("talker", {"message": "hi"})
            assert (refused["resultType"], refused["isError"]) == ("complete", True)
            assert "max_open_tasks" in refused["content"][0]["text"]
            assert client.answered["Retry-After"]
        await tasked.result("tasks/cancel", {"taskId": handle["taskId"]})
        assert (await tasked.call("talker", {"message": "hi"}))["isError"] is False


async def test_a_repeated_call_finds_its_task(tasked: Stateless) -> None:
    params = {"name": "talker", "arguments": {"message": "for-ever"}}
    handles = [(await tasked.ask("tools/call", params, **{"Idempotency-Key": "again"}))["result"] for _ in range(2)]
    assert len({handle["taskId"] for handle in handles}) == 1
    await tasked.result("tasks/cancel", {"taskId": handles[0]["taskId"]})


async def test_what_is_filled_in_is_bounded() -> None:
    async with server(max_text=100) as http:
        asking = Stateless(http, FORMS)
        asked = await asking.call("talker", {"message": "ask"})
        answer = {"answer": filled(answer="x" * 101)}
        params = {"name": "talker", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answer}
        assert (await asking.refused("tools/call", params))["code"] == -32602


async def test_one_caller_has_so_many_streams_of_notifications() -> None:
    async with server(max_streams=1) as http:
        client = Stateless(http)
        params = {"notifications": {"toolsListChanged": True}}
        async with client.streamed("subscriptions/listen", params):
            assert (await client.refused("subscriptions/listen", params, status=429))["code"] == -32000


# -- callers that leave ------------------------------------------------------------------------------------------------


async def leave(client: Stateless, *, streamed: bool, **headers: str) -> None:
    """Call, and leave when the agent works on it."""
    meta = {"_meta": {"progressToken": 1}} if streamed else {}
    body, usual = client.message("tools/call", {"name": "talker", "arguments": {"message": "for-ever"}, **meta})
    begun.clear()
    stopped.clear()

    async def call() -> None:
        async with client.http.post("/mcp", json=body, headers={**usual, **headers}) as answer:
            await answer.read()

    calling = asyncio.create_task(call())
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


@pytest.mark.parametrize("accept", [{}, {"Accept": JSON}])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_caller_who_leaves_cancels_the_call(
    plain: Stateless, accept: dict[str, str], *, streamed: bool
) -> None:
    await leave(plain, streamed=streamed, **accept)
    await asyncio.wait_for(stopped.wait(), DEADLINE_S)


async def test_a_silent_call_becomes_a_stream_that_no_proxy_takes_for_dead(plain: Stateless) -> None:
    body, headers = plain.message("tools/call", {"name": "talker", "arguments": {"message": "slowly 0.5"}})
    for accept, kind, kept_alive in ((BOTH_TYPES, "text/event-stream", True), (JSON, JSON, False)):
        async with plain.http.post("/mcp", json=body, headers={**headers, "Accept": accept}) as answer:
            raw = await answer.text()
        assert answer.headers["Content-Type"] == kind
        assert raw.startswith(":") == kept_alive
        assert '"text":"done"' in raw


async def test_a_call_that_will_be_repeated_goes_on(plain: Stateless) -> None:
    key = {"Idempotency-Key": "once"}
    await leave(plain, streamed=False, **key)
    await asyncio.sleep(0.3)
    assert not stopped.is_set()


# -- arguments and forms of one's own ----------------------------------------------------------------------------------

FIELDS = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "depth": {"type": "integer", "x-mcp-header": "Depth"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["region"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
CONSENT = {"type": "object", "properties": {"ok": {"type": "boolean"}}}

typed = Agent("typed", description="Takes fields")


@typed.skill("look", input_schema=FIELDS)
async def look(ctx: Context) -> dict[str, Any]:
    """Tells what it was given."""
    return {"given": ctx.data, "context": ctx.context_id}


@typed.skill("person", input_schema={"type": "object"})
async def person(ctx: Context) -> dict[str, Any]:
    """Asks for a person."""
    await asyncio.sleep(float(ctx.data.get("after_s", 0)))
    answer = await ctx.ask(["Who?", form(PERSON, name="person")])
    return {"answer": answer.data}


@typed.skill("both", input_schema={"type": "object"})
async def both(ctx: Context) -> dict[str, Any]:
    """Asks for two things at once."""
    await asyncio.sleep(float(ctx.data.get("after_s", 0)))
    answer = await ctx.ask(["Who?", form(PERSON, name="person"), "Really?", form(CONSENT, name="consent")])
    return {"answer": answer.data}


@pytest.fixture
async def fields() -> AsyncIterator[Stateless]:
    async with server(typed) as http:
        yield Stateless(http, BOTH)


def given(result: Any) -> Any:
    return result["structuredContent"]["data"][0]


async def test_a_skill_takes_the_arguments_that_it_declares(fields: Stateless) -> None:
    tool = next(tool for tool in (await fields.result("tools/list"))["tools"] if tool["name"] == "typed__look")
    assert tool["inputSchema"] == FIELDS
    headers = {"Mcp-Param-Region": "=?base64?bm9yZA==?=", "Mcp-Param-Depth": "3.0"}
    arguments = {"region": "nord", "depth": 3, "tags": ["x"]}
    answer = await fields.ask("tools/call", {"name": "typed__look", "arguments": arguments}, **headers)
    assert given(answer["result"])["given"] == arguments
    context = given(answer["result"])["context"]
    session = Client(fields.http)
    await session.begin()
    again = await session.call("typed__look", region="süd", context_id=context)
    assert (given(again)["given"], given(again)["context"]) == ({"region": "süd"}, context)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "arguments.region"),
        ({"region": 1}, "arguments.region"),
        ({"region": "x", "depth": "deep"}, "arguments.depth"),
        ({"region": "x", "depth": True}, "arguments.depth"),
        ({"region": "x", "kind": "c"}, "arguments.kind"),
        ({"region": "x", "tags": ["a", 1]}, "arguments.tags[1]"),
        ({"region": "x", "other": 1}, "arguments.other"),
    ],
)
async def test_what_does_not_fit_is_named(fields: Stateless, arguments: dict[str, Any], named: str) -> None:
    session = Client(fields.http)
    result = (await session.ask("tools/call", {"name": "typed__look", "arguments": arguments}))["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(f"{named}: ")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Mcp-Param-Region": "sud"},
        {"Mcp-Param-Region": "=?base64?bm9yZA?="},
        {"Mcp-Param-Region": "nord", "Mcp-Param-Depth": "3"},
    ],
)
async def test_headers_repeat_the_arguments_that_the_schema_names(
    fields: Stateless, headers: dict[str, str | None]
) -> None:
    error = await fields.refused("tools/call", {"name": "typed__look", "arguments": {"region": "nord"}}, **headers)
    assert (error["code"], "Mcp-Param-" in error["message"]) == (-32020, True)


async def test_a_question_may_ask_for_fields(fields: Stateless) -> None:
    asked = await fields.call("typed__person")
    assert asked["inputRequests"] == {
        "person": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who?", "requestedSchema": PERSON},
        }
    }
    params = {"name": "typed__person", "arguments": {}, "requestState": asked["requestState"]}
    wrong = {"inputResponses": {"person": filled(name=1)}}
    assert "content.name" in (await fields.refused("tools/call", {**params, **wrong}))["message"]
    result = await fields.result("tools/call", {**params, "inputResponses": {"person": filled(name="Ada", age=36)}})
    assert given(result) == {"answer": {"name": "Ada", "age": 36}}


async def test_a_question_may_ask_for_several_things(fields: Stateless) -> None:
    asked = await fields.call("typed__both")
    assert {key: form["params"]["message"] for key, form in asked["inputRequests"].items()} == {
        "person": "Who?",
        "consent": "Really?",
    }
    params = {"name": "typed__both", "arguments": {}, "requestState": asked["requestState"]}
    again = await fields.result("tools/call", {**params, "inputResponses": {"person": filled(name="Ada")}})
    assert list(again["inputRequests"]) == ["consent"]
    params["requestState"] = again["requestState"]
    result = await fields.result("tools/call", {**params, "inputResponses": {"consent": filled(ok=True)}})
    assert given(result) == {"answer": {"person": {"name": "Ada"}, "consent": {"ok": True}}}


async def test_the_forms_of_a_task_are_filled_in_one_by_one(fields: Stateless) -> None:
    handle = await fields.call("typed__both", {"after_s": 1.5})
    task = await fields.task_until(handle["taskId"], "input_required")
    first, second = task["inputRequests"]
    update = {"taskId": handle["taskId"], "inputResponses": {second: filled(ok=False)}}
    await fields.result("tasks/update", update)
    task = await fields.task(handle["taskId"])
    assert (task["status"], list(task["inputRequests"])) == ("input_required", [first])
    await fields.result(
        "tasks/update", {**update, "inputResponses": {second: filled(ok=True), first: filled(name="A")}}
    )
    task = await fields.task_until(handle["taskId"], "completed")
    assert given(task["result"]) == {"answer": {"person": {"name": "A"}, "consent": {"ok": False}}}


async def test_in_a_session_one_form_has_all_fields(fields: Stateless) -> None:
    session = Client(fields.http)
    await session.begin(elicitation={})
    async with session.streamed("typed__both", token=None) as messages:
        question = await anext(messages)
        schema = question["params"]["requestedSchema"]
        assert list(schema["properties"]) == ["person.name", "person.age", "consent.ok"]
        assert schema["required"] == ["person.name"]
        content = {"person.name": "Ada", "consent.ok": True}
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}}
        await session.post(answer, status=202)
        *_, last = [message async for message in messages]
    assert given(last["result"]) == {"answer": {"person": {"name": "Ada"}, "consent": {"ok": True}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"a.b": {"type": "string"}}},
        {"type": "object", "properties": {"a": 1}},
    ],
)
def test_a_form_has_plain_fields(schema: Any) -> None:
    with pytest.raises(ValueError, match="schema"):
        form(schema)


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, []])
def test_the_arguments_of_a_skill_are_an_object(schema: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="input_schema"):
        Agent("x").skill("y", input_schema=schema)(look)
