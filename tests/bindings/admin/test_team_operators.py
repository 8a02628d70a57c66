"""What the operator of one team gets of everything that operators can reach: a table, and two teams that try each row.

`QUESTIONS`, `EVENTS`, `ENDPOINTS`, `CONSOLE` and `COMMANDS` are the table. Whatever is added to the product without a
row here fails a test, whose message says what to write. Each row is tried with an operator of the team `ours` on what
`theirs` has, and the answer is compared with that about something that does not exist, byte by byte.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import aiohttp
import click
import msgspec
import pytest

from dragoman.admin.overview import FOLLOW_CHANGES, AgentFacts, AgentMember
from dragoman.admin.question import PREFIX, AnyQuestion
from dragoman.admin.switches import Switch
from dragoman.bindings.admin.routes import routes
from dragoman.bindings.console import endpoint as console_endpoint
from dragoman.bindings.console import provider as console_provider
from dragoman.bindings.routes import EndpointName
from dragoman.cli import main
from dragoman.config import TeamEntry
from dragoman.config.budgets import Budget
from dragoman.engine.admin.team_facts import TeamFacts
from dragoman.model.principal import AccessRole
from tests.bindings.admin.test_feeds import STREAM
from tests.kit.agents import asking, hired
from tests.kit.places import LOOPBACK, V1, add_key, beside, server, sqlite_url
from tests.kit.waiting import no_hang

Gets = Literal["own", "filtered", "refused"]


class Row(NamedTuple):
    """What an operator of one team gets.

    own: an answer about a thing of the team; about any other one the answer for something that does not exist.
    filtered: a list, a sum or an act on many, over the team's things alone. refused: 403, since it is about the server.

    `of` is the thing whose id is in the path. `body` and `query` are sent; `{task}`, `{key}`, `{number}` and
    `{principal}` in them stand for those of the team that is asked about. `status` is that of the answer about an own
    thing. An act must leave the things of the other team as they are.
    """

    gets: Gets
    of: Literal["", "task", "key", "number"] = ""
    body: Any = None
    query: str = ""
    status: int = 200


QUESTIONS: dict[str, Row] = {
    "listTasks": Row("filtered"),
    "listConversations": Row("filtered"),
    "listInbox": Row("filtered"),
    "search": Row("filtered", query="?q={principal}"),
    "cancelTasks": Row("filtered", body={"principal": "{principal}"}),
    "cancelTask": Row("own", "task", body={}),
    "answerTask": Row("own", "task", body={"parts": [{"text": "blue"}]}),
    "sendAgain": Row("own", "task"),
    "deleteTasks": Row("filtered", body={"principal": "{principal}", "force": True}),
    "deleteTask": Row("own", "task", query="?force=true"),
    "showTask": Row("own", "task"),
    "readLog": Row("own", "task"),
    "followChanges": Row("filtered"),
    "readContent": Row("own", "task"),
    "recordTask": Row("own", "task"),
    "readMoment": Row("own", "task"),
    "readTree": Row("own", "task"),
    "askUpstream": Row("own", "task", status=400),  # its agent is none of another server
    "readDeliveries": Row("own", "task"),
    "readWire": Row("own", "task"),
    "summarizeWire": Row("own", "task"),
    "listKeys": Row("filtered"),
    "createKey": Row("filtered", body={"name": "new"}),
    "limitKey": Row("own", "key", body={"max_open_tasks": 1}),
    "showBegun": Row("own", "key"),
    "showKey": Row("own", "key"),
    "rotateKey": Row("own", "key", body={}),
    "revokeKey": Row("own", "key", body={"stop": True, "tasks": True}),
    "listAudit": Row("filtered", query="?limit=1000"),
    "listWebhooks": Row("filtered"),
    "groupWebhooks": Row("filtered"),
    "redeliverWebhooks": Row("filtered", body={"numbers": ["{number}"], "pending": True}),
    "deleteWebhooks": Row("filtered", body={"numbers": ["{number}"], "pending": True}),
    "listPausedHosts": Row("refused"),
    "pauseHost": Row("refused", body={"host": "hooks.example.org"}),
    "resumeHost": Row("refused", body={"host": "hooks.example.org"}),
    "showWebhook": Row("own", "number"),
    "listAgents": Row("filtered"),
    "listWorkers": Row("refused"),
    "listUpstreams": Row("refused"),
    "listReplicas": Row("refused"),
    "showStats": Row("filtered"),
    "showSeries": Row("refused"),
    "startBulk": Row("filtered", body={"action": "cancel", "agent": "other"}),
    "listBulk": Row("filtered"),
    "stopBulk": Row("own", "task", status=404),  # its id is that of no job
    "showUsage": Row("filtered"),
    "exportPrincipal": Row("filtered", query="?principal={principal}"),
    "deletePrincipal": Row("filtered", body={"principal": "{principal}", "cancel_open": True}),
    "listBudgets": Row("filtered"),
    "drainAgent": Row("refused"),
    "disableAgent": Row("refused"),
    "enableAgent": Row("refused"),
    "drainMember": Row("refused"),
    "disableMember": Row("refused"),
    "enableMember": Row("refused"),
    "listAddedAgents": Row("refused"),
    "addAgent": Row("refused"),
    "showAgent": Row("refused"),
    "changeAgent": Row("refused"),
    "removeAgent": Row("refused"),
    "restoreAgent": Row("refused"),
    "listAgentVersions": Row("refused"),
    "checkMessage": Row("refused"),
    "readRemoteCard": Row("refused"),
    "sendRemoteMessage": Row("refused"),
    "streamRemoteMessage": Row("refused"),
    "readRemoteTask": Row("refused"),
    "cancelRemoteTask": Row("refused"),
    "examineRemoteAgent": Row("refused"),
}
"""The rows of `admin/table.py`, and those about agents elsewhere, by their names."""

EVENTS: dict[str, Literal["all", "filtered", "none"]] = {
    "reset": "all",  # it says that the reader has to load its lists
    "task": "filtered",
    "act": "filtered",
    "agents": "filtered",
    "webhooks": "filtered",
    "workers": "none",
    "upstreams": "none",
    "replicas": "none",
}
"""The events of the feed of changes."""

ENDPOINTS: dict[str, Literal["public", "caller", "refused", "questions", "session"]] = {
    "rpc": "caller",
    "rest": "caller",
    "card": "public",
    "catalog": "public",
    "server_card": "public",
    "agents": "caller",
    "health": "public",
    "ready": "public",
    "metrics": "refused",
    "chat": "caller",
    "models": "caller",
    "responses": "caller",
    "response": "caller",
    "response-cancel": "caller",
    "response-items": "caller",
    "conversations": "caller",
    "conversation": "caller",
    "conversation-items": "caller",
    "unsupported": "public",
    "mcp": "caller",
    "workers": "refused",
    "files": "public",  # a link that is signed for one file
    "jwks": "public",
    "grpc": "caller",
    "admin": "questions",
    "console": "session",
    "openapi": "public",
    "docs": "public",
}
"""The endpoints of the server. A caller is a member of its team there, as tests/bindings/test_teams.py tries it."""

CONSOLE: dict[tuple[str, str], str] = {
    ("POST", "session"): "begins a session that is of the team",
    ("GET", "session"): "tells the operator and the team",
    ("DELETE", "session"): "ends it",
    ("GET", "sign-in"): "public",
    ("GET", "oidc/begin"): "public",
    (
        "GET",
        "oidc/callback",
    ): "begins a session that is of the team, as tests/bindings/console/test_provider.py tries it",
}
"""The routes of the console's sessions. All other paths are pages, which are the same for everybody."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "admin agents": ("listAgents",),
    "admin agents add": ("addAgent",),
    "admin agents added": ("listAddedAgents",),
    "admin agents change": ("changeAgent", "showAgent"),
    "admin agents disable": ("disableAgent", "disableMember"),
    "admin agents drain": ("drainAgent", "drainMember"),
    "admin agents enable": ("enableAgent", "enableMember"),
    "admin agents remove": ("removeAgent",),
    "admin agents restore": ("restoreAgent",),
    "admin agents show": ("showAgent",),
    "admin agents versions": ("listAgentVersions",),
    "admin budgets": ("listBudgets",),
    "admin bulk cancel": ("startBulk", "listBulk", "stopBulk"),
    "admin bulk delete": ("startBulk", "listBulk", "stopBulk"),
    "admin bulk list": ("listBulk",),
    "admin bulk send-again": ("startBulk", "listBulk", "stopBulk"),
    "admin bulk stop": ("stopBulk", "listBulk"),
    "admin inbox": ("listInbox",),
    "admin principals delete": ("deletePrincipal",),
    "admin principals export": ("exportPrincipal",),
    "admin replicas": ("listReplicas",),
    "admin series": ("showSeries",),
    "admin stats": ("showStats",),
    "admin status": (
        *("showStats", "listAgents", "listWorkers", "listUpstreams", "listPausedHosts", "listWebhooks"),
        *("listBudgets", "listInbox"),
    ),
    "admin tasks answer": ("answerTask", "showTask"),
    "admin tasks ask-upstream": ("askUpstream",),
    "admin tasks cancel": ("cancelTask", "cancelTasks"),
    "admin tasks delete": ("deleteTask", "deleteTasks"),
    "admin tasks list": ("listTasks",),
    "admin tasks log": ("readLog",),
    "admin tasks record": ("recordTask",),
    "admin tasks send-again": ("sendAgain",),
    "admin tasks show": ("showTask", "readDeliveries"),
    "admin tasks tree": ("readTree",),
    "admin upstreams": ("listUpstreams",),
    "admin usage": ("showUsage",),
    "admin workers": ("listWorkers",),
    "audit": ("listAudit",),
    "keys create": ("createKey", "listAgents"),
    "keys list": ("listKeys",),
    "keys revoke": ("revokeKey",),
    "keys rotate": ("rotateKey",),
    "keys show": ("showKey", "showBegun"),
    "keys update": ("limitKey",),
    "webhooks delete": ("deleteWebhooks",),
    "webhooks list": ("listWebhooks",),
    "webhooks pause": ("pauseHost",),
    "webhooks paused": ("listPausedHosts",),
    "webhooks redeliver": ("redeliverWebhooks",),
    "webhooks resume": ("resumeHost",),
    "webhooks show": ("showWebhook",),
}
"""The commands that ask a server, and the questions that they ask of it."""

OPERATING = ("admin", "audit", "keys", "webhooks")
"""The groups of these commands. All others are those of callers, or need the machine of the store."""


def without_row(kind: str, name: str, example: str) -> str:
    here = Path(__file__).name
    return (
        f"{kind} {name!r} has no row in {here}: say there what the operator of one team gets of it, like "
        f"{example}. The usual answer for what is about the whole server is refused. A question that such an operator "
        "may ask has of_teams=True in its row of dragoman/admin, and its function reads the store that it is given, "
        "which is that of the team (engine/admin/team_store.py)"
    )


def test_everything_that_operators_reach_has_a_row() -> None:
    for question in routes():
        example = f'"{question.name}": Row("refused")'
        assert question.name in QUESTIONS, without_row("the question", question.name, example)
        refused = QUESTIONS[question.name].gets == "refused"
        assert question.of_teams is not refused, f"{question.name}: of_teams and the row of the table contradict"
    assert set(QUESTIONS) == {question.name for question in routes()}
    for event in FOLLOW_CHANGES.events:
        assert event in EVENTS, without_row("the event", event, f'"{event}": "none"')
    assert set(EVENTS) == set(FOLLOW_CHANGES.events)
    for endpoint in get_args(EndpointName):
        assert endpoint in ENDPOINTS, without_row("the endpoint", endpoint, f'"{endpoint}": "caller"')
    assert set(ENDPOINTS) == set(get_args(EndpointName))
    doors = {(method, path) for path, methods in console_endpoint.ROUTES.items() for method in methods}
    doors |= {("GET", path) for path in console_provider.ROUTES}
    for method, path in doors:
        route = method, "/".join(path)
        assert route in CONSOLE, without_row("the route of the console", " ".join(route), f'{route}: "public"')
    assert len(CONSOLE) == len(doors)


def commands(command: click.Command, *path: str) -> list[str]:
    """The commands below one, by their words."""
    if not isinstance(command, click.Group):
        return [" ".join(path)]
    context = click.Context(command)
    below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    own = [" ".join(path)] if command.invoke_without_command and path else []
    return own + [each for name, sub in below if sub is not None for each in commands(sub, *path, name)]


def test_every_command_of_operators_has_a_row() -> None:
    found = [each for each in commands(main) if each.split()[0] in OPERATING]
    for command in found:
        assert command in COMMANDS, without_row("the command", command, f'"{command}": ("listTasks",)')
    assert set(COMMANDS) == set(found)
    assert {name for asked in COMMANDS.values() for name in asked} <= set(QUESTIONS)


class Team:
    """A team with an operator, a member, and things of the member."""

    def __init__(self, house: "House", name: str, operator: str, member: str, key_id: str) -> None:
        self.house = house
        self.name = name
        self.operator = {"x-api-key": operator}
        self.member = {"x-api-key": member}
        self.key = key_id
        self.principal = f"team:{name}/key:ann"
        self.tasks: list[str] = []
        self.number = ""

    async def make_task(self) -> str:
        message = {"messageId": f"{self.name}-{len(self.tasks)}", "role": "ROLE_USER", "parts": [{"text": self.name}]}
        sent = {"message": message}
        http = self.house.http
        async with http.post("/agents/ask/message:send", json=sent, headers=V1 | self.member) as answer:
            task_id = str((await answer.json())["task"]["id"])
        self.tasks.append(task_id)
        return task_id

    async def add_webhook(self, task_id: str) -> None:
        path = f"/agents/ask/tasks/{task_id}/pushNotificationConfigs"
        hook = {"url": "http://127.0.0.1:9/in"}
        async with self.house.http.post(path, json=hook, headers=V1 | self.member) as answer:
            assert answer.status == 200, await answer.text()
        _, found = await self.house.ask(self, "GET", f"/webhooks?task={task_id}")
        self.number = str(msgspec.json.decode(found)["deliveries"][0]["number"])


class House:
    def __init__(self, http: aiohttp.ClientSession, store: str) -> None:
        self.http = http
        self.store = store

    async def ask(self, team: Team, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        sent = {} if body is None else {"json": body}
        async with self.http.request(method, PREFIX + path, headers=team.operator, **sent) as answer:
            return answer.status, await answer.read()

    async def try_row(self, team: Team, question: AnyQuestion, row: Row, things: dict[str, str]) -> tuple[int, bytes]:
        """Ask a question about things, whose ids are taken out of the answer."""
        spelled = msgspec.json.encode(row.body).decode()
        for name, thing in things.items():
            spelled = spelled.replace(f'"{{{name}}}"', thing if name == "number" else f'"{thing}"')
        path = question.path.replace("{id}", things.get(row.of, "some"))
        body = None if row.body is None else msgspec.json.decode(spelled)
        status, found = await self.ask(team, question.method, path + row.query.format(**things), body)
        for name, thing in things.items():
            found = re.sub(rb"\b%s\b" % re.escape(thing).encode(), f"<{name}>".encode(), found)
        return status, found


NAMED = re.compile(r"\{(task|key|number|principal)\}")

MISSING = {
    "task": "01a22600-6d55-70ba-9730-c7be59e7eafc",
    "key": "zfb6whigdsk2",
    "number": "999",
    "principal": "team:theirs/key:nobody",
}


BUDGETS = (
    Budget(id="each", unit="tasks", limit=100, per="team"),
    Budget(id="its", unit="tasks", limit=100, team="ours"),
    Budget(id="whole", unit="tasks", limit=100),
    Budget(id="another", unit="tasks", limit=100, team="theirs"),
)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[tuple[House, Team, Team]]:
    store = sqlite_url(tmp_path)
    teams, made = (TeamEntry(id="ours", agents=("ask",)), TeamEntry(id="theirs")), []
    async with beside(store) as opened:
        for team in teams:
            _, operator = await add_key(opened, "lead", team=team.id, role=AccessRole.OPERATOR)
            _, member = await add_key(opened, "ann", team=team.id)
            key_id, _ = await add_key(opened, "ci", team=team.id)
            made.append((team.id, operator, member, key_id))
    async with (
        no_hang(),
        server(
            asking("ask"), asking("other"), hired("errand"), store=store, teams=teams, budgets=BUDGETS, **LOOPBACK
        ) as http,
    ):
        house = House(http, store)
        ours, theirs = (Team(house, *facts) for facts in made)
        yield house, ours, theirs


def things_of(team: Team) -> dict[str, str]:
    return {"task": team.tasks[0], "key": team.key, "number": team.number, "principal": team.principal}


PASSING = re.compile(rb'"(?:age_s|next|failed|reason)":[^,}]*')
"""What changes by itself: a webhook that nobody takes is tried again."""


async def standing(team: Team) -> list[tuple[int, bytes]]:
    """How the things of a team are, as its own operator sees them."""
    things = things_of(team)
    paths = f"/tasks/{things['task']}/log", f"/keys/{things['key']}", f"/webhooks?task={things['task']}"
    found = [await team.house.ask(team, "GET", path) for path in paths]
    return [(status, PASSING.sub(b"", answer)) for status, answer in found]


async def test_no_row_tells_of_another_team_or_touches_it(house: tuple[House, Team, Team]) -> None:
    place, ours, theirs = house
    for team in (ours, theirs):
        await team.add_webhook(await team.make_task())
    before = await standing(theirs)
    for question in routes():
        row = QUESTIONS[question.name]
        if question.answer is None:
            continue  # a stream, below
        theirs_asked = await place.try_row(ours, question, row, things_of(theirs))
        missing = await place.try_row(ours, question, row, MISSING)
        if row.gets == "refused":
            assert theirs_asked[0] == 403, (question.name, theirs_asked)
            continue
        if row.of or NAMED.search(msgspec.json.encode(row.body).decode() + row.query):
            assert theirs_asked == missing, question.name
        if row.of:
            assert theirs_asked[0] == 404, (question.name, theirs_asked)
        for word in (theirs.tasks[0], theirs.key, "team:theirs/key:ann"):
            assert word.encode() not in theirs_asked[1], (question.name, theirs_asked)
    assert await standing(theirs) == before
    for question in routes():
        row = QUESTIONS[question.name]
        if question.answer is not None and row.gets == "own":
            if row.of == "task":
                ours.tasks.insert(0, await ours.make_task())
                await ours.add_webhook(ours.tasks[0])
            own = await place.try_row(ours, question, row, things_of(ours))
            assert own[0] == row.status, (question.name, own)


async def test_lists_and_sums_are_equal_whatever_others_do(house: tuple[House, Team, Team]) -> None:
    """Each read of many gives the same bytes before and after another team has made tasks, keys and webhooks."""
    place, ours, theirs = house
    await ours.add_webhook(await ours.make_task())
    reads = [
        each for each in routes() if QUESTIONS[each.name].gets == "filtered" and each.method == "GET" and each.answer
    ]
    queries = {
        "listAudit": "?action=SendMessage",
        "exportPrincipal": f"?principal={ours.principal}",
        "search": "?q=e&limit=50",
    }

    async def read_all() -> dict[str, bytes]:
        found = {}
        for question in reads:
            status, answer = await place.ask(ours, "GET", question.path + queries.get(question.name, ""))
            assert status == 200, (question.name, answer)
            found[question.name] = PASSING.sub(b"", answer)
        return found

    await read_all()
    before = await read_all()
    for number in range(3):
        await theirs.add_webhook(await theirs.make_task())
        status, _ = await place.ask(theirs, "POST", "/keys", {"name": f"n{number}"})
        assert status == 200
    await place.ask(theirs, "POST", f"/tasks/{theirs.tasks[0]}:answer", {"parts": [{"text": "x"}]})
    after = await read_all()
    exports = before.pop("exportPrincipal"), after.pop("exportPrincipal")
    assert b"theirs" not in exports[1]
    assert after == before
    assert ours.tasks[0].encode() in after["listTasks"]
    budgets = msgspec.json.decode(after["listBudgets"])["budgets"]
    assert [(line["budget"], line["used"], line["reserved"]) for line in budgets] == [
        ("each", "0", "1"),
        ("its", "0", "1"),
    ]


async def test_the_feed_of_changes_tells_a_team_of_its_own(house: tuple[House, Team, Team]) -> None:
    place, ours, theirs = house
    async with place.http.get(PREFIX + "/events", headers=ours.operator | STREAM) as feed:
        assert feed.status == 200
        seen = b""
        while b"event: agents" not in seen:
            seen += await feed.content.readline()
        await theirs.add_webhook(await theirs.make_task())
        await place.ask(theirs, "POST", "/keys", {"name": "more"})
        status, made = await place.ask(ours, "POST", "/keys", {"name": "own"})
        assert status == 200, made
        task_id = await ours.make_task()
        while task_id.encode() not in seen or b"keys.create" not in seen:
            seen += await feed.content.readline()
    names = {
        line.removeprefix(b"event: ").strip().decode() for line in seen.splitlines() if line.startswith(b"event: ")
    }
    assert names <= {name for name, gets in EVENTS.items() if gets != "none"}
    assert {"task", "act", "agents"} <= names
    assert b"theirs" not in seen
    assert b'"other"' not in seen, "an agent that the team does not reach"


async def test_the_log_of_another_teams_task_is_no_stream(house: tuple[House, Team, Team]) -> None:
    place, ours, theirs = house
    task_id = await theirs.make_task()
    found = []
    for each in (task_id, MISSING["task"]):
        async with place.http.get(f"{PREFIX}/tasks/{each}/log", headers=ours.operator | STREAM) as answer:
            found.append((answer.status, (await answer.read()).replace(each.encode(), b"")))
    assert found[0] == found[1]
    assert found[0][0] == 404


async def test_the_other_endpoints_know_the_operator_as_a_member(house: tuple[House, Team, Team]) -> None:
    place, ours, _ = house
    refused = [name for name, gets in ENDPOINTS.items() if gets == "refused"]
    for endpoint, path in {"metrics": "/metrics", "workers": "/workers/errand/lease"}.items():
        refused.remove(endpoint)
        async with place.http.request(
            "POST" if endpoint == "workers" else "GET", path, headers=ours.operator
        ) as answer:
            assert answer.status == 403, endpoint
    assert not refused
    async with place.http.post("/agents/other/message:send", json={}, headers=V1 | ours.operator) as answer:
        assert answer.status == 403


async def test_keys_are_made_for_the_own_team_alone(house: tuple[House, Team, Team]) -> None:
    place, ours, _ = house
    for body, status in (
        ({"name": "x"}, 200),
        ({"name": "x", "team": "ours", "role": "operator"}, 200),
        ({"name": "x", "team": "theirs"}, 400),
        ({"name": "x", "team": "nowhere"}, 400),
        ({"name": "x", "role": "agent"}, 400),
        ({"name": "x", "role": "admin"}, 400),
        ({"name": "x", "role": "monitor"}, 400),
    ):
        found, answer = await place.ask(ours, "POST", "/keys", body)
        assert found == status, (body, answer)
        if status == 200:
            assert msgspec.json.decode(answer)["key"]["team"] == "ours"


async def test_a_session_of_the_console_keeps_the_team(house: tuple[House, Team, Team]) -> None:
    place, ours, theirs = house
    for team in (ours, theirs):
        await team.make_task()
    async with place.http.post("/console/session", json={"secret": ours.operator["x-api-key"]}) as answer:
        begun = await answer.json()
        assert (begun["principal"], begun["team"]) == ("team:ours/key:lead", "ours")
        signed_in = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    found = {}
    for path in ("/console/session", PREFIX + "/tasks", f"{PREFIX}/tasks/{theirs.tasks[0]}", PREFIX + "/replicas"):
        async with place.http.get(path, headers=signed_in) as answer:
            found[path] = answer.status, await answer.json()
    (_, session), (_, listed), (foreign, _), (refused, _) = found.values()
    assert session["team"] == "ours"
    assert [task["id"] for task in listed["tasks"]] == ours.tasks
    assert (foreign, refused) == (404, 403)
    async with place.http.post("/console/session", json={"secret": theirs.operator["x-api-key"]}) as answer:
        other = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    for cookie, status in ((other, 403), (signed_in, 204)):  # the proof is that of one session
        proven = cookie | {"x-dragoman-proof": begun["proof"]}
        async with place.http.delete("/console/session", headers=proven) as answer:
            assert answer.status == status
    offers = []
    for headers in ({}, other, theirs.operator):
        async with place.http.get("/console/sign-in", headers=headers) as answer:
            offers.append((answer.status, await answer.read()))
    assert len(set(offers)) == 1


async def test_operators_of_the_server_choose_a_team(house: tuple[House, Team, Team]) -> None:
    """The same filter of a team's operator finds the own team alone."""
    place, ours, theirs = house
    for team in (ours, theirs):
        await team.make_task()
    async with beside(place.store) as store:
        _, secret = await add_key(store, "root", role=AccessRole.OPERATOR)
    root = Team(place, "", secret, secret, "")
    for asking_team, wanted, found in (
        (root, "ours", ours.tasks),
        (root, "theirs", theirs.tasks),
        (root, "none", []),
        (ours, "ours", ours.tasks),
        (ours, "theirs", []),
    ):
        for path in ("/tasks?", "/tasks?order=newest-created&", "/conversations?"):
            status, answer = await place.ask(asking_team, "GET", f"{path}team={wanted}")
            lines = next(iter(msgspec.json.decode(answer).values()))
            assert (status, len(lines)) == (200, len(found)), (path, wanted, answer)
    assert (await place.ask(root, "GET", "/tasks?team=ours&principal=key:ann"))[0] == 400


def test_a_team_is_told_what_is_switched_but_neither_by_whom_nor_why() -> None:
    switch = Switch(state="disabled", reason="acquired by their competitor", by="key:root", at="2027-01-01T00:00:00Z")
    member = AgentMember(name="a", switch=switch)
    agent = AgentFacts(id="ask", name="", version="", kind="", degraded=None, switch=switch, members=(member,))
    whole: Any = SimpleNamespace(agents=lambda: (agent,))
    (told,) = TeamFacts(lambda: whole, None).agents()
    for each in (told, *told.members):
        assert each.switch == Switch(state="disabled", at="2027-01-01T00:00:00Z")
