"""The checks of an upstream before anything is sent to it: by `agents check`, and by `/ready`."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from dragoman.client import ApiKey, connect
from dragoman.client.retries import Retries
from dragoman.engine.api import CheckResult
from dragoman.server import serving
from tests.kit.places import asked
from tests.kit.values import text_of
from tests.kit.web import web_site
from tests.systems.test_upstream import CONFIG, DEADLINE_S, partner

Json = dict[str, Any]
KEY = "k-1234567890abcdef"


def card_naming(url: str, **more: Any) -> Any:
    """A route with a card that names an endpoint; `url` may be below the server of the card."""

    async def card(request: web.Request) -> web.Response:
        at = url or f"http://{request.host}/rpc"
        interface = {"url": at, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": "Theirs", "supportedInterfaces": [interface], **more})

    return web.get("/.well-known/agent-card.json", card)


class Agent:
    """An endpoint that wants a key, if there is one, and knows no task; `asked` are the methods."""

    def __init__(self, key: str = "") -> None:
        self.asked: list[str] = []
        self._key = key

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body["method"])
        if self._key and request.headers.get("x-api-key") != self._key:
            return web.Response(status=401)
        error = {"code": -32001, "message": "Task not found"}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})


async def complete(request: web.Request) -> web.Response:
    return web.json_response({"choices": [{"message": {"content": "Said by chat."}}]})


COMPLETES = web.post("/v1/chat/completions", complete)


async def findings(agent: Any) -> list[CheckResult]:
    async with asyncio.timeout(DEADLINE_S):
        return [finding async for finding in agent.check()]


async def degraded(agent: Any) -> Json:
    async with asyncio.timeout(DEADLINE_S), serving(CONFIG, [agent]) as url, aiohttp.ClientSession() as http:
        return await of_ready(http, url)


async def of_ready(http: aiohttp.ClientSession, url: str) -> Json:
    async with http.get(f"{url}/ready") as answer:
        found: Json = (await answer.json()).get("degraded", {})
        return found


async def test_an_agent_that_answers_is_asked_for_a_task_and_sent_nothing() -> None:
    agent = Agent()
    async with web_site(card_naming(""), web.post("/rpc", agent.answer)) as url:
        found = await findings(partner(url))
        assert [finding.ok for finding in found] == [True, True, True]
        assert agent.asked == ["GetTask"]
        assert await degraded(partner(url)) == {}
        assert agent.asked == ["GetTask"]


async def test_an_address_that_is_not_called_is_named_with_the_key_that_allows_it() -> None:
    async with web_site(card_naming("http://10.1.2.3/rpc")) as url:
        (found,) = await findings(partner(url))
        assert not found.ok
        assert found.what.startswith("its card names an address that is not called from here: http://10.1.2.3:80/rpc: ")
        assert "a private address" in found.what
        assert "`origins`" in found.fix
        assert await degraded(partner(url)) == {"partner": "its card names an address that is not called from here"}


async def test_an_endpoint_that_does_not_answer_is_named() -> None:
    async with web_site(card_naming("http://127.0.0.1:9/rpc")) as url:
        agent = {"origins": ("http://127.0.0.1:9",)}
        (found,) = await findings(partner(url, **agent))
        assert (found.ok, found.what.partition(":")[0]) == (False, "its endpoint does not answer")
        assert await degraded(partner(url, **agent)) == {"partner": "its endpoint does not answer"}


async def test_the_places_where_a_card_was_looked_for_are_told_on_one_line() -> None:
    async with web_site() as url:
        (found,) = await findings(partner(url))
        assert "\n" not in found.what
        at = f"{url}/.well-known/agent"
        assert f"Tried: {at}-card.json: HTTP status 404; {at}.json: HTTP status 404" in found.what


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("body", ["", '{"error": "busy"}', '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000}}'])
async def test_an_agent_that_takes_nothing_at_present_is_named(status: int, body: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={"Retry-After": "77"}, content_type="application/json")

    async with web_site(card_naming(""), web.post("/rpc", refuse)) as url:
        (found,) = await findings(partner(url))
        assert (found.ok, found.what.partition(":")[0]) == (False, "it takes no tasks at present")
        assert "try again" in found.fix


@pytest.mark.parametrize("key", ["", "another-key-1234567"])
async def test_an_agent_that_does_not_let_us_in_is_named(key: str) -> None:
    agent = Agent(KEY)
    credentials = {"make_credentials": lambda _: ApiKey(key)} if key else {}
    async with web_site(card_naming(""), web.post("/rpc", agent.answer)) as url:
        (found,) = await findings(partner(url, **credentials))
        assert (found.ok, found.fix[:31]) == (False, "see whether `credentials` are r")
        assert found.what.startswith("it does not let this server in: ")
        assert KEY not in found.what
        assert all(finding.ok for finding in await findings(partner(url, make_credentials=lambda _: ApiKey(KEY))))
        assert "SendMessage" not in agent.asked


async def test_ready_says_that_sends_are_not_let_in_until_one_is() -> None:
    agent = Agent(KEY)
    async with (
        web_site(card_naming(""), web.post("/rpc", agent.answer)) as url,
        serving(CONFIG, [partner(url)]) as front,
        connect(f"{front}/agents/partner", retries=Retries(attempts=1)) as connection,
        aiohttp.ClientSession() as http,
    ):
        assert await of_ready(http, front) == {}
        await asked(connection, "hello")
        assert await of_ready(http, front) == {"partner": "it does not let this server in"}


@pytest.mark.parametrize("routes", [(), (card_naming(""),)], ids=["no card", "no A2A where the card says"])
async def test_an_agent_of_chat_completions_only_works_and_is_said_to(routes: tuple[Any, ...]) -> None:
    async with web_site(COMPLETES, *routes) as url:
        found = await findings(partner(url))
        assert all(finding.ok for finding in found), found
        assert "it is spoken to by chat completions" in " ".join(finding.what for finding in found)
        assert await degraded(partner(url)) == {}
        async with serving(CONFIG, [partner(url)]) as front, connect(f"{front}/agents/partner") as connection:
            assert text_of(await asked(connection, "hello")) == "Said by chat."


async def test_chat_completions_that_do_not_let_us_in_are_no_agent_that_works() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401)

    async with web_site(web.route("*", "/v1/{path:.*}", refuse)) as url:
        assert [finding.ok for finding in await findings(partner(url))] == [False]


@pytest.mark.parametrize(("body", "ok"), [("<!DOCTYPE html>", False), ('{"usage": "POST a message"}', True)])
async def test_a_page_where_chat_completions_would_be_is_no_agent(body: str, *, ok: bool) -> None:
    async def show(request: web.Request) -> web.Response:
        return web.Response(text=body)

    async with web_site(web.get("/v1/chat/completions", show)) as url:
        assert [finding.ok for finding in await findings(partner(url))] == [True] * 3 if ok else [False]


async def test_an_endpoint_that_is_nowhere_is_named() -> None:
    async with web_site(card_naming("")) as url:
        (found,) = await findings(partner(url))
        assert (found.ok, found.what.partition(":")[0]) == (False, "there is no agent where it is called")


async def test_a_card_without_text_is_said_to_be_sent_text() -> None:
    agent = Agent()
    card = card_naming("", defaultInputModes=["application/json"])
    async with web_site(card, web.post("/rpc", agent.answer)) as url:
        found = await findings(partner(url))
        assert all(finding.ok for finding in found)
        assert "takes application/json only: text is sent to it nevertheless" in found[-1].what
