"""The keys of a server over the admin API: who may give up which, and what is shown once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.auth.keys import id_of
from dragoman.model.principal import AccessRole
from tests.bindings.admin.test_admin import DEADLINE_S, make_keys, read, server
from tests.kit.places import bearer, beside, sqlite_url


def key_header(issued: Any) -> dict[str, str]:
    return {"x-api-key": issued["secret"]}


async def change(
    http: aiohttp.ClientSession, path: str, headers: dict[str, str], body: object = None
) -> tuple[int, Any]:
    return await read(http, path, headers, "POST", **({} if body is None else {"json": body}))


async def until_answered(http: aiohttp.ClientSession, headers: dict[str, str], status: int) -> None:
    """Wait until the server answers so: it may not know of a change of keys for another second."""
    async with asyncio.timeout(DEADLINE_S):
        while (await read(http, "/keys", headers))[0] != status:
            await asyncio.sleep(0)


def fault(answer: Any) -> tuple[str, str]:
    (violation,) = [each for detail in answer["error"]["details"] for each in detail.get("fieldViolations", ())]
    return violation["field"], violation["description"]


async def acts(store_url: str) -> list[tuple[str, str, str, bool]]:
    async with beside(store_url) as store:
        found = await store.audit.read(limit=100)
    return [(each.principal, each.action, each.subject, each.allowed) for each in found]


async def test_the_life_of_a_key_from_afar(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await make_keys(store, ops=(AccessRole.OPERATOR, None))
    ops = keys["ops"]
    ops_id = id_of(ops["x-api-key"])
    async with server(store) as http:
        wanted = {
            "name": "ci",
            "agents": ["echo"],
            "scopes": ["send"],
            "expires_s": 60,
            "limits": {"max_open_tasks": 3},
        }
        status, issued = await change(http, "/keys", ops, wanted)
        assert status == 200
        assert id_of(issued["secret"]) == issued["key"]["id"]
        assert (issued["first"], issued["others"]) == (False, [])
        made = issued["key"]
        assert (made["role"], made["agents"], made["scopes"], made["state"]) == ("caller", ["echo"], ["send"], "active")
        assert (await read(http, "/keys", key_header(issued)))[0] == 403, "a caller is no operator"

        status, limited = await change(
            http, f"/keys/{made['id']}:limit", ops, {"max_open_tasks": None, "max_daily_tasks": 7}
        )
        assert (status, limited["limits"]) == (200, {"max_daily_tasks": 7})

        status, kept = await change(http, f"/keys/{made['id']}:rotate", ops, {"overlap_s": 600})
        assert (status, kept["replaced"]["id"], kept["replaced"]["state"]) == (200, made["id"], "active")
        fresh = kept["key"]
        same = ("name", "role", "agents", "scopes", "limits", "state")
        assert {name: fresh[name] for name in same} == {name: limited[name] for name in same}
        assert fresh["id"] != made["id"]
        assert (await read(http, "/keys", key_header(issued)))[0] == 403, "the old one still counts"
        status, kept = await change(http, f"/keys/{fresh['id']}:rotate", ops)
        assert (status, kept["replaced"]["state"]) == (200, "revoked")

        assert (await change(http, f"/keys/{kept['key']['id']}:revoke", ops))[1]["changed"] is True
        assert (await change(http, f"/keys/{kept['key']['id']}:revoke", ops))[1]["changed"] is False
        await until_answered(http, key_header(kept), 401)

        status, listed = await read(http, "/keys?limit=3", ops)
        assert (status, listed["total"], len(listed["keys"])) == (200, 4, 3)
        rest = (await read(http, f"/keys?limit=3&cursor={listed['next_cursor']}", ops))[1]
        assert (len(rest["keys"]), rest["next_cursor"]) == (1, "")
        every = listed["keys"] + rest["keys"]
        assert [each["id"] for each in every if each["in_use"]] == [ops_id]
        active = (await read(http, "/keys?state=active&name=ci", ops))[1]
        assert [each["id"] for each in active["keys"]] == [made["id"]]
        assert (await read(http, f"/keys/{made['id']}", ops))[1]["name"] == "ci"
        text = json.dumps([listed, rest, active])
        assert not any(secret in text for secret in (issued["secret"], kept["secret"]))
    told = [act for act in await acts(store) if act[1].startswith("keys.") and act[1] not in ("keys.list", "keys.show")]
    assert told == [
        ("key:ops", "keys.create", made["id"], True),
        ("key:ops", "keys.update", made["id"], True),
        ("key:ops", "keys.rotate", f"{made['id']},{fresh['id']}", True),
        ("key:ops", "keys.rotate", f"{fresh['id']},{kept['key']['id']}", True),
        ("key:ops", "keys.revoke", kept["key"]["id"], True),
        ("key:ops", "keys.revoke", kept["key"]["id"], True),
    ]


async def test_an_operator_gives_up_the_own_key_only_when_told_to(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    ops_id = id_of(ops["x-api-key"])
    async with server(store) as http:
        status, answer = await change(http, f"/keys/{ops_id}:revoke", ops)
        assert (status, fault(answer)[0]) == (400, "force")
        status, issued = await change(http, f"/keys/{ops_id}:rotate", ops)
        assert status == 200, "the answer has the one that replaces it"
        await until_answered(http, ops, 401)
        new_id = issued["key"]["id"]
        assert (await change(http, f"/keys/{new_id}:revoke", key_header(issued)))[0] == 400
        assert (await change(http, f"/keys/{new_id}:revoke", key_header(issued), {"force": True}))[0] == 200
        await until_answered(http, key_header(issued), 401)
    assert ("key:ops", "keys.revoke", ops_id, False) in await acts(store)


async def test_the_first_key_of_a_server_that_asks_nobody_is_an_operators(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as http:
        token = bearer(store)
        status, answer = await change(http, "/keys", token, {"name": "ann"})
        assert (status, fault(answer)[0]) == (400, "role")
        status, issued = await change(http, "/keys", token, {"name": "ops", "role": "operator"})
        assert (status, issued["first"]) == (200, True)
        await until_answered(http, key_header(issued), 200)
        assert (await change(http, "/keys", key_header(issued), {"name": "ann"}))[0] == 200
    other = sqlite_url(tmp_path / "other")
    (tmp_path / "other").mkdir()
    async with server(other) as http:
        assert (await change(http, "/keys", bearer(other), {"name": "ann", "force": True}))[0] == 200


async def test_a_session_of_the_console_dies_with_its_key(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    key = ops["x-api-key"]
    async with server(store) as http:
        async with http.post("/console/session", json={"secret": key}) as begun:
            proof = (await begun.json())["proof"]
            cookie = {"Cookie": begun.headers["Set-Cookie"].partition(";")[0]}
        listed = (await read(http, "/keys", cookie))[1]
        assert [each["in_use"] for each in listed["keys"]] == [True]
        page = cookie | {"x-dragoman-proof": proof}
        assert (await change(http, f"/keys/{id_of(key)}:revoke", page))[0] == 400
        assert (await change(http, f"/keys/{id_of(key)}:rotate", page))[0] == 200
        await until_answered(http, cookie, 401)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/keys", {"name": "-"}, "name"),
        ("/keys", {"name": "a", "role": "king"}, "role"),
        ("/keys", {"name": "a", "agents": ["a b"]}, "agents[0]"),
        ("/keys", {"name": "a", "agents": []}, "agents"),
        ("/keys", {"name": "a", "scopes": []}, "scopes"),
        ("/keys", {"name": "a", "expires_s": 0}, "expires_s"),
        ("/keys", {"name": "a", "limits": {"max_open_tasks": 0}}, "limits.max_open_tasks"),
        ("/keys", {"name": "a", "role": "operator", "agents": ["echo"]}, "role"),
        ("/keys", {"name": "a", "role": "operator", "limits": {"max_open_tasks": 1}}, "role"),
        ("/keys/ID:limit", {}, ""),
        ("/keys/ID:limit", {"max_open_tasks": 1}, "role"),
        ("/keys/ID:rotate", {"overlap_s": -1}, "overlap_s"),
        ("/keys?limit=0", None, "limit"),
        ("/keys?state=lost", None, "state"),
        ("/keys?cursor=lost", None, "cursor"),
    ],
)
async def test_wrong_input_is_refused_by_its_field(
    keyed: tuple[aiohttp.ClientSession, dict[str, str]], path: str, body: Any, field: str
) -> None:
    http, ops = keyed
    path = path.replace("ID", str(id_of(ops["x-api-key"])))
    status, answer = await (read(http, path, ops) if body is None else change(http, path, ops, body))
    assert (status, fault(answer)[0]) == (400, field)
    assert (await change(http, "/keys/unknown:revoke", ops))[0] == 404


@pytest.fixture(scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = sqlite_url(tmp_path_factory.mktemp("keyed"))
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    async with server(store) as http:
        yield http, ops
