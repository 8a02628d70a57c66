"""`dragoman worker` as processes that work for a `dragoman serve`, die, and are told to stop."""

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import aiohttp
import pytest

from dragoman.cli.worker import CLOSING_S
from tests.kit.commands import Run, invoke
from tests.kit.places import V1
from tests.kit.processes import DRAGOMAN, ServerProcess
from tests.kit.waiting import DEADLINE_S, until
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parent.parent.parent
TERMINAL = {f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}

CONFIG = """
store = "sqlite:///tasks.db"
shutdown_grace_s = 0.2
blocking_timeout_s = 20

[[agents]]
id = "deaf"
run = "worker"
offline = "queue"

[[agents]]
id = "stuck"
run = "worker"
offline = "queue"

[[agents]]
id = "gate"
run = "worker"
offline = "queue"
lease_s = 1

[[agents]]
id = "talk"
run = "worker"
offline = "queue"
lease_s = 1

[[agents]]
id = "away"
run = "worker"
"""

AGENTS = '''
import asyncio, os
from pathlib import Path

from dragoman import Agent, Context, Reject, SyncContext

gate = Agent("gate")


@gate.skill
async def wait(ctx: Context):
    """Says who works, and ends when a file of the message's name is there."""
    yield f"{os.getpid()} "
    try:
        while not Path(ctx.text).exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        Path(f"canceled-{ctx.text}").touch()
        raise
    yield "done"


talk = Agent("talk")


@talk.skill
async def everything(ctx: Context):
    """All that a skill can do."""
    earlier = await ctx.history()
    await ctx.progress(1, 3, "Beginning")
    name = await ctx.ask("Who are you?")
    await ctx.require_auth("Log in")
    await ctx.artifact("a,b", name="table.csv", media_type="text/csv")
    await ctx.status({"rows": 1}, metadata={"k": "v"})
    ctx.usage(input=3, output=4)
    yield f"Hello {name}, "
    yield f"after {len(earlier)} messages"


@talk.skill
async def refuse(ctx: Context):
    """Rejects."""
    raise Reject("Not today")


@talk.skill
async def stumble(ctx: Context):
    """Raises."""
    raise RuntimeError("the secret")


@talk.skill
async def quit(ctx: Context):
    """Cancels itself."""
    raise asyncio.CancelledError


@talk.skill
def plain(ctx: SyncContext):
    """In a thread."""
    ctx.progress(1, 1)
    return ctx.text.upper()
'''

STUBBORN = '''
import asyncio, os, time

from dragoman import Agent, Context, SyncContext

deaf = Agent("deaf")


@deaf.skill
async def stay(ctx: Context):
    """Does not let itself be canceled."""
    yield f"{os.getpid()} "
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


stuck = Agent("stuck")


@stuck.skill
def sleep(ctx: SyncContext):
    """Sleeps in a thread."""
    ctx.status(str(os.getpid()))
    time.sleep(60)
'''

SKILLS = "".join(
    f'\n[[agents.skills]]\nid = "{name}"\n' for name in ("everything", "refuse", "stumble", "quit", "plain")
)


class Site:
    """A server for all tests, and the workers of each, all of them processes, in one directory."""

    def __init__(self, directory: Path, http: aiohttp.ClientSession) -> None:
        self.directory = directory
        self.http = http
        self.server = ServerProcess(directory, "--port", str(kept_port()))
        self.workers: list[asyncio.subprocess.Process] = []
        self.tasks: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self.server.url

    async def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server."""
        self.server.signal(number)
        await self.server.ended()

    async def worker(self, *arguments: str, module: str = "agents.py") -> asyncio.subprocess.Process:
        command = (*ENDS_WITH_US, DRAGOMAN, "worker", module, "--server", self.url, *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.workers.append(process)
        await said(process, "Working for")
        return process

    async def clear(self) -> None:
        """Cancel the tasks of a test, kill its workers, and delete the file that its tasks wait for."""
        assert self.server.process is not None
        if self.server.process.returncode is not None:
            await self.server.start()
        for agent, task_id in self.tasks:
            async with self.http.post(f"{self.url}/agents/{agent}/tasks/{task_id}:cancel", headers=V1) as answer:
                await answer.read()  # most have ended
        for process in self.workers:
            if process.returncode is None:
                process.kill()
            await process.communicate()
        (self.directory / "go").unlink(missing_ok=True)
        self.workers, self.tasks = [], []

    async def end(self, process: asyncio.subprocess.Process, number: int = signal.SIGKILL) -> int:
        process.send_signal(number)
        return await process.wait()

    async def send(self, agent: str, text: str, *, wait: bool = False, **more: Any) -> dict[str, Any]:
        metadata = {"skill": more.pop("skill")} if "skill" in more else {}
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], "metadata": metadata, **more}
        body = {"message": message, "configuration": {"returnImmediately": not wait}}
        async with self.http.post(f"{self.url}/agents/{agent}/message:send", json=body, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
            task = dict((await answer.json())["task"])
            self.tasks.append((agent, task["id"]))
            return task

    async def until(self, agent: str, task_id: str, sign: Any) -> dict[str, Any]:
        """Follow the task until `sign` says that it has come so far."""
        async with self.http.get(f"{self.url}/agents/{agent}/tasks/{task_id}:subscribe", headers=V1) as stream:
            while True:
                task = await self.get(agent, task_id)
                if sign(task):
                    return task
                assert await stream.content.readline(), task

    async def get(self, agent: str, task_id: str) -> dict[str, Any]:
        async with self.http.get(f"{self.url}/agents/{agent}/tasks/{task_id}", headers=V1) as answer:
            return dict(await answer.json())

    async def whose(self, task_id: str, *, other_than: int = 0) -> int:
        """The process that works on the task."""
        task = await self.until("gate", task_id, lambda task: text(task) and int(text(task)) != other_than)
        return int(text(task))


async def said(process: asyncio.subprocess.Process, words: str) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        heard = ""
        while words not in heard:
            line = await process.stdout.readline()
            assert line, heard
            heard += line.decode()
    return heard


def text(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def ended(task: dict[str, Any]) -> bool:
    return task["status"]["state"] in TERMINAL


@pytest.fixture(scope="module")
async def serving(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    away = CONFIG.index('\n[[agents]]\nid = "away"')
    (folder / "dragoman.toml").write_text(CONFIG[:away] + SKILLS + CONFIG[away:])
    (folder / "agents.py").write_text(AGENTS)
    (folder / "stubborn.py").write_text(STUBBORN)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http:
        here = Site(folder, http)
        try:
            await here.server.start()
            yield here
        finally:
            await here.server.kill()


@pytest.fixture
async def site(serving: Site) -> AsyncIterator[Site]:
    yield serving
    await serving.clear()


pytestmark = pytest.mark.slow


async def test_the_task_of_a_killed_worker_goes_to_another(site: Site) -> None:
    first = await site.worker()
    task_id = (await site.send("gate", "go"))["id"]
    assert await site.whose(task_id) == first.pid
    second = await site.worker()
    await site.end(first)
    assert await site.whose(task_id, other_than=first.pid) == second.pid
    (site.directory / "go").touch()
    task = await site.until("gate", task_id, ended)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text(task) == f"{second.pid} done"  # of the first nothing is left


async def test_two_workers_share_the_tasks(site: Site) -> None:
    workers = [await site.worker("--tasks", "1"), await site.worker("--tasks", "1")]
    tasks = [(await site.send("gate", "go"))["id"] for _ in range(3)]
    assert {await site.whose(task_id) for task_id in tasks[:2]} == {worker.pid for worker in workers}
    assert (await site.get("gate", tasks[2])).get("artifacts") is None
    (site.directory / "go").touch()
    for task_id in tasks:
        assert (await site.until("gate", task_id, ended))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_cancel_stops_the_agent_in_its_worker(site: Site) -> None:
    await site.worker()
    task_id = (await site.send("gate", "never"))["id"]
    await site.whose(task_id)
    async with site.http.post(f"{site.url}/agents/gate/tasks/{task_id}:cancel", headers=V1) as answer:
        assert (await answer.json())["status"]["state"] == "TASK_STATE_CANCELED"
    await until((site.directory / "canceled-never").exists, 0.02)


async def test_all_that_a_context_can_do_works_from_afar(site: Site) -> None:
    await site.worker()
    first = await site.send("talk", "hi", wait=True, skill="plain")
    assert (first["status"]["state"], text(first)) == ("TASK_STATE_COMPLETED", "HI")
    task = await site.send("talk", "hi", wait=True, skill="everything", contextId=first["contextId"])
    assert task["status"]["message"]["parts"] == [{"text": "Who are you?"}]
    task = await site.send("talk", "Anna", wait=True, taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    task = await site.send("talk", "done", wait=True, taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    table, greeting = task["artifacts"]
    assert (table["name"], table["parts"]) == ("table.csv", [{"text": "a,b", "mediaType": "text/csv"}])
    assert greeting["parts"] == [{"text": "Hello Anna, after 2 messages"}]
    assert task["metadata"]["urn:dragoman:usage:v1"]["totalTokens"] == 7


async def test_rejections_and_failures_reach_the_caller_and_secrets_do_not(site: Site) -> None:
    await site.worker()
    task = await site.send("talk", "hi", wait=True, skill="refuse")
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert task["status"]["message"]["parts"] == [{"text": "Not today"}]
    task = await site.send("talk", "hi", wait=True, skill="stumble")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "reference" in task["status"]["message"]["parts"][0]["text"]
    assert "secret" not in str(task)
    task = await site.send("talk", "hi", wait=True, skill="quit")
    assert task["status"]["state"] == "TASK_STATE_FAILED"


async def test_a_conversation_survives_its_worker_and_its_server(site: Site) -> None:
    worker = await site.worker()
    task = await site.send("talk", "hi", wait=True, skill="everything")
    assert task["status"]["message"]["parts"] == [{"text": "Who are you?"}]
    await site.end(worker)
    await site.stop()
    await site.server.start()
    await site.worker()
    task = await site.send("talk", "Anna", wait=True, taskId=task["id"])
    assert task["status"]["message"]["parts"] == [{"text": "Log in"}]
    task = await site.send("talk", "done", wait=True, taskId=task["id"])
    assert text(task).startswith("a,bHello Anna")


async def test_a_worker_outlives_its_server(site: Site) -> None:
    worker = await site.worker()
    task_id = (await site.send("gate", "go"))["id"]
    await site.whose(task_id)
    await site.stop(signal.SIGTERM)
    await site.server.start()
    (site.directory / "go").touch()
    task = await site.until("gate", task_id, ended)
    assert text(task) == f"{worker.pid} done"


async def test_a_worker_that_is_told_to_stop_gives_its_task_back(site: Site) -> None:
    first = await site.worker("--grace-s", "0")
    task_id = (await site.send("gate", "go"))["id"]
    await site.whose(task_id)
    second = await site.worker()
    assert await site.end(first, signal.SIGTERM) == 0
    await site.whose(task_id, other_than=first.pid)
    (site.directory / "go").touch()
    assert text(await site.until("gate", task_id, ended)) == f"{second.pid} done"


async def test_a_worker_that_is_told_to_stop_may_finish(site: Site) -> None:
    worker = await site.worker()
    task_id = (await site.send("gate", "go"))["id"]
    await site.whose(task_id)
    worker.send_signal(signal.SIGTERM)
    (site.directory / "go").touch()
    assert await worker.wait() == 0
    task = await site.get("gate", task_id)
    assert (task["status"]["state"], text(task)) == ("TASK_STATE_COMPLETED", f"{worker.pid} done")


@pytest.mark.parametrize("agent", ["deaf", "stuck"])
async def test_a_worker_ends_in_time_whatever_its_agents_do(site: Site, agent: str) -> None:
    worker = await site.worker("--grace-s", "0.5", module="stubborn.py")
    task_id = (await site.send(agent, "go"))["id"]
    await site.until(agent, task_id, lambda task: task["status"].get("message") or text(task))
    began = monotonic()
    assert await site.end(worker, signal.SIGTERM) == 0
    assert monotonic() - began < 0.5 + CLOSING_S + 40  # a machine that runs other tests


async def test_with_no_worker_beeos_callers_hear_that_the_agent_is_offline(site: Site) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": {"role": "user", "parts": [{"kind": "text", "text": "hi"}]}},
    }
    async with site.http.post(f"{site.url}/away", json=body, headers=V1) as answer:
        assert (await answer.json())["error"]["code"] == -32002


async def test_the_bare_calls_of_beeos_drive_a_task(site: Site) -> None:
    async def rpc(method: str, params: dict[str, Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with site.http.post(f"{site.url}/gate", json=body, headers=V1) as answer:
            return await answer.json()

    task_id = (await site.send("gate", "hi"))["id"]
    status = {"state": "working", "message": "Processing step 2 of 5..."}
    answer = await rpc("UpdateStatus", {"id": task_id, "status": status})
    assert answer["result"]["status"]["state"] == "working"
    params = {"id": task_id, "artifacts": [{"parts": [{"kind": "text", "text": "Done!"}]}]}
    for _ in range(2):
        answer = await rpc("CompleteTask", params)
        assert answer["result"]["status"]["state"] == "completed"
        assert answer["result"]["artifacts"][0]["parts"] == [{"kind": "text", "text": "Done!"}]
    answer = await rpc("UpdateStatus", {"id": task_id, "status": status})
    assert answer["error"]["code"] == -32602


@pytest.fixture(scope="module")
def echoing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server without workers."""
    server = subprocess.Popen(
        [*ENDS_WITH_US, DRAGOMAN, "serve", f"{ROOT}/examples/agents.py:echo", "--port", "0", "--store", "memory:"],
        cwd=tmp_path_factory.mktemp("echoing"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = re.search(r"listens on (\S+)/ ", server.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (
            "agents.py:gate",
            "no agent 'gate' here: GET /agents lists them; declare it in the file of the server: [[agents]] with this "
            'id and run = "worker"',
        ),
        (f"{ROOT}/examples/agents.py:echo", 'echo is not served by workers: declare it with run = "worker"'),
    ],
)
def test_an_agent_that_is_no_worker_of_the_server_ends_the_worker(
    echoing: str, tmp_path: Path, reference: str, says: str
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    ran = subprocess.run(
        [DRAGOMAN, "worker", reference, "--server", echoing],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ},
    )
    assert ran.returncode == 1
    assert ran.stderr.rstrip().endswith(says), "one fix, and nothing after it"
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--server", "localhost:0", "x.py"], "must be an address"),
        (["x.py"], "--server"),
        (["--server", "http://127.0.0.1:7870", "nothing.py"], "no file nothing.py"),
        (["--server", "http://127.0.0.1:7870"], "no agents"),
    ],
)
def test_what_cannot_work_is_said(arguments: list[str], says: str) -> None:
    result = invoke("worker", *arguments)
    assert result.exit_code == 2
    assert says in result.output


class Refusing(BaseHTTPRequestHandler):
    """A server that asks for a key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"error": {"message": "this server asks who is calling"}}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def test_a_worker_without_a_key_says_once_which_option_gives_it_one(tmp_path: Path) -> None:
    one = "{0} = Agent('{0}')\n{0}.skill('x')(lambda ctx: '')\n"
    code = "from dragoman import Agent\n" + one.format("a") + one.format("b")
    (tmp_path / "two.py").write_text(code, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [DRAGOMAN, "worker", "two.py", "--server", f"http://127.0.0.1:{server.server_port}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        server.shutdown()
    assert done.returncode == 1
    assert (
        done.stderr.count("401: this server asks who is calling; give the worker a key: --key or DRAGOMAN_API_KEY") == 1
    )


class Keyed(Refusing):
    """A server that notes the keys that it is shown."""

    keys: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.keys.append(self.headers["x-api-key"])
        super().do_POST()


def test_a_worker_takes_its_key_from_a_file(run: Run) -> None:
    Path("one.py").write_text("from dragoman import Agent\na = Agent('a')\na.skill('x')(lambda ctx: '')\n")
    Path("key").write_text("s3cret\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Keyed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["worker", "one.py", "--server", f"http://127.0.0.1:{server.server_port}"]
        for more, variables in ((["--key-file", "key"], {}), ([], {"DRAGOMAN_API_KEY_FILE": "key"})):
            run(*words, *more, **variables)
        server.shutdown()
    assert set(Keyed.keys) == {"s3cret"}


def test_a_worker_says_that_no_server_answers(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from dragoman import Agent\na = Agent('a')\na.skill('x')(lambda ctx: '')\n")
    url = f"http://127.0.0.1:{kept_port()}"
    process = subprocess.Popen(
        [*ENDS_WITH_US, DRAGOMAN, "worker", "one.py", "--server", url, "--log-level", "error"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"dragoman: no server answers at {url}: is it running there?")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert out == ""
