"""Servers in trouble: each symptom of docs/operations.md, made with the real command, for the commands that find it."""

import asyncio
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from string import Template
from typing import Any

import aiohttp
import apsw
from aiohttp import web

from dragoman.config import settings
from tests.cli.admin.site import dragoman_with_secrets
from tests.ports import kept_port
from tests.postgres import PostgresServer
from tests.processes import ENDS_WITH_US
from tests.push.receiver import receiving
from tests.spoil import spoil_file
from tests.store.cases.spoiling import cut

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")

PRELUDE = PAGE.partition("```sh\n")[2].partition("```")[0]
"""The page's first block: the variables and the function that its commands use."""

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}

AGENTS = '''
import asyncio
from dragoman import Agent, Context

stuck = Agent("stuck")
ask = Agent("ask")
echo = Agent("echo")

@stuck.skill
async def hang(ctx: Context):
    """Never ends."""
    yield "begun"
    await asyncio.Event().wait()

@ask.skill
async def question(ctx: Context) -> str:
    """Asks."""
    return await ctx.ask("which one?")

@echo.skill
async def say(ctx: Context) -> str:
    """Says it again."""
    return ctx.text
'''

FAULT = """
from dragoman.store.sqlite.store import SqliteStore

async def sweep(*_: object) -> int:
    return {}["planted"]

SqliteStore.sweep = sweep
"""
"""Has the sweep of a process fail that loads these agents, too."""

TABLES = """
[[agents]]
id = "echo"
run = "agents.py:echo"

[[agents]]
id = "stuck"
run = "agents.py:stuck"

[[agents]]
id = "ask"
run = "agents.py:ask"
"""

WORKER = """
[[agents]]
id = "slow"
run = "worker"
description = "Works elsewhere"
offline = "queue"
lease_s = 1
"""


QUICK = re.compile(r"dragoman (?:admin (?!backup|restore)|audit |doctor |keys |push )[^|;&<>`()]*")
"""Commands without pipes that run as well inside this process: they load no agents and handle no signals."""


class Scene:
    """A server in a folder, or the place where one would be. `variables` are those of the page's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = folder / "store.db"
        self.log = folder / "server.log"
        self.variables = {"URL": self.url, "AGE": "0s", "DRAGOMAN_STORE": f"sqlite:///{self.store}"}
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "agents.py").write_text(AGENTS, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """The environment of the page's commands: `dragoman` is the one under test."""
        known = {setting.env for setting in settings()} | {
            *("DRAGOMAN_SERVER", "DRAGOMAN_API_KEY", "DRAGOMAN_OPERATOR_KEY", "DRAGOMAN_CONFIG"),
        }
        inherited = {name: value for name, value in os.environ.items() if name not in known}
        path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
        return inherited | {"PATH": path, "NO_PROXY": "*", "no_proxy": "*"} | self.variables

    def start(self, *arguments: str, tables: str = TABLES) -> None:
        """Start the server, whose log is kept."""
        (self.folder / "dragoman.toml").write_text(tables, encoding="utf-8")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *ENDS_WITH_US,
                    *(sys.executable, "-m", "dragoman", "serve", "--port", str(self.port)),
                    *("--shutdown-grace-s", "1", "--cancel-grace-s", "1", *arguments),
                ],
                cwd=self.folder,
                env={name: value for name, value in self.environment().items() if name != "DRAGOMAN_API_KEY"},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    async def make_key(self) -> None:
        """Make an operator's key, `$KEY`."""
        self.variables["KEY"] = await self.new_key("monitor --role operator")

    async def new_key(self, arguments: str) -> str:
        """Make a key."""
        said = await self.run(f"dragoman keys create {arguments} --json")
        (made,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
        return str(made["key"])

    async def run(self, command: str) -> str:
        """Run a command of the page, and return all that it says: in bash, or at once if it is one of `QUICK`."""
        if QUICK.fullmatch(command):
            _, *words = shlex.split(Template(command).substitute(self.variables))
            ran = await dragoman_with_secrets(self.folder, *words, **self.variables)
            return ran.out + ran.err
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"{PRELUDE}\n{command}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.folder,
            env=self.environment(),
        )
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate()
        return said.decode()

    async def up(self) -> None:
        """Wait until the server answers."""
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
            while True:
                assert self.process is not None
                assert self.process.poll() is None, self.log.read_text()
                try:
                    async with http.get(f"{self.url}/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Stop the server."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self.process.wait, DEADLINE_S)
            self.process = None

    async def send(self, agent: str, text: str = "hi", **more: Any) -> dict[str, Any]:
        """Send a message, and return the answer. `more` are headers, with a hyphen, or fields of the configuration."""
        message = {"messageId": f"m-{agent}-{text[:20]}", "role": "ROLE_USER", "parts": [{"text": text}]}
        headers = {name: value for name, value in more.items() if "-" in name}
        configuration = {name: value for name, value in more.items() if "-" not in name}
        body: dict[str, Any] = {"message": message, "configuration": configuration}
        return await self.post(f"/agents/{agent}/message:send", body, **headers)

    async def writes(self) -> str:
        """The number of writes that the server has given to its store."""
        return await self.run("metrics | grep store_writes_total")

    async def post(self, path: str, body: Any, **headers: str) -> dict[str, Any]:
        """Post JSON."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
            http.post(f"{self.url}{path}", json=body, headers={**V1, **headers}) as answer,
        ):
            text = await answer.text()
            return json.loads(text) if text else {}


Make = Callable[[Path], AbstractAsyncContextManager[Scene]]


@asynccontextmanager
async def served(folder: Path, *arguments: str, tables: str = TABLES) -> AsyncIterator[Scene]:
    """A server, until the block ends."""
    scene = Scene(folder)
    scene.start(*arguments, tables=tables)
    try:
        await scene.up()
        yield scene
    finally:
        await scene.stop()


@asynccontextmanager
async def hanging_task(folder: Path) -> AsyncIterator[Scene]:
    """An agent that never ends."""
    async with served(folder) as scene:
        answer = await scene.send("stuck", returnImmediately=True)
        scene.variables["TASK"] = answer["task"]["id"]
        yield scene


@asynccontextmanager
async def damaged_task(folder: Path) -> AsyncIterator[Scene]:
    """A task whose bytes were damaged after its server was killed while the task was at work."""
    async with served(folder) as scene:
        answer = await scene.send("stuck", returnImmediately=True)
        assert scene.process is not None
        scene.process.kill()
        await asyncio.to_thread(scene.process.wait, DEADLINE_S)
        of_task = f"task = (SELECT task FROM tasks WHERE id = '{answer['task']['id']}') AND first_seq = 1"
        await spoil_file(scene.store)("pages", "events", of_task, cut)
        scene.start()
        await scene.up()
        scene.variables["TASK"] = answer["task"]["id"]
        yield scene


@asynccontextmanager
async def waiting_queue(folder: Path) -> AsyncIterator[Scene]:
    """Tasks for workers that are not there."""
    async with served(folder, "--queue-warn-s", "1", tables=WORKER) as scene:
        for text in ("one", "two"):
            await scene.send("slow", text, returnImmediately=True)
        yield scene


@asynccontextmanager
async def failing_webhook(folder: Path) -> AsyncIterator[Scene]:
    """A receiver that answers 503."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=503)

    app = web.Application()
    app.router.add_post("/hook", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    receiver = web.TCPSite(runner, "127.0.0.1", 0)
    await receiver.start()
    port = runner.addresses[0][1]
    try:
        async with served(folder, "--push-allowed-hosts", "127.0.0.1") as scene:
            hook = {"url": f"http://127.0.0.1:{port}/hook"}
            await scene.send("echo", taskPushNotificationConfig=hook)
            yield scene
    finally:
        await runner.cleanup()


@asynccontextmanager
async def silent_worker(folder: Path) -> AsyncIterator[Scene]:
    """A worker that took a task and said nothing more."""
    async with served(folder, tables=WORKER) as scene:
        answer = await scene.send("slow", returnImmediately=True)
        leased = await scene.post("/workers/slow/lease", {"worker": "gpu-7", "wait_s": 10})
        assert leased["task"]["id"] == answer["task"]["id"]
        yield scene


@asynccontextmanager
async def failing_upstream(folder: Path) -> AsyncIterator[Scene]:
    """An agent of another server that is away."""
    away = kept_port()
    tables = f'[[agents]]\nid = "partner"\nrun = "a2a:http://127.0.0.1:{away}/agents/partner"\nfailures = 1\n'
    async with served(folder, tables=tables + 'dialect = "1.0"\n' + TABLES) as scene:
        scene.variables["UPSTREAM"] = f"http://127.0.0.1:{away}"
        await scene.send("partner", returnImmediately=True)
        yield scene


@asynccontextmanager
async def slow_store(folder: Path) -> AsyncIterator[Scene]:
    """Another process that holds the file for a while."""
    async with served(folder) as scene:
        before = await scene.writes()
        other = apsw.Connection(str(scene.store))
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(scene.send("echo"))
        async with asyncio.timeout(DEADLINE_S):
            while await scene.writes() == before:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.2)  # this is the symptom: a commit that takes so long
        other.execute("ROLLBACK")
        other.close()
        assert (await writing)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        yield scene


@asynccontextmanager
async def full_disk(folder: Path) -> AsyncIterator[Scene]:
    """No file of the server may grow."""
    async with served(folder) as scene:
        assert scene.process is not None
        longest = max(path.stat().st_size for path in folder.iterdir())
        resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (longest, resource.RLIM_INFINITY))
        await scene.send("echo", "x" * 600_000)
        yield scene
        resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@asynccontextmanager
async def failing_job(folder: Path) -> AsyncIterator[Scene]:
    """A sweep that meets a fault each time."""
    scene = Scene(folder)
    with (folder / "agents.py").open("a", encoding="utf-8") as agents:
        agents.write(FAULT)
    scene.start()
    try:
        await scene.up()
        yield scene
    finally:
        await scene.stop()


@asynccontextmanager
async def late_sweep(folder: Path) -> AsyncIterator[Scene]:
    """A task that ended long before the server, whose sweep fails, was started again."""
    async with served(folder) as scene:
        await scene.send("echo")
    other = apsw.Connection(str(scene.store))
    other.execute("UPDATE tasks SET status_ms = status_ms - 86400000 * 40")
    other.close()
    async with failing_job(folder) as scene:
        yield scene


@asynccontextmanager
async def refused_callers(folder: Path) -> AsyncIterator[Scene]:
    """A caller with a wrong key, one without rights, and one that calls too often."""
    scene = Scene(folder)
    await scene.make_key()
    ann = {"x-api-key": await scene.new_key("ann --agent ask")}
    scene.start("--access-log", "text", "--access-log-file", "access.log", "--max-requests-per-s", "1")
    try:
        await scene.up()
        await scene.send("echo", **{"x-api-key": "wrong"})
        await scene.send("echo", **ann)
        async with asyncio.timeout(DEADLINE_S):
            while "TooManyRequests" not in (folder / "access.log").read_text():
                await scene.send("ask", **ann)
        yield scene
    finally:
        await scene.stop()


@asynccontextmanager
async def leaked_key(folder: Path) -> AsyncIterator[Scene]:
    """A key with a stream, a webhook and a task, in the wrong hands; another key of its name has a task, too."""
    async with receiving() as receiver:
        scene = Scene(folder)
        await scene.make_key()
        key, own = await scene.new_key("ann"), await scene.new_key("ann")
        scene.variables["LEAKED"] = key.split("_")[1]
        scene.start("--push-allowed-hosts", "127.0.0.1")
        try:
            await scene.up()
            await scene.send("stuck", "mine", returnImmediately=True, **{"x-api-key": own})
            hook = {"url": f"{receiver.url}/hook"}
            sent = await scene.send(
                "stuck", returnImmediately=True, taskPushNotificationConfig=hook, **{"x-api-key": key}
            )
            url = f"{scene.url}/agents/stuck/tasks/{sent['task']['id']}:subscribe"
            async with aiohttp.ClientSession() as http, http.get(url, headers={**V1, "x-api-key": key}) as stream:
                await stream.content.readany()
                yield scene
                async for _ in stream.content.iter_any():
                    pass
                assert stream.content.at_eof()
        finally:
            await scene.stop()


@asynccontextmanager
async def lost_postgres(folder: Path) -> AsyncIterator[Scene]:
    """A server whose PostgreSQL is down, until the page's command starts it."""
    with PostgresServer() as postgres, postgres.database() as url:
        scene = Scene(folder)
        scene.variables |= {"DRAGOMAN_STORE": url, "STORE": url, "START_POSTGRESQL": "touch start"}
        scene.start("--bus", "none", "--replica-lease-s", "3", "--replica-beat-s", "0.5")
        try:
            await scene.up()
            await scene.send("ask")
            await asyncio.to_thread(postgres.stop)
            starting = asyncio.create_task(_start_when_asked(postgres, folder / "start"))
            try:
                yield scene
            finally:
                starting.cancel()
                await asyncio.wait([starting])
                if not postgres.running:
                    await asyncio.to_thread(postgres.start)
        finally:
            await scene.stop()


async def _start_when_asked(postgres: PostgresServer, asked: Path) -> None:
    while not asked.exists():
        await asyncio.sleep(0.05)  # the page's command makes the file
    await asyncio.to_thread(postgres.start)


@asynccontextmanager
async def broken_stream(folder: Path) -> AsyncIterator[Scene]:
    """A stream that somebody between its reader and the server cuts."""
    async with served(folder, "--keepalive-s", "1", "--access-log", "text", "--access-log-file", "access.log") as scene:
        answer = await scene.send("stuck", returnImmediately=True)
        scene.variables |= {"TASK": answer["task"]["id"], "AGENT": "stuck"}
        url = f"{scene.url}/agents/stuck/tasks/{scene.variables['TASK']}:subscribe"
        async with aiohttp.ClientSession() as http, http.get(url, headers=V1) as stream:
            await stream.content.readany()
            stream.close()
        yield scene


@asynccontextmanager
async def growing_memory(folder: Path) -> AsyncIterator[Scene]:
    """Runs that wait in memory for answers that do not come."""
    async with served(folder) as scene:
        for text in ("one", "two", "three"):
            await scene.send("ask", text)
        yield scene


@asynccontextmanager
async def server_that_does_not_start(folder: Path) -> AsyncIterator[Scene]:
    """Another server has the store and the port."""
    async with served(folder) as scene:
        scene.variables["DRAGOMAN_PORT"] = str(scene.port)
        yield scene


@asynccontextmanager
async def clocks(folder: Path) -> AsyncIterator[Scene]:
    """A server and the machine of its operator."""
    async with served(folder) as scene:
        yield scene


@asynccontextmanager
async def restored(folder: Path) -> AsyncIterator[Scene]:
    """A backup of a server with a task at work, whose webhook did not answer."""
    async with failing_webhook(folder) as scene:
        await scene.send("stuck", returnImmediately=True)
        await scene.run("dragoman store backup backup.tar")
    later = Scene(folder)
    later.variables |= {"DRAGOMAN_STORE": f"sqlite:///{folder}/restored.db", "BACKUP": "backup.tar"}
    yield later


async def replica_that_is_gone(folder: Path, postgres_url: str) -> AsyncIterator[Scene]:
    """Two replicas, of which one is killed."""
    scene, other = Scene(folder), Scene(folder)
    scene.variables["DRAGOMAN_STORE"] = postgres_url
    await scene.make_key()
    scene.variables |= {"DRAGOMAN_SERVER": scene.url, "DRAGOMAN_API_KEY": scene.variables["KEY"]}
    other.variables |= scene.variables
    try:
        for each in (scene, other):
            each.start("--bus", "none", "--replica-lease-s", "3", "--replica-beat-s", "0.5")
            await each.up()
        async with asyncio.timeout(DEADLINE_S):
            while "dragoman_replicas 2.0" not in await scene.run("metrics"):
                await asyncio.sleep(0.1)
        assert other.process is not None
        other.process.kill()
        other.process.wait(DEADLINE_S)
        other.process = None
        yield scene
    finally:
        await other.stop()
        await scene.stop()
