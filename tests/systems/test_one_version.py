"""An agent that is served in one version only: its card lists it, calls in the other are refused, vendors are not."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman import Agent
from dragoman.client import NoInterface, connect
from dragoman.server import serving
from tests.kit.agents import echoing
from tests.systems.conftest import CONFIG, Gates, Json, Site

SEND_1 = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
SEND_03 = {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
V1, V03 = {"a2a_version": "1.0"}, {"a2a_version": "0.3"}


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Site]:
    agents = [echoing("new", versions=("1.0",)), echoing("old", versions=("0.3",))]
    async with serving(CONFIG, agents) as url, aiohttp.ClientSession() as http:
        yield Site(url, http, Gates())


async def card_at(served: Site, mount: str) -> Json:
    return dict((await served.ask("GET", f"{mount}/.well-known/agent-card.json")).body)


def listed(card: Json) -> set[tuple[str, str]]:
    return {(each["protocolBinding"], each["protocolVersion"]) for each in card["supportedInterfaces"]}


@pytest.mark.parametrize(("agent", "version"), [("new", "1.0"), ("old", "0.3")])
async def test_the_card_lists_only_that_version(served: Site, agent: str, version: str) -> None:
    card = await card_at(served, f"/agents/{agent}")
    assert listed(card) == {("JSONRPC", version), ("HTTP+JSON", version)}
    assert ("protocolVersion" in card) == (version == "0.3")
    for given, binding in (({}, "JSONRPC"), ({"binding": "HTTP+JSON"}, "HTTP+JSON")):
        async with connect(f"{served.url}/agents/{agent}", **given) as connection:
            assert (connection.interface.dialect, connection.interface.binding) == (version, binding)
    other = {"1.0": "0.3", "0.3": "1.0"}[version]
    with pytest.raises(NoInterface, match=f"it offers JSONRPC in version {version}, HTTP.JSON in version {version};"):
        async with connect(f"{served.url}/agents/{agent}", version=other):
            pass


async def test_the_other_version_is_not_supported_over_either_binding(served: Site) -> None:
    told = await served.rpc("/agents/new", "message/send", SEND_03, **V03)
    assert (told.error["code"], "use 1.0" in told.error["message"]) == (-32009, True)
    told = await served.rpc("/agents/new", "message/send", SEND_03)
    assert told.error["code"] == -32009
    told = await served.ask("POST", "/agents/new/v1/message:send", SEND_03)
    assert (told.status, told.body["code"]) == (400, -32009)
    told = await served.rpc("/agents/old", "SendMessage", SEND_1, **V1)
    assert (told.error["code"], "use 0.3" in told.error["message"]) == (-32009, True)
    told = await served.ask("POST", "/agents/old/message:send", SEND_1, **V1)
    assert (told.status, told.body["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")
    assert (await served.rpc("/agents/new", "SendMessage", SEND_1, **V1)).result["task"]
    assert (await served.rpc("/agents/old", "message/send", SEND_03)).result["kind"] == "task"


async def test_a_tenant_of_one_version_is_of_one_version(served: Site) -> None:
    told = await served.rpc("/", "SendMessage", {**SEND_1, "tenant": "old"}, **V1)
    assert told.error["code"] == -32009
    assert (await served.rpc("/", "message/send", SEND_03)).error["code"] == -32009  # `new` answers at the root


@pytest.mark.parametrize("agent", ["new", "old"])
async def test_vendors_are_served_whatever_the_versions(served: Site, agent: str) -> None:
    beeos = {"message": {"role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
    evo = {"message": {"role": "user", "messageId": "m", "parts": [{"type": "text", "text": "hi"}]}}
    assert (await served.rpc(f"/{agent}", "SendMessage", beeos, **V1)).result["status"]["state"] == "completed"
    path = f"/api/v1/a2a/{agent}"
    assert (await served.rpc(path, "message/send", evo)).result["status"]["state"] == "completed"
    assert (await card_at(served, path))["url"].endswith(path)
    kaos: dict[str, Any] = {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
    assert (await served.rpc("/", "SendMessage", kaos)).result["status"]["state"] == "completed"
    assert (await served.rpc("/a2a", "message/send", evo)).result["status"]["state"] == "completed"
    assert (await card_at(served, "/a2a"))["url"].endswith("/a2a")


async def test_a_server_that_is_kaos_says_so_on_its_card_whatever_the_versions() -> None:
    config = replace(CONFIG, profile="kaos")
    async with serving(config, [echoing("new", versions=("1.0",))]) as url, aiohttp.ClientSession() as http:
        assert (await card_at(Site(url, http, Gates()), ""))["supportedProtocols"] == ["jsonrpc"]


@pytest.mark.parametrize("versions", [(), ("2.0",), ("1.0", "0.2")])
def test_versions_that_are_not_known_are_refused(versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"agent a: versions .* must be one or more of 1.0, 0.3"):
        Agent("a", versions=versions)
