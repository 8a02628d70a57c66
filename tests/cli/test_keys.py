"""`dragoman keys`: what it makes, shows and refuses, and that the key itself is kept nowhere."""

import asyncio
import getpass
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from dragoman import Agent
from dragoman.auth.keys import id_of, matches
from dragoman.cli import main
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole, KeyLimits, Scope
from dragoman.server import serving
from dragoman.store.audit import AuditEntry
from dragoman.store.keyring import StoredKey
from dragoman.store.open import note_server
from dragoman.store.sqlite.connection import InUse, ProcessLock
from tests.kit.commands import FullDisk, Run
from tests.kit.places import work_on
from tests.ports import kept_port

DAY_MS = 86_400_000
FILE = Path("data/dragoman.db")
STORE = f"sqlite:///{FILE}"


def keys() -> tuple[StoredKey, ...]:
    return work_on(STORE, lambda store: store.keys.all())


def entries() -> tuple[AuditEntry, ...]:
    return work_on(STORE, lambda store: store.audit.read())


def made(result: Result) -> dict[str, Any]:
    """The output of `keys create --json`."""
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def test_the_first_key_is_shown_once_with_how_to_use_it_and_what_changes(run: Run) -> None:
    result = run("keys", "create", "ann")
    assert result.exit_code == 0
    text = result.output.split()[result.output.split().index("revoked.") + 1]
    (key,) = keys()
    assert id_of(text) == key.id
    assert matches(text, key.digest)
    assert f"curl -H 'x-api-key: {text}'" in result.output
    assert "http://127.0.0.1:7870/message:send" in result.output
    assert "a caller: every operation, with all agents, until it is revoked" in result.output
    assert "first key: from now on every caller and every worker must send one" in result.output
    second = run("keys", "create", "bob").output
    assert "first key" not in second
    assert "another key" not in second


def test_the_commands_for_a_key_name_the_port_of_the_server_that_has_the_store(run: Run) -> None:
    store = "sqlite:///elsewhere.db"
    first = run("keys", "create", "ann", "--store", store).output
    assert "http://127.0.0.1:7870/message:send" in first
    held = ProcessLock(Path("elsewhere.db"))
    note_server(store, "http://127.0.0.1:9123")
    assert "http://127.0.0.1:9123/message:send" in run("keys", "create", "ann", "--store", store).output
    with pytest.raises(InUse, match=f"process {os.getpid()}"):
        ProcessLock(Path("elsewhere.db"))
    held.release()


def test_what_a_role_may_do_is_said_with_its_key(run: Run) -> None:
    assert "a caller: every operation, with all agents, until" in run("keys", "create", "ann").output
    worker = run("keys", "create", "bob", "--role", "agent", "--agent", "sum").output
    assert "an agent's worker: every operation and the worker API, with the agent sum, until" in worker
    admin = run("keys", "create", "root", "--role", "admin").output
    assert "every operation, with all agents, and /metrics, until" in admin
    assert "It sees only its own tasks, as every role but operator does." in admin
    ops = run("keys", "create", "ops", "--role", "operator").output
    assert "an operator: every operation, with all agents, and the admin API" in ops
    assert "the worker API" not in ops


@pytest.mark.parametrize("options", [(), ("--json",), ("-o", "json")])
def test_the_first_key_says_that_it_hides_the_tasks_of_before(run: Run, options: tuple[str, ...]) -> None:
    assert "Tasks made before it are hidden" in run("keys", "create", "ann", *options).output
    assert "hidden" not in run("keys", "create", "bob").output


def test_the_key_itself_is_in_no_file(run: Run, tmp_path: Path) -> None:
    secret = made(run("keys", "create", "ann", "--json"))["key"].split("_", 2)[2].encode()
    run("keys", "list")
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or secret not in path.read_bytes(), path


def test_a_key_is_limited_as_it_was_asked_for(run: Run) -> None:
    now_ms = SystemClock().now_ms()
    options = ("--agent", "echo", "--agent", "sum", "--agent", "echo", "--scope", "send", "--scope", "read")
    said = made(run("keys", "create", "ann", *options, "--role", "admin", "--expires", "90d", "--json"))
    (key,) = keys()
    assert (key.name, key.role, key.agents, key.scopes) == (
        "ann",
        AccessRole.ADMIN,
        ("echo", "sum"),
        (Scope.SEND, Scope.READ),
    )
    assert key.expires_ms is not None
    assert now_ms <= key.made_ms == key.expires_ms - 90 * DAY_MS
    assert (said["id"], said["agents"], said["scopes"], said["role"]) == (
        key.id,
        ["echo", "sum"],
        ["send", "read"],
        "admin",
    )


def test_what_is_printed_of_a_limited_key_works_with_it(run: Run) -> None:
    reading = run("keys", "create", "ann", "--agent", "echo", "--scope", "read").output
    assert "only read, with the agent echo" in reading
    assert "http://127.0.0.1:7870/agents/echo/tasks" in reading
    assert "message:send" not in reading
    working = run("keys", "create", "w", "--agent", "echo", "--role", "agent").output
    assert "dragoman worker MODULE:AGENT --server http://127.0.0.1:7870 --key dgm_" in working


def test_keys_of_one_name_are_said_to_be_one_caller(run: Run) -> None:
    first = made(run("keys", "create", "ann", "--json"))["id"]
    assert f"ann has another key, {first}: both are one caller" in run("keys", "create", "ann").output
    assert re.search(rf"ann has other keys, {first}, \w+: all are one caller", run("keys", "create", "ann").output)


def test_the_list_shows_state_and_limits_and_no_secret(run: Run) -> None:
    first = made(run("keys", "create", "ann", "--json"))
    second = made(run("keys", "create", "bob", "--agent", "echo", "--scope", "read", "--expires", "1d", "--json"))
    run("keys", "revoke", first["id"])
    head, *rows = run("keys", "list").output.splitlines()
    assert head.split() == [
        "ID",
        "NAME",
        "ROLE",
        "AGENTS",
        "SCOPES",
        "LIMITS",
        "USERS",
        "TEAM",
        "MADE",
        "EXPIRES",
        "STATE",
    ]
    assert [row.split()[:5] + row.split()[-2:] for row in rows] == [
        [first["id"], "ann", "caller", "all", "all", "never", "revoked"],
        [second["id"], "bob", "caller", "echo", "read", second["expires"], "active"],
    ]
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert [set(row) for row in listed] == [
        {"id", "name", "team", "role", "agents", "scopes", "limits", "one_person", "made", "expires", "state"}
    ] * 2
    assert [row["state"] for row in listed] == ["revoked", "active"]


def test_a_key_of_one_person_says_so_also_once_it_is_replaced(run: Run) -> None:
    key = made(run("keys", "create", "ann", "--one-person", "--json"))
    assert key["one_person"]
    assert "One person alone uses it." in run("keys", "create", "bob", "--one-person").output
    by = made(run("keys", "rotate", key["id"], "--json"))
    run("keys", "create", "cy")
    listed = {row["id"]: row["one_person"] for row in json.loads(run("keys", "list", "--json").stdout)}
    assert (listed[by["id"]], sorted(listed.values())) == (True, [False, True, True, True])
    assert [row.split()[6] for row in run("keys", "list").output.splitlines()] == ["USERS", "one", "one", "one", "any"]
    refused = run("keys", "create", "prom", "--role", "monitor", "--one-person")
    assert (refused.exit_code, "it reaches no agent" in refused.output) == (2, True)


def test_a_key_past_its_time_is_shown_as_expired(run: Run) -> None:
    made(run("keys", "create", "ann", "--expires", "1d", "--json"))
    connection = sqlite3.connect(FILE)
    connection.execute("UPDATE keys SET expires_ms = made_ms")
    connection.commit()
    connection.close()
    assert json.loads(run("keys", "list", "--json").stdout)[0]["state"] == "expired"


def test_a_key_is_revoked_by_its_id_or_by_itself(run: Run) -> None:
    first, second = (made(run("keys", "create", name, "--json")) for name in ("ann", "bob"))
    assert f"Key {first['id']} of ann is revoked" in run("keys", "revoke", first["id"]).output
    assert "was already revoked" in run("keys", "revoke", first["id"]).output
    as_json = run("keys", "revoke", second["key"], "-o", "json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["state"], json.loads(as_json.stdout)["changed"]) == (
        0,
        "revoked",
        True,
    )
    again = run("keys", "revoke", second["id"], "--json")
    assert (json.loads(again.stdout)["id"], json.loads(again.stdout)["changed"]) == (second["id"], False)
    assert all(key.revoked_ms is not None for key in keys())


@pytest.mark.parametrize("words", [("create", "bob"), ("rotate", "OLD"), ("create", "bob", "-o", "json")], ids=" ".join)
def test_no_key_is_made_or_replaced_if_the_output_takes_nothing(
    run: Run, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    old = made(run("keys", "create", "ann", "--json"))["id"]
    with open("/dev/full", "w") as full, redirect_stdout(full), pytest.raises(SystemExit) as ended:
        main.main(["keys", *(old if word == "OLD" else word for word in words)], "dragoman")
    assert ended.value.code == 1
    assert "the output cannot be written: No space left on device" in capfd.readouterr().err
    assert [(key.id, key.revoked_ms) for key in keys()] == [(old, None)]


@pytest.mark.parametrize(("overlap", "old_is"), [((), "revoked, too"), (("--overlap", "1h"), "still active")])
def test_a_key_whose_text_is_lost_is_revoked(
    run: Run, overlap: tuple[str, ...], old_is: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A disk that fills up after the command has looked: the file of this test cannot be looked at."""
    with redirect_stdout(FullDisk()), pytest.raises(SystemExit):
        main.main(["keys", "create", "ann"], "dragoman")
    (lost,) = keys()
    told = capfd.readouterr().err
    assert lost.revoked_ms is not None
    assert f"key {lost.id} is revoked, because its text is lost; it was the first key" in told
    old = made(run("keys", "create", "ann", "--json"))["id"]
    with redirect_stdout(FullDisk()), pytest.raises(SystemExit):
        main.main(["keys", "rotate", old, *overlap], "dragoman")
    *_, new = keys()
    assert new.revoked_ms is not None
    assert f"key {new.id} is revoked, because its text is lost; key {old} is {old_is}\n" in capfd.readouterr().err


def test_every_change_is_in_the_audit_trail_once(run: Run) -> None:
    key_id = made(run("keys", "create", "ann", "--json"))["id"]
    run("keys", "revoke", key_id)
    run("keys", "revoke", key_id)
    run("keys", "revoke", "nobody")
    run("keys", "list")
    who = f"operator:{getpass.getuser()}"
    assert [(one.principal, one.action, one.subject, one.allowed) for one in entries()] == [
        (who, "keys.create", key_id, True),
        (who, "keys.revoke", key_id, True),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("keys", "create"), "Missing argument 'NAME'"),
        (("keys", "create", "two words"), "NAME 'two words': must be"),
        (("keys", "create", ""), "NAME '': must be"),
        (("keys", "create", "ann", "--expires", "soon"), "--expires 'soon': must be a whole number with a unit"),
        (("keys", "create", "ann", "--expires", "0d"), "--expires '0d'"),
        (("keys", "create", "ann", "--expires", "forever"), "--expires 'forever'"),
        (("keys", "create", "ann", "--expires", "999999w"), "up to 100 years"),
        (("keys", "create", "ann", "--scope", "write"), "'write' is not one of 'send', 'read', 'cancel'"),
        (("keys", "create", "ann", "--role", "root"), "'root' is not one of 'caller', 'agent', 'monitor', 'admin'"),
        (("keys", "create", "ann", "--agent", "a/b"), "--agent 'a/b'"),
        (("keys", "create", "ann", "--store", "memory:"), "give the server a file"),
        (("keys", "create", "ann", "--store", "mysql://x"), "command line: --store = 'mysql://x': use sqlite:///path"),
        (("keys", "create", "ann", "--config", "absent.toml"), "absent.toml: no such file in "),
        (("keys", "list"), "no store file data/dragoman.db"),
        (("keys", "revoke", "x"), "no store file data/dragoman.db"),
        (("audit",), "no store file data/dragoman.db"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_line_that_says_why_and_makes_no_file(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not FILE.exists()


def test_an_unknown_id_is_refused_with_where_to_look(run: Run) -> None:
    run("keys", "create", "ann")
    result = run("keys", "revoke", "nobody")
    assert result.exit_code == 2
    assert "no key 'nobody'" in result.output
    assert "dragoman keys list" in result.output


def test_a_file_that_is_no_store_is_refused_in_one_line(run: Run) -> None:
    Path("store.db").write_bytes(b"this is no database, " * 400)
    result = run("keys", "list", "--store", "sqlite:///store.db")
    assert result.exit_code == 1
    assert result.output == "dragoman: store file store.db is no SQLite database: use another path\n"


def test_the_store_is_the_one_that_the_server_would_take(run: Run, tmp_path: Path) -> None:
    Path("dragoman.toml").write_text('store = "sqlite:///from-file.db"\nhost = "0.0.0.0"\n', encoding="utf-8")
    Path("other.toml").write_text('store = "sqlite:///from-other.db"\n', encoding="utf-8")
    for flags, env, name in (
        ((), {}, "from-file.db"),
        (("--config", "other.toml"), {}, "from-other.db"),
        ((), {"DRAGOMAN_CONFIG": "other.toml"}, "from-other.db"),
        ((), {"DRAGOMAN_STORE": "sqlite:///from-environment.db"}, "from-environment.db"),
        (("--store", "sqlite:///from-flag.db"), {"DRAGOMAN_STORE": "sqlite:///x.db"}, "from-flag.db"),
    ):
        result = run("keys", "create", "ann", *flags, **env)
        assert result.exit_code == 0, result.output
        assert f"sqlite:///{name}" in result.output
        assert (tmp_path / name).is_file()
    assert not (tmp_path / "x.db").exists()


def test_an_agent_that_the_file_does_not_declare_is_warned_of(run: Run) -> None:
    Path("dragoman.toml").write_text('[[agents]]\nid = "echo"\nrun = "worker"\n', encoding="utf-8")
    assert "Warning" not in run("keys", "create", "ann", "--agent", "echo").output
    result = run("keys", "create", "ann", "--agent", "ecko", "--json")
    assert "Warning: the file declares no agent 'ecko'; there are echo." in result.stderr
    assert made(result)["agents"] == ["ecko"]


async def test_an_agent_that_no_running_server_has_is_warned_of(run: Run, tmp_path: Path) -> None:
    store, port = f"sqlite:///{tmp_path}/served.db", kept_port()
    async with serving(Config(port=port, store=store, shutdown_grace_s=0.1), [Agent("echo"), Agent("sum")]) as url:
        note_server(store, url)
        for place in ((), ("--server", url)):
            given = ("keys", "create", "ann", "--agent", "ecko", "--agent", "sum", "--store", store, *place)
            result = await asyncio.to_thread(run, *given, DRAGOMAN_PORT=str(port))
            assert result.exit_code == 0, result.output
            (warning,) = re.findall("Warning: .*", result.stderr)
            assert warning.startswith("Warning: the server has no agent 'ecko'; there are echo, sum. ")


def test_help_does_not_load_the_store() -> None:
    script = (
        "import sys; from dragoman.cli import main\n"
        "main(['keys', 'create', '--help'], standalone_mode=False)\n"
        "sys.exit('apsw' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0


def test_a_key_has_limits_that_can_be_changed(run: Run) -> None:
    made = run("keys", "create", "ann", "--max-open-tasks", "5", "--max-requests-per-s", "2", "--json")
    assert json.loads(made.stdout)["limits"] == {"max_requests_per_s": 2, "max_open_tasks": 5}
    described = run("keys", "create", "bob", "--max-daily-tokens", "1000000").output
    assert "until it is revoked, 1000000 tokens/day at most." in described
    key_id = keys()[0].id
    changed = run("keys", "update", key_id, "--max-open-tasks", "none", "--max-daily-tasks", "7")
    assert (changed.exit_code, changed.output) == (
        0,
        f"The limits of key {key_id} of ann are now 2 requests/s, 7 tasks/day. "
        "A running server follows within a second.\n",
    )
    assert keys()[0].limits == KeyLimits(max_requests_per_s=2, max_daily_tasks=7)
    listed = run("keys", "list").output.splitlines()
    assert [("2 requests/s, 7 tasks/day" in row, "1000000 tokens/day" in row) for row in listed[1:]] == [
        (True, False),
        (False, True),
    ]
    as_json = run("keys", "update", key_id, "--max-daily-tasks", "8", "-o", "json")
    assert json.loads(as_json.stdout)["limits"] == {"max_requests_per_s": 2, "max_daily_tasks": 8}
    freed = run("keys", "update", key_id, "--max-requests-per-s", "none", "--max-daily-tasks", "none")
    assert "are now those of the server's settings" in freed.output
    assert keys()[0].limits is None
    assert [entry["limits"] for entry in json.loads(run("keys", "list", "--json").stdout)] == [
        None,
        {"max_daily_tokens": 1_000_000},
    ]
    acts = [json.loads(line)["action"] for line in run("audit", "--json").stdout.splitlines()]
    assert acts.count("keys.update") == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "ann", "--max-open-tasks", "0"), "'0': must be a whole number from 1 to 2147483648"),
        (("create", "ann", "--max-daily-tasks", "-1"), "'-1': must be a whole number from 1 to"),
        (("create", "ann", "--max-requests-per-s", "1.5"), "'1.5': must be a whole number from 1 to 1000000"),
        (("create", "ann", "--max-daily-tokens", "1e9"), "must be a whole number from 1 to"),
        (("create", "ann", "--max-daily-tokens", "99999999999999999999"), "must be a whole number from 1 to"),
        (("create", "ann", "--max-open-tasks", "none"), "must be a whole number from 1 to"),
        (("create", "ann", "--role", "operator", "--max-open-tasks", "1"), "goes without limits"),
        (("update", "ID"), "name what to change: --max-requests-per-s"),
        (("update", "ID", "--max-open-tasks", "0"), "or none to go by the server's setting"),
        (("update", "aaaaaaaaaaaa", "--max-open-tasks", "1"), "there is no key 'aaaaaaaaaaaa'"),
        (("update", "REVOKED", "--max-open-tasks", "1"), "is revoked: make another"),
    ],
)
def test_a_wrong_limit_says_what_is_right(run: Run, arguments: tuple[str, ...], words: str) -> None:
    for name in ("ann", "bob"):
        run("keys", "create", name)
    kept_key, revoked = keys()
    run("keys", "revoke", revoked.id)
    given = [{"ID": kept_key.id, "REVOKED": revoked.id}.get(word, word) for word in arguments]
    refused = run("keys", *given)
    assert (refused.exit_code, words in refused.output) == (2, True), refused.output
    assert len(keys()) == 2


def test_a_key_of_a_team_says_so_and_needs_a_team_that_there_is(run: Run) -> None:
    Path("dragoman.toml").write_text('[[teams]]\nid = "search"\n', encoding="utf-8")
    key = made(run("keys", "create", "ann", "--team", "search", "--json"))
    assert key["team"] == "search"
    assert (
        "for ann in the team search, an operator"
        in run("keys", "create", "ann", "--team", "search", "--role", "operator").output
    )
    alone = run("keys", "create", "ann")
    assert "another key" not in alone.output
    assert [row.split()[7] for row in run("keys", "list").output.splitlines()] == ["TEAM", "search", "search", "-"]
    assert made(run("keys", "rotate", key["id"], "--json"))["team"] == "search"
    assert made(run("keys", "create", "bob", "--json"))["team"] == ""
    unknown = run("keys", "create", "ann", "--team", "find")
    assert (unknown.exit_code, "has the id 'find', there are search: add the table" in unknown.output) == (2, True)
    worker = run("keys", "create", "w", "--team", "search", "--role", "agent")
    assert (worker.exit_code, "a worker does the tasks of every team" in worker.output) == (2, True)
