"""`dragoman demo kill`: what it shows, counts and refuses."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

from dragoman.cli.demo.blocked import BlockedNetwork, is_secret
from dragoman.cli.demo.column import DemoColumn, DemoPlan
from dragoman.cli.demo.contest import DemoRefused, check_shown, run_columns, servers_environment
from dragoman.cli.demo.counted import Counted
from dragoman.cli.demo.process import DemoProcess, ServerFailed, free_port
from dragoman.cli.demo.screen import _joined, _rows
from dragoman.cli.demo.steps import StepCounts
from dragoman.cli.demo.webhooks import WebhookReceiver
from dragoman.engine.ends import INTERRUPTED_TEXT
from tests.kit.commands import invoke
from tests.processes import ENDS_WITH_US

DRAGOMAN = Path(sys.executable).parent / "dragoman"

WHOLE = Counted(
    name="dragoman",
    title="Dragoman",
    state="completed",
    events_lost=0,
    steps_done_again=0,
    steps_begun_again=1,
    webhooks_missing=0,
    seconds=2.5,
)

OWN = """
import asyncio
import os

from dragoman import Agent, Context

long = Agent("long", description="Says parts", restartable=True)
keyed = Agent("keyed", description="Needs a key", restartable=True)


@long.skill
async def say_parts(ctx: Context):
    for number in range(6):
        await asyncio.sleep(0.3)
        yield f"part {number}. "


@keyed.skill
async def read_key(ctx: Context):
    yield "begun"
    await asyncio.sleep(1)
    yield os.environ["SOME_API_KEY"]
"""


def demo(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `dragoman demo kill` without the official SDK's column, in a folder with agents of a user's."""
    (folder / "own.py").write_text(OWN)
    command = [*ENDS_WITH_US, DRAGOMAN, "demo", "kill", "--alone", *arguments]
    environment = {**os.environ, "SOME_API_KEY": "k", "DRAGOMAN_MAX_BODY_BYTES": "many"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_nothing_is_lost_and_the_step_that_was_cut_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text("[[agents]]\nrun = 'own.py:keyed'\n")
    (tmp_path / "token.py").write_text("raise SystemExit('a module of the standard library is another one')")
    ran = demo(tmp_path, "--step", "0.1", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    (counted,) = msgspec.json.decode(ran.stdout, type=list[Counted])
    assert counted.whole
    assert (counted.state, counted.steps_begun_again) == ("completed", 1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dragoman.toml", "own.py", "token.py"]


@pytest.mark.slow
def test_an_agent_of_the_users_is_shown(tmp_path: Path) -> None:
    ran = demo(tmp_path, "own.py:long", "--after", "0.5")
    assert ran.returncode == 0, ran.stderr
    assert "kill -9" in ran.stdout
    assert "characters lost" in ran.stdout
    assert "steps" not in ran.stdout


@pytest.mark.slow
def test_an_agent_that_needs_a_key_is_refused(tmp_path: Path) -> None:
    ran = demo(tmp_path, "own.py:keyed", "--after", "0.2")
    assert ran.returncode == 1
    assert "own.py:keyed did not complete in the demo, without keys and a network" in ran.stderr
    assert "SOME_API_KEY" in ran.stderr


SERVER = """
import socket, subprocess, sys, time
subprocess.Popen(["sleep", "60"], stdout=open(sys.argv[1], "w"))
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
time.sleep(60)
"""


class FakeColumn(DemoColumn):
    """A column with servers of this module; its caller hears nothing."""

    module = ""

    def make_server(self, number: int, port: int) -> DemoProcess:
        return DemoProcess(self.module, (), self.environment, self.folder / "log")

    async def follow(self, webhook: str) -> None:
        await asyncio.Event().wait()


def own_column(folder: Path) -> FakeColumn:
    return FakeColumn("own", "Own", DemoPlan(text="", agent="own:agent"), folder, {"PYTHONPATH": str(folder)})


async def test_a_killed_server_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    os.mkfifo(tmp_path / "open")
    port = free_port()
    arguments = (str(tmp_path / "open"), str(port))
    server = DemoProcess("server", arguments, {**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path / "log")
    reading = asyncio.create_task(asyncio.to_thread((tmp_path / "open").read_bytes))  # until nobody has it open
    await server.listen(port)
    await server.kill()
    assert await asyncio.wait_for(reading, 60) == b""
    assert not server.ended_by_itself


class AskingColumn(FakeColumn):
    """A column whose agent asks its caller at once."""

    async def follow(self, webhook: str) -> None:
        self.take_state("TASK_STATE_INPUT_REQUIRED")


async def test_nobody_waits_for_another_column_if_the_agent_asks(tmp_path: Path) -> None:
    plan = DemoPlan(text="", agent="own:agent")
    ours, other = (kind(kind.__name__, "Own", plan, tmp_path, {}) for kind in (AskingColumn, FakeColumn))
    with WebhookReceiver() as webhooks:
        await run_columns([ours, other], webhooks)
    assert [text for _, text in other.lines] == ["message sent"]


async def test_a_server_that_ends_by_itself_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit('dragoman: \\x1b[31mno\\n')")
    column = own_column(tmp_path)
    column.module = "server"
    with pytest.raises(ServerFailed, match=r"^ \[31mno$"):
        await column.start()
    with pytest.raises(ServerFailed, match="the server ended by itself: dragoman:  "):
        await column.run("http://127.0.0.1:1/own")
    await column.stop()


def test_no_text_of_an_agent_moves_the_cursor(tmp_path: Path) -> None:
    column = own_column(tmp_path)
    column.take_artifact("a\x1b[2J\nb")
    assert [text for _, text in column.lines] == ["a [2J b"]


@pytest.mark.parametrize(
    ("state", "why", "said"),
    [
        ("INPUT_REQUIRED", "Which?", "the demo answers nothing"),
        ("FAILED", INTERRUPTED_TEXT, "restartable=True"),
        ("FAILED", "No key.", "without keys and a network: No key"),
    ],
)
def test_an_agent_that_did_not_complete_is_refused_with_what_helps(
    tmp_path: Path, state: str, why: str, said: str
) -> None:
    column = own_column(tmp_path)
    column.state, column.why = f"TASK_STATE_{state}", why
    with pytest.raises(DemoRefused, match=said):
        check_shown("own:agent", column, beside=False)


def test_an_executor_that_a_crash_cut_off_is_shown_beside_the_sdk(tmp_path: Path) -> None:
    column = own_column(tmp_path)
    column.state, column.why = "TASK_STATE_FAILED", INTERRUPTED_TEXT
    check_shown("own:executor", column, beside=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--after", "3"), "--after is for an agent of yours"),
        (("openai:https://api.example.com",), "is elsewhere"),
        (("--replicas", "3"), "--replicas and --store go together"),
        (("--replicas", "3", "--store", "sqlite:///x.db"), "is no database of PostgreSQL"),
        (("own.py:long", "--replicas", "3", "--store", "postgresql://h/d"), "is for the demo's own work"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments: tuple[str, ...], said: str) -> None:
    ran = invoke("demo", "kill", *arguments)
    assert ran.exit_code == 2
    assert said in ran.output


@pytest.mark.parametrize("store", ["", "postgresql://db.example/demo"])
async def test_the_password_of_the_store_is_kept_for_a_store_on_postgresql(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "p")
    plan = DemoPlan(text="", agent="own.py:long", step_s=1, after_s=1, replicas=3 if store else 1, store=store)
    async with BlockedNetwork() as network:
        assert ("PGPASSWORD" in servers_environment(plan, network)) is bool(store)


def test_steps_are_counted_by_their_file(tmp_path: Path) -> None:
    file = tmp_path / "steps"
    assert StepCounts(file).begun_again == 0
    file.write_text("begun 1 7\ndone 1 7\nbegun 2 7\nbegun 2 8\ndone 2 8\nbegun 1 8\ndone 1 8\nbegun 3")
    counts = StepCounts(file)
    assert (counts.done_again, counts.begun_again) == (1, 2)
    assert counts.begun_by == {1: 8, 2: 8}


@pytest.mark.parametrize(
    "change",
    [{"state": "failed"}, {"events_lost": 1}, {"steps_done_again": 1}, {"webhooks_missing": 1}, {"seconds": None}],
)
def test_a_loss_is_no_success(change: dict[str, object]) -> None:
    assert WHOLE.whole
    assert not msgspec.structs.replace(WHOLE, **change).whole


def test_rows_without_a_figure_are_left_out() -> None:
    own = msgspec.structs.replace(WHOLE, steps_done_again=None, steps_begun_again=None, seconds=None)
    assert [row[0] for row in _rows([own])] == [
        "the task is",
        "characters lost",
        "webhooks missing",
        "seconds until the caller had the end",
    ]
    assert list(_rows([WHOLE, own]))[2] == ("finished steps executed again", "0", "–")


def test_steps_and_cuts_that_follow_each_other_are_one_line() -> None:
    lines = [(1.0, "step 1 of 20"), (2.0, "step 2 of 20"), (2.5, "kill -9"), (3.0, "cut: no"), (4.0, "cut: no")]
    assert _joined([*lines, (5.0, "cut: late"), (6.0, "step 3 of 20")]) == [
        "  1.0 s  steps 1 2",
        "  2.5 s  kill -9",
        "  3.0 s  cut: no, and 2 more",
        "  6.0 s  steps 3",
    ]


def test_reports_of_both_forms_are_counted_once() -> None:
    task = {"status": {"state": "TASK_STATE_WORKING"}, "artifacts": [{"name": "step 1 of 20"}]}
    bodies = [{"artifactUpdate": {"artifact": {"name": "step 1 of 20"}}}, {"task": task}]
    with WebhookReceiver() as webhooks:
        for body in bodies:
            request = urllib.request.Request(webhooks.url("a"), json.dumps(body).encode(), method="POST")
            assert urllib.request.urlopen(request, timeout=60).status == 204
        assert webhooks.reports("a") == {"step 1 of 20", "TASK_STATE_WORKING"}
        assert webhooks.reports("b") == frozenset()


async def test_the_network_is_blocked_and_what_was_wanted_is_told() -> None:
    async with BlockedNetwork() as network:
        proxy = network.variables["https_proxy"].removeprefix("http://")
        host, _, port = proxy.partition(":")
        for line in (b"CONNECT api.example.com:443 HTTP/1.1\r\n", b"GET http://other.example/x HTTP/1.1\r\n"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(line + b"\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            writer.close()
        assert network.wanted == {"api.example.com", "other.example"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("OPENAI_API_KEY", "HF_TOKEN", "PGPASSWORD", "AWS_ACCESS_KEY_ID", "mail_passwd")),
        *((name, False) for name in ("KEYBOARD", "PGHOST", "MONKEY", "AWS_REGION", "TOKENIZERS_PARALLELISM")),
    ],
)
def test_variables_that_are_named_as_keys_are_known(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
