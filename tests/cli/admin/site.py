"""A server that asks nobody, with two open tasks, and the real command on it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any, NamedTuple

import aiohttp

from dragoman import Agent, Context
from dragoman.config import Config, settings
from dragoman.engine.api import Runner
from dragoman.server import serving
from dragoman.store.open import note_server
from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.kit.commands import Ran, run_command

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}


class Site(NamedTuple):
    """A server that asks nobody, with two open tasks of `anonymous`, and perhaps more agents."""

    url: str
    store: str
    folder: Path
    echo: str
    other: str

    async def at_terminal(self, question: str, answer: str, *arguments: str) -> tuple[int, str]:
        """Run `dragoman admin` at a terminal, and answer its question. Returns its status and what it has shown."""

        def talk() -> tuple[int, str]:
            shell = Shell(Path(mkdtemp(dir=self.folder)))
            shell.environment["DRAGOMAN_STORE"] = self.store
            with at_terminal(shell, "admin", *arguments) as terminal:
                terminal.until(question)
                terminal.type(answer)
                return terminal.end(), terminal.screen

        return await asyncio.to_thread(talk)

    async def history(self, agent: str, task_id: str) -> Any:
        """The messages of a task as its caller reads them, once it has ended."""
        async with aiohttp.ClientSession(self.url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http:
            path = f"/agents/{agent}/tasks/{task_id}"
            async with http.post(f"{path}:subscribe", headers=V1) as stream:
                await stream.read()
            async with http.get(path, headers=V1) as answer:
                return (await answer.json())["history"]

    async def run(self, *arguments: str, **environ: str) -> Ran:
        """Run `dragoman` on the local store, unless the arguments name a server."""
        return await dragoman(self.folder, *arguments, DRAGOMAN_STORE=self.store, **environ)

    async def admin(self, *arguments: str, **environ: str) -> Ran:
        """Run `dragoman admin` on the local store, unless the arguments name a server."""
        return await self.run("admin", *arguments, **environ)

    async def admin_process(self, *arguments: str) -> Ran:
        """Run `dragoman admin` on the local store in a process of its own."""
        return await dragoman_process(self.folder, "admin", *arguments, DRAGOMAN_STORE=self.store)


OURS = {setting.env for setting in settings()} | {
    *("DRAGOMAN_SERVER", "DRAGOMAN_API_KEY", "DRAGOMAN_OPERATOR_KEY", "DRAGOMAN_CONFIG"),
}


async def dragoman(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run the command in a thread, which is fast, but can neither handle signals nor run beside another one."""
    return _checked(await dragoman_with_secrets(folder, *arguments, **environ))


async def dragoman_with_secrets(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run a command that may show a key that it makes, in the same way."""
    assert not TURN.locked(), "another command has the streams of this process: use dragoman_process"
    with TURN:
        return await asyncio.wait_for(asyncio.to_thread(run_command, folder, *arguments, **environ), DEADLINE_S)


TURN = Lock()


def dragoman_alone(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run the command in the main thread, which is fast: it can handle signals, but no server runs beside it here."""
    return _checked(run_command(folder, *arguments, **environ))


async def dragoman_process(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run the command in a process of its own: one that handles signals, or goes on beside others."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=inherited | environ,
    )
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode is not None
    return _checked(Ran(process.returncode, out.decode(), err.decode()))


def _checked(ran: Ran) -> Ran:
    """The output of a command, in which is nothing that nobody may see."""
    assert "Traceback" not in ran.err, ran.err
    assert "dgo_" not in ran.out + ran.err
    assert "dgm_" not in ran.out + ran.err
    return ran


def waiting_agent(name: str, **more: Any) -> Agent:
    agent = Agent(name, **more)

    @agent.skill
    async def wait(ctx: Context) -> str:
        """Ask, so that the task stays open."""
        return await ctx.ask("which one?")

    return agent


async def make_task(http: aiohttp.ClientSession, agent: str, text: str) -> str:
    sent: Any = {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}
    async with http.post(f"/agents/{agent}/message:send", json=sent, headers=V1) as answer:
        return str((await answer.json())["task"]["id"])


@asynccontextmanager
async def site(folder: Path, *more: Runner, **settings_given: Any) -> AsyncIterator[Site]:
    store = f"sqlite:///{folder}/dragoman.db"
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2, **settings_given)
    async with (
        serving(config, [waiting_agent("echo"), waiting_agent("other"), *more]) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        note_server(store, url)
        yield Site(
            url, store, folder, await make_task(http, "echo", "one\x1b[2J"), await make_task(http, "other", "two")
        )
