"""Refused callers: 401, 403 and 429 in each dialect's own words, with the headers that say what to do."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dragoman.config.budgets import Budget
from dragoman.model.ids import SystemClock
from dragoman.model.principal import KeyLimits, Scope
from dragoman.model.task import Usage
from dragoman.store.usage import AnswerUsage, used_by_answer
from tests.bindings.mcp_client import Client as McpClient
from tests.kit.places import beside, calling
from tests.spec.proto import V1
from tests.systems.conftest import Json, Site, Told
from tests.systems.grpc_speakers import OVER_GRPC, GrpcSpeaker
from tests.systems.keyed import Holder, House, keyed

V = {"a2a_version": "1.0"}
ID = "as-sent"
HOLDERS = {
    "anna": Holder(name="anna"),
    "stranger": Holder(name="stranger", limits={"agents": ("other",)}),
    "reader": Holder(name="reader", limits={"scopes": (Scope.READ,)}),
}


class Tongue(Struct, frozen=True, kw_only=True):
    """How a dialect sends, and how it says 401 (of nothing, and of a wrong key), 403 and 429.

    `known` says that its JSON-RPC errors come with the caller's id, once that is known.
    """

    name: str
    path: str
    body: Json
    stream: Json
    missing: Callable[[Json], object]
    wrong: Callable[[Json], object]
    forbidden: Callable[[Json], object]
    too_many: Callable[[Json], object]
    stream_path: str = ""
    headers: Mapping[str, str] = {}

    async def send(self, served: Site) -> Told:
        """A send that makes a task and waits for it."""
        return await served.post(self.path, self.body, **self.headers)


def rpc(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": ID, "method": method, "params": params}


def said(tag: str | None, text: str = "ask", **more: Any) -> Json:
    """A message to an agent that asks back, so that its task stays open."""
    part = {"text": text} if tag is None else {tag: "text", "text": text}
    return {"message": {"role": "user", "parts": [part], "messageId": "m", **more}}


def over_rpc(tag: str | None, send: str = "message/send", stream: str = "message/stream", **more: Any) -> Json:
    return {"body": rpc(send, said(tag, **more)), "stream": rpc(stream, said(tag, "wait limits", **more))}


def is_rpc(code: int, reason: str = "") -> Callable[[Json], object]:
    """A JSON-RPC error; with a reason where the dialect has one."""

    def check(body: Json) -> object:
        assert (body["jsonrpc"], body["error"]["code"]) == ("2.0", code), body
        assert body["id"] in (None, ID)
        assert reason in str(body["error"].get("data")), body
        return True

    return check


def is_1(reason: str) -> Callable[[Json], object]:
    def check(body: Json) -> object:
        V1.check("RpcError", body["error"])
        assert body["error"]["data"][0]["reason"] == reason, body
        return is_rpc(-32000)(body)

    return check


def is_1_rest(status: int, reason: str) -> Callable[[Json], object]:
    def check(body: Json) -> object:
        V1.check("HttpError", body)
        return (body["error"]["code"], body["error"]["status"]) == (status, reason)

    return check


def is_03_rest(reason: str) -> Callable[[Json], object]:
    return lambda body: list(body)[:3] == ["type", "code", "message"] and body["data"]["reason"] == reason


def is_beeos(word: str) -> Callable[[Json], object]:
    return lambda body: body["success"] is False and body["error"]["code"] == word and body["error"]["message"]


def is_detail(text: str = "", start: str = "") -> Callable[[Json], object]:
    return lambda body: list(body) == ["detail"] and (body["detail"] == text if text else body["detail"][:9] == start)


def is_openai(code: str) -> Callable[[Json], object]:
    return lambda body: list(body["error"]) == ["message", "type", "param", "code"] and body["error"]["code"] == code


def chat(*, stream: bool, text: str = "ask") -> Json:
    return {"model": "desk", "messages": [{"role": "user", "content": text}], "stream": stream}


PASCAL = ("SendMessage", "SendStreamingMessage")
MESSAGE_03 = {"messageId": "m", "role": "ROLE_USER"}
TONGUES = (
    Tongue(
        name="1.0",
        path="/agents/desk",
        **over_rpc(None, *PASCAL, role="ROLE_USER"),
        missing=is_1("UNAUTHENTICATED"),
        wrong=is_1("UNAUTHENTICATED"),
        forbidden=is_1("PERMISSION_DENIED"),
        too_many=is_1("RESOURCE_EXHAUSTED"),
        headers=V,
    ),
    Tongue(
        name="1.0 REST",
        path="/agents/desk/message:send",
        stream_path="/agents/desk/message:stream",
        body=said(None, role="ROLE_USER"),
        stream=said(None, "wait limits", role="ROLE_USER"),
        missing=is_1_rest(401, "UNAUTHENTICATED"),
        wrong=is_1_rest(401, "UNAUTHENTICATED"),
        forbidden=is_1_rest(403, "PERMISSION_DENIED"),
        too_many=is_1_rest(429, "RESOURCE_EXHAUSTED"),
        headers=V,
    ),
    Tongue(
        name="0.3",
        path="/agents/desk",
        **over_rpc("kind", kind="message"),
        missing=is_rpc(-32000, "Unauthorized"),
        wrong=is_rpc(-32000, "Unauthorized"),
        forbidden=is_rpc(-32000, "Forbidden"),
        too_many=is_rpc(-32000, "TooManyRequests"),
    ),
    Tongue(
        name="0.3 REST",
        path="/agents/desk/v1/message:send",
        stream_path="/agents/desk/v1/message:stream",
        body={"message": {**MESSAGE_03, "content": [{"text": "ask"}]}},
        stream={"message": {**MESSAGE_03, "content": [{"text": "wait limits"}]}},
        missing=is_03_rest("Unauthorized"),
        wrong=is_03_rest("Unauthorized"),
        forbidden=is_03_rest("Forbidden"),
        too_many=is_03_rest("TooManyRequests"),
    ),
    Tongue(
        name="BeeOS",
        path="/desk",
        **over_rpc("kind", *PASCAL),
        missing=is_beeos("missing_token"),
        wrong=is_beeos("unauthorized"),
        forbidden=is_beeos("forbidden"),
        too_many=is_rpc(-32029, "rate_limited"),
        headers=V,
    ),
    Tongue(
        name="KAOS",
        path="/",
        **over_rpc("type", "SendMessage", ""),
        missing=is_rpc(-32000),
        wrong=is_rpc(-32000),
        forbidden=is_rpc(-32600),
        too_many=is_rpc(-32000),
    ),
    Tongue(
        name="Evo AI",
        path="/api/v1/a2a/desk",
        **over_rpc("type"),
        missing=is_detail("API key not provided"),
        wrong=is_detail("Invalid API key"),
        forbidden=is_detail(start="this key "),
        too_many=is_rpc(-32000, "max_"),
    ),
    Tongue(
        name="protoAgent",
        path="/a2a",
        **over_rpc(None),
        missing=is_detail("Unauthorized: expected 'Authorization: Bearer <token>'"),
        wrong=is_detail("Unauthorized"),
        forbidden=is_detail(start="Forbidden"),
        too_many=is_rpc(-32000, "TooManyRequests"),
    ),
    Tongue(
        name="chat",
        path="/v1/chat/completions",
        body=chat(stream=False),
        stream=chat(stream=True, text="wait limits"),
        missing=is_openai("invalid_api_key"),
        wrong=is_openai("invalid_api_key"),
        forbidden=is_openai("permission_denied"),
        too_many=is_openai("rate_limit_exceeded"),
    ),
)
each_tongue = pytest.mark.parametrize("tongue", TONGUES, ids=lambda tongue: tongue.name)


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with keyed(tmp_path_factory.mktemp("limits"), HOLDERS) as running:
        yield running


@each_tongue
async def test_who_does_not_say_who_it_is(house: House, tongue: Tongue) -> None:
    told = await tongue.send(house.site)
    assert (told.status, told.headers["WWW-Authenticate"]) == (401, 'Bearer realm="dragoman"')
    assert tongue.missing(told.body), told


@each_tongue
async def test_a_key_that_is_none(house: House, tongue: Tongue) -> None:
    wrong = house.keys["anna"][:-1] + ("A" if not house.keys["anna"].endswith("A") else "B")
    for key in (wrong, "dgm_none", "x" * 5000):
        told = await tongue.send(house.site.by(key))
        assert told.status == 401
        assert told.headers["WWW-Authenticate"] == 'Bearer realm="dragoman", error="invalid_token"'
        assert tongue.wrong(told.body), told
        assert key.encode() not in told.raw


@each_tongue
@pytest.mark.parametrize("holder", ["stranger", "reader"])
async def test_a_key_that_is_not_for_that(house: House, tongue: Tongue, holder: str) -> None:
    told = await tongue.send(house.by(holder))
    assert (told.status, "Retry-After" in told.headers) == (403, False)
    assert tongue.forbidden(told.body), told


@each_tongue
@pytest.mark.parametrize(
    ("setting", "most"), [("max_requests_per_s", 1), ("max_open_tasks", 1), ("max_daily_tasks", 1)]
)
async def test_one_too_many(tmp_path: Path, tongue: Tongue, setting: str, most: int) -> None:
    """It says which limit, and when to come back; others are not affected."""
    async with keyed(tmp_path, {"anna": Holder(name="anna"), "ben": Holder(name="ben")}, **{setting: most}) as house:
        told = await tongue.send(house.by("anna"))
        for _ in range(20):
            if told.status == 429:
                break
            told = await tongue.send(house.by("anna"))
        assert told.status == 429, told
        assert int(told.headers["Retry-After"]) >= 1
        assert setting in told.raw.decode(), told
        assert tongue.too_many(told.body), told
        assert "429" not in str((await tongue.send(house.by("ben"))).status)


@each_tongue
@pytest.mark.parametrize("limit", ["max_requests_per_s", "max_open_tasks", "max_daily_tasks", "max_daily_tokens"])
async def test_one_more_than_a_key_may(tmp_path: Path, tongue: Tongue, limit: str) -> None:
    """The limit of a key takes the place of the setting. Other callers go by the setting."""
    holders = {
        "anna": Holder(name="anna", limits={"limits": KeyLimits(**{limit: 1})}),
        "ben": Holder(name="ben"),
    }
    settings = {} if limit == "max_daily_tokens" else {limit: 1000}
    async with keyed(tmp_path, holders, **settings) as house:
        anna = house.by("anna")
        first = await tongue.send(anna)
        assert first.status == 200, first
        if limit == "max_daily_tokens":
            async with beside(house.store) as store:
                used = used_by_answer(Usage.of(1, 0), 0)
                store.usage.gather(AnswerUsage("key:anna", "desk", SystemClock().now_ms(), used))
        told = first
        for _ in range(20):
            if told.status == 429:
                break
            told = await tongue.send(anna)
        assert told.status == 429, told
        assert int(told.headers["Retry-After"]) >= 1
        assert limit in told.raw.decode(), told
        assert tongue.too_many(told.body), told
        for _ in range(3):
            assert (await tongue.send(house.by("ben"))).status == 200


@pytest.mark.parametrize("tongue", [each for each in TONGUES if each.name != "KAOS"], ids=lambda tongue: tongue.name)
async def test_a_stream_too_many(tmp_path: Path, tongue: Tongue) -> None:
    async with keyed(tmp_path, {"anna": Holder(name="anna")}, max_streams=1) as house, AsyncExitStack() as stack:
        anna, path = house.by("anna"), tongue.stream_path or tongue.path
        open_one = await stack.enter_async_context(anna.flow(path, tongue.stream, **tongue.headers))
        assert open_one.answer.content_type == "text/event-stream"
        told = await anna.post(path, tongue.stream, **tongue.headers)
        assert told.status == 429, told
        assert int(told.headers["Retry-After"]) >= 1
        assert "max_streams" in told.raw.decode()
        assert tongue.too_many(told.body), told
        anna.open("limits")


# -- budgets: at every door -------------------------------------------------------------------------------------------

RESPONSES = Tongue(
    name="responses",
    path="/v1/responses",
    body={"model": "desk", "input": "ask"},
    stream={},
    missing=is_openai("invalid_api_key"),
    wrong=is_openai("invalid_api_key"),
    forbidden=is_openai("permission_denied"),
    too_many=is_openai("insufficient_quota"),
)
QUOTA = {
    "Evo AI": is_rpc(-32000, "daily"),
    "chat": is_openai("insufficient_quota"),
    "responses": is_openai("insufficient_quota"),
}
DAILY = Budget(id="daily", unit="tasks", limit=1, per="key", agent="desk", period="day")
FOR_GOOD = Budget(id="for-good", unit="tasks", limit=1, key="forever", period="forever")


@pytest.fixture(scope="module")
async def budgeted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server on which each caller may make one task a day, and one of them a single one."""
    names = [tongue.name for tongue in (*TONGUES, RESPONSES)] + ["1.0 gRPC", "0.3 gRPC", "MCP", "forever"]
    holders = {name: Holder(name=name.replace(" ", "-")) for name in names}
    folder = tmp_path_factory.mktemp("budgeted")
    async with keyed(folder, holders, budgets=(FOR_GOOD, DAILY)) as running:
        yield running


@pytest.mark.parametrize("tongue", [*TONGUES, RESPONSES], ids=lambda tongue: tongue.name)
async def test_a_used_up_budget(budgeted: House, tongue: Tongue) -> None:
    caller = budgeted.by(tongue.name)
    assert (await tongue.send(caller)).status == 200
    told = await tongue.send(caller)
    assert told.status == 429, told
    assert 1 <= int(told.headers["Retry-After"]) <= 3600
    assert "the budget is used up until " in told.raw.decode()
    assert "(daily)" in told.raw.decode()
    assert QUOTA.get(tongue.name, tongue.too_many)(json.loads(told.raw.replace(b"BudgetExhausted", b"TooManyRequests")))


async def test_a_budget_that_does_not_reset_says_no_time(budgeted: House) -> None:
    """Whatever the door, nobody is told to come again."""
    caller = budgeted.by("forever")
    for tongue in (TONGUES[0], *TONGUES, RESPONSES):
        told = await tongue.send(caller)
        if told.status == 200:
            continue
        assert (told.status, "Retry-After" in told.headers) == (429, False), told
        assert "(for-good)" in told.raw.decode()
        assert "retryAfterS" not in told.raw.decode()
        assert "RetryInfo" not in told.raw.decode()


@pytest.mark.parametrize("speaker", OVER_GRPC, ids=lambda speaker: speaker.name)
async def test_a_used_up_budget_over_grpc(budgeted: House, speaker: GrpcSpeaker) -> None:
    caller = budgeted.by(f"{speaker.lane.version} gRPC")
    await speaker.call(caller, "send", speaker.said("ask"))
    with pytest.raises(AssertionError, match="daily") as refused:
        await speaker.call(caller, "send", speaker.said("ask"))
    assert "RESOURCE_EXHAUSTED" in str(refused.value) or "429" in str(refused.value)


async def test_a_used_up_budget_over_mcp(budgeted: House) -> None:
    async with calling(budgeted.site.url) as http:
        await _use_up_over_mcp(McpClient(http, **{"X-API-Key": budgeted.keys["MCP"]}))


async def _use_up_over_mcp(client: McpClient) -> None:
    await client.begin()
    tools = (await client.ask("tools/list"))["result"]["tools"]
    tool = next(tool["name"] for tool in tools if tool["name"].startswith("desk"))
    await client.call(tool, message="ask")
    refused = await client.call(tool, message="ask")
    assert (refused["isError"], "(daily)" in refused["content"][0]["text"]) == (True, True), refused
