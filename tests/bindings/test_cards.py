"""Cards, and the list of agents."""

import pytest

from tests.bindings.conftest import Site, site

NAMES = ("agent-card.json", "agent.json")
PATHS = [f"{mount}/.well-known/{name}" for mount in ("", "/agents/echo", "/echo") for name in NAMES]


@pytest.mark.parametrize("path", PATHS)
async def test_a_card_is_served_with_its_validators(served: Site, path: str) -> None:
    async with served.http.get(path) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "public, max-age=60"
        etag = answer.headers["ETag"]
        assert etag.startswith('"')
        assert (await answer.json())["name"] == "Echo"
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        async with served.http.get(path, headers={"If-None-Match": known}) as answer:
            assert (answer.status, answer.headers["ETag"], await answer.read()) == (304, etag, b"")
    async with served.http.get(path, headers={"If-None-Match": '"x"'}) as answer:
        assert answer.status == 200


async def test_both_names_of_a_card_have_the_same_content(served: Site) -> None:
    for mount in ("", "/agents/other", "/other"):
        async with (
            served.http.get(f"{mount}/.well-known/agent-card.json") as new,
            served.http.get(f"{mount}/.well-known/agent.json") as old,
        ):
            assert await new.read() == await old.read()
            assert new.headers["ETag"] == old.headers["ETag"]


@pytest.mark.parametrize("path", PATHS)
async def test_the_version_that_a_caller_names_chooses_the_form_of_the_card(served: Site, path: str) -> None:
    """Each form has an ETag of its own, and caches are told what chose it (RFC 9110 §12.5.5)."""
    etags, found = set(), {}
    for version in ("", "1.0", "0.3"):
        headers = {"A2A-Version": version} if version else {}
        async with served.http.get(path, headers=headers) as answer:
            assert answer.headers["Vary"] == "A2A-Version"
            etag = answer.headers["ETag"]
            etags.add(etag)
            found[version] = await answer.json()
        async with served.http.get(path, headers={**headers, "If-None-Match": etag}) as again:
            assert (again.status, again.headers["Vary"]) == (304, "A2A-Version")
        if version:
            async with served.http.get(path, params={"A2A-Version": version}) as named:
                assert await named.json() == found[version]
    assert len(etags) == 3
    assert "url" not in found["1.0"]
    assert "supportedInterfaces" not in found["0.3"]
    assert found[""].keys() >= found["1.0"].keys() | found["0.3"].keys()


async def test_a_card_names_the_endpoints_of_its_mount(served: Site) -> None:
    urls = {}
    for mount in ("", "/agents/other", "/other"):
        async with served.http.get(f"{mount}/.well-known/agent-card.json") as answer:
            card = await answer.json()
            urls[mount] = [
                (each["url"].removeprefix(served.url), each["protocolBinding"], each["protocolVersion"])
                for each in card["supportedInterfaces"]
            ]
    assert urls[""][0] == ("/", "JSONRPC", "1.0")
    assert urls["/agents/other"][0] == ("/agents/other", "JSONRPC", "1.0")
    assert {version for _, _, version in urls["/agents/other"]} == {"1.0", "0.3"}
    assert urls["/other"] == [("/other", "HTTP+JSON", "1.0"), ("/other", "JSONRPC", "0.3")]


async def test_urls_come_from_the_host_that_was_asked_unless_it_is_none(served: Site) -> None:
    for host, base in (
        ("agents.example.org", "http://agents.example.org"),
        ("[::1]:99", "http://[::1]:99"),
        ("x'onclick=a", f"http://127.0.0.1:{served.port}"),
        ("a%2Fb", f"http://127.0.0.1:{served.port}"),
        ("[fe80::1%25eth0]", f"http://127.0.0.1:{served.port}"),
    ):
        async with served.http.get("/agents", headers={"Host": host}) as answer:
            assert (await answer.json())["agents"][0]["url"] == f"{base}/agents/echo"


async def test_a_public_url_wins_over_the_host() -> None:
    async with site(public_url="https://a.example/x") as running, running.http.get("/agents") as answer:
        assert (await answer.json())["agents"][0]["url"] == "https://a.example/x/agents/echo"


async def test_the_list_of_agents_names_their_cards(served: Site) -> None:
    async with served.http.get("/agents") as answer:
        agents = (await answer.json())["agents"]
        assert "ETag" in answer.headers
    assert [agent["id"] for agent in agents] == ["echo", "other", "strict"]
    assert {"name", "description", "url"} <= agents[0].keys()
    for agent in agents:
        for url in agent["cardUrls"]:
            async with served.http.get(url) as card:
                assert (await card.json())["name"] == agent["name"]


async def test_many_hosts_do_not_grow_the_cache(served: Site) -> None:
    for number in range(600):
        async with served.http.get("/.well-known/agent.json", headers={"Host": f"h{number}.example"}) as answer:
            assert answer.status == 200
