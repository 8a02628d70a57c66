"""`dragoman agents`: each agent is tried by itself, and each finding comes with its fix."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace

from dragoman import Agent
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.cli import checks
from dragoman.config import Config
from dragoman.server import serving
from tests.kit.commands import Run

HOUSE = """
from dragoman import Agent

print("I am imported")
echo = Agent("echo")
empty = Agent("empty")


@echo.skill
async def say(ctx):
    return ctx.text
"""

ECHO = '[[agents]]\nid = "echo"\nrun = "house.py:echo"\n'
WORKER = '[[agents]]\nid = "far"\nrun = "worker"\n'


@pytest.fixture
def run(run: Run) -> Run:
    """Runs `dragoman agents` with these arguments in a directory with a module."""
    Path("house.py").write_text(HOUSE)
    return partial(run, "agents")


@pytest.fixture
def check(run: Run) -> Run:
    """Runs `dragoman agents check` with these arguments."""
    return partial(run, "check")


def found(result: Result) -> dict[str, Any]:
    """The findings, by agent."""
    return {subject["id"]: subject for subject in json.loads(result.stdout)}


def wrong(result: Result, agent: str) -> list[tuple[str, str]]:
    """The fault of an agent, and the fix."""
    return [(each["what"], each["fix"]) for each in found(result)[agent]["findings"] if not each["ok"]]


def test_agents_that_work_are_said_to_and_end_it_with_0(check: Run) -> None:
    Path("dragoman.toml").write_text(ECHO + WORKER)
    result = check()
    assert result.exit_code == 0, result.output
    assert "✓ echo  house.py:echo\n    ✓ its skills are say\n" in result.stdout
    assert "✓ far  worker\n" in result.stdout
    assert "I am imported" not in result.stdout


def test_what_a_module_prints_past_python_is_not_in_the_answer(check: Run, capfd: pytest.CaptureFixture[str]) -> None:
    Path("house.py").write_text("import os\nos.write(1, b'I am imported')\n" + HOUSE)
    Path("dragoman.toml").write_text(ECHO)
    assert found(check("--json"))["echo"]["ok"]
    assert capfd.readouterr() == ("", "I am imported")


def test_whatever_is_wrong_with_one_agent_all_others_are_tried(check: Run) -> None:
    Path("broken.py").write_text("import nothing_like_it\n")
    Path("ends.py").write_text("raise SystemExit\n")
    Path("panics.py").write_text("class Panic(BaseException): ...\n\nraise Panic\n")
    tables = {
        "typo": "house.py:ecko",
        "broken": "broken.py:agent",
        "ends": "ends.py:agent",
        "panics": "panics.py:agent",
        "missing": "house.py:echo",
        "empty": "house.py:empty",
        "away": "a2a:http://127.0.0.1:9/",
        "locked": "a2a:http://127.0.0.1:9/",
    }
    more = {"missing": "wheather = 1\n", "locked": 'credentials = { env = "NO_SUCH_VARIABLE" }\n'}
    written = [f'[[agents]]\nid = "{name}"\nrun = "{run}"\n{more.get(name, "")}' for name, run in tables.items()]
    Path("dragoman.toml").write_text("".join(written) + ECHO)
    result = check("--json")
    assert result.exit_code == 1
    assert {name for name, subject in found(result).items() if subject["ok"]} == {"echo"}
    assert set(found(result)) == {*tables, "echo"}
    assert wrong(result, "typo") == [("house.py:ecko: 'ecko' is not in it", "did you mean echo?")]
    assert "nothing_like_it" in wrong(result, "broken")[0][0]
    assert "ends the process (SystemExit)" in wrong(result, "ends")[0][0]
    assert "ends the process (Panic)" in wrong(result, "panics")[0][0]
    assert "no such setting" in wrong(result, "missing")[0][1]
    assert wrong(result, "empty") == [("it has no skills", "write @agent.skill above a function")]
    assert "its card cannot be read: http://127.0.0.1:9/" in wrong(result, "away")[0][0]
    assert "set it" in wrong(result, "locked")[0][1]


def test_a_file_that_is_no_toml_and_a_setting_that_cannot_be_used_are_findings(check: Run) -> None:
    Path("dragoman.toml").write_text("[[agents]")
    result = check("house.py:echo")
    assert result.exit_code == 1
    assert "✗ the server" in result.stdout
    assert "is not TOML" in result.stdout
    assert "✓ echo" in result.stdout
    Path("dragoman.toml").write_text('port = "many"\n' + ECHO)
    result = check()
    assert result.exit_code == 1
    assert "port = 'many'" in result.stdout
    assert "✓ echo" in result.stdout


def test_with_an_id_only_that_agent_is_imported_and_tried(check: Run) -> None:
    Path("dragoman.toml").write_text(ECHO + '[[agents]]\nid = "typo"\nrun = "house.py:ecko"\n')
    result = check("echo", "--json")
    assert (result.exit_code, set(found(result))) == (0, {"echo"})
    result = check("typo", "--json")
    assert (result.exit_code, set(found(result))) == (1, {"typo"})
    result = check("nobody", "--json")
    assert result.exit_code == 1
    assert wrong(result, "nobody") == [("there is no such agent", "there are echo, typo")]


def test_references_are_tried_as_serve_takes_them(check: Run) -> None:
    result = check("house.py", "--json")
    assert set(found(result)) == {"echo", "empty"}
    Path("dragoman.toml").write_text(ECHO)
    result = check("house.py:echo", "--json")
    assert result.exit_code == 1
    assert "has the id 'echo', too" in result.stdout


def test_no_agents_and_a_default_that_is_none_are_said(check: Run) -> None:
    assert "there are no agents" in check().stdout
    Path("dragoman.toml").write_text('default = "nobody"\n' + ECHO)
    result = check()
    assert result.exit_code == 1
    assert "default = 'nobody': there is no such agent\n      name one of echo" in result.stdout


def test_an_import_that_never_ends_does_not_hold_up_the_others(check: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "IMPORT_S", 2.0)
    Path("sleepy.py").write_text("import threading\nthreading.Event().wait(120)\n")
    Path("dragoman.toml").write_text('[[agents]]\nid = "sleepy"\nrun = "sleepy.py:agent"\n' + ECHO)
    began = time.monotonic()
    result = check("--json")
    assert time.monotonic() - began < 60
    assert "takes longer than" in wrong(result, "sleepy")[0][0]
    assert found(result)["echo"]["ok"]


async def test_an_agent_of_another_server_is_looked_at_and_sent_nothing(check: Run, tmp_path: Path) -> None:
    import anyio.to_thread

    there = Agent("there", description="Is there")

    @there.skill
    async def greet(ctx: Any) -> str:
        raise AssertionError("nobody is to call this")

    async with serving(Config(port=0, store="memory:"), [there, WorkerAgent(replace(there.profile, id="far"))]) as url:
        run = f"a2a:{url}/agents/there"
        Path("dragoman.toml").write_text(f'[[agents]]\nid = "near"\nrun = "{run}"\n' + ECHO)
        result = await anyio.to_thread.run_sync(lambda: check("--json"))
        assert result.exit_code == 0, result.output
        whats = [finding["what"] for finding in found(result)["near"]["findings"]]
        assert whats[0] == "its card was read: there, with the skills greet"
        assert whats[1].startswith(f"it is spoken to in dialect 1.0 over HTTP+JSON at {url}/agents/there") or (
            whats[1].startswith(f"it is spoken to in dialect 1.0 over JSONRPC at {url}/agents/there")
        )
        Path("dragoman.toml").write_text(f'[[agents]]\nid = "near"\nrun = "a2a:{url}"\n' + ECHO)
        result = await anyio.to_thread.run_sync(lambda: check("--json"))
        whats = [finding["what"] for finding in found(result)["near"]["findings"]]
        assert whats[0].startswith("its card was read: there, the agent at the root of the host that `run` names, with")
        result = await anyio.to_thread.run_sync(lambda: check("--json", "--server", url))
        assert result.exit_code == 1
        assert f"{url} does not serve it" in wrong(result, "echo")[0][0]
        Path("dragoman.toml").write_text(WORKER)
        result = await anyio.to_thread.run_sync(lambda: check("--json", "--server", url))
        assert wrong(result, "far") == [
            (f"{url} reports: no worker has asked for work lately", "start one: dragoman worker")
        ]
        result = await anyio.to_thread.run_sync(lambda: check("--server", "http://127.0.0.1:9"))
        assert result.exit_code == 1
        assert "the server cannot be asked: http://127.0.0.1:9/ready" in result.stdout


def test_agents_are_listed_without_being_tried(run: Run) -> None:
    Path("dragoman.toml").write_text(ECHO + WORKER + '[[agents]]\nid = "away"\nrun = "a2a:http://127.0.0.1:9/"\n')
    result = run("list")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["ID", "RUN", "SKILLS"],
        ["echo", "house.py:echo", "say"],
        ["far", "worker", "-"],
        ["away", "a2a:http://127.0.0.1:9/", "-"],
    ]
    listed = json.loads(run("list", "--json").stdout)
    assert [each["skills"] for each in listed] == [["say"], [], []]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--config", "gone.toml"), "--config 'gone.toml': there is no such file: name one that is there"),
        (("check", "--config", "gone.toml"), "--config 'gone.toml': there is no such file: name one that is there"),
        (("list", "--config", "broken.toml"), "broken.toml: is not TOML"),
        (("list", "gone.py:echo"), "gone.py:echo: no file gone.py in"),
        (("list", "nobody"), "'nobody': there is no such agent: there are none: name one as MODULE:OBJECT"),
    ],
)
def test_a_file_or_an_agent_that_is_not_there_is_wrong_input(run: Run, arguments: tuple[str, ...], said: str) -> None:
    Path("broken.toml").write_text("[[agents]")
    result = run(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr


EXCHANGING = """
[[agents]]
id = "partner"
run = "a2a:http://127.0.0.1:9"
dialect = "1.0"
[agents.credentials]
exchange = true
token_url = "http://127.0.0.1:9/token"
client_id = "us"
env = "PARTNER_SECRET"
audience = "https://partner"
"""


@pytest.mark.parametrize(
    ("settings", "ok"),
    [
        ("", True),
        ('jwt_issuer = "https://issuer"\njwt_audience = "https://us"\n', None),
        ('jwt_issuer = "https://issuer"\njwt_audience = "https://us"\napi_key = "a-key-of-callers-1"\n', None),
        ('api_key = "a-key-of-callers-1"\n', False),
        ('authentication = "required"\n', False),
    ],
)
def test_an_agent_is_called_in_the_names_of_callers_who_have_tokens(
    check: Run, monkeypatch: pytest.MonkeyPatch, settings: str, ok: bool | None
) -> None:
    monkeypatch.setenv("PARTNER_SECRET", "hidden-value")
    Path("dragoman.toml").write_text(settings + EXCHANGING)
    result = check("--json")
    about_callers = ("who come here with keys", "callers need no token here")
    findings = found(result)["partner"]["findings"]
    said = [each for each in findings if any(words in each["what"] for words in about_callers)]
    assert [each["ok"] for each in said] == ([] if ok is None else [ok])
    if ok is False:
        assert "set jwt_issuer and jwt_audience" in said[0]["fix"]
    (issuer,) = [each for each in findings if "/token gives no answer" in each["what"]]
    assert "token_url" in issuer["fix"]
    assert "hidden-value" not in result.output
