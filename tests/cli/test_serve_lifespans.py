"""Lifespans of real processes: a start, a stop, a kill, a reload, and workers."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit.processes import DRAGOMAN, serving_process
from tests.kit.waiting import DEADLINE_S, until
from tests.processes import ENDS_WITH_US

pytestmark = pytest.mark.slow

MODULE = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from dragoman import Agent


def note(line):
    with Path("diary").open("a") as diary:
        print(line, file=diary)


@asynccontextmanager
async def lifespan():
    note("open VERSION")
    OPENING
    yield "VERSION"
    note("close VERSION")
    CLOSING


agent = Agent("dev", restartable=True)


@agent.skill
async def answer(ctx):
    if ctx.text == "slow":
        note("begun by VERSION")
        while not Path("go").exists():
            await asyncio.sleep(0.02)
        note("ended by VERSION")
    return ctx.state
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "one")
    return tmp_path


def write(folder: Path, version: str, opening: str = "pass", closing: str = "pass") -> None:
    """Save other code of the agent, as editors do: under another name first."""
    text = MODULE.replace("VERSION", version).replace("OPENING", opening).replace("CLOSING", closing)
    (folder / "dev.part").write_text(text)
    (folder / "dev.part").replace(folder / "dev.py")


def diary(folder: Path) -> list[str]:
    """What was opened and closed."""
    file = folder / "diary"
    return file.read_text().splitlines() if file.exists() else []


def session(url: str) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    return aiohttp.ClientSession(url, headers={"A2A-Version": "1.0"}, timeout=timeout)


async def send(http: aiohttp.ClientSession, text: str, **configuration: Any) -> Any:
    message = {"messageId": f"{text}-{os.urandom(4).hex()}", "role": "ROLE_USER", "parts": [{"text": text}]}
    async with http.post("/message:send", json={"message": message, "configuration": configuration}) as answer:
        return (await answer.json())["task"]


def text_of(task: Any) -> str:
    return "".join(part["text"] for part in task["artifacts"][0]["parts"])


def refused(folder: Path, *words: str) -> str:
    """What a command says that ends by itself, without success."""
    ran = subprocess.run(
        [*ENDS_WITH_US, str(DRAGOMAN), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    return ran.stderr


FAILS = 'raise ConnectionError("no database")'


async def test_it_is_open_while_the_server_is_and_a_stop_closes_it(folder: Path) -> None:
    async with serving_process(folder, "--port", "0", "dev.py") as server, session(server.url) as http:
        assert diary(folder) == ["open one"]
        assert text_of(await send(http, "x")) == "one"
        await send(http, "slow", returnImmediately=True)
        await until(lambda: "begun by one" in diary(folder))
        os.kill(server.pid, signal.SIGTERM)
        await until(lambda: "stopping" in server.said())
        (folder / "go").touch()
        assert await server.ended() == 0
    assert diary(folder) == ["open one", "begun by one", "ended by one", "close one"]


async def test_a_killed_server_opens_it_anew(folder: Path) -> None:
    async with serving_process(folder, "--port", "0", "dev.py") as server:
        os.kill(server.pid, signal.SIGKILL)
        await server.ended()
        await server.start()
        async with session(server.url) as http:
            assert text_of(await send(http, "x")) == "one"
    assert diary(folder)[:2] == ["open one", "open one"]


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "--server", "http://127.0.0.1:9")])
def test_one_that_fails_ends_the_process_with_one_line_that_says_where(folder: Path, command: tuple[str, ...]) -> None:
    write(folder, "one", FAILS)
    assert refused(folder, *command, "dev.py") == (
        "dragoman: agent dev: its lifespan (dev.py:14) failed with ConnectionError: no database (dev.py:17)\n"
    )
    assert diary(folder) == ["open one"]


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "--server", "http://127.0.0.1:9")])
def test_one_that_takes_too_long_ends_the_process_with_the_line_at_which_it_waits(
    folder: Path, command: tuple[str, ...]
) -> None:
    write(folder, "one", "await asyncio.sleep(3600)")
    code = (folder / "dev.py").read_text().replace("restartable=True", "restartable=True, lifespan_timeout_s=0.3")
    (folder / "dev.py").write_text(code)
    assert refused(folder, *command, "dev.py") == (
        "dragoman: agent dev: its lifespan (dev.py:14) took longer than lifespan_timeout_s = 0.3 to open, "
        "and waits at dev.py:17\n"
    )


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "--server", "http://127.0.0.1:9")])
def test_one_that_takes_too_long_and_ignores_its_cancellation_ends_the_process_all_the_same(
    folder: Path, command: tuple[str, ...]
) -> None:
    deaf = "while True:\n        try:\n            await asyncio.sleep(3600)\n        except:\n            pass"
    write(folder, "one", deaf)
    code = (folder / "dev.py").read_text().replace("restartable=True", "restartable=True, lifespan_timeout_s=0.3")
    (folder / "dev.py").write_text(code)
    said = refused(folder, *command, "dev.py").splitlines()
    assert said == [
        "dragoman: agent dev: its lifespan (dev.py:14) took longer than lifespan_timeout_s = 0.3 to open, and waits at "
        "dev.py:19"
    ]


async def test_one_that_fails_as_it_closes_is_logged_and_the_server_stops_well(folder: Path) -> None:
    write(folder, "one", closing='raise OSError("cannot close")')
    async with serving_process(folder, "--port", "0", "dev.py") as server:
        os.kill(server.pid, signal.SIGTERM)
        assert await server.ended() == 0
        assert "agent dev: its lifespan (dev.py:14) failed as it closed: OSError: cannot close" in server.said()
        assert "stopped" in server.said()


async def test_a_reload_opens_the_new_one_first_and_closes_the_old_one_after_its_last_task(folder: Path) -> None:
    async with serving_process(folder, "--port", "0", "dev.py") as server, session(server.url) as http:
        task = await send(http, "slow", returnImmediately=True)
        await until(lambda: "begun by one" in diary(folder))
        write(folder, "two")
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: "reloaded: changed dev" in server.said())
        assert text_of(await send(http, "x")) == "two"
        assert diary(folder) == ["open one", "begun by one", "open two"]
        (folder / "go").touch()
        await until(lambda: "close one" in diary(folder))
        async with http.get(f"/tasks/{task['id']}") as answer:
            assert text_of(await answer.json()) == "one"
        assert diary(folder) == ["open one", "begun by one", "open two", "ended by one", "close one"]
        server.signal()
        assert await server.ended() == 0
    assert diary(folder)[-1] == "close two"


@pytest.mark.parametrize("opening", [FAILS, "import nothing_like_it", "await asyncio.sleep(3600)"])
async def test_a_reload_to_one_that_fails_keeps_the_old_one(folder: Path, opening: str) -> None:
    run = '[[agents]]\nid = "dev"\nrun = "dev.py:agent"\nlifespan_timeout_s = 0.5\n'
    (folder / "dragoman.toml").write_text(run)
    async with serving_process(folder, "--port", "0") as server, session(server.url) as http:
        write(folder, "two", opening)
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: "not reloaded, nothing has changed: agent dev: its lifespan (dev.py:14) " in server.said())
        assert "dev.py:17" in server.said()
        assert text_of(await send(http, "x")) == "one"
        write(folder, "three")
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: "reloaded: changed dev" in server.said())
        assert text_of(await send(http, "x")) == "three"
        await until(lambda: "close one" in diary(folder))
    assert diary(folder) == ["open one", "open two", "open three", "close one"]


async def test_a_reload_of_the_file_alone_keeps_a_lifespan_of_the_module_open(folder: Path) -> None:
    table = '[[agents]]\nid = "{}"\nrun = "dev.py:agent"\n'
    (folder / "dragoman.toml").write_text(table.format("dev"))
    async with serving_process(folder, "--port", "0") as server, session(server.url) as http:
        (folder / "dragoman.toml").write_text(table.format("dev") + 'name = "Another"\n')
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: "reloaded: changed dev" in server.said())
        assert text_of(await send(http, "x")) == "one"
        assert diary(folder) == ["open one"]
        server.signal()
        assert await server.ended() == 0
    assert diary(folder) == ["open one", "close one"]


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--port", "0", "--shutdown-grace-s", "60"),
        ("worker", "--server", "http://127.0.0.1:9", "--grace-s", "60"),
    ],
)
async def test_a_stop_while_it_opens_ends_the_process_and_closes_what_is_open(
    folder: Path, command: tuple[str, ...]
) -> None:
    write(folder, "one", "await asyncio.sleep(3600)")
    other = MODULE.replace("VERSION", "other").replace("OPENING", "pass").replace("CLOSING", "pass")
    (folder / "other.py").write_text(other.replace('"dev"', '"other"'))
    process = await asyncio.create_subprocess_exec(
        *(*ENDS_WITH_US, str(DRAGOMAN), *command, "dev.py", "other.py"), cwd=folder
    )
    try:
        await until(lambda: sorted(diary(folder)) == ["open one", "open other"])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert diary(folder)[2:] == ["close other"]


async def test_a_worker_opens_it_before_its_first_task_and_closes_it_after_the_last(folder: Path) -> None:
    (folder / "dragoman.toml").write_text('[[agents]]\nid = "dev"\nrun = "worker"\noffline = "queue"\n')
    async with serving_process(folder, "--port", "0") as server, session(server.url) as http:
        worker = await asyncio.create_subprocess_exec(
            *ENDS_WITH_US, sys.executable, "-m", "dragoman", "worker", "--server", server.url, "dev.py", cwd=folder
        )
        try:
            await until(lambda: diary(folder) == ["open one"])
            await send(http, "slow", returnImmediately=True)
            await until(lambda: "begun by one" in diary(folder))
            worker.send_signal(signal.SIGTERM)
            (folder / "go").touch()
            assert await asyncio.wait_for(worker.wait(), DEADLINE_S) == 0
        finally:
            if worker.returncode is None:
                worker.kill()
    lines = diary(folder)
    assert (lines[0], lines[-1]) == ("open one", "close one")
    assert lines.count("begun by one") == lines.count("ended by one") == 1
