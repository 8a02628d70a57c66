"""Cards, the list of agents, health and CORS (A2A 1.0 §4.4, §8.2; A2A 0.3 §5)."""

import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from grpc import aio
from msgspec.structs import replace

from dragoman.dialects.extensions import DEDUPE, DEDUPES, EVENT_ID, EVENT_IDS
from dragoman.server import serving
from tests.spec.agents import OPTIONAL, OTHER, REQUIRED, Gates, house
from tests.spec.caller import DEADLINE_S, Caller, params
from tests.spec.conftest import CHANNEL, CONFIG, House
from tests.spec.lanes import GRPC_03, GRPC_1, REST_03, REST_1, RPC_03, RPC_1, Lane
from tests.spec.proto import V1
from tests.spec.schema import decoded

MOUNTS = ("", "/agents/script", "/script")
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
PATHS = [mount + path for mount, path in itertools.product(MOUNTS, WELL_KNOWN)]

ONLY_03 = {
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
    "security",
    "supportedProtocols",
}
"""The fields that the card has in 0.3 and not in 1.0 (A2A 0.3 §5.5), and those that KAOS looks for."""


async def fetched(served: House, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, bytes]:
    async with served.http.get(served.url + path, headers=headers) as answer:
        return answer, await answer.read()


@pytest.mark.parametrize("path", PATHS)
async def test_a_card_is_at_every_well_known_path_with_what_caches_need(served: House, path: str) -> None:
    """§8.2, §8.6: JSON, an ETag, and how long it may be kept."""
    answer, body = await fetched(served, path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == f"public, max-age={CONFIG.card_max_age_s}"
    assert answer.headers["ETag"].removeprefix("W/").startswith('"')
    assert decoded(body)["name"] == "script"


@pytest.mark.parametrize("mount", MOUNTS)
async def test_both_paths_of_a_mount_have_the_same_card(served: House, mount: str) -> None:
    """Identical content."""
    (first, body), (second, same) = [await fetched(served, mount + path) for path in WELL_KNOWN]
    assert body == same
    assert first.headers["ETag"] == second.headers["ETag"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_card_that_has_not_changed_is_not_sent_again(served: House, path: str) -> None:
    """§8.6, RFC 9110 §13.1.2: `If-None-Match` with its ETag, also as one of several, weak, or `*`: 304 and no body."""
    answer, _ = await fetched(served, path)
    etag = answer.headers["ETag"]
    for known in (etag, f'"other", {etag}', f"W/{etag.removeprefix('W/')}", "*"):
        unchanged, body = await fetched(served, path, **{"If-None-Match": known})
        assert (unchanged.status, body) == (304, b"")
        assert unchanged.headers["ETag"] == etag
        assert "Cache-Control" in unchanged.headers
    changed, body = await fetched(served, path, **{"If-None-Match": '"other"'})
    assert changed.status == 200
    assert body


@pytest.mark.parametrize("path", [*PATHS, "/agents", "/health", "/ready"])
async def test_head_is_get_without_the_body(served: House, path: str) -> None:
    """RFC 9110 §9.3.2."""
    got, body = await fetched(served, path)
    async with served.http.head(served.url + path) as head:
        assert (head.status, await head.read()) == (200, b"")
        assert int(head.headers["Content-Length"]) == len(body)
        assert head.headers.get("ETag") == got.headers.get("ETag")


@pytest.mark.parametrize("mount", MOUNTS)
async def test_a_card_holds_all_of_1_0_by_the_letter(served: House, mount: str) -> None:
    """§4.4.1: without what only 0.3 has, the rest is a 1.0 card; what is declared is in it."""
    card = decoded((await fetched(served, mount + WELL_KNOWN[0]))[1])
    capabilities = card["capabilities"]
    new = {name: value for name, value in card.items() if name not in ONLY_03}
    new["capabilities"] = {name: value for name, value in capabilities.items() if name != "stateTransitionHistory"}
    V1.check("AgentCard", new)
    assert capabilities["streaming"] is True
    assert capabilities["pushNotifications"] is True
    assert capabilities.get("extendedAgentCard", False) is False
    assert [extension["uri"] for extension in capabilities["extensions"]] == [OPTIONAL, OTHER, DEDUPE, EVENT_ID]
    assert not any(extension.get("required") for extension in capabilities["extensions"])
    assert card["version"] == "2.1.0"
    assert card["provider"] == {"url": "https://example.org", "organization": "Example"}
    assert card["documentationUrl"] == "https://example.org/docs"
    assert card["iconUrl"] == "https://example.org/icon.png"
    assert [(skill["id"], skill["name"], skill["tags"]) for skill in card["skills"]] == [("do", "Do", ["test"])]
    assert card["defaultInputModes"]
    assert card["defaultOutputModes"]


@pytest.mark.parametrize("mount", ["", "/agents/script"])
async def test_a_card_is_one_of_0_3_too(served: House, mount: str) -> None:
    """A2A 0.3 §5.5: all that it requires, with the same endpoints."""
    card = decoded((await fetched(served, mount + WELL_KNOWN[1]))[1])
    assert card["protocolVersion"] == "0.3.0"
    assert card["preferredTransport"] == "JSONRPC"
    assert card["capabilities"]["stateTransitionHistory"] is False
    assert card["supportsAuthenticatedExtendedCard"] is False
    additional = {(each["url"], each["transport"]) for each in card["additionalInterfaces"]}
    assert (card["url"], "JSONRPC") in additional
    old = {
        (each["url"], each["protocolBinding"])
        for each in card["supportedInterfaces"]
        if each["protocolVersion"] == "0.3"
    }
    assert additional == old


async def test_what_an_agent_does_not_do_is_in_its_card(served: House) -> None:
    """§4.4.3, §3.3.4: no streaming; a required extension; its own media types."""
    cards = {
        agent: decoded((await fetched(served, f"/agents/{agent}{WELL_KNOWN[0]}"))[1])
        for agent in ("mute", "strict", "plain")
    }
    assert cards["mute"]["capabilities"]["streaming"] is False
    assert cards["strict"]["capabilities"]["extensions"] == [
        {"uri": REQUIRED, "required": True},
        msgspec.to_builtins(DEDUPES),
        msgspec.to_builtins(EVENT_IDS),
    ]
    assert cards["plain"]["defaultInputModes"] == cards["plain"]["defaultOutputModes"] == ["text/plain"]


@pytest.mark.parametrize("mount", MOUNTS)
async def test_every_interface_of_a_card_answers(served: House, mount: str) -> None:
    """§4.4.6, §5.2: a client that goes by the card alone gets through, in each version and binding it names."""
    card = decoded((await fetched(served, mount + WELL_KNOWN[0]))[1])
    spoken = set()
    for interface in card["supportedInterfaces"]:
        base, version, binding = interface["url"], interface["protocolVersion"], interface["protocolBinding"]
        spoken.add((version, binding))
        if binding == "GRPC":
            lane = GRPC_1 if version == "1.0" else GRPC_03
            async with aio.insecure_channel(base, CHANNEL) as channel:
                caller = Caller(served.http, "", lane, interface.get("tenant", ""), channel)
                assert (await caller.send("say hi")).task.text == "say hi"
            continue
        lane = Lane("by card", version, binding == "JSONRPC", "")
        assert base.startswith(served.url + mount)
        if not lane.rpc:
            assert not base.endswith("/")
            base += "/v1" if lane.version == "0.3" else ""
        assert (await Caller(served.http, base, lane).send("say hi")).task.text == "say hi"
    assert len(spoken) == {"": 6, "/agents/script": 5, "/script": 2}[mount]


async def test_an_unknown_agent_has_no_card(served: House) -> None:
    """§8.2: 404."""
    for mount in ("/agents/nobody", "/nobody"):
        answer, _ = await fetched(served, mount + WELL_KNOWN[0])
        assert answer.status == 404


async def test_a_card_names_the_host_it_was_asked_at_unless_a_public_url_is_set(served: House) -> None:
    """§4.4.6: URLs that the caller can reach; a Host header that is none is not repeated."""
    _, body = await fetched(served, WELL_KNOWN[0], Host="agents.example.org:8443")
    assert decoded(body)["url"].startswith("http://agents.example.org:8443/")
    _, body = await fetched(served, WELL_KNOWN[0], Host="x/<script>")
    assert b"script>" not in body
    async with serving(replace(CONFIG, public_url="https://a.example.org/base"), house(Gates())) as url:
        _, body = await fetched(replace(served, url=url), WELL_KNOWN[0], Host="evil.example")
    assert b"evil.example" not in body
    assert b'"https://a.example.org/base' in body


async def test_agents_are_listed_with_their_cards(served: House) -> None:
    """Everyone who is here, the default one first, and where to find the card."""
    answer, body = await fetched(served, "/agents")
    agents = decoded(body)["agents"]
    assert [agent["id"] for agent in agents][:5] == ["script", "strict", "plain", "direct", "mute"]
    for agent in agents:
        for card_url in agent["cardUrls"]:
            card = decoded((await fetched(served, card_url.removeprefix(served.url)))[1])
            assert (card["name"], card["description"]) == (agent["name"], agent["description"])
        assert agent["cardUrl"] in agent["cardUrls"]
    unchanged, _ = await fetched(served, "/agents", **{"If-None-Match": answer.headers["ETag"]})
    assert unchanged.status == 304


@pytest.mark.parametrize(("path", "status"), [("/health", "ok"), ("/ready", "ready")])
async def test_health_is_told_in_a_moment_and_never_cached(served: House, path: str, status: str) -> None:
    """Alive, and ready for work (RFC 9111 §5.2.2.5: not kept by any cache)."""
    await fetched(served, path)
    begun = time.monotonic()
    for _ in range(10):
        answer, body = await fetched(served, path)
        assert (answer.status, decoded(body)["status"]) == (200, status)
        assert answer.headers["Cache-Control"] == "no-store"
    assert time.monotonic() - begun < DEADLINE_S / 2


async def test_a_trailing_slash_means_nothing(served: House) -> None:
    """§4.4.6: @a2a-js/sdk and others add one to the URL of an interface."""
    caller = served.caller(Lane("slash", "1.0", True, "/agents/{id}/"))
    assert (await caller.send()).task.state == "completed"


ORIGIN = "https://app.example.org"
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,a2a-version",
}


@pytest.fixture(scope="module")
async def open_house() -> AsyncIterator[House]:
    """A server that one origin may call."""
    gates = Gates()
    async with serving(replace(CONFIG, cors_origins=(ORIGIN,)), house(gates)) as url, aiohttp.ClientSession() as http:
        yield House(url, http, gates)


@pytest.mark.parametrize("path", ["/", "/message:send", "/agents/script", WELL_KNOWN[0]])
async def test_cors_is_off_unless_it_is_configured(served: House, path: str) -> None:
    """Fetch standard §3.2: no answer says that a page of another origin may read it."""
    async with served.http.options(served.url + path, headers=PREFLIGHT) as answer:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    got, _ = await fetched(served, WELL_KNOWN[0], Origin=ORIGIN)
    assert "Access-Control-Allow-Origin" not in got.headers


@pytest.mark.parametrize("path", ["/", "/message:send", "/agents/script", "/agents/nobody", WELL_KNOWN[0]])
async def test_a_configured_origin_may_call_and_no_other(open_house: House, path: str) -> None:
    """Fetch standard §3.2: the preflight names what a caller needs; another origin is told nothing."""
    async with open_house.http.options(open_house.url + path, headers=PREFLIGHT) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        allowed = answer.headers["Access-Control-Allow-Headers"].lower()
        for name in ("content-type", "a2a-version", "a2a-extensions", "last-event-id", "idempotency-key"):
            assert name in allowed
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    other = {**PREFLIGHT, "Origin": "https://evil.example"}
    async with open_house.http.options(open_house.url + path, headers=other) as answer:
        assert not [name for name in answer.headers if name.lower().startswith("access-control-allow")]


@pytest.mark.parametrize("lane", [RPC_1, REST_1, RPC_03, REST_03], ids=lambda lane: lane.name)
async def test_pages_of_a_configured_origin_read_answers_errors_and_streams(open_house: House, lane: Lane) -> None:
    """Fetch standard §3.2.3: each of them carries the header, and names those a page needs."""
    caller = open_house.caller(lane)
    origin: dict[str, Any] = {"headers": {"Origin": ORIGIN, "A2A-Extensions": OPTIONAL}}
    for told in (await caller.send(**origin), await caller.call("send", params(role="x"), origin["headers"])):
        assert told.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "Origin" in told.headers["Vary"]
        assert "a2a-extensions" in told.headers["Access-Control-Expose-Headers"].lower()
    async with caller.stream(**origin) as stream:
        assert stream.answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        await stream.rest()


@pytest.mark.parametrize("mount", ["/a2a", "/api/v1/a2a/script"])
async def test_cards_of_other_systems_show_what_their_texts_say(served: House, mount: str) -> None:
    card = decoded((await fetched(served, mount + WELL_KNOWN[1]))[1])
    assert DEDUPE not in [extension["uri"] for extension in card["capabilities"].get("extensions", [])]
