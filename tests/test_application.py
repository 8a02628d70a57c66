"""`dragoman.create_app`: what it takes, whom it lets in, and how it lives in another application."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount

import dragoman
from dragoman import AccessRole, Agent, Context, KeyLimits, Principal, create_app
from dragoman.application import Application, find_mount
from dragoman.cli.references import AgentReferenceError
from dragoman.config import ConfigError
from dragoman.server import StartError
from dragoman.store.api import StoreError
from tests.kit.agents import echoing, hired
from tests.kit.places import V1, add_keys, beside, sqlite_url

MEMORY = {"store": "memory:", "shutdown_grace_s": 0.2}

SEND = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}

HERE = ("127.0.0.1", 5000)
ELSEWHERE = ("203.0.113.7", 5000)


def client(app: Any, *, peer: tuple[str, int] = HERE, **headers: str) -> httpx.AsyncClient:
    """A client whose requests the application gets without any socket."""
    transport = httpx.ASGITransport(app, client=peer, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={**V1, **headers})


@asynccontextmanager
async def entered(
    *agents: Any, authenticate: Any = None, peer: tuple[str, int] = HERE, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that has been started."""
    app = create_app(list(agents) or [echoing()], {**MEMORY, **settings}, authenticate)
    async with app.lifespan(), client(app, peer=peer) as http:
        yield http


def said(answer: httpx.Response) -> str:
    message: str = answer.json()["error"]["message"]
    return message


# -- the lifespan ------------------------------------------------------------------------------------------------------


async def test_a_request_before_the_lifespan_is_503_and_names_the_line_that_is_missing() -> None:
    app = create_app([echoing()], MEMORY)
    parent = Starlette(routes=[Mount("/in", app), Mount("/.well-known", app.well_known)])
    async with client(parent) as http:
        for path in ("/in/message:send", "/in/agents/echo", "/.well-known/agent-card.json"):
            answer = await http.post(path, json=SEND)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert "FastAPI(lifespan=app.lifespan)" in said(answer)
        async with app.lifespan():
            assert (await http.post("/in/message:send", json=SEND)).status_code == 200
        assert (await http.post("/in/message:send", json=SEND)).status_code == 503


async def test_a_request_that_comes_while_the_application_stops_is_told_to_come_again() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    slow = Agent("slow")

    @slow.skill
    async def wait(ctx: Context) -> str:
        """Wait."""
        begun.set()
        try:
            await go_on.wait()
        finally:
            await asyncio.sleep(0)
        return "done"

    app = create_app([slow], {**MEMORY, "shutdown_grace_s": 20})
    async with client(app) as http:
        async with app.lifespan():
            asked = asyncio.create_task(http.post("/message:send", json=SEND))
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        assert (await asked).json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_each_lifespan_is_a_new_start_in_any_event_loop(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # it prefers another release of httpx
        from starlette.testclient import TestClient
    app = create_app([echoing()], {**MEMORY, "store": sqlite_url(tmp_path)})
    parent = Starlette(routes=[Mount("/in", app)], lifespan=app.lifespan)
    ids = set()
    for _ in range(2):
        with TestClient(parent, base_url="http://localhost", headers=V1) as http:
            answer = http.post("/in/message:send", json=SEND)
            assert answer.status_code == 200
            ids.add(answer.json()["task"]["id"])
            assert all(http.get(f"/in/tasks/{known}").status_code == 200 for known in ids)
    assert len(ids) == 2


async def test_a_lifespan_is_entered_in_one_place() -> None:
    app = create_app([echoing()], MEMORY)
    async with app.lifespan():
        with pytest.raises(RuntimeError, match="is entered already: enter it in one application only"):
            async with app.lifespan():
                pass
    async with app.lifespan():
        pass


@pytest.mark.parametrize("thresholds", [(700, 10, 10), (5_000, 10, 10)])
async def test_garbage_is_collected_as_rarely_as_in_a_server_unless_the_program_has_chosen(
    thresholds: tuple[int, int, int],
) -> None:
    usual = gc.get_threshold()
    try:
        gc.set_threshold(*thresholds)
        app = create_app([echoing()], MEMORY)
        async with app.lifespan():
            assert (gc.get_threshold() == thresholds) == (thresholds[0] == 5_000)
        assert gc.get_threshold() == thresholds
    finally:
        gc.set_threshold(*usual)


async def test_an_exception_of_the_parents_own_lifespan_comes_out_as_it_is() -> None:
    app = create_app([echoing()], MEMORY)
    with pytest.raises(KeyError):
        async with app.lifespan():
            raise KeyError("theirs")


async def test_a_fault_after_the_start_is_told_as_one_of_the_shutdown(caplog: pytest.LogCaptureFixture) -> None:
    coming, told = iter([{"type": "lifespan.startup"}]), []

    async def receive() -> Any:
        for message in coming:
            return message
        raise OSError("the server's pipe broke")

    async def send(message: Mapping[str, Any]) -> None:
        told.append(message["type"])

    await create_app([echoing()], MEMORY)({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    assert "the shutdown failed" in caplog.text


async def test_a_store_that_another_process_has_is_told_to_the_server_that_runs_the_application(
    tmp_path: Path,
) -> None:
    settings = {**MEMORY, "store": sqlite_url(tmp_path)}
    async with beside(settings["store"], "holder"):
        with pytest.raises(
            StoreError, match="several processes, such as the workers of uvicorn, share PostgreSQL only"
        ):
            async with create_app([echoing()], settings).lifespan():
                pass
        told: list[Mapping[str, Any]] = []

        async def send(message: Mapping[str, Any]) -> None:
            told.append(message)

        async def receive() -> Mapping[str, Any]:
            return {"type": "lifespan.startup"}

        await create_app([echoing()], settings)({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in told] == ["lifespan.startup.failed"]
    assert "share PostgreSQL only" in told[0]["message"]


# -- callers -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_called_is_no_authenticate() -> None:
    principal: Any = Principal("user:ann")
    with pytest.raises(TypeError, match="of type Principal: give a function"):
        create_app([echoing()], MEMORY, principal)


async def test_without_authenticate_what_the_parent_knows_of_its_callers_counts_nothing() -> None:
    app = create_app([echoing()], {**MEMORY, "api_key": "sesame", "admin_runs_workers": False})

    async def parent(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": "alice", "auth": "all", "state": {"user": "alice"}}, receive, send)

    async with app.lifespan(), client(parent) as http:
        assert (await http.post("/message:send", json=SEND)).status_code == 401
        sent = await http.post("/message:send", json=SEND, headers={"x-api-key": "sesame"})
        assert sent.status_code == 200


def by_user(scope: Mapping[str, Any]) -> Principal | None:
    """A caller for each user that the parent's middleware has noted."""
    user = scope.get("user")
    return None if user is None else Principal(f"user:{user}")


async def by_user_later(scope: Mapping[str, Any]) -> Principal | None:
    await asyncio.sleep(0)
    return by_user(scope)


@pytest.mark.parametrize("authenticate", [by_user, by_user_later])
async def test_a_callers_tasks_are_those_of_the_principal_that_authenticate_returns(authenticate: Any) -> None:
    app = create_app([echoing()], MEMORY, authenticate)

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        user = dict(scope["headers"]).get(b"x-user")
        await app(scope if user is None else {**scope, "user": user.decode()}, receive, send)

    parent = Starlette(routes=[Mount("/in", middleware)], lifespan=app.lifespan)
    async with app.lifespan(), client(parent, peer=ELSEWHERE) as http:
        alice, bob = {"x-user": "alice"}, {"x-user": "bob"}
        task = (await http.post("/in/message:send", json=SEND, headers=alice)).json()["task"]
        for path in (f"/in/tasks/{task['id']}", f"/in/agents/echo/tasks/{task['id']}"):
            assert (await http.get(path, headers=alice)).status_code == 200
            assert (await http.get(path, headers=bob)).status_code == 404
            assert (await http.get(path)).status_code == 401
        card = (await http.get("/in/.well-known/agent-card.json")).json()
        assert card["securityRequirements"]


async def test_a_caller_whom_authenticate_does_not_know_may_have_a_key_of_ours(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await add_keys(store, worker={"role": AccessRole.AGENT}, chief={"role": AccessRole.OPERATOR})
    async with entered(authenticate=by_user, store=store, peer=ELSEWHERE) as http:
        assert (await http.post("/message:send", json=SEND)).status_code == 401
        sent = await http.post("/message:send", json=SEND, headers={"x-api-key": keys["worker"]})
        assert sent.status_code == 200
        assert (await http.get("/admin/v1/tasks", headers={"x-api-key": keys["worker"]})).status_code == 403
        assert (await http.get("/admin/v1/tasks", headers={"x-api-key": keys["chief"]})).status_code == 200


async def test_the_fields_of_a_principal_that_a_user_sets() -> None:
    given: list[Principal] = []
    agents: list[Any] = [echoing("one"), echoing("two"), hired("far")]
    async with entered(*agents, authenticate=lambda scope: given[-1], peer=ELSEWHERE) as http:

        async def sent(principal: Principal, path: str, method: str = "POST", body: Any = SEND) -> int:
            given.append(principal)
            answer = await http.request(method, path, json=body if method == "POST" else None)
            return answer.status_code

        one = Principal("a", agents=frozenset({"one"}))
        assert await sent(one, "/agents/one/message:send") == 200
        for path in ("/agents/two/message:send", "/agents/%74wo/message:send", "/agents/two/message%3Asend"):
            assert await sent(one, path) == 403
        # httpx would take `..` out itself.
        for path in ("/agents/one/%2E%2E/two/message:send", "/agents%2Ftwo/message:send", "/%2e%2e/admin/v1/tasks"):
            assert await sent(one, path) == 404
        listed = Principal("a", agents=["one"])  # type: ignore[arg-type]  # as a list is easily written
        assert await sent(listed, "/agents/two/message:send") == 403
        assert await sent(Principal("a", scopes=frozenset({dragoman.Scope.READ})), "/message:send") == 403
        assert await sent(Principal("a", role=AccessRole.MONITOR), "/message:send") == 403
        assert await sent(Principal("a"), "/metrics", "GET") == 403
        assert await sent(Principal("a", role=AccessRole.MONITOR), "/metrics", "GET") == 200
        assert await sent(Principal("a"), "/admin/v1/tasks", "GET") == 403
        assert await sent(Principal("a", role="operator"), "/admin/v1/tasks", "GET") == 200  # type: ignore[arg-type]
        limited = Principal("b", limits=KeyLimits(max_daily_tasks=1))
        assert [await sent(limited, "/message:send") for _ in range(2)] == [200, 429]
        heard: dict[str, Any] = {"worker": "w", "wait": 0}
        assert await sent(Principal("a", works=True), "/workers/far/lease", body=heard) == 403
        assert await sent(Principal("a", role=AccessRole.AGENT), "/workers/far/lease", body=heard) in (200, 204)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("alice", "authenticate returned str: give a dragoman.Principal, or None for nobody"),
        (Principal(""), "a Principal whose id cannot be kept: give 1 to 500 printable characters"),
        (Principal("a", agents="one"), "that cannot be used: Expected `array | null`, got `str` - at `$.agents`"),
        (Principal("a", role="chief"), "a Principal that cannot be used: Invalid enum value 'chief' - at `$.role`"),
        (Principal("a\nb"), "a Principal whose id cannot be kept: give 1 to 500 printable characters"),
        (Principal("a\0b"), "a Principal whose id cannot be kept"),
        (Principal("a\udcffb"), "a Principal whose id cannot be kept"),  # of a header that is no UTF-8
        (Principal("a" * 501), "a Principal whose id cannot be kept"),
        (Principal("team:a/b"), "whose id begins with team:, as those of members of teams do"),
        (Principal("a", team="search"), "of the team 'search', and no [[teams]] has that id: add the table"),
    ],
)  # fmt: skip
async def test_a_principal_that_cannot_be_used_lets_nobody_in(
    answer: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with entered(authenticate=lambda scope: answer) as http:
        refused = await http.post("/message:send", json=SEND)
    assert refused.status_code == 500
    assert "authenticate" not in refused.text
    assert told in caplog.text


async def test_an_application_names_the_team_of_its_caller() -> None:
    def by_team(scope: Mapping[str, Any]) -> Principal:
        name, _, team = dict(scope["headers"])[b"x-user"].decode().partition("@")
        return Principal(name, team=team)

    teams = [{"id": "search", "shared": "read", "agents": ["echo"]}, {"id": "billing"}]
    app = create_app([echoing(), echoing("other")], {**MEMORY, "teams": teams}, by_team)
    async with app.lifespan(), client(app) as http:
        ann = {"x-user": "ann@search"}
        task = (await http.post("/message:send", json=SEND, headers=ann)).json()["task"]
        for who, status in (("ann@search", 200), ("bob@search", 200), ("ann@billing", 404), ("ann", 404)):
            assert (await http.get(f"/tasks/{task['id']}", headers={"x-user": who})).status_code == status, who
        assert (await http.post("/agents/other/message:send", json=SEND, headers=ann)).status_code == 403


@pytest.mark.parametrize(("status", "shown"), [(401, 401), (403, 403), (418, 500)])
async def test_authenticate_may_refuse_as_web_frameworks_do(status: int, shown: int) -> None:
    def authenticate(scope: Mapping[str, Any]) -> Principal:
        raise HTTPException(status, "secret detail")

    async with entered(authenticate=authenticate) as http:
        answer = await http.post("/message:send", json=SEND)
        assert answer.status_code == shown
        assert "secret" not in answer.text
        assert (await http.get("/health")).status_code == 200  # which asks nobody
        catalogue = await http.get("/.well-known/ai-catalog.json")  # which strangers may read
        assert catalogue.status_code == (200 if status == 401 else shown)
        assert catalogue.headers.get("cache-control", "").startswith("public") is (status == 401)


async def test_pages_of_other_origins_need_cors_origins_whatever_the_parent_allows() -> None:
    page = "https://page.example"
    for settings, status in (({}, 403), ({"cors_origins": [page]}, 200)):
        app = create_app([echoing()], {**MEMORY, **settings}, lambda scope: Principal("a"))
        allowing = Middleware(CORSMiddleware, allow_origins=[page])
        async with app.lifespan(), client(Starlette(routes=[Mount("/in", app)], middleware=[allowing])) as http:
            answer = await http.post("/in/message:send", json=SEND, headers={"origin": page, "cookie": "session=1"})
            assert answer.status_code == status
            assert answer.headers.get_list("access-control-allow-origin") == [page]


async def test_an_application_that_asks_nobody_answers_this_machine_only() -> None:
    async with entered(peer=ELSEWHERE) as http:
        refused = await http.post("/message:send", json=SEND)
        assert refused.status_code == 403
        assert "give create_app an `authenticate` function" in said(refused)
        assert (await http.get("/.well-known/agent-card.json")).status_code == 200
    async with entered() as http:
        assert (await http.post("/message:send", json=SEND)).status_code == 200
        rebound = await http.post("/message:send", json=SEND, headers={"host": "evil.example"})
        assert rebound.status_code == 403
    async with entered(peer=ELSEWHERE, allow_unauthenticated=True) as http:
        sent = await http.post("/message:send", json=SEND, headers={"host": "agents.example"})
        assert sent.status_code == 200


# -- its URLs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "root", "url"),
    [
        ({}, "", "http://localhost/agents/echo"),
        ({}, "/in/side", "http://localhost/in/side/agents/echo"),
        ({}, "/für uns", "http://localhost/f%C3%BCr%20uns/agents/echo"),
        ({"public_url": "https://a.example/in"}, "/other", "https://a.example/in/agents/echo"),
    ],
)
async def test_cards_name_the_place_of_the_application(settings: Mapping[str, Any], root: str, url: str) -> None:
    app = create_app([echoing()], {**MEMORY, **settings})
    for keeps_path in (True, False):

        async def parent(scope: Any, receive: Any, send: Any, keeps_path: bool = keeps_path) -> None:
            whole = root + scope["path"] if keeps_path else scope["path"]
            await app({**scope, "root_path": root, "path": whole}, receive, send)

        async with app.lifespan(), client(parent) as http:
            card = (await http.get("/agents/echo/.well-known/agent-card.json")).json()
            assert {each["url"] for each in card["supportedInterfaces"]} == {url}
            listed = (await http.get("/agents")).json()["agents"][0]
            assert listed["url"] == url
            page = (await http.get("/", headers={"accept": "text/html"})).text
            assert url in page
            if not settings:
                document = (await http.get("/openapi.json")).json()
                servers = [each["url"] for path in document["paths"].values() for each in path.get("servers", ())]
                mount = url.removeprefix("http://localhost").removesuffix("/agents/echo")
                assert set(servers) == {f"{mount}/", mount + "/agents/{agent}"}
                assert document.get("servers", []) == ([{"url": mount}] if mount else [])


@pytest.mark.parametrize("at", ["/.well-known", "/"])
@pytest.mark.parametrize("nested", [False, True])
async def test_the_documents_at_the_parents_root_name_the_mounted_application(at: str, nested: bool) -> None:
    app = create_app([echoing()], MEMORY)
    routes = [Mount("/api", routes=[Mount("/in", app)])] if nested else [Mount("/in", app)]
    parent = Starlette(routes=[*routes, Mount(at, app.well_known)])
    base = "/api/in" if nested else "/in"
    async with app.lifespan(), client(parent) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card == (await http.get(f"{base}/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == f"http://localhost{base}/"
        entries = (await http.get("/.well-known/ai-catalog.json")).json()["entries"]
        paths = [each["url"].removeprefix(f"http://localhost{base}") for each in entries]
        assert paths == ["/agents/echo/.well-known/agent-card.json", "/mcp/server-card"]
        assert [(await http.get(each["url"])).status_code for each in entries] == [200, 200]
        assert (await http.get("/.well-known/jwks.json")).status_code == 200
        catalogue = (await http.get("/.well-known/ai-catalog.json")).json()
        assert catalogue == (await http.get(f"{base}/.well-known/ai-catalog.json")).json()
        assert catalogue["entries"][0]["url"].startswith(f"http://localhost{base}/agents/echo/")
        assert (await http.get("/.well-known/nothing")).status_code == 404
        assert (await http.post("/.well-known/message:send", json=SEND)).status_code == 404


@pytest.mark.parametrize("at", ["/.well-known", "/"])
async def test_the_documents_of_an_application_within_another_one_name_its_own_mount(at: str) -> None:
    app = create_app([echoing()], MEMORY)
    inner = Starlette(routes=[Mount("/in", app), Mount(at, app.well_known)])
    parent = Starlette(routes=[Mount("/v1", inner), Mount("/in", create_app([echoing("other")], MEMORY))])
    async with app.lifespan(), client(parent) as http:
        card = (await http.get("/v1/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == "http://localhost/v1/in/"
        assert card == (await http.get("/v1/in/.well-known/agent-card.json")).json()


async def test_documents_at_a_root_that_does_not_list_its_routes_need_the_public_url() -> None:
    app = create_app([echoing()], MEMORY)
    async with app.lifespan(), client(app.well_known) as http:
        answer = await http.get("/.well-known/agent-card.json")
        assert answer.status_code == 503
        assert "set public_url to it" in said(answer)
    app = create_app([echoing()], {**MEMORY, "public_url": "https://a.example/in"})
    async with app.lifespan(), client(app.well_known) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == "https://a.example/in/"


class Listed:
    """A route of another application."""

    def __init__(self, path: str, app: object = None, routes: object = ()) -> None:
        self.path, self.app, self.routes = path, app, routes


def test_the_mount_is_found_among_the_routes_of_the_other_application() -> None:
    ours = object()
    assert find_mount([Listed("/x", object()), Listed("/in/", ours)], ours) == "/in"
    assert find_mount([Listed("/v1", None, [Listed("/in", ours)])], ours) == "/v1/in"
    assert find_mount([Listed("/{tenant}", ours), object()], ours) is None
    assert find_mount([], ours) is None


# -- what it is made of ------------------------------------------------------------------------------------------------


async def ids_of(app: Application) -> list[str]:
    async with app.lifespan(), client(app) as http:
        return [each["id"] for each in (await http.get("/agents")).json()["agents"]]


def made_later() -> Agent:
    """Makes an agent when the application starts."""
    return echoing("inner")


async def test_agents_are_given_alone_in_a_list_by_id_or_by_reference(tmp_path: Path) -> None:
    assert await ids_of(create_app(echoing(), MEMORY)) == ["echo"]
    assert await ids_of(create_app([echoing("b"), "a=examples/agents.py:echo"], MEMORY)) == ["b", "a"]
    assert await ids_of(create_app({"x": echoing(), "y": echoing("y")}, {**MEMORY, "default": "y"})) == ["y", "x"]
    assert await ids_of(create_app([made_later], MEMORY)) == ["made_later"]
    file = tmp_path / "dragoman.toml"
    file.write_text('store = "memory:"\n[[agents]]\nid = "far"\nrun = "worker"\n')
    assert await ids_of(create_app([echoing()], file)) == ["far", "echo"]
    table = {**MEMORY, "agents": [{"id": "far", "run": "worker"}]}
    assert await ids_of(create_app(config=table)) == ["far"]


async def test_the_environment_wins_over_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_API_KEY", "sesame")
    monkeypatch.setenv("DRAGOMAN_ADMIN_RUNS_WORKERS", "false")
    async with entered(api_key="other") as http:
        for key, status in (("other", 401), ("sesame", 200)):
            assert (await http.post("/message:send", json=SEND, headers={"x-api-key": key})).status_code == status


@pytest.mark.parametrize(
    ("agents", "config", "error", "told"),
    [
        ([], {}, AgentReferenceError, "no agents: name one"),
        ([3], {}, AgentReferenceError, "agents: an object of type int is not an agent; give an Agent"),
        ([echoing(), echoing()], {}, AgentReferenceError, "agent id 'echo' is given 2 times"),
        ([echoing()], {"stor": "memory:"}, ConfigError, "config: stor: no such setting; did you mean store?"),
        ([echoing()], {"port": "x"}, ConfigError, "config: port = 'x': must be a whole number"),
        ([echoing()], {"grpc_port": 50051}, StartError, "grpc_port is set, and an application that is mounted"),
        ([echoing()], {"tls_cert": "c.pem"}, StartError, "tls_cert is set, and an application that is mounted"),
        ([echoing()], {"processes": 2}, StartError, "processes = 2: the server that runs the application"),
        ([echoing()], {"files": "folder:x"}, StartError, "files is set and public_url is not"),
    ],
)
def test_a_fault_is_told_when_the_application_is_made(agents: Any, config: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told.replace("?", r"\?")):
        create_app(agents, config)
