"""The admin API of a whole server: who gets in, and what they read and change."""

import asyncio
import json
import stat
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from dragoman import Agent
from dragoman.admin.question import PREFIX, AnyQuestion
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.auth.operator_token import local_server, read_token, token_path
from dragoman.bindings.admin.endpoint import Admin
from dragoman.bindings.admin.routes import routes
from dragoman.bindings.http import Gone, HttpRequest
from dragoman.bindings.limits import Limits
from dragoman.bindings.routes import ADMIN, Route
from dragoman.config import Config
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.api import Runner
from dragoman.engine.handlers.audit import READS
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.principal import AccessRole, Scope
from dragoman.server import serving
from dragoman.store.audit import AuditEntry
from tests.kit import places
from tests.kit.agents import asking
from tests.kit.places import V1, add_keys, bearer, beside, sqlite_url
from tests.systems.test_upstream import partner

DEADLINE_S = 60.0


BODIES = {
    "cancelTasks": {"agent": "other"},
    "deleteTasks": {"agent": "other"},
    "startBulk": {"action": "cancel", "agent": "other"},
    "redeliverWebhooks": {"all": True},
    "deleteWebhooks": {"numbers": [7]},
    "answerTask": {"parts": [{"text": "blue"}]},
    "createKey": {"name": "ann"},
    "limitKey": {"max_open_tasks": 1},
    "rotateKey": {},
    "revokeKey": {},
    "checkMessage": {"text": "{}"},
    "readRemoteCard": {"url": "http://127.0.0.1:9/"},
    "sendRemoteMessage": {
        "url": "http://127.0.0.1:9/",
        "dialect": "1.0",
        "request": {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "x"}]}},
    },
    "readRemoteTask": {"url": "http://127.0.0.1:9/", "dialect": "1.0", "task_id": "none"},
    "cancelRemoteTask": {"url": "http://127.0.0.1:9/", "dialect": "1.0", "task_id": "none"},
    "pauseHost": {"host": "hooks.example.org"},
    "resumeHost": {"host": "hooks.example.org"},
    "deletePrincipal": {"principal": "key:nobody"},
    "addAgent": {"id": "added", "agent": {"run": "a2a:http://127.0.0.1:9"}},
    "changeAgent": {"agent": {"name": "Changed"}},
    "restoreAgent": {"to": 1},
}
"""The bodies of the operations that need one."""


QUERIES = {"deleteTask": "?force=true", "exportPrincipal": "?principal=key:ops", "search": "?q=one"}


def waiting_agent(name: str) -> Agent:
    return asking(name, "which one, {}?")


def server(store: str, *more: Runner, **settings: Any) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """A server with two agents whose tasks wait for their callers."""
    return places.server(waiting_agent("echo"), waiting_agent("other"), *more, store=store, **settings)


@asynccontextmanager
async def operated(folder: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    """The same on a store in a file, and the headers of its operator."""
    store = sqlite_url(folder)
    async with server(store) as http:
        yield http, bearer(store)


async def make_keys(store_url: str, **roles: tuple[AccessRole, tuple[Scope, ...] | None]) -> dict[str, dict[str, str]]:
    """Make a key for each name; returns the headers with them."""
    limits = {name: {"role": role, "scopes": scopes} for name, (role, scopes) in roles.items()}
    return {name: {"x-api-key": key} for name, key in (await add_keys(store_url, **limits)).items()}


async def make_task(http: aiohttp.ClientSession, agent: str, text: str, headers: dict[str, str] | None = None) -> str:
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    sent = {"message": message}
    async with http.post(f"/agents/{agent}/message:send", json=sent, headers=V1 | (headers or {})) as answer:
        task = (await answer.json())["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        return str(task["id"])


async def read(
    http: aiohttp.ClientSession, path: str, headers: dict[str, str], method: str = "GET", **sent: Any
) -> tuple[int, Any]:
    async with http.request(method, PREFIX + path, headers=headers, **sent) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(await answer.read())


async def test_a_server_that_asks_nobody_admits_the_bearer_of_its_token_alone(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    path = token_path(store, 0)
    assert path is not None
    async with server(store) as http:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await read(http, "/tasks", bearer(store)))[0] == 200
        assert (await read(http, "/tasks", {}))[0] == 401
        assert (await read(http, "/tasks", {"x-api-key": "dgo_wrong"}))[0] == 401
        assert (await read(http, "/openapi.json", {}))[0] == 401
        assert (await read(http, "/tasks", bearer(store) | {"Host": "evil.example"}))[0] == 403
    assert not path.exists()


@pytest.mark.parametrize(
    ("login", "principal"),
    [
        ("ann", "operator:ann"),
        ("j%C3%BCrgen", "operator:jürgen"),
        ("%1B%5B31m%0Aann%E2%80%AE%20b", "operator:[31mannb"),
        ("%FF%00", "operator:\N{REPLACEMENT CHARACTER}"),
        ("%0A", "operator:local"),
        ("a" * 500, "operator:" + "a" * 100),
        (None, "operator:local"),
    ],
)
async def test_the_bearer_of_the_token_has_the_login_that_is_sent(
    tmp_path: Path, login: str | None, principal: str
) -> None:
    store = sqlite_url(tmp_path)
    named = {} if login is None else {"X-Dragoman-Login": login}
    keys = await make_keys(sqlite_url(tmp_path / "keyed"), ops=(AccessRole.OPERATOR, None))
    async with server(store) as http:
        assert (await read(http, "/tasks", bearer(store) | named))[0] == 200
    assert [entry.action for entry in await audit_of(store, principal)] == ["tasks.list"]
    async with server(sqlite_url(tmp_path / "keyed")) as http:
        assert (await read(http, "/tasks", keys["ops"] | named))[0] == 200
    assert [entry.action for entry in await audit_of(sqlite_url(tmp_path / "keyed"), "key:ops")] == ["tasks.list"]


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/dragoman.db"])
async def test_the_token_is_found_by_the_address_of_the_server(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with serving(
        Config(port=0, store=store.format(tmp_path)), [Agent("idle", description="Does nothing")]
    ) as url:
        here = local_server(url)
        assert here is not None
        port = url.rpartition(":")[2].rstrip("/")
        assert local_server(f"http://localhost:{port}") == (f"http://127.0.0.1:{port}", here[1])
        assert local_server(f"https://localhost:{port}") == (f"https://localhost:{port}", here[1])
        others = (f"http://agents.example:{port}", f"http://[::1]:{port}", f"http://ann:pw@127.0.0.1:{port}")
        for other in (*others, "http://127.0.0.1:1", "http://127.0.0.1:x", "127.0.0.1"):
            assert local_server(other) is None
        (file,) = (tmp_path / "dragoman").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert local_server(url) is None


async def test_a_token_that_others_could_have_written_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "dragoman"
    folder.mkdir(mode=0o700)
    (folder / "7870.operator").write_text("dgo_planted\n")
    assert local_server("http://127.0.0.1:7870") == ("http://127.0.0.1:7870", "dgo_planted")
    folder.chmod(0o770)
    assert local_server("http://127.0.0.1:7870") is None
    folder.chmod(0o700)
    folder.rename(tmp_path / "theirs")
    folder.symlink_to(tmp_path / "theirs")
    assert local_server("http://127.0.0.1:7870") is None


@pytest.mark.parametrize("settings", [{"api_key": "shared"}, {"api_key": "shared", "audit": "refused"}])
async def test_the_shared_key_and_admins_are_no_operators(tmp_path: Path, settings: dict[str, Any]) -> None:
    store = sqlite_url(tmp_path)
    every = tuple(Scope)
    keys = await make_keys(
        store,
        admin=(AccessRole.ADMIN, None),
        agent=(AccessRole.AGENT, None),
        caller=(AccessRole.CALLER, None),
        limited=(AccessRole.OPERATOR, every),
        operator=(AccessRole.OPERATOR, None),
    )
    async with server(store, **settings) as http:
        assert read_token(store, 0) is None
        statuses = {name: (await read(http, "/tasks", header))[0] for name, header in keys.items()}
        assert statuses == {"admin": 403, "agent": 403, "caller": 403, "limited": 403, "operator": 200}
        assert (await read(http, "/tasks", {"x-api-key": "shared"}))[0] == 403
        assert (await read(http, "/tasks", {}))[0] == 401


async def test_an_operator_sees_and_cancels_the_tasks_of_everybody(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await make_keys(
        store, ann=(AccessRole.CALLER, None), bob=(AccessRole.CALLER, None), ops=(AccessRole.OPERATOR, None)
    )
    ops = keys["ops"]
    async with server(store) as http:
        made = [
            await make_task(http, "echo", "one", keys["ann"]),
            await make_task(http, "other", "two", keys["ann"]),
            await make_task(http, "echo", "three", keys["bob"]),
        ]
        status, page = await read(http, "/tasks", ops)
        assert (status, page["total"], page["next_cursor"]) == (200, 3, "")
        assert sorted(line["id"] for line in page["tasks"]) == sorted(made)
        for query, wanted in (
            ("agent=echo", {made[0], made[2]}),
            ("principal=key:ann", {made[0], made[1]}),
            ("principal=key:bob&agent=other", set()),
            ("state=input-required", set(made)),
            ("state=completed", set()),
            ("dialect=1.0", set(made)),
            ("dialect=0.3", set()),
            ("text=TWO", {made[1]}),
            ("text=two&agent=echo", set()),
            ("older_than_s=3600", set()),
            ("newer_than_s=3600", set(made)),
            ("longer_than_s=3600", set()),
            ("shorter_than_s=3600", set(made)),
            ("metadata=colour", set()),
        ):
            _, page = await read(http, f"/tasks?{query}", ops)
            assert {line["id"] for line in page["tasks"]} == wanted, query
        for query in ("", "&dialect=1.0", "&text=o"):
            paged, cursor = [], ""
            while True:
                _, page = await read(http, f"/tasks?limit=1&cursor={cursor}{query}", ops)
                paged += [line["id"] for line in page["tasks"]]
                cursor = page["next_cursor"]
                if not cursor:
                    break
                foreign = "" if query else "&text=o"
                assert (await read(http, f"/tasks?cursor={cursor}{foreign}", ops))[0] == 400, "of another list"
            assert sorted(paged) == sorted(made[:2] if "text" in query else made)
        _, shown = await read(http, f"/tasks/{made[0]}", ops)
        assert (shown["task"]["principal"], shown["text"]) == ("key:ann", "one")
        assert shown["status_text"] == "which one, one?"
        _, log = await read(http, f"/tasks/{made[0]}/log", ops)
        assert log["events"][0]["kind"] == "submitted"
        assert [entry["seq"] for entry in log["events"]] == list(range(1, log["seq"] + 1))
        assert all(entry["at"] for entry in log["events"] if entry["kind"] in ("submitted", "status"))
        _, rest = await read(http, f"/tasks/{made[0]}/log?after=1&limit=1", ops)
        assert [entry["seq"] for entry in rest["events"]] == [2]
        assert await read(http, f"/tasks/{made[0]}:cancel", ops, "POST") == (
            200,
            {"id": made[0], "state": "canceled"},
        )
        filtered = {"principal": "key:ann"}
        _, report = await read(http, "/tasks:cancel", ops, "POST", json=filtered | {"dry_run": True})
        assert ([line["id"] for line in report["matched"]], report["canceled"]) == ([made[1]], [])
        _, report = await read(http, "/tasks:cancel", ops, "POST", json=filtered)
        assert (report["canceled"], report["failed"], report["more"]) == ([made[1]], [], False)
        _, page = await read(http, "/tasks?state=canceled", ops)
        assert {line["id"] for line in page["tasks"]} == {made[0], made[1]}
        assert (await read(http, "/tasks?state=input-required", ops))[1]["total"] == 1
    entries = await audit_of(store, "key:ops")
    cancels = [(entry.action, entry.task_id) for entry in entries if entry.action == "tasks.cancel"]
    assert cancels == [("tasks.cancel", made[0]), ("tasks.cancel", made[1])]
    assert {entry.action for entry in entries} == {
        "tasks.list",
        "tasks.show",
        "tasks.log",
        "tasks.cancel",
        "tasks.cancel-many",
    }
    assert all(entry.action != "CancelTask" for entry in await audit_of(store, "key:ann"))


async def audit_of(store_url: str, principal: str) -> tuple[AuditEntry, ...]:
    async with beside(store_url) as store:
        return await store.audit.read(principal=principal, limit=1000)


async def test_wrong_requests_say_what_is_wrong(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        for method, path, body, expected, words in (
            ("GET", "/nothing", None, 404, "openapi.json"),
            ("GET", "/tasks/none", None, 404, "none"),
            ("GET", "/tasks/none/log", None, 404, "none"),
            ("POST", "/tasks/none:cancel", None, 404, "none"),
            ("POST", "/tasks", None, 405, ""),
            ("GET", "/tasks?state=dead", None, 400, "state"),
            ("GET", "/tasks?limit=0", None, 400, "limit"),
            ("GET", "/tasks?colour=red", None, 400, "colour"),
            ("GET", "/tasks?cursor=%21", None, 400, "leave it out"),
            ("GET", "/tasks?text=", None, 400, "text"),
            ("GET", "/tasks?older_than_s=nan", None, 400, "older_than_s"),
            ("POST", "/tasks:cancel", {}, 400, "older_than_s = 0"),
            ("POST", "/tasks:cancel", {"state": "failed"}, 400, "submitted"),
            ("POST", "/tasks/none:cancel", {"why": "x"}, 400, "why"),
            ("DELETE", "/tasks/none", None, 404, "none"),
            ("DELETE", "/tasks/none?force=maybe", None, 400, "force"),
            ("GET", "/audit?limit=0", None, 400, "limit"),
            ("GET", "/audit?refused=often", None, 400, "refused"),
            ("GET", f"/audit?since_ms={1 << 63}", None, 400, "since_ms"),
            ("GET", f"/audit?until_ms={1 << 63}", None, 400, "until_ms"),
            ("GET", f"/tasks/none/log?after={1 << 63}", None, 400, "after"),
            ("GET", f"/tasks/none/content?after={1 << 63}", None, 400, "after"),
            ("GET", f"/tasks/none/wire?after={1 << 63}", None, 400, "after"),
            ("GET", f"/tasks/none/moment?seq={1 << 63}", None, 400, "seq"),
            ("GET", "/webhooks?dead=maybe", None, 400, "dead"),
            ("POST", "/webhooks:redeliver", {}, 400, "numbers"),
            ("POST", "/webhooks:delete", {"numbers": [1], "all": True}, 400, "one of the two"),
            ("POST", "/webhooks:delete", {"numbers": [0]}, 400, "numbers"),
            ("POST", "/tasks:delete", {}, 400, "older_than_s = 0"),
            ("POST", "/bulk", {"action": "delete"}, 400, "older_than_s = 0"),
            ("POST", "/bulk", {"action": "cancel", "state": "failed"}, 400, "is an end"),
            ("POST", "/bulk", {"action": "delete", "state": "working"}, 400, "no end"),
            ("POST", "/bulk", {"action": "send-again", "force": True, "state": "working"}, 400, "no end"),
            ("POST", "/bulk", {"action": "cancel", "agent": "echo", "limit": 10_001}, 400, "limit"),
            ("POST", "/bulk/none:stop", None, 404, "none"),
            ("GET", "/series?span=year", None, 400, "span"),
            ("POST", "/tasks:delete", {"state": "working"}, 400, "force"),
            ("POST", "/tasks/none:answer", {"parts": [{"text": "x"}]}, 404, "none"),
            ("POST", "/tasks/none:answer", {}, 400, "at least one part"),
            ("POST", "/tasks/none:answer", None, 415, ""),
            ("POST", "/tasks/none:answer", {"parts": [{}]}, 400, "parts[0]"),
            ("POST", "/tasks/none:answer", {"parts": [{"text": "x", "data": 1}]}, 400, "exactly one"),
            ("POST", "/tasks/none:answer", {"parts": [{"text": "x", "file": "a/b"}]}, 400, "parts[0]"),
            ("POST", "/tasks/none:answer", {"parts": [{"text": "x"}], "approve": True}, 400, "approve"),
            ("POST", "/tasks/none:answer", {"approve": "yes"}, 400, "approve"),
        ):
            status, answer = await read(http, path, ops, method, json=body)
            assert status == expected, (method, path, answer)
            assert words in json.dumps(answer), (method, path, answer)


async def make_subject(http: aiohttp.ClientSession, ops: dict[str, str], route: AnyQuestion) -> str:
    """Make a thing that an operation is about, and return its id."""
    if route.path.startswith("/keys/"):
        return str((await read(http, "/keys", ops, "POST", json={"name": route.name}))[1]["key"]["id"])
    if route.path.startswith("/bulk/"):
        return str((await read(http, "/bulk", ops, "POST", json=BODIES["startBulk"]))[1]["id"])
    if "{member}" in route.path:
        urls = ["openai:http://127.0.0.1:9/v1", "openai:http://127.0.0.1:9/v2"]
        pool = {"id": route.name, "agent": {"run": urls, "model": "small"}}
        await read(http, "/agents", ops, "POST", json=pool)
        _, listed = await read(http, "/agents", ops)
        (members,) = [line["members"] for line in listed["agents"] if line["id"] == route.name]
        return f"{route.name}/{members[0]['name']}"
    if route.path.startswith("/agents/"):
        added = {"id": route.name, "agent": {"run": "a2a:http://127.0.0.1:9"}}
        return str((await read(http, "/agents", ops, "POST", json=added))[1]["id"])
    task_id = await make_task(http, "partner" if route.name == "askUpstream" else "echo", route.name, ops)
    if not route.path.startswith("/webhooks/"):
        return task_id
    path = f"/agents/echo/tasks/{task_id}/pushNotificationConfigs"
    async with http.post(path, json={"url": "http://127.0.0.1:9/in"}, headers=V1 | ops) as answer:
        assert answer.status == 200
    return str((await read(http, f"/webhooks?task={task_id}", ops))[1]["deliveries"][0]["number"])


async def test_every_answer_fits_the_document_that_names_every_route(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    async with (
        serving(Config(port=0, store="memory:", shutdown_grace_s=0.2), [waiting_agent("echo")]) as elsewhere,
        server(
            store,
            partner(f"{elsewhere}/agents/echo"),
            push_allowed_hosts=("127.0.0.1",),
            agents_api_allow_hosts=("127.0.0.1",),
        ) as http,
    ):
        _, document = await read(http, "/openapi.json", ops)
        assert document["openapi"] == "3.1.0"
        described = {(path, method.upper()) for path, each in document["paths"].items() for method in each}
        assert described == {(PREFIX + route.path, route.method) for route in routes()}
        for route in routes():
            if route.answer is None:
                continue  # a stream
            subject = await make_subject(http, ops, route)
            path = route.place(subject).removeprefix(PREFIX) + QUERIES.get(route.name, "")
            status, answer = await read(http, path, ops, route.method, json=BODIES.get(route.name))
            assert status == 200, (path, answer)
            operation = document["paths"][PREFIX + route.path][route.method.lower()]
            check(document, operation["responses"]["200"], answer)
            assert msgspec.convert(answer, route.answer)
        status, answer = await read(http, "/tasks/none", ops)
        check(document, operation["responses"]["default"], answer)


async def test_a_read_that_is_repeated_is_noted_once_and_changes_nothing(tmp_path: Path) -> None:
    """A page of the console that is left open reads the same again and again."""
    store = sqlite_url(tmp_path)
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    reads = [route for route in routes() if route.method == "GET" and route.answer is not None]
    async with server(store, push_allowed_hosts=("127.0.0.1",), agents_api_allow_hosts=("127.0.0.1",)) as http:
        for route in reads:
            subject = await make_subject(http, ops, route)
            path = route.place(subject).removeprefix(PREFIX) + QUERIES.get(route.name, "")
            for _ in range(2):
                assert (await read(http, path, ops))[0] == 200, path
    entries = await audit_of(store, "key:ops")
    noted = Counter((each.action, each.task_id, each.subject) for each in entries if "." in each.action)
    assert len(noted) > len(reads)
    assert [each for each, count in noted.items() if count > 1] == []
    assert {action for action, _, _ in noted if not action.endswith(READS)} == {"keys.create", "agents.add"}


async def test_every_number_that_is_given_has_a_maximum(tmp_path: Path) -> None:
    """An integer beyond those of the stores would be an internal error."""
    store = sqlite_url(tmp_path)
    async with server(store) as http:
        _, document = await read(http, "/openapi.json", bearer(store))
    numbers = [
        (place, schema)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for given in (operation.get("parameters", []), operation.get("requestBody", {}))
        for place, schema in numbers_in(document, given, f"{method} {path}")
    ]
    assert len(numbers) > 20
    assert [place for place, schema in numbers if "maximum" not in schema] == []


def numbers_in(document: Any, value: Any, place: str) -> list[tuple[str, Any]]:
    """The schemas of numbers in a part of the document, each with its place."""
    if isinstance(value, list):
        return [found for each in value for found in numbers_in(document, each, place)]
    if not isinstance(value, dict):
        return []
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return numbers_in(document, document["components"]["schemas"][name], f"{place} {name}")
    if value.get("type") in ("integer", "number"):
        return [(place, value)]
    return [
        found
        for key, each in value.items()
        for found in numbers_in(document, each, f"{place} {value.get('name', key)}")
    ]


def check(document: Any, response: Any, answer: Any) -> None:
    """The answer fits the schema of the response."""
    schema = response["content"]["application/json"]["schema"]
    assert fits(document, schema, answer), answer


def fits(document: Any, schema: Any, value: Any) -> bool:
    """Whether a value fits a schema of the document, and has no member that the schema does not name."""
    if "$ref" in schema:
        return fits(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value)
    if "anyOf" in schema:
        return any(fits(document, one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case None:
            return True
        case "null":
            return value is None
        case "object" if "properties" in schema:
            known = schema["properties"]
            return (
                isinstance(value, dict)
                and {*schema.get("required", ())} <= {*value} <= {*known}
                and all(fits(document, known[name], each) for name, each in value.items())
            )
        case "object":
            return isinstance(value, dict)
        case "array":
            firsts = schema.get("prefixItems", [])
            rest = schema.get("items", {})
            return isinstance(value, list) and all(
                fits(document, firsts[place] if place < len(firsts) else rest, each) for place, each in enumerate(value)
            )
        case kind:
            types = {"string": str, "integer": int, "number": int | float, "boolean": bool}
            return isinstance(value, types[kind]) and (kind == "boolean" or not isinstance(value, bool))


async def test_agents_are_told_with_the_numbers_of_their_tasks(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    skill = AgentSkill(id="add", name="Add", description="Adds", tags=("t",))
    profile = Profile(id="sum", name="Sum", description="Adds", version="2", skills=(skill,))
    worker = WorkerAgent(profile, queues=True)
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with (
        serving(config, [waiting_agent("echo"), worker]) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        ops = bearer(store)
        await make_task(http, "echo", "one")
        sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "1 + 1"}]}}
        waits = sent | {"configuration": {"returnImmediately": True}}
        async with http.post("/agents/sum/message:send", json=waits, headers=V1) as answer:
            assert answer.status == 200
        while True:  # the numbers of states are read one after the other, while the task goes from one to the next
            lines = {line["id"]: line for line in (await read(http, "/agents", ops))[1]["agents"]}
            if (lines["sum"]["queued"], lines["sum"]["running"]) == (1, 0):
                break
        assert (lines["echo"]["kind"], lines["echo"]["waiting"], lines["echo"]["total"]) == ("python", 1, 1)
        assert (lines["sum"]["kind"], lines["sum"]["total"], lines["sum"]["version"]) == ("worker", 1, "2")
        assert lines["echo"]["oldest_queued_s"] is None
        _, told = await read(http, "/workers", ops)
        (line,) = told["workers"]
        assert line.pop("oldest_queued_s") >= 0
        assert line == {"agent": "sum", "connected": False, "workers": 0, "idle": 0, "running": 0, "queued": 1}
        _, stats = await read(http, "/stats", ops)
        assert (sum(stats["tasks"].values()), stats["tasks"]["input-required"], stats["replicas"]) == (2, 1, 1)


async def test_a_task_that_is_canceled_meanwhile_is_reported(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        task_id = await make_task(http, "echo", "one")
        first, second = await asyncio.gather(
            read(http, "/tasks:cancel", ops, "POST", json={"older_than_s": 0}),
            read(http, f"/tasks/{task_id}:cancel", ops, "POST"),
        )
        assert (first[0], second) == (200, (200, {"id": task_id, "state": "canceled"}))
        assert first[1]["failed"] == []


async def test_a_deleted_task_is_gone_for_everybody(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        kept, open_task, ended = [await make_task(http, "echo", name) for name in ("kept", "open", "ended")]
        assert (await read(http, f"/tasks/{ended}:cancel", ops, "POST"))[0] == 200
        status, refused = await read(http, f"/tasks/{open_task}", ops, "DELETE")
        assert (status, "input-required" in json.dumps(refused)) == (400, True)
        assert await read(http, f"/tasks/{ended}", ops, "DELETE") == (200, {"id": ended, "deleted": True})
        assert (await read(http, f"/tasks/{ended}", ops, "DELETE"))[0] == 404
        async with http.get(f"/agents/echo/tasks/{ended}", headers=V1) as answer:
            assert answer.status == 404
        async with http.post(f"/agents/echo/tasks/{open_task}:subscribe", headers=V1) as stream:
            await stream.content.readline()
            forced = await read(http, f"/tasks/{open_task}?force=true", ops, "DELETE")
            assert forced == (200, {"id": open_task, "deleted": True})
            assert b"TASK_STATE_CANCELED" in await stream.read(), "it ends as the task did"
        _, page = await read(http, "/tasks", ops)
        assert ([line["id"] for line in page["tasks"]], page["total"]) == ([kept], 1)
        _, dry = await read(
            http, "/tasks:delete", ops, "POST", json={"older_than_s": 0, "force": True, "dry_run": True}
        )
        assert ([line["id"] for line in dry["matched"]], dry["deleted"]) == ([kept], [])
        _, none = await read(http, "/tasks:delete", ops, "POST", json={"older_than_s": 0})
        assert (none["matched"], none["deleted"]) == ([], [])
        _, done = await read(http, "/tasks:delete", ops, "POST", json={"older_than_s": 0, "force": True})
        assert (done["deleted"], done["failed"]) == ([kept], [])
    deletes = [
        entry for entry in await audit_of(sqlite_url(tmp_path), "operator:local") if entry.action == "tasks.delete"
    ]
    assert [(entry.task_id, entry.allowed) for entry in deletes] == [
        (open_task, False),
        (ended, True),
        (ended, False),
        (open_task, True),
        (kept, True),
    ]


async def test_tasks_are_listed_in_every_order(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        first, second, third = [await make_task(http, "echo", text) for text in ("one", "two", "three")]
        assert (await read(http, f"/tasks/{first}:cancel", ops, "POST"))[0] == 200
        for query, wanted in (
            ("", [first, third, second]),
            ("order=newest-changed", [first, third, second]),
            ("order=oldest-changed", [second, third, first]),
            ("order=newest-created", [third, second, first]),
            ("order=oldest-created", [first, second, third]),
            ("order=oldest-created&state=input-required", [second, third]),
            ("order=oldest-created&text=o", [first, second]),
            ("order=oldest-changed&older_than_s=0", [second, third, first]),
            ("order=oldest-changed&older_than_s=3600", []),
            ("order=longest-running", []),
        ):
            found, cursor = [], ""
            while True:
                status, page = await read(http, f"/tasks?limit=1&{query}&cursor={cursor}", ops)
                assert status == 200, page
                found += [line["id"] for line in page["tasks"]]
                if not (cursor := page["next_cursor"]):
                    break
            assert found == wanted, query
        _, page = await read(http, "/tasks?limit=1&order=oldest-changed", ops)
        for wrong, words in (
            (f"order=newest-created&cursor={page['next_cursor']}", "cursor"),
            (f"cursor={page['next_cursor']}", "cursor"),
            ("order=oldest-changed&text=o", "newest-created or oldest-created"),
            ("order=longest-running&older_than_s=60", "oldest-changed"),
            ("order=best", "order"),
        ):
            status, answer = await read(http, f"/tasks?{wrong}", ops)
            assert (status, words in json.dumps(answer)) == (400, True), answer


async def test_a_task_is_sent_again_as_the_operators_own(tmp_path: Path) -> None:
    """With its files, by everything that the first caller asked for but webhooks."""
    store = sqlite_url(tmp_path)
    keys = await make_keys(store, ann=(AccessRole.CALLER, None), ops=(AccessRole.OPERATOR, None))
    ops = keys["ops"]
    async with server(store, files=f"folder:{tmp_path}/files", files_above=1000) as http:
        parts = [{"text": "one"}, {"raw": "QUJD" * 1000, "filename": "x.bin"}]
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": parts}
        asked = {"message": message, "configuration": {"acceptedOutputModes": ["text/plain"]}}
        async with http.post("/agents/echo/message:send", json=asked, headers=V1 | keys["ann"]) as answer:
            first = (await answer.json())["task"]["id"]
        status, sent = await read(http, f"/tasks/{first}:send-again", ops, "POST")
        assert status == 200, sent
        assert (await read(http, f"/tasks/{first}?", ops, "DELETE", params={"force": "true"}))[0] == 200
        _, shown = await read(http, f"/tasks/{sent['id']}", ops)
        assert (shown["task"]["principal"], shown["task"]["agent"], shown["text"]) == ("key:ops", "echo", "one")
        assert shown["task"]["context"] != first
        async with http.get(f"/agents/echo/tasks/{sent['id']}", headers=V1 | ops) as answer:
            url = (await answer.json())["history"][0]["parts"][1]["url"]
        async with http.get(url) as answer:
            assert await answer.read() == b"ABC" * 1000, "the files of the new task are its own"
        assert (await read(http, "/tasks/none:send-again", ops, "POST"))[0] == 404
    noted = [entry for entry in await audit_of(store, "key:ops") if entry.action == "tasks.send-again"]
    assert [(entry.task_id, entry.subject, entry.allowed) for entry in noted] == [
        (first, sent["id"], True),
        ("none", "", False),
    ]


class SlowAdministration:
    """An administration that never finds the answer, and notes that its search was called off."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.called_off = asyncio.Event()
        self.streams: dict[str, Any] = {}

    def admit(self, *_: object) -> None:
        """Everybody."""

    async def answer(self, *_: object) -> Any:
        self.asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.called_off.set()

    def serve(self, facts: object) -> None:
        """Know nothing."""


async def test_a_read_ends_when_its_reader_leaves() -> None:
    slow = SlowAdministration()
    admin = Admin(cast(Administration, slow), cast(Limits, None), cast(ServerFacts, None))

    async def leave() -> dict[str, object]:
        await slow.asked.wait()
        return {"type": "http.disconnect"}

    route = Route("admin", ADMIN, segments=("tasks", "t"))
    request = HttpRequest(method="GET", headers={}, header_list=[], path="/", route=route, receive=leave)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(Gone):
            await admin.answer(request)
        await slow.called_off.wait()
