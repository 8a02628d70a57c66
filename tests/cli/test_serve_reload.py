"""`dragoman serve --reload`: the real command follows its files, and nothing that was begun is lost."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.cli.loader import SourceFiles
from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.processes import ENDS_WITH_US

DEADLINE_S = 60.0

V1 = {"A2A-Version": "1.0"}

AGENT = """\
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Agent, Context

agent = Agent("dev", restartable=True)


@agent.skill
async def answer(ctx: Context) -> AsyncIterator[str]:
    if ctx.text == "ask":
        yield await ctx.ask("which?") + " answered by VERSION"
    elif ctx.text == "slow":
        yield "begun by VERSION, "
        while not Path("go").exists():
            await asyncio.sleep(0.02)
        yield "ended by VERSION"
    else:
        yield "VERSION"
"""

FILE = """\
[[agents]]
id = "dev"
run = "dev.py:agent"
"""


class Project:
    """A folder with an agent and a file, and the command that serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.write("one")
        self.configure()
        self.process: asyncio.subprocess.Process

    def write(self, version: str) -> None:
        """Save other code of the agent."""
        self.save("dev.py", AGENT.replace("VERSION", version))

    def configure(self, more: str = "") -> None:
        """Save other settings."""
        self.save("dragoman.toml", more + FILE)

    def save(self, name: str, text: str) -> None:
        """Save a file as editors do: under another name first."""
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.replace(self.folder / name)

    async def says(self, *patterns: str) -> str:
        """Wait for lines of the output with these patterns in this order, and return the last one."""
        line = ""
        for pattern in patterns:
            while not re.search(pattern, line):
                async with asyncio.timeout(DEADLINE_S):
                    assert self.process.stdout is not None
                    raw = await self.process.stdout.readline()
                assert raw, f"it ended without {pattern!r}: {''.join(self.lines)}"
                line = raw.decode()
                self.lines.append(line)
            found, line = line, ""
        return found

    async def url(self) -> str:
        """Its URL, once it listens."""
        found = re.search(r"listens on (\S+)/ ", await self.says("listens on"))
        assert found is not None
        return found[1]


@asynccontextmanager
async def serving(folder: Path, *flags: str) -> AsyncIterator[Project]:
    """Run `dragoman serve --reload` in a project, and end it as Ctrl-C does."""
    project = Project(folder)
    async with running(project, *flags):
        yield project


@asynccontextmanager
async def running(project: Project, *flags: str) -> AsyncIterator[None]:
    project.process = process = await asyncio.create_subprocess_exec(
        *(*ENDS_WITH_US, sys.executable, "-m", "dragoman", "serve", "--reload", "--port", "0", *flags),
        cwd=project.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def session(url: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(url, headers=V1, timeout=aiohttp.ClientTimeout(total=DEADLINE_S))


def message(text: str, **more: str) -> Any:
    return {"message": {"messageId": f"{text}{len(more)}", "role": "ROLE_USER", "parts": [{"text": text}], **more}}


async def send(http: aiohttp.ClientSession, text: str, **more: str) -> Any:
    async with http.post("/message:send", json=message(text, **more)) as answer:
        return (await answer.json())["task"]


def text_of(task: Any) -> str:
    return "".join(part["text"] for part in task["artifacts"][0]["parts"])


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream, each with its id."""
    number = ""
    async for line in answer.content:
        name, _, value = line.decode().strip().partition(": ")
        if name == "id":
            number = value
        elif name == "data":
            yield number, json.loads(value)


async def until(answer: aiohttp.ClientResponse, fits: Callable[[str], bool]) -> str:
    """Read a stream until an event fits. Returns its id."""
    async for number, event in events(answer):
        if fits(json.dumps(event)):
            return number
    raise AssertionError("the stream ended without the event")


async def test_new_code_answers_and_no_stream_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path) as project, session(await project.url()) as http:
        asked = await send(http, "ask")
        assert text_of(await send(http, "hello")) == "one"
        async with http.post("/message:stream", json=message("slow")) as stream:
            await until(stream, lambda event: "begun by one" in event)
            project.write("two")
            await project.says("dev.py changed", "reloaded: changed dev")
            assert text_of(await send(http, "again")) == "two"
            (tmp_path / "go").touch()
            await until(stream, lambda event: "ended by one" in event)
        assert text_of(await send(http, "this", taskId=asked["id"])) == "this answered by one"


async def test_broken_code_is_shown_and_the_old_goes_on_until_it_is_repaired(tmp_path: Path) -> None:
    async with serving(tmp_path) as project, session(await project.url()) as http:
        project.save("dev.py", "import parts_of_it\n" + AGENT.replace("VERSION", "two"))
        await project.says("not reloaded, nothing has changed: dev.py:agent: .*parts_of_it")
        assert text_of(await send(http, "1")) == "one"
        project.save("parts_of_it.py", "def broken(\n")
        await project.says("parts_of_it.py changed", "not reloaded, nothing has changed: .*SyntaxError")
        assert text_of(await send(http, "2")) == "one"
        project.save("parts_of_it.py", "")
        await project.says("reloaded: changed dev")
        assert text_of(await send(http, "3")) == "two"
        project.configure("nonsense = 1\n")
        await project.says("dragoman.toml changed, but the configuration cannot be used: .*nonsense")
        assert text_of(await send(http, "4")) == "two"


async def test_code_that_cannot_be_imported_at_the_start_is_waited_for(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("dev.py", "def broken(\n")
    async with running(project):
        await project.says("SyntaxError", "the server ended with code 2; it is started again after the next change")
        project.save("dragoman.toml", "[[agents]\n")
        await project.says("dragoman.toml changed, but the configuration cannot be used")
        project.write("one")
        await project.says("dev.py changed, but the configuration cannot be used")
        project.configure()
        await project.says("dragoman.toml changed: starting again")
        async with session(await project.url()) as http:
            assert text_of(await send(http, "1")) == "one"


async def test_another_setting_restarts_the_server_and_streams_and_tasks_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as project, session(await project.url()) as http:
        asked = await send(http, "ask")
        async with http.post("/message:stream", json=message("slow")) as stream:
            task: list[str] = []

            def begun(event: str) -> bool:
                task.extend(re.findall(r'"task": {"id": "([^"]+)"', event))
                return "begun by one" in event

            seen = await until(stream, begun)
            project.configure("shutdown_grace_s = 1\n")
            await project.says("restarting for shutdown_grace_s", "the server listens again: Dragoman ")
        (tmp_path / "go").touch()
        async with http.post(f"/tasks/{task[0]}:subscribe", headers={"Last-Event-ID": seen}) as stream:
            await until(stream, lambda event: "ended by one" in event)
        assert text_of(await send(http, "this", taskId=asked["id"])) == "this answered by one"


async def test_a_server_whose_reloader_was_killed_ends(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.process = process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "serve", "--reload", "--port", "0"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    await project.url()
    process.kill()
    assert process.stdout is not None
    rest = await asyncio.wait_for(process.stdout.read(), DEADLINE_S)  # until the server, too, has closed it
    assert b"stopped" in rest
    assert await process.wait() == -signal.SIGKILL


def test_ctrl_c_at_a_terminal_ends_both_at_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    Project(shell.work)
    with at_terminal(shell, "serve", "--reload", "--port", "0") as terminal:
        terminal.until("Ctrl-C stops it.")
        terminal.type("\x03")
        terminal.until("stopped")
        assert terminal.end() == 0
    assert terminal.screen.count("dragoman.server.process: stopping") == 1


async def test_several_processes_do_not_go_with_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "serve", "--reload", "--processes", "2"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    await project.says("--reload goes with one process: leave it out, or set processes to 1")
    assert await asyncio.wait_for(project.process.wait(), DEADLINE_S) == 2


def test_files_of_tools_and_environments_do_not_count(tmp_path: Path) -> None:
    counted = ["a.py", "package/deep/b.py"]
    ignored = [
        *(".hidden/c.py", "env/lib/d.py", "node_modules/e.py", "__pycache__/f.py", "notes.txt", "package/data.json"),
        "site-packages/g.py",
    ]
    for name in (*counted, *ignored, "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    config = tmp_path / "dragoman.toml"
    files = SourceFiles([tmp_path, tmp_path / "package"], [config])
    assert sorted(files.stamps()) == sorted(str(tmp_path / name) for name in counted)
    before = files.stamps()
    config.touch()
    assert files.stamps().keys() - before.keys() == {str(config)}
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert files.stamps()[str(tmp_path / "a.py")] != before[str(tmp_path / "a.py")]


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "a.py").touch()
    assert bool(SourceFiles([tmp_path / "none", tmp_path]).stamps()) is there
