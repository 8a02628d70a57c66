"""`dragoman keys` from afar: the same commands as on the local store, and which key an operator sends."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.auth.keys import id_of
from dragoman.auth.operator_token import read_token
from dragoman.cli.admin.server import TaskPlace
from dragoman.config import Config, load
from dragoman.server import serving
from tests.cli.admin.site import Ran, dragoman, dragoman_with_secrets, site, waiting_agent


def made(ran: Ran) -> Any:
    assert ran.status == 0, ran.err
    return json.loads(ran.out)


async def test_the_life_of_a_key_from_afar(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        token = read_token(here.store, 0)
        assert token is not None
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        key = token

        async def keys(*arguments: str) -> Ran:
            """Run a command in a folder without a store."""
            sent = {"DRAGOMAN_OPERATOR_KEY": key, "DRAGOMAN_API_KEY": "the-shared-key"}
            return await dragoman_with_secrets(elsewhere, "keys", *arguments, "--server", here.url, **sent)

        refused = await keys("create", "ann")
        assert (refused.status, len(refused.err.splitlines())) == (2, 1)
        assert "must be operator for the first key" in refused.err
        first = await keys("create", "ops", "--role", "operator")
        assert (first.status, first.err) == (0, "")
        assert f"{here.url} has only its hash" in first.out
        assert "This is the first key" in first.out
        key = next(line.strip() for line in first.out.splitlines() if line.startswith("    dgm_"))
        assert f"DRAGOMAN_OPERATOR_KEY={key} dragoman admin tasks list --server {here.url}" in first.out
        while (await keys("list")).status:  # the server asks for keys within a second
            pass

        ann = made(await keys("create", "ann", "--agent", "echo", "--max-open-tasks", "3", "--json"))
        assert (ann["agents"], ann["limits"], ann["state"]) == (["echo"], {"max_open_tasks": 3}, "active")
        changed = await keys("update", ann["id"], "--max-open-tasks", "none", "--max-daily-tasks", "7")
        assert "are now 7 tasks/day" in changed.out
        rotated = made(await keys("rotate", ann["id"], "--overlap", "1h", "--json"))
        assert (rotated["replaced"]["id"], rotated["replaced"]["state"]) == (ann["id"], "active")
        assert rotated["replaced"]["expires"] is not None
        described = await keys("rotate", rotated["id"])
        assert f"It replaces {rotated['id']}, which is revoked" in described.out

        listed = await keys("list")
        assert "dgm_" not in listed.out
        assert [line.split()[1] for line in listed.out.splitlines()] == ["NAME", "ops", "ann", "ann", "ann"]
        assert (await dragoman(tmp_path, "keys", "list", DRAGOMAN_STORE=here.store)).out == listed.out

        mine = id_of(key) or ""
        kept = await keys("revoke", mine)
        assert (kept.status, len(kept.err.splitlines())) == (2, 1)
        assert "force: must be set" in kept.err
        assert (await keys("revoke", ann["id"])).out.startswith(f"Key {ann['id']} of ann is revoked.")
        assert (await keys("revoke", ann["key"])).out == f"Key {ann['id']} of ann was already revoked.\n"
        unknown = await keys("revoke", "nothing")
        assert unknown.status == 2
        assert f"no key 'nothing' in {here.url}: `dragoman keys list` shows their ids" in unknown.err
        assert (await keys("revoke", mine, "--force")).status == 0


async def test_a_key_that_is_no_operators_is_refused_with_the_fix(tmp_path: Path) -> None:
    config = Config(port=0, store=f"sqlite:///{tmp_path}/dragoman.db", shutdown_grace_s=0.2, api_key="shared")
    async with serving(config, [waiting_agent("echo")]) as url:
        listed = ("admin", "tasks", "list", "--server", url)
        shared = await dragoman(tmp_path, *listed, DRAGOMAN_API_KEY="shared")
        wrong = await dragoman(tmp_path, *listed, DRAGOMAN_OPERATOR_KEY="wrong", DRAGOMAN_API_KEY="shared")
        none = await dragoman(tmp_path, *listed)
        for ran in (shared, wrong, none):
            assert (ran.status, len(ran.err.splitlines())) == (4, 1)
            one = "an operator's" if ran is none else "one that is"
            assert f"set DRAGOMAN_OPERATOR_KEY to {one} (dragoman keys create NAME --role operator)" in ran.err
        assert "the key in DRAGOMAN_API_KEY is no operator's there" in shared.err
        assert "the key in DRAGOMAN_OPERATOR_KEY is no operator's there" in wrong.err
        assert "the key in" not in none.err


async def test_a_store_of_several_servers_has_no_server_of_its_own(tmp_path: Path) -> None:
    ran = await dragoman(tmp_path, "admin", "replicas", DRAGOMAN_STORE="postgresql://db.example/dragoman")
    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert "set DRAGOMAN_OPERATOR_KEY to an operator's" in ran.err
    assert "--server (DRAGOMAN_SERVER)" in ran.err


@pytest.mark.parametrize(("cert", "server"), [(None, "http://127.0.0.1:7870"), ("c.pem", "https://agents.example")])
def test_a_server_on_a_shared_store_is_asked_where_it_listens(
    cert: str | None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_OPERATOR_KEY", "k")
    public = "https://agents.example"
    config = Config(store="postgresql://db.example/x", host="0.0.0.0", public_url=public, tls_cert=cert, tls_key=cert)
    assert TaskPlace(config, None).client().server == server


async def test_an_operator_of_a_team_is_sent_to_one_of_the_server_and_not_to_another_key(tmp_path: Path) -> None:
    (file := tmp_path / "dragoman.toml").write_text(
        f'port = 0\nstore = "sqlite:///{tmp_path}/dragoman.db"\nshutdown_grace_s = 0.2\n[[teams]]\nid = "sales"\n'
    )
    create = ("keys", "create", "lead", "--role", "operator", "--team", "sales", "--json")
    lead = made(await dragoman_with_secrets(tmp_path, *create))
    async with serving(load(file, {}, {}), [waiting_agent("echo")]) as url:
        ran = await dragoman(tmp_path, "admin", "replicas", "--server", url, DRAGOMAN_OPERATOR_KEY=lead["key"])
    assert ran.err.endswith("that of an operator of the team sales: ask an operator of the server\n")


async def test_a_key_is_rotated_in_the_local_store(tmp_path: Path) -> None:
    store = {"DRAGOMAN_STORE": f"sqlite:///{tmp_path}/dragoman.db", "DRAGOMAN_SERVER": "http://127.0.0.1:9"}
    ann = made(await dragoman_with_secrets(tmp_path, "keys", "create", "ann", "--expires", "90d", "--json", **store))
    rotated = made(
        await dragoman_with_secrets(tmp_path, "keys", "rotate", ann["id"], "--expires", "1d", "--json", **store)
    )
    assert (rotated["name"], rotated["replaced"]["state"]) == ("ann", "revoked")
    assert rotated["expires"] < ann["expires"]
    again = await dragoman(tmp_path, "keys", "rotate", ann["id"], **store)
    assert (again.status, f"{ann['id']} is revoked: make another key" in again.err) == (2, True)
    for arguments, words in (
        ((rotated["id"], "--overlap", "soon"), "--overlap 'soon': must be a whole number with a unit"),
        ((rotated["id"], "--overlap", "31d"), "up to 30 days"),
        ((rotated["id"], "--expires", "0d"), "--expires '0d'"),
        (("nothing",), "no key 'nothing'"),
    ):
        refused = await dragoman(tmp_path, "keys", "rotate", *arguments, **store)
        assert (refused.status, words in refused.err) == (2, True), refused.err
    acts = await dragoman(tmp_path, "audit", "--json", DRAGOMAN_STORE=store["DRAGOMAN_STORE"])
    told = [(act["action"], act["subject"]) for act in map(json.loads, acts.out.splitlines())]
    assert told == [("keys.create", ann["id"]), ("keys.rotate", f"{ann['id']},{rotated['id']}")]
