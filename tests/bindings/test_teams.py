"""Teams at a server: who is in one, what its members reach, share and use up, and what others see of it: nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.config import TeamEntry, TeamLimits
from dragoman.dialects.responses.objects import CONVERSATION
from dragoman.model.ids import SystemClock
from dragoman.server import serving
from dragoman.store.api import ListQuery, TaskSearch
from dragoman.store.members import TeamMembers
from tests.auth.issuer import AUDIENCE, Issuer, issuing, token
from tests.kit.agents import asking, echoing
from tests.kit.places import V1, add_key, beside, calling, quick, sqlite_url
from tests.kit.waiting import no_hang

TEAMS = (
    TeamEntry(id="apart", agents=("ask",)),
    TeamEntry(id="open", shared="read", claim="groups", value="readers"),
    TeamEntry(id="joint", shared="all", claim="realm.groups", value="joint"),
    TeamEntry(id="few", limits=TeamLimits(max_open_tasks=2, max_daily_tasks=3, max_daily_tokens=5)),
    TeamEntry(id="slow", limits=TeamLimits(max_requests_per_s=1)),
)

MEMBERS = {
    "ann@apart": "apart",
    "bob@apart": "apart",
    "ann@open": "open",
    "bob@open": "open",
    "ann@joint": "joint",
    "bob@joint": "joint",
    "ann@few": "few",
    "bob@few": "few",
    "ann@slow": "slow",
    "bob@slow": "slow",
    "ann@": "",
}


class House:
    """A server with teams, and callers of it."""

    def __init__(self, http: aiohttp.ClientSession, store: str, keys: dict[str, str], issuer: Issuer) -> None:
        self.http = http
        self.store = store
        self.keys = keys
        self.issuer = issuer

    def headers(self, who: str) -> dict[str, str]:
        return V1 | {"x-api-key": self.keys[who]}

    def bearer(self, **claims: Any) -> dict[str, str]:
        return V1 | {"Authorization": f"Bearer {token(self.issuer.claims(**claims)).decode()}"}

    async def call(self, headers: dict[str, str], method: str, path: str, **sent: Any) -> tuple[int, Any]:
        async with self.http.request(method, path, headers=headers, **sent) as answer:
            return answer.status, await answer.json(content_type=None) if answer.content_length != 0 else None

    async def send(self, headers: dict[str, str], agent: str = "ask", **message: Any) -> tuple[int, Any]:
        said = {"messageId": f"m{id(message)}", "role": "ROLE_USER", "parts": [{"text": "x"}], **message}
        return await self.call(headers, "POST", f"/agents/{agent}/message:send", json={"message": said})

    async def ask(self, who: str) -> str:
        """Make a task that waits for an answer."""
        status, answer = await self.send(self.headers(who))
        assert status == 200, answer
        return str(answer["task"]["id"])

    async def bytes_of(self, who: str, method: str, path: str, task_id: str, **sent: Any) -> tuple[int, bytes]:
        """The answer about a task, with its id taken out."""
        async with self.http.request(method, path.format(id=task_id), headers=self.headers(who), **sent) as answer:
            return answer.status, (await answer.read()).replace(task_id.encode(), b"ID")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    store = sqlite_url(tmp_path)
    async with beside(store) as opened:
        keys = {who: (await add_key(opened, who.partition("@")[0], team=team))[1] for who, team in MEMBERS.items()}
    async with no_hang(), issuing() as issuer:
        issuer.clock.ms = SystemClock().now_ms()
        config = quick(store=store, teams=TEAMS, jwt_issuer=issuer.url, jwt_audience=AUDIENCE)
        async with serving(config, [asking(), echoing()]) as url, calling(url) as http:
            yield House(http, store, keys, issuer)


async def test_members_and_what_they_make(house: House) -> None:
    """The team is in the id of the caller, on the task, and in the row by which a team's tasks are found."""
    task_id = await house.ask("ann@apart")
    alone = await house.ask("ann@")
    async with beside(house.store) as store:
        found = await store.head(task_id)
        assert found is not None
        assert (found[0].owner, found[0].team) == ("team:apart/key:ann", "apart")
        other = await store.head(alone)
        assert other is not None
        assert (other[0].owner, other[0].team) == ("key:ann", "")
        rows = await store.list_rows(ListQuery(owner=TeamMembers("apart"), agent=None))
        assert [row.head.id for row in rows.rows] == [task_id]
        page = await store.search(TaskSearch(owner=TeamMembers("apart"), agent=None))
        assert [row.head.id for row in page.rows] == [task_id]


TASK_PATHS = (
    ("GET", "/agents/ask/tasks/{id}", None),
    ("GET", "/tasks/{id}", None),
    ("POST", "/agents/ask/tasks/{id}:subscribe", {}),
    ("POST", "/agents/ask/tasks/{id}:cancel", {}),
    ("GET", "/agents/ask/tasks/{id}/pushNotificationConfigs", None),
    ("GET", "/v1/responses/resp_{id}-1", None),
    ("DELETE", "/v1/responses/resp_{id}-1", None),
)


async def test_the_task_of_a_namesake_elsewhere_is_not_found_to_the_byte(house: House) -> None:
    """Keys of one name in two teams are two callers, and nobody of another team sees that there is a task."""
    task_id, missing = await house.ask("ann@open"), "01a22600-6d55-70ba-9730-c7be59e7eafc"
    for other in ("ann@apart", "ann@joint", "ann@", "bob@few"):
        for method, path, body in TASK_PATHS:
            sent = {} if body is None else {"json": body}
            there = await house.bytes_of(other, method, path, task_id, **sent)
            absent = await house.bytes_of(other, method, path, missing, **sent)
            assert there == absent, (other, method, path)
            assert there[0] == 404, (other, method, path, there)
        status, answer = await house.call(house.headers(other), "GET", "/agents/ask/tasks")
        assert (status, answer["totalSize"]) == (200, 0)
        status, answer = await house.send(house.headers(other), taskId=task_id)
        assert status == 404


async def test_a_team_shares_as_much_as_it_says(house: House) -> None:
    """none: nothing. read: they read each other's tasks, and are told what more it takes. all: they answer, too."""
    apart, readable, joint = await house.ask("ann@apart"), await house.ask("ann@open"), await house.ask("ann@joint")
    status, _ = await house.call(house.headers("bob@apart"), "GET", f"/agents/ask/tasks/{apart}")
    assert status == 404
    for who, task_id in (("bob@open", readable), ("bob@joint", joint)):
        status, task = await house.call(house.headers(who), "GET", f"/agents/ask/tasks/{task_id}")
        assert (status, task["id"]) == (200, task_id)
        status, page = await house.call(house.headers(who), "GET", "/agents/ask/tasks")
        assert [each["id"] for each in page["tasks"]] == [task_id]
        hooks = f"/agents/ask/tasks/{task_id}/pushNotificationConfigs"
        assert (await house.call(house.headers(who), "GET", hooks))[0] == 403
    status, refused = await house.send(house.headers("bob@open"), taskId=readable)
    assert status == 403
    assert 'shared = \\"all\\"' in str(refused) or 'shared = "all"' in str(refused)
    assert (await house.call(house.headers("bob@open"), "POST", f"/agents/ask/tasks/{readable}:cancel", json={}))[
        0
    ] == 403
    status, answered = await house.send(house.headers("bob@joint"), taskId=joint)
    assert (status, answered["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
    again = await house.ask("ann@joint")
    status, canceled = await house.call(
        house.headers("bob@joint"), "POST", f"/agents/ask/tasks/{again}:cancel", json={}
    )
    assert (status, canceled["status"]["state"]) == (200, "TASK_STATE_CANCELED")


async def test_a_member_reaches_no_agent_beyond_its_team(house: House) -> None:
    status, refused = await house.send(house.headers("ann@apart"), agent="echo")
    assert (status, "not for agent" in str(refused)) == (403, True)
    assert (await house.send(house.headers("ann@open"), agent="echo"))[0] == 200


async def test_a_claim_of_a_token_maps_to_a_team_and_two_are_refused(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await house.ask("ann@joint")
    inside = house.bearer(realm={"groups": ["x", "joint"]})
    assert (await house.call(inside, "GET", f"/agents/ask/tasks/{task_id}"))[0] == 200
    for outside in (house.bearer(), house.bearer(groups=["reader"]), house.bearer(groups="readers")):
        assert (await house.call(outside, "GET", f"/agents/ask/tasks/{task_id}"))[0] == 404
    both = house.bearer(realm={"groups": "joint"}, groups=["readers"])
    assert (await house.call(both, "GET", f"/agents/ask/tasks/{task_id}"))[0] == 401
    assert "in the teams open (groups = 'readers') and joint (realm.groups = 'joint')" in caplog.text


async def test_the_limits_of_a_team_are_those_of_all_its_members_together(house: House) -> None:
    await house.ask("ann@few")
    second = await house.ask("bob@few")
    status, refused = await house.send(house.headers("ann@few"))
    assert (status, "your team has 2 tasks that have not ended" in str(refused)) == (429, True)
    assert (await house.call(house.headers("bob@few"), "POST", f"/agents/ask/tasks/{second}:cancel", json={}))[0] == 200
    await house.ask("ann@few")
    await house.call(house.headers("bob@few"), "POST", f"/agents/ask/tasks/{second}:cancel", json={})
    status, refused = await house.send(house.headers("bob@few"))
    assert status == 429
    fast = [await house.call(house.headers(who), "GET", "/agents/ask/tasks") for who in ("ann@slow", "bob@slow") * 2]
    assert sorted({status for status, _ in fast}) == [200, 429]


async def test_a_key_of_a_team_that_is_no_more_is_refused_and_the_log_says_why(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with beside(house.store) as store:
        _, secret = await add_key(store, "ann", team="gone")
    for _ in range(2):
        status, _ = await house.call(V1 | {"x-api-key": secret}, "GET", "/agents/ask/tasks")
        assert status == 401
    assert caplog.text.count("no [[teams]] in the configuration has that id") == 1


async def test_what_a_team_shares_is_shared_at_every_door(house: House) -> None:
    """0.3 and its streams, Responses, and conversations; a member answers a colleague's response where it may."""
    for team, answers in (("open", False), ("joint", True)):
        ann, bob, stranger = (house.headers(who) for who in (f"ann@{team}", f"bob@{team}", "bob@apart"))
        asked = {"model": "ask", "input": "x"}
        status, response = await house.call(ann, "POST", "/v1/responses", json=asked)
        assert status == 200, response
        path = f"/v1/responses/{response['id']}"
        assert (await house.call(bob, "GET", path))[0] == 200
        assert (await house.call(stranger, "GET", path))[0] == 404
        _, page = await house.call(ann, "GET", "/agents/ask/tasks")
        (task,) = page["tasks"]
        conversation = f"{CONVERSATION}{task['contextId']}"
        items = await house.call(bob, "GET", f"/v1/conversations/{conversation}/items")
        assert (items[0], len(items[1]["data"]) > 0) == (200, True)
        assert (await house.call(stranger, "GET", f"/v1/conversations/{conversation}/items"))[1]["data"] == []
        for method in ("tasks/get", "tasks/resubscribe"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": task["id"]}}
            old = {"x-api-key": bob["x-api-key"]}
            async with house.http.post("/agents/ask", json=body, headers=old) as answer:
                assert task["id"].encode() in await answer.content.readany(), method
        assert (await house.call(bob, "DELETE", path))[0] == 403
        answered = {"model": "ask", "input": "blue", "previous_response_id": response["id"]}
        status, second = await house.call(bob, "POST", "/v1/responses", json=answered)
        assert status == (200 if answers else 403), second
        if answers:
            again = {**answered, "previous_response_id": second["id"]}
            status, refused = await house.call(bob, "POST", "/v1/responses", json=again)
            assert (status, "is a response of another member of your team" in str(refused)) == (400, True)
