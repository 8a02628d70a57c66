"""`GET /agents`: which of the agents here can do what; and messages that go to whoever can."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Struct

from dragoman import Agent, Context
from dragoman.config import AgentEntry, Config
from dragoman.model.principal import Scope
from dragoman.server import serving
from tests.kit.places import V1, add_keys, server, sqlite_url

DEADLINE_S = 60.0
KEYS = (AgentEntry(id="desk", run="", api_key="desk-key"), AgentEntry(id="weather", run="", api_key="weather-key"))


Json = dict[str, Any]


def agents() -> list[Agent]:
    desk = Agent("desk", description="Answers everybody")
    weather = Agent("weather", name="Weather", description="Forecasts for any city")
    travel = Agent("travel", description="Books journeys")
    dice = Agent("dice", description="Throws dice")

    @desk.skill("talk")
    async def talk(ctx: Context) -> str:
        """Small talk."""
        return "desk"

    @weather.skill("forecast", name="Forecast", tags=["Sky"])
    async def forecast(ctx: Context) -> str:
        """Says whether it will rain, in Zürich as well."""
        if ctx.text == "ask":
            return f"weather in {await ctx.ask('Which city?')}"
        return "weather"

    @weather.skill("hidden", extended=True)
    async def hidden(ctx: Context) -> None:
        """Nobody sees this."""

    @travel.skill("book", tags=["train", "plane"])
    async def book(ctx: Context) -> str:
        """Books a seat."""
        return "travel"

    for other in (travel, dice):

        @other.skill("common")
        async def common(ctx: Context) -> None:
            """Both have this one."""

    return [desk, weather, travel, dice]


class Site(Struct):
    http: aiohttp.ClientSession

    async def agents(self, query: str = "", **headers: str) -> tuple[int, Json, str]:
        async with self.http.get(f"/agents{query}", headers=headers) as answer:
            body = await answer.json() if answer.status != 304 else {}
            return answer.status, body, answer.headers.get("ETag", "")

    async def found(self, query: str) -> list[str]:
        status, body, _ = await self.agents(query)
        assert status == 200, body
        return [agent["id"] for agent in body["agents"]]

    async def rpc(self, method: str, params: Json, path: str = "/", **headers: str) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.post(path, json=body, headers=headers) as answer:
            return dict(await answer.json(content_type=None))

    async def rest(self, verb: str, path: str, body: Json | None = None, **headers: str) -> tuple[int, Json]:
        async with self.http.request(verb, path, json=body, headers={**V1, **headers}) as answer:
            return answer.status, await answer.json(content_type=None)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with server(*agents()) as http:
        yield Site(http)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", ["desk", "weather", "travel", "dice"]),
        ("?skill=forecast", ["weather"]),
        ("?skill=FORE", ["weather"]),
        ("?skill=sky%20rain", ["weather"]),
        ("?skill=sky%20train", []),
        ("?skill=z%C3%BCrich", ["weather"]),
        ("?skill=hidden", []),
        ("?skill=journeys", []),
        ("?q=journeys", ["travel"]),
        ("?q=journeys+PLANE", ["travel"]),
        ("?q=books", ["travel"]),
        ("?q=common&skill=train", ["travel"]),
        ("?q=nobody", []),
        ("?q=+&skill=", ["desk", "weather", "travel", "dice"]),
    ],
)
async def test_agents_are_found_by_what_their_cards_say(site: Site, query: str, ids: list[str]) -> None:
    assert await site.found(query) == ids


async def test_a_page_says_how_many_there_are(site: Site) -> None:
    _, body, _ = await site.agents("?limit=2&offset=1")
    assert [agent["id"] for agent in body["agents"]] == ["weather", "travel"]
    assert (body["total"], body["limit"], body["offset"]) == (4, 2, 1)
    assert body["agents"][0]["skills"] == [{"id": "forecast", "name": "Forecast", "tags": ["Sky"]}]
    assert await site.found("?offset=9") == []


@pytest.mark.parametrize("query", ["?limit=0", "?limit=x", "?limit=1001", "?offset=-1", "?offset=%D9%A1", "?limit="])
async def test_a_page_that_is_none_is_refused(site: Site, query: str) -> None:
    status, body, _ = await site.agents(query)
    assert status == 400
    assert query[1:].split("=")[0] in str(body)


async def test_each_query_has_its_own_tag(site: Site) -> None:
    _, _, everything = await site.agents()
    _, _, one = await site.agents("?skill=forecast")
    assert everything != one
    headers = {"If-None-Match": one}
    assert (await site.agents("?skill=forecast", **headers))[0] == 304
    assert (await site.agents("", **headers))[0] == 200


async def test_a_search_finds_what_the_cards_show_to_its_caller(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await add_keys(store, all={}, few={"agents": ("weather",)}, sender={"scopes": (Scope.SEND,)})
    async with server(*agents(), store=store) as http:
        site = Site(http)

        async def found(query: str, name: str) -> list[str]:
            status, body, _ = await site.agents(query, **({"x-api-key": keys[name]} if name else {}))
            assert status == 200, body
            return [agent["id"] for agent in body["agents"]]

        every = ["desk", "weather", "travel", "dice"]
        assert [await found("", name) for name in ("", "all", "few")] == [every] * 3
        assert [await found("?skill=hidden", name) for name in ("", "all", "few", "sender")] == [
            [],
            ["weather"],
            ["weather"],
            [],
        ]
        assert [await found("?q=common", name) for name in ("", "all", "few")] == [["travel", "dice"]] * 2 + [[]]
        assert (await site.agents("?q=common", **{"x-api-key": "dgo_wrong"}))[0] == 401
        async with http.get("/agents?q=common", headers={"x-api-key": keys["few"]}) as answer:
            assert answer.headers["Cache-Control"].startswith("private")
            assert "x-api-key" in answer.headers["Vary"]
        async with http.get("/agents", headers={"x-api-key": keys["few"]}) as answer:
            assert answer.headers["Cache-Control"].startswith("public")
            assert "Vary" not in answer.headers


def said(text: str, **more: Any) -> Json:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **more}


async def test_a_message_to_the_server_goes_to_whoever_alone_has_the_skill(site: Site) -> None:
    """And its caller goes on under the same URL: reads, follows, answers, cancels."""
    task = (await site.rpc("SendMessage", {"message": said("ask"), "metadata": {"skill": "forecast"}}, **V1))["result"]
    task_id = task["task"]["id"]
    assert task["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert (await site.rpc("GetTask", {"id": task_id}, **V1))["result"]["id"] == task_id
    assert (await site.rest("GET", f"/tasks/{task_id}"))[0] == 200
    assert (await site.rest("GET", f"/agents/weather/tasks/{task_id}"))[0] == 200
    assert (await site.rest("GET", f"/agents/desk/tasks/{task_id}"))[0] == 404
    assert (await site.rest("GET", f"/agents/travel/tasks/{task_id}"))[0] == 404
    async with site.http.get(f"/tasks/{task_id}:subscribe", headers=V1) as stream:
        assert stream.status == 200
        assert task_id.encode() in await stream.content.readline() + await stream.content.readline()
    status, answered = await site.rest("POST", "/message:send", {"message": said("Lyon", taskId=task_id)})
    assert status == 200
    assert answered["task"]["artifacts"][0]["parts"] == [{"text": "weather in Lyon"}]
    task = (await site.rpc("SendMessage", {"message": said("ask"), "metadata": {"skill": "forecast"}}, **V1))["result"]
    assert (await site.rest("POST", f"/tasks/{task['task']['id']}:cancel", {}))[0] == 200


async def test_a_task_that_was_not_made_at_the_root_is_not_found_there(site: Site) -> None:
    _, made = await site.rest("POST", "/agents/weather/message:send", {"message": said("hi")})
    assert (await site.rest("GET", f"/tasks/{made['task']['id']}"))[0] == 404


async def test_03_and_kaos_find_the_skill_too(site: Site) -> None:
    message = {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    params = {"message": message, "metadata": {"skill": "forecast"}}
    made = (await site.rpc("message/send", params))["result"]
    assert made["artifacts"][0]["parts"] == [{"kind": "text", "text": "weather"}]
    assert (await site.rpc("tasks/get", {"id": made["id"]}))["result"]["id"] == made["id"]
    params = {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "metadata": {"skill": "forecast"}}
    made = (await site.rpc("SendMessage", params))["result"]
    assert made["output"] == "weather"
    assert (await site.rpc("GetTask", {"id": made["id"]}))["result"]["output"] == "weather"


async def test_protoagent_finds_the_skill_too(site: Site) -> None:
    """And its caller goes on under the same URL, also below it; under the root that task is not known."""
    params = {"message": {"role": "user", "parts": [{"text": "ask"}]}, "metadata": {"skill": "forecast"}}
    made = (await site.rpc("message/send", params, "/a2a"))["result"]
    assert made["status"]["state"] == "input-required"
    task_id = made["id"]
    assert (await site.rpc("tasks/get", {"id": task_id}, "/a2a"))["result"]["id"] == task_id
    assert (await site.rest("GET", f"/a2a/tasks/{task_id}"))[1]["id"] == task_id
    assert "error" in await site.rpc("tasks/get", {"id": task_id})
    params = {"message": {"role": "user", "taskId": task_id, "parts": [{"text": "Lyon"}]}}
    answered = (await site.rpc("message/send", params, "/a2a"))["result"]
    assert answered["artifacts"][0]["parts"][0]["text"] == "weather in Lyon"
    assert "error" in await site.rpc("tasks/get", {"id": task_id}, "/agents/desk")
    assert (await site.rpc("tasks/get", {"id": task_id}, "/agents/weather"))["result"]["id"] == task_id


async def test_the_default_agent_comes_first_and_what_nobody_can_is_refused_as_ever(site: Site) -> None:
    own = await site.rpc("SendMessage", {"message": said("hi"), "metadata": {"skill": "talk"}}, **V1)
    assert own["result"]["task"]["artifacts"][0]["parts"] == [{"text": "desk"}]
    for skill, word in (("unknown", "desk has no skill"), ("common", "travel, dice"), ("hidden", "desk has no skill")):
        refused = await site.rpc("SendMessage", {"message": said("hi"), "metadata": {"skill": skill}}, **V1)
        assert refused["error"]["code"] == -32602
        assert word in str(refused["error"])
    refused = await site.rpc(
        "SendMessage", {"message": said("hi"), "metadata": {"skill": "forecast"}}, "/agents/desk", **V1
    )
    assert refused["error"]["code"] == -32602


async def test_a_key_finds_what_it_is_for() -> None:
    """Another's task is not found, also when its agent could be."""
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, agents=KEYS)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with serving(config, agents()) as url, aiohttp.ClientSession(url, timeout=timeout) as http:
        site = Site(http)
        body = {"message": said("hi"), "metadata": {"skill": "forecast"}}
        weather, desk = {"x-api-key": "weather-key"}, {"x-api-key": "desk-key"}
        status, made = await site.rest("POST", "/message:send", body, **weather)
        assert status == 200
        task_id = made["task"]["id"]
        assert (await site.rest("GET", f"/tasks/{task_id}", **weather))[0] == 200
        assert (await site.rest("GET", f"/tasks/{task_id}", **desk))[0] == 404
        assert (await site.rest("POST", "/message:send", body, **desk))[0] == 400
        unknown = await site.rpc("GetTask", {"id": "unknown"}, **desk)
        foreign = await site.rpc("GetTask", {"id": task_id}, **desk)
        assert {**foreign, "error": str(foreign["error"]).replace(task_id, "unknown")} == {
            **unknown,
            "error": str(unknown["error"]),
        }
