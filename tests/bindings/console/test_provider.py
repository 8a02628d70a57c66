"""Sign-in by an OpenID provider, over HTTP, with a real one on loopback: who gets a session, and who tries in vain."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest

from dragoman import Agent
from dragoman.bindings.console.endpoint import PROOF
from dragoman.config import Config, TeamEntry
from dragoman.server import serving
from dragoman.server.errors import StartError
from tests.auth import issuer
from tests.auth.provider import CLIENT, SECRET, OpenIdProvider, providing
from tests.bindings.console.test_console import DEADLINE_S, SESSION, TASKS, browser, status_of
from tests.kit.agents import asking
from tests.kit.places import sqlite_url
from tests.net.peer import listening, status
from tests.ports import kept_port

BEGIN = "/console/oidc/begin"
CALLBACK = "/console/oidc/callback"


@pytest.fixture(scope="module")
async def listening_provider() -> AsyncIterator[OpenIdProvider]:
    async with providing() as opened:
        yield opened


@pytest.fixture
def provider(listening_provider: OpenIdProvider) -> OpenIdProvider:
    """The provider as it is meant to be, whatever the test before has changed."""
    fresh = OpenIdProvider()
    for name in ("claims", "metadata", "answer", "alg", "takes"):
        setattr(listening_provider, name, getattr(fresh, name))
    return listening_provider


def settings_for(provider: OpenIdProvider, store: str, port: int, **more: Any) -> Config:
    given = {
        "port": port,
        "public_url": f"http://127.0.0.1:{port}",
        "oidc_issuer": provider.url,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        "oidc_role_claim": "groups",
        "oidc_role_value": "operators",
        **more,
    }
    return Config(store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2, **given)


@pytest.fixture(scope="module")
async def site(
    listening_provider: OpenIdProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, str]]:
    """The URL of a server that takes the provider's word, and its store."""
    store = sqlite_url(tmp_path_factory.mktemp("store"))
    async with serving(settings_for(listening_provider, store, kept_port()), [asking(question="which one?")]) as url:
        yield url, store


Site = tuple[str, str]


async def get(http: aiohttp.ClientSession, path: str, **sent: Any) -> aiohttp.ClientResponse:
    async with http.get(path, allow_redirects=False, **sent) as answer:
        await answer.read()
        return answer


async def begin(http: aiohttp.ClientSession, next_page: str | None = None) -> str:
    """Begin a sign-in; returns the URL of the provider."""
    answer = await get(http, BEGIN if next_page is None else f"{BEGIN}?{urlencode({'next': next_page})}")
    assert answer.status == 302, await answer.text()
    return answer.headers["location"]


async def come_back(http: aiohttp.ClientSession, authorization: str) -> str:
    """Go to the provider; returns the path and query to which it sends the browser back."""
    answer = await get(http, authorization)
    back = urlsplit(answer.headers["location"])
    return f"{back.path}?{back.query}"


async def sign_in(http: aiohttp.ClientSession, next_page: str | None = None) -> aiohttp.ClientResponse:
    return await get(http, await come_back(http, await begin(http, next_page)))


@asynccontextmanager
async def signing_in(site: Site) -> AsyncIterator[aiohttp.ClientSession]:
    async with browser(site[0]) as http:
        yield http


async def refused(http: aiohttp.ClientSession, answer: aiohttp.ClientResponse, words: str) -> None:
    """Nobody is signed in, and a page says why."""
    text = await answer.text()
    assert (answer.status, words in text) == (403, True), text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert await status_of(http, SESSION) == 401
    assert not list(http.cookie_jar)


async def test_an_operator_of_the_provider_gets_a_session(site: Site, provider: OpenIdProvider) -> None:
    async with signing_in(site) as http:
        async with http.get("/console/sign-in") as offered:
            assert await offered.json() == {"provider": provider.url.removeprefix("http://")}
        to = await begin(http, "/console/tasks?state=failed")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(to).query).items()}
        assert asked["redirect_uri"] == f"{site[0]}{CALLBACK}"
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert len(asked["state"]) == len(asked["nonce"]) == len(asked["code_challenge"]) == 43
        answer = await get(http, await come_back(http, to))
        assert (answer.status, answer.headers["location"]) == (302, "/console/tasks?state=failed")
        cookies = answer.headers.getall("set-cookie")
        session = next(cookie for cookie in cookies if cookie.startswith("dragoman-console"))
        begun = next(cookie for cookie in cookies if cookie.startswith("dragoman-sign-in"))
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(session.split("; ")[1:])
        assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=0"} == set(begun.split("; ")[1:])
        async with http.get(SESSION) as who:
            signed_in = await who.json()
        assert signed_in["principal"] == f"oidc:ann@{provider.url}"
        assert await status_of(http, TASKS) == 200
        proof = {PROOF.decode(): signed_in["proof"]}
        assert await status_of(http, f"{TASKS}:cancel", "POST", json={"older_than_s": 0}) == 403
        assert await status_of(http, f"{TASKS}:cancel", "POST", json={"older_than_s": 0}, headers=proof) == 200
        assert await status_of(http, SESSION, "DELETE", headers=proof) == 204
        assert await status_of(http, TASKS) == 401
        await sign_in(http)
        principal = {"principal": f"oidc:ann@{provider.url}"}
        async with asyncio.timeout(DEADLINE_S):
            while True:  # the trail is written a moment later
                async with http.get("/admin/v1/audit", params=principal) as trail:
                    actions = [entry["action"] for entry in (await trail.json())["entries"]]
                if actions.count("console.sign-in") == 2:
                    break
    assert "tasks.list" in actions


@pytest.mark.parametrize("long", [False, True])
async def test_signing_out_leads_to_the_end_of_the_providers_session(
    provider: OpenIdProvider, tmp_path: Path, long: bool
) -> None:
    provider.metadata = {"end_session_endpoint": f"{provider.url}/logout"}
    if long:
        provider.claims = {**provider.claims, "more": "x" * 4000}
    config = settings_for(provider, sqlite_url(tmp_path), kept_port())
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        kept = [
            cookie for cookie in (await sign_in(http)).headers.getall("set-cookie") if "dragoman-provider" in cookie
        ]
        assert [{"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; ")) for cookie in kept] == [True]
        async with http.get(SESSION) as who:
            proof = {PROOF.decode(): (await who.json())["proof"]}
        async with http.delete(SESSION, headers=proof) as answer:
            to = urlsplit((await answer.json())["provider"])
        assert f"{to.scheme}://{to.netloc}{to.path}" == f"{provider.url}/logout"
        asked = parse_qs(to.query)
        assert asked["client_id"] == [CLIENT]
        assert ("id_token_hint" in asked) != long
        assert not list(http.cookie_jar)
        assert await status_of(http, SESSION) == 401


async def test_over_tls_no_other_host_of_the_domain_can_set_the_cookie(
    provider: OpenIdProvider, tmp_path: Path
) -> None:
    config = settings_for(provider, sqlite_url(tmp_path), kept_port(), public_url="https://ops.example.org")
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        answer = await get(http, BEGIN)
        name, *fields = answer.headers["set-cookie"].split("; ")
        assert name.startswith("__Host-dragoman-sign-in=")
        assert {"HttpOnly", "SameSite=Lax", "Path=/", "Secure", "Max-Age=600"} == set(fields)
        asked = parse_qs(urlsplit(answer.headers["location"]).query)
        assert asked["redirect_uri"] == ["https://ops.example.org/console/oidc/callback"]


@pytest.mark.parametrize(
    ("next_page", "location"),
    [
        ("/console", "/console"),
        ("/console/tasks/a-b?tab=wire", "/console/tasks/a-b?tab=wire"),
        ("https://evil.example/", "/console"),
        ("//evil.example/console", "/console"),
        ("/console/../admin", "/console/../admin"),  # the same origin, whatever it is
        ("/console\\evil.example", "/console"),
        ("/consolevil", "/console"),
        ("/console/x\r\nSet-Cookie: a=b", "/console"),
        ("javascript:alert(1)", "/console"),
    ],
)
async def test_the_page_to_go_on_with_is_one_of_the_console(
    site: Site, provider: OpenIdProvider, next_page: str, location: str
) -> None:
    async with signing_in(site) as http:
        assert (await sign_in(http, next_page)).headers["location"] == location


async def test_another_state_than_that_of_the_browser_is_refused(site: Site, provider: OpenIdProvider) -> None:
    async with signing_in(site) as http, signing_in(site) as victim:
        back = await come_back(http, await begin(http))
        spent = len(provider.spent)
        await refused(victim, await get(victim, back), "did not begin")
        await begin(victim)
        await refused(victim, await get(victim, back), "not the sign-in that this browser began")
        for damaged in (back.replace("state=", "stat="), f"{back}&state=x"):
            await begin(victim)
            assert (await get(victim, damaged)).status == 403
        assert len(provider.spent) == spent, "no code was exchanged"


async def test_a_sign_in_cannot_be_replayed(site: Site, provider: OpenIdProvider) -> None:
    async with signing_in(site) as http:
        back = await come_back(http, await begin(http))
        (kept,) = [f"{each.key}={each.value}" for each in http.cookie_jar]
        assert (await get(http, back)).status == 302
        async with signing_in(site) as other:
            await refused(other, await get(other, back), "did not begin")
            await refused(other, await get(other, back, headers={"Cookie": kept}), "has used it already")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "another"}, "(nonce)"),
        ({"nonce": None}, "lacks a claim"),
        ({"aud": "another client"}, "(aud, azp)"),
        ({"aud": [CLIENT, "another client"]}, "(aud, azp)"),
        ({"azp": "another client"}, "(aud, azp)"),
        ({"iss": "https://evil.example"}, "(iss)"),
        ({"exp": 1}, "(exp)"),
        ({"exp": None}, "lacks a claim"),
        ({"iat": 99_999_999_999}, "(iat, nbf)"),
        ({"sub": ""}, "(sub)"),
        ({"groups": None}, "no operator here"),
        ({"groups": ["staff"]}, "no operator here"),
        ({"groups": {"operators": True}}, "no operator here"),
        ({"groups": "operators and others"}, "no operator here"),
    ],
)
async def test_a_token_that_does_not_fit_signs_nobody_in(
    site: Site, provider: OpenIdProvider, claims: dict[str, Any], words: str
) -> None:
    provider.claims = {**provider.claims, **claims}
    async with signing_in(site) as http:
        await refused(http, await sign_in(http), words)


async def test_a_token_with_a_claim_beyond_all_numbers_signs_nobody_in(
    site: Site, provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token(claims: dict[str, Any], *, alg: str) -> bytes:
        return issuer.token(json.dumps(claims).encode().removesuffix(b"}") + b', "height": 1e999}', alg=alg)

    monkeypatch.setattr("tests.auth.provider.token", token)
    async with signing_in(site) as http:
        await refused(http, await sign_in(http), "not valid here")


async def test_a_token_without_a_real_end_begins_a_session_of_a_week(site: Site, provider: OpenIdProvider) -> None:
    provider.claims = {**provider.claims, "exp": 1e308}
    async with signing_in(site) as http:
        assert (await sign_in(http)).status == 302
        async with http.get(SESSION) as who:
            ends_at = datetime.fromisoformat((await who.json())["ends_at"])
    assert ends_at - datetime.now(UTC) <= timedelta(days=7)


@pytest.mark.parametrize("alg", ["none", "HS256", "PS256"])
async def test_a_token_of_another_algorithm_signs_nobody_in(
    site: Site, provider: OpenIdProvider, alg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.alg = alg
    if alg == "HS256":
        from joserfc.jwk import OctKey

        modulus = str(issuer.RSA.as_dict(private=False)["n"])
        key: Any = OctKey.import_key(modulus)  # the public key as a secret: an old attack
        monkeypatch.setattr("tests.auth.provider.token", lambda claims, *, alg: issuer.token(claims, key=key, alg=alg))
    async with signing_in(site) as http:
        await refused(http, await sign_in(http), "not valid here")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"iss": "https://evil.example"}, "another provider"),
        ({"iss": None}, "another provider"),
        ({"code": None}, "no code"),
        ({"code": "guessed"}, "does not take the code"),
        ({"error": "access_denied", "code": None}, "refused: access_denied"),
        ({"error": "<script>alert(1)</script>", "code": None}, "did not say why"),
    ],
)
async def test_an_answer_that_does_not_fit_signs_nobody_in(
    site: Site, provider: OpenIdProvider, answer: dict[str, str | None], words: str
) -> None:
    provider.answer = answer
    async with signing_in(site) as http:
        page = await sign_in(http)
        assert "<script>" not in await page.text()
        await refused(http, page, words)


@pytest.mark.parametrize("takes", ["basic", "post", "none"])
async def test_a_client_shows_its_secret_as_the_provider_takes_it(
    provider: OpenIdProvider, tmp_path: Path, takes: str
) -> None:
    provider.takes = takes
    provider.claims = {"realm_access": {"roles": ["operators"]}}
    provider.metadata = {"token_endpoint_auth_methods_supported": [f"client_secret_{takes}", "private_key_jwt"]}
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    more = {
        "oidc_role_claim": "realm_access.roles",
        "oidc_client_secret": None,
        "oidc_client_secret_file": None if takes == "none" else str(secret),
        "oidc_session_s": 60.0,
    }
    config = settings_for(provider, sqlite_url(tmp_path), kept_port(), **more)
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        assert (await sign_in(http)).status == 302
        assert await status_of(http, TASKS) == 200


async def test_a_session_ends_when_other_people_are_operators(provider: OpenIdProvider, tmp_path: Path) -> None:
    store, port = sqlite_url(tmp_path), kept_port()
    async with browser(f"http://127.0.0.1:{port}") as http:
        async with serving(settings_for(provider, store, port), [asking(question="which one?")]):
            assert (await sign_in(http)).status == 302
        async with serving(settings_for(provider, store, port), [asking(question="which one?")]):
            assert await status_of(http, TASKS) == 200, "it outlives a restart"
        async with serving(
            settings_for(provider, store, port, oidc_role_value="admins"), [asking(question="which one?")]
        ):
            assert await status_of(http, TASKS) == 401


async def test_an_operator_whose_token_names_a_team_is_one_of_that_team(
    provider: OpenIdProvider, tmp_path: Path
) -> None:
    """Two teams are refused, and a session ends with its team."""
    store, port = sqlite_url(tmp_path), kept_port()
    teams = tuple(TeamEntry(id=name, claim="groups", value=f"of-{name}") for name in ("a", "b"))
    settings = settings_for(provider, store, port, teams=teams)
    async with serving(settings, [asking()]) as url, browser(url) as http:
        provider.claims["groups"] = ["operators", "of-a", "of-b"]
        await refused(http, await sign_in(http), "the teams a and b")
        provider.claims["groups"] = ["operators", "of-a"]
        await sign_in(http)
        async with http.get(SESSION) as answer:
            session = await answer.json()
        assert (session["principal"], session["team"]) == (f"team:a/oidc:ann@{provider.url}", "a")
        assert await status_of(http, TASKS) == 200
        assert await status_of(http, "/admin/v1/replicas") == 403
        cookies = http.cookie_jar
    async with (
        serving(settings_for(provider, store, port, teams=teams[1:]), [asking()]) as url,
        aiohttp.ClientSession(url, cookie_jar=cookies) as http,
    ):
        assert await status_of(http, SESSION) == 401


async def test_a_provider_that_is_gone_is_told(tmp_path: Path, provider: OpenIdProvider) -> None:
    config = settings_for(provider, sqlite_url(tmp_path), kept_port(), oidc_issuer=f"http://127.0.0.1:{kept_port()}")
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        answer = await get(http, BEGIN)
        assert answer.status == 503
        assert "the provider cannot be reached" in await answer.text()
        assert (await get(http, CALLBACK)).status == 403
        async with http.post(BEGIN) as posted:
            assert posted.status == 405
        assert (await get(http, BEGIN, headers={"Host": "evil.example"})).status == 403


async def test_a_provider_that_fails_is_not_asked_by_everybody_who_tries(tmp_path: Path) -> None:
    async with listening() as peer:
        path = "GET /.well-known/openid-configuration"
        peer.scripts[path] = status(500)
        config = settings_for(OpenIdProvider(), sqlite_url(tmp_path), kept_port(), oidc_issuer=peer.url)
        async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
            assert [(await get(http, BEGIN)).status for _ in range(5)] == [503] * 5
        assert peer.paths == [path]


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": ["https://evil.example"]},
    ],
)
async def test_metadata_that_do_not_fit_are_not_used(
    provider: OpenIdProvider, tmp_path: Path, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    config = settings_for(provider, sqlite_url(tmp_path), kept_port())
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        assert (await get(http, BEGIN)).status == 503


async def test_without_a_provider_the_paths_are_pages_like_others(tmp_path: Path) -> None:
    config = Config(port=0, store=sqlite_url(tmp_path), shutdown_grace_s=0.2)
    async with serving(config, [asking(question="which one?")]) as url, browser(url) as http:
        async with http.get("/console/sign-in") as offered:
            assert await offered.json() == {"provider": None}
        answer = await get(http, BEGIN)
        assert answer.headers.get("location") is None


WHOLE = {
    "public_url": "https://ops.example.org",
    "oidc_issuer": "https://login.example.org",
    "oidc_client_id": "console",
    "oidc_role_claim": "groups",
    "oidc_role_value": "operators",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"oidc_client_id": None}, "oidc_client_id is not"),
        ({"oidc_role_claim": None}, "oidc_role_claim is not"),
        ({"oidc_role_value": None}, "oidc_role_value is not"),
        ({"public_url": None}, "public_url is not"),
        ({"oidc_issuer": None}, "oidc_client_id is set and oidc_issuer is not"),
        ({"oidc_issuer": "http://login.example.org"}, "oidc_issuer = 'http://login.example.org' is without TLS"),
        ({"public_url": "http://ops.example.org"}, "public_url = 'http://ops.example.org' is without TLS"),
        ({"oidc_scope": "profile"}, "oidc_scope does not have openid"),
        ({"console": False}, "there is no console"),
        ({"oidc_client_secret": "x", "oidc_client_secret_file": "y"}, "both set"),
        ({"oidc_client_secret_file": "/nowhere/at/all"}, "oidc_client_secret_file '/nowhere/at/all' cannot be read"),
    ],
)
async def test_wrong_settings_are_refused_at_the_start(change: dict[str, Any], words: str) -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2, **{**WHOLE, **change})
    with pytest.raises(StartError, match=words.replace("(", r"\(")):
        async with serving(config, [Agent("idle")]):
            pass
