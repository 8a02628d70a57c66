"""`dragoman serve` as a process: it says when it listens, answers what it says to paste, and ends on SIGTERM."""

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.store.sqlite.schema import check
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 60.0

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `dragoman serve` with these arguments, on a free port, in an empty directory."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, stdout: int = subprocess.PIPE) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*ENDS_WITH_US, Path(sys.executable).parent / "dragoman", "serve", *arguments],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        if process.stdout is not None and process.stdout.closed:
            process.stdout = None
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    """The output of the process up to the end of its banner."""
    assert process.stdout is not None
    assert process.stderr is not None
    text = ""
    deadline = time.monotonic() + DEADLINE_S
    while "Ctrl-C" not in text:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(process.stdout.fileno(), 65_536) if ready else b""
        if not chunk:
            process.kill()
            pytest.fail(f"the server said only {text!r} and {process.stderr.read()}")
        text += chunk.decode()
    return text


def pasted(banner: str, which: str) -> str:
    (command,) = re.findall(rf"^{which}: +(.*)$", banner, re.MULTILINE)
    arguments = [*shlex.split(command), "-sS", "--max-time", "15"]
    return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout


def test_the_operators_token_is_shown_at_a_terminal_alone(tmp_path: Path, serve: Serve) -> None:
    kept = tmp_path / "data/dragoman.db.operator"
    agent = f"{ROOT}/examples/agents.py:echo"
    process = serve(agent, "--port", "0")
    text = said(process)
    token = kept.read_text().strip()
    assert re.search(
        r"^Console: http://.*/console \(its token is in data/dragoman\.db\.operator\)$", text, re.MULTILINE
    )
    process.send_signal(signal.SIGTERM)
    out, log = process.communicate(timeout=DEADLINE_S)
    assert token not in text + out + log
    ours, its = os.openpty()
    try:
        shown = serve(agent, "--port", "0", stdout=its)
        text = ""
        deadline = time.monotonic() + DEADLINE_S
        while "Ctrl-C" not in text:
            assert select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0], text
            text += os.read(ours, 65_536).decode()
        assert f"/console#token={kept.read_text().strip()}\r\n" in text
        shown.send_signal(signal.SIGTERM)
        shown.communicate(timeout=DEADLINE_S)
    finally:
        os.close(its)
        os.close(ours)


def test_a_server_whose_output_nobody_reads_serves_and_ends_as_any(serve: Serve) -> None:
    port = kept_port()
    process = serve(f"{ROOT}/examples/agents.py", "--port", str(port), "--store", "memory:")
    assert process.stdout is not None
    process.stdout.close()
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=DEADLINE_S) as answer:
                assert answer.status == 200
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)  # until it listens
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


EXITS = """
import asyncio

from dragoman import Agent

agent = Agent("exits")


async def end(kind):
    raise kind(3)


@agent.skill
async def leave(ctx):
    \"\"\"Try to end the process.\"\"\"
    beside = [asyncio.create_task(end(kind)) for kind in (SystemExit, KeyboardInterrupt)]
    await asyncio.wait(beside)
    return "still here"
"""


def test_an_exit_in_a_task_that_an_agent_started_does_not_end_the_server(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    port = kept_port()
    process = serve("exits.py", "--port", str(port), "--store", "memory:")
    said(process)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    for _ in range(2):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/message:send",
            json.dumps({"message": message}).encode(),
            {"Content-Type": "application/json", "A2A-Version": "1.0"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            task = json.loads(answer.read())["task"]
        assert task["artifacts"][0]["parts"] == [{"text": "still here"}]
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "which goes on" in log
    assert log.splitlines()[-1].endswith("stopped"), "it drains"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_that_it_prints_work_and_sigterm_ends_it(serve: Serve) -> None:
    process = serve(f"{ROOT}/examples/agents.py", "--port", "0", "--store", "memory:")
    banner = said(process)
    assert json.loads(pasted(banner, "Card"))["name"]
    assert json.loads(pasted(banner, "Send"))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "TASK_STATE_COMPLETED" in pasted(banner, "Stream")
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert log.splitlines()[-1].endswith("stopped")


def test_the_directory_of_the_store_is_made(serve: Serve, tmp_path: Path) -> None:
    said(serve(f"{ROOT}/examples/agents.py:echo", "--port", "0"))
    assert (tmp_path / "data" / "dragoman.db").is_file()


def test_a_port_that_is_taken_is_a_line_that_says_so(serve: Serve) -> None:
    banner = said(serve(f"{ROOT}/examples/agents.py:echo", "--port", "0", "--store", "memory:"))
    port = re.findall(r"listens on http://127\.0\.0\.1:(\d+)/", banner)
    second = serve(f"{ROOT}/examples/agents.py:echo", "--port", *port, "--store", "memory:")
    _, error = second.communicate(timeout=DEADLINE_S)
    assert second.returncode != 0
    assert re.search(rf"cannot listen on 127\.0\.0\.1 port {port[0]}: .*; set another `port`", error)
    assert "Traceback" not in error


def test_a_second_server_on_the_same_store_is_refused_in_one_line(serve: Serve) -> None:
    said(serve(f"{ROOT}/examples/agents.py:echo", "--port", "0"))
    second = serve(f"{ROOT}/examples/agents.py:echo", "--port", "0")
    _, error = second.communicate(timeout=DEADLINE_S)
    assert second.returncode != 0
    assert "data/dragoman.db" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_keys_are_made_revoked_and_audited_while_the_server_runs(serve: Serve, tmp_path: Path) -> None:
    def dragoman(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "dragoman"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    process = serve(f"{ROOT}/examples/agents.py:echo", "--port", "0")
    said(process)
    key_id = json.loads(dragoman("keys", "create", "ann", "--json"))["id"]
    assert [key["id"] for key in json.loads(dragoman("keys", "list", "--json"))] == [key_id]
    dragoman("keys", "revoke", key_id)
    acts = [json.loads(line) for line in dragoman("audit", "--json").splitlines()]
    assert [act["action"] for act in acts if act.get("subject") == key_id] == ["keys.create", "keys.revoke"]
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0
    assert check(tmp_path / "data" / "dragoman.db") == []
