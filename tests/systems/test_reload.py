"""SIGHUP: other agents on a server that runs, and nothing that was begun is lost.

A sleep here is the pause between two looks at another process, and the looks have a deadline.
"""

import asyncio
import json
import os
import pty
import re
import signal
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any

import aiohttp
import pytest

from dragoman.config import Config
from dragoman.engine.api import Run
from dragoman.server import Loaded, reloading, running
from tests.bindings.mcp_client import Stateless
from tests.engine.house import Scripted
from tests.kit.processes import DRAGOMAN, ServerProcess
from tests.processes import ENDS_WITH_US

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}

SETTINGS = 'port = 0\nstore = "memory:"\n'

ECHO = '[[agents]]\nid = "echo"\nrun = "house:echo"\n'
OTHER = '[[agents]]\nid = "other"\nrun = "house:other"\n'
WORKER = '[[agents]]\nid = "far"\nrun = "worker"\noffline = "queue"\n'

HOUSE = """
import asyncio
import pathlib

from dragoman import Agent

import words

echo = Agent("echo")
other = Agent("other")


@echo.skill
async def say(ctx):
    return words.WORD


@echo.skill
async def count(ctx):
    "Counts until the file `go` is there, and three more."
    number = 0
    while not pathlib.Path("go").exists():
        yield f"{words.WORD}{number} "
        number += 1
        await asyncio.sleep(0.02)
    for more in range(3):
        yield f"{words.WORD}{number + more} "


@echo.skill
async def ask(ctx):
    answer = await ctx.ask("Who?")
    return f"{words.WORD} {answer}"


@other.skill
async def greet(ctx):
    return "other"
"""


BALLAST = """
import builtins


class Ballast:
    def __init__(self):
        builtins.ALIVE = getattr(builtins, "ALIVE", 0) + 1

    def __del__(self):
        builtins.ALIVE -= 1


@echo.skill
async def alive(ctx):
    assert BALLAST
    return str(builtins.ALIVE)


BALLAST = Ballast()
"""
"""How many of these modules there are."""


class House(ServerProcess):
    """A folder with a configuration and modules, and the server that serves them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._logged = 0

    def furnish(self) -> None:
        """Write two agents, as every test finds them."""
        (self.folder / "house.py").write_text(HOUSE)
        (self.folder / "go").unlink(missing_ok=True)
        self.word("one")
        self.write(ECHO, OTHER)

    async def tidy(self) -> None:
        """Serve what every test finds, and forget the log."""
        self.furnish()
        line = await self.reload()
        assert not line.startswith("not"), line
        self._logged += len(self.log())

    def write(self, *tables: str, settings: str = SETTINGS) -> None:
        """The configuration."""
        (self.folder / "dragoman.toml").write_text(settings + "".join(tables))

    def word(self, word: str) -> None:
        """The agent's text."""
        (self.folder / "words.py").write_text(f"WORD = {word!r}\n")

    def log(self) -> str:
        """The server's output so far, in this test."""
        return self.said()[self._logged :]

    async def reload(self) -> str:
        """SIGHUP; the line that says what became of it."""
        before = len(re.findall(r"reloaded[:,].*", self.log()))
        self.signal(signal.SIGHUP)
        async with asyncio.timeout(DEADLINE_S):
            while len(lines := re.findall(r"(?:not )?reloaded[:,].*", self.log())) <= before:
                await asyncio.sleep(0.01)
        return lines[-1]

    async def stop(self) -> None:
        """SIGTERM, and wait; SIGKILL if that does not help."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            raise


@pytest.fixture(scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A house whose server is that of many tests."""
    house = House(tmp_path_factory.mktemp("house"))
    house.furnish()
    await house.start()
    yield house
    await house.stop()


@pytest.fixture
async def house(standing: House) -> House:
    """A directory with two agents, which are served."""
    await standing.tidy()
    return standing


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[House]:
    """A directory with two agents; nothing is served yet, and the server is the test's own."""
    house = House(tmp_path)
    house.furnish()
    yield house
    await house.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers=V1) as http:
        yield http


Json = dict[str, Any]
numbers = iter(range(1_000_000))


def message(text: str = "hi", skill: str | None = None, **fields: Any) -> Json:
    said = {"messageId": f"m{next(numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **fields}
    return {"message": {**said, "metadata": {"skill": skill}} if skill else said}


async def sent(http: aiohttp.ClientSession, url: str, body: Json, **kwargs: Any) -> Json:
    async with http.post(f"{url}/message:send", json=body, **kwargs) as answer:
        assert answer.status == 200, await answer.text()
        task: Json = (await answer.json())["task"]
        return task


def text_of(task: Json) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


async def test_a_changed_module_answers_and_a_stream_that_is_open_gets_all_its_events(
    house: House, http: aiohttp.ClientSession
) -> None:
    assert text_of(await sent(http, house.url, message(skill="say"))) == "one"
    async with http.post(f"{house.url}/message:stream", json=message(skill="count")) as stream:
        events = frames(stream)
        chunks = [await following(events)]
        house.word("two")
        assert await house.reload() == "reloaded: changed echo, other"
        assert text_of(await sent(http, house.url, message(skill="say"))) == "two"
        chunks += [await following(events) for _ in range(3)]
        (house.folder / "go").touch()
        chunks += [chunk async for chunk in events]
    said = "".join(chunks).split()
    assert len(said) > 5
    assert said == [f"one{number}" for number in range(len(said))]


async def frames(stream: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The texts of a stream's artifact, as they come."""
    async for line in stream.content:
        if line.startswith(b"data:"):
            update = json.loads(line.removeprefix(b"data:")).get("artifactUpdate")
            if update is not None:
                yield "".join(part["text"] for part in update["artifact"]["parts"])


async def following(events: AsyncIterator[str]) -> str:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(events)


async def test_an_edit_of_the_same_second_and_length_is_seen(house: House, http: aiohttp.ClientSession) -> None:
    for word in ("abc", "abd", "abe"):
        house.word(word)
        await house.reload()
        assert text_of(await sent(http, house.url, message(skill="say"))) == word


async def test_agents_come_and_go_and_only_cards_that_changed_have_another_etag(
    house: House, http: aiohttp.ClientSession
) -> None:
    async def card(agent: str) -> tuple[int, str | None]:
        async with http.get(f"{house.url}/agents/{agent}/.well-known/agent-card.json") as answer:
            return answer.status, answer.headers.get("ETag")

    echo, other = await card("echo"), await card("other")
    house.write(ECHO + 'description = "Says one word."\n', OTHER, '[[agents]]\nid = "third"\nrun = "house:other"\n')
    assert await house.reload() == "reloaded: added third, changed echo"
    assert (await card("echo"))[0] == 200
    assert await card("echo") != echo
    assert await card("other") == other
    assert (await card("third"))[0] == 200
    house.write(OTHER)
    assert await house.reload() == "reloaded: removed echo, third"
    assert (await card("echo"))[0] == 404
    async with http.get(f"{house.url}/agents") as answer:
        assert [agent["id"] for agent in (await answer.json())["agents"]] == ["other"]
    assert text_of(await sent(http, house.url, message())) == "other"  # the one that is left is the default
    assert await house.reload() == "reloaded: the agents are the same"


async def test_the_default_and_the_order_change(house: House, http: aiohttp.ClientSession) -> None:
    house.write(ECHO, OTHER, settings=SETTINGS + 'default = "other"\n')
    await house.reload()
    assert text_of(await sent(http, house.url, message())) == "other"
    house.write(ECHO, OTHER)
    await house.reload()
    assert text_of(await sent(http, house.url, message())) == "one"


BREAKS: list[tuple[Callable[[House], object], str]] = [
    (lambda house: house.write("[[agents]"), "is not TOML"),
    (lambda house: house.write(ECHO, "wheather = 1\n"), "no such setting"),
    (lambda house: house.write(), "no agents"),
    (lambda house: house.write(ECHO, settings=SETTINGS + 'default = "nobody"\n'), "no such agent"),
    (lambda house: (house.folder / "words.py").write_text("WORD = "), "words.py"),
    (lambda house: (house.folder / "house.py").write_text("echo = 1"), "not an Agent"),
    (lambda house: (house.folder / "house.py").write_text("import sys; sys.exit()"), "SystemExit"),
    (lambda house: (house.folder / "house.py").write_text("raise KeyboardInterrupt"), "KeyboardInterrupt"),
    (
        lambda house: (house.folder / "house.py").write_text("import asyncio\nraise asyncio.CancelledError"),
        "CancelledError",
    ),
]


async def test_a_broken_configuration_changes_nothing_and_the_log_says_why(
    house: House, http: aiohttp.ClientSession
) -> None:
    word = "one"
    for number, (break_it, said) in enumerate(BREAKS):
        before = len(house.log())
        house.word("broken")
        break_it(house)
        assert (await house.reload()).startswith("not reloaded, nothing has changed"), said
        assert said in house.log()[before:]
        assert text_of(await sent(http, house.url, message(skill="say"))) == word
        async with http.get(f"{house.url}/ready") as answer:
            assert answer.status == 200
        word = f"word {number}"
        (house.folder / "house.py").write_text(HOUSE)
        house.word(word)
        house.write(ECHO, OTHER)
        assert (await house.reload()).startswith("reloaded: changed echo")
        assert text_of(await sent(http, house.url, message(skill="say"))) == word


async def test_settings_that_need_a_restart_are_named_and_not_taken(house: House, http: aiohttp.ClientSession) -> None:
    house.write(ECHO, OTHER, settings=SETTINGS + "max_parts = 1\n")
    await house.reload()
    assert "max_parts has changed: restart the server" in house.log()
    two = message()
    two["message"]["parts"] *= 2
    await sent(http, house.url, two)


async def test_an_agent_gets_a_key_of_its_own(house: House, http: aiohttp.ClientSession) -> None:
    house.write(ECHO + 'api_key = "sesame"\n', OTHER)
    assert await house.reload() == "reloaded: changed echo"
    url = f"{house.url}/agents/echo"
    async with http.post(f"{url}/message:send", json=message()) as answer:
        assert answer.status == 401
    await sent(http, url, message(), headers={"x-api-key": "sesame"})
    await sent(http, f"{house.url}/agents/other", message())
    house.write(ECHO, OTHER)
    await house.reload()
    await sent(http, url, message())


async def test_a_task_that_waits_for_an_answer_goes_on_as_it_began(house: House, http: aiohttp.ClientSession) -> None:
    asked = await sent(http, house.url, message(skill="ask"))
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    house.word("two")
    await house.reload()
    answer = message("Ann", taskId=asked["id"], contextId=asked["contextId"])
    assert text_of(await sent(http, house.url, answer)) == "one Ann"


async def test_a_task_of_an_agent_that_was_removed_finishes_and_is_there_again_with_its_agent(
    house: House, http: aiohttp.ClientSession
) -> None:
    url = f"{house.url}/agents/echo"
    body = {**message(skill="count"), "configuration": {"returnImmediately": True}}
    begun = await sent(http, url, body)
    house.write(OTHER)
    await house.reload()
    async with http.get(f"{url}/tasks/{begun['id']}") as answer:
        assert answer.status == 404
    (house.folder / "go").touch()
    house.write(ECHO, OTHER)
    await house.reload()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with http.get(f"{url}/tasks/{begun['id']}") as answer:
                task = await answer.json()
            if task["status"]["state"] == "TASK_STATE_COMPLETED":
                break
            assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
            await asyncio.sleep(0.02)
    assert text_of(task).startswith("one0 ")


async def test_a_worker_keeps_its_lease_when_its_agent_changes_and_when_it_is_removed(
    house: House, http: aiohttp.ClientSession
) -> None:
    async def worker(action: str, **body: Any) -> Json:
        headers = {"x-api-key": "sesame"}
        async with http.post(f"{house.url}/workers/far/{action}", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            said: Json = await answer.json()
            return said

    keyed = WORKER + 'api_key = "sesame"\n'
    house.write(OTHER, keyed)
    assert await house.reload() == "reloaded: added far, removed echo"
    body = {**message(), "configuration": {"returnImmediately": True}}
    ids = [
        (await sent(http, f"{house.url}/agents/far", body, headers={"x-api-key": "sesame"}))["id"]
        for body in ({**message(), "configuration": {"returnImmediately": True}} for _ in range(2))
    ]
    del body
    first = await worker("lease", worker="w", wait_s=5)
    house.write(OTHER, keyed, 'description = "Far away."\n')
    assert await house.reload() == "reloaded: changed far"
    await worker("heartbeat", lease=first["lease"])
    house.write(OTHER)
    assert await house.reload() == "reloaded: removed far"
    await worker("complete", lease=first["lease"], artifacts=[])
    second = await worker("lease", worker="w", wait_s=5)  # what was taken in is worked off
    await worker("complete", lease=second["lease"], artifacts=[])
    assert {first["task"]["id"], second["task"]["id"]} == set(ids)
    async with asyncio.timeout(DEADLINE_S):
        while True:  # and then there is nothing of it any more
            async with http.post(f"{house.url}/workers/far/lease", json={"worker": "w", "wait_s": 0}) as answer:
                if answer.status == 404:
                    break
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["silent", "released"])
async def test_a_task_of_a_removed_agent_fails_if_it_would_have_to_begin_anew(
    house: House, http: aiohttp.ClientSession, how: str
) -> None:
    async def worker(action: str, **body: Any) -> tuple[int, Any]:
        async with http.post(f"{house.url}/workers/far/{action}", json=body) as answer:
            return answer.status, await answer.json() if answer.status == 200 else None

    short = WORKER + "lease_s = 1.0\n"
    house.write(OTHER, short)
    assert await house.reload() == "reloaded: added far, removed echo"
    body = {**message(), "configuration": {"returnImmediately": True}}
    task_id = (await sent(http, f"{house.url}/agents/far", body))["id"]
    _, leased = await worker("lease", worker="w", wait_s=5)
    house.write(OTHER)
    assert await house.reload() == "reloaded: removed far"
    if how == "released":
        assert await worker("release", lease=leased["lease"]) == (204, None)
    async with asyncio.timeout(DEADLINE_S):
        while (await worker("lease", worker="w"))[0] != 404:  # there is nothing of it any more
            await asyncio.sleep(0.02)
    house.write(OTHER, short)
    assert await house.reload() == "reloaded: added far"
    async with http.get(f"{house.url}/agents/far/tasks/{task_id}", headers={"A2A-Version": "1.0"}) as answer:
        status = (await answer.json())["status"]
    assert (status["state"], status["message"]["metadata"]["reason"]) == ("TASK_STATE_FAILED", "interrupted")


async def test_twenty_reloads_under_load_lose_no_request_and_no_task(house: House, http: aiohttp.ClientSession) -> None:
    done, answers = asyncio.Event(), []

    async def call(agent: str) -> None:
        while not done.is_set():
            task = await sent(http, f"{house.url}/agents/{agent}", message())
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            answers.append(text_of(task))

    async def follow() -> None:
        while not done.is_set():
            async with http.post(f"{house.url}/message:stream", json=message(skill="say")) as stream:
                assert stream.status == 200
                answers.append("".join([text async for text in frames(stream)]))

    async with asyncio.TaskGroup() as group:
        for agent in ("echo", "other"):
            for _ in range(4):
                group.create_task(call(agent))
        group.create_task(follow())
        for number in range(20):
            house.word(f"word{number}")
            house.write(*((ECHO, OTHER, WORKER) if number % 2 else (ECHO, OTHER)))
            assert "changed echo, other" in await house.reload()
        done.set()
    assert {f"word{number}" for number in range(20)} & set(answers)
    assert set(answers) <= {"one", "other", *(f"word{number}" for number in range(20))}
    assert "Traceback" not in house.log()


async def test_what_reloads_replace_is_freed(own: House, http: aiohttp.ClientSession) -> None:
    (own.folder / "house.py").write_text(HOUSE + BALLAST)
    await own.start()
    assert text_of(await sent(http, own.url, message(skill="alive"))) == "1"
    async with AsyncExitStack() as hosts:
        for number in range(5):
            await hosts.enter_async_context(http.get(f"{own.url}/mcp", headers=await begun(http, own.url)))
            own.word(f"word{number}")
            await own.reload()
            await sent(http, own.url, message())
        async with asyncio.timeout(DEADLINE_S):
            while text_of(await sent(http, own.url, message(skill="alive"))) != "1":
                await asyncio.sleep(0.02)


async def begun(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """The tools that a new session of MCP shows when it listens."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    said = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with http.post(f"{url}/mcp", json=said) as answer:
        result = (await answer.json())["result"]
        assert result["capabilities"]["tools"] == {"listChanged": True}
        return {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "Accept": "text/event-stream"}


async def test_sessions_of_mcp_are_told_of_other_tools(own: House, http: aiohttp.ClientSession) -> None:
    await own.start()
    early, later = await begun(http, own.url), await begun(http, own.url)
    async with http.get(f"{own.url}/mcp", headers=early) as listening:
        own.word("two")
        assert await own.reload() == "reloaded: changed echo, other"  # their code, not their tools
        own.write(ECHO)
        assert await own.reload() == "reloaded: removed other"
        async with http.post(f"{own.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}) as answer:
            listed = {tool["name"] for tool in (await answer.json())["result"]["tools"]}
        assert listed == {"echo__say", "echo__count", "echo__ask"}
        assert await first_message(listening) == CHANGED
        async with http.get(f"{own.url}/mcp", headers=later) as missed:  # what came before it listened
            assert await first_message(missed) == CHANGED
        assert own.process is not None
        own.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            assert b"data:" not in await listening.content.read()
            assert await own.process.wait() == 0


CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_who_listens_without_a_session_is_told_of_other_tools(own: House, http: aiohttp.ClientSession) -> None:
    await own.start()
    client = Stateless(http)
    body, headers = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with http.post(f"{own.url}/mcp", json=body, headers=headers) as listening:
        tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": client.number}}
        granted = {"notifications": {"toolsListChanged": True}, **tag}
        first = await first_message(listening)
        assert (first["method"], first["params"]) == ("notifications/subscriptions/acknowledged", granted)
        own.write(ECHO)
        assert await own.reload() == "reloaded: removed other"
        assert await first_message(listening) == {**CHANGED, "params": tag}
        assert own.process is not None
        own.process.terminate()
        ended = {"jsonrpc": "2.0", "id": client.number, "result": {"resultType": "complete", **tag}}
        assert await first_message(listening) == ended
        assert await own.process.wait() == 0


async def first_message(stream: aiohttp.ClientResponse) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        async for line in stream.content:
            if line.startswith(b"data:"):
                return json.loads(line.removeprefix(b"data:"))
    raise AssertionError("it ended")


async def test_an_agent_that_would_be_open_to_the_world_is_refused(own: House, http: aiohttp.ClientSession) -> None:
    exposed = SETTINGS + 'host = "0.0.0.0"\n'
    own.write(ECHO + 'api_key = "sesame"\n', settings=exposed)
    await own.start()
    own.write(ECHO + 'api_key = "sesame"\n', OTHER, settings=exposed)
    assert "callers of other are not authenticated" in await own.reload()
    url = own.url.replace("0.0.0.0", "127.0.0.1")
    async with http.get(f"{url}/agents") as answer:
        assert [agent["id"] for agent in (await answer.json())["agents"]] == ["echo"]


async def test_a_server_that_is_stopped_while_it_imports_stops(own: House) -> None:
    await own.start()
    assert own.process is not None
    (own.folder / "words.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n")
    own.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(DEADLINE_S):
        while not (own.folder / "begun").exists():
            await asyncio.sleep(0.01)
        own.process.send_signal(signal.SIGTERM)
        assert await own.process.wait() == 0


class Gated(Scripted):
    """An agent that is opened and closed, and whose runs wait for `go`."""

    def __init__(self, agent_id: str) -> None:
        async def wait(run: Run) -> None:
            await run.written()
            self.runs.set()
            await self.go.wait()

        super().__init__(wait, agent_id)
        self.runs = asyncio.Event()
        self.go = asyncio.Event()
        self.seen: list[str] = []
        self.closed = asyncio.Event()

    async def open(self, group: asyncio.TaskGroup) -> None:
        self.seen.append("opened")

    async def close(self) -> None:
        self.seen.append("closed")
        self.closed.set()


async def test_an_agent_is_opened_before_it_is_served_and_closed_after_its_last_run(
    http: aiohttp.ClientSession,
) -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0)
    kept, old, new = Gated("kept"), Gated("changing"), Gated("changing")
    read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def again() -> Loaded:
        loop.call_soon_threadsafe(read.set)
        return Loaded(config, [kept, new])

    async with asyncio.timeout(DEADLINE_S), running(config, [kept, old], again=again) as server:
        body = {**message(), "configuration": {"returnImmediately": True}}
        begun = await sent(http, f"{server.url}/agents/changing", body)
        await old.runs.wait()
        server.reload()
        await read.wait()
        while "opened" not in new.seen:
            await asyncio.sleep(0.01)
        async with http.get(f"{server.url}/agents/changing/tasks/{begun['id']}") as answer:
            assert (await answer.json())["status"]["state"] == "TASK_STATE_WORKING"
        assert old.seen == ["opened"]
        old.go.set()
        await old.closed.wait()
        assert (kept.seen, new.seen) == (["opened"], ["opened"])
    assert (kept.seen, old.seen, new.seen) == (["opened", "closed"],) * 3


async def test_an_import_that_takes_long_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "LATE_S", 0.01)
    config, agents, done = Config(port=0, store="memory:", shutdown_grace_s=0), [Gated("kept")], threading.Event()

    def again() -> Loaded:
        done.wait(DEADLINE_S)
        return Loaded(config, agents)

    async with asyncio.timeout(DEADLINE_S), running(config, agents, again=again) as server:
        server.reload()
        while "still importing modules" not in caplog.text:
            await asyncio.sleep(0.01)
        done.set()


class Slow(ThreadPoolExecutor):
    """Threads that keep what they have returned in their hands, as one does that is not given the processor again."""

    def __init__(self) -> None:
        super().__init__()
        self.returned: list[Any] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def kept() -> Any:
            self.returned.append(call(*args, **kwargs))
            return self.returned[-1]

        return super().submit(kept)


async def test_the_thread_that_has_imported_holds_nothing_of_what_was_before() -> None:
    class Before:
        """The modules that were replaced."""

        def restore(self) -> None:
            pass

    threads = Slow()
    asyncio.get_running_loop().set_default_executor(threads)
    config, before = Config(port=0, store="memory:", shutdown_grace_s=0), list[weakref.ref[Before]]()

    def again() -> Loaded:
        replaced = Before()
        before.append(weakref.ref(replaced))
        return Loaded(config, [Gated("new")], replaced.restore)

    async with asyncio.timeout(DEADLINE_S), running(config, [Gated("old")], again=again) as server:
        server.reload()
        while not before or before[0]() is not None:
            await asyncio.sleep(0.01)
    assert threads.returned


AT_TERMINAL = """
import fcntl, os, signal, sys, termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.{disposition})
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the controlling terminal and becomes the command that the arguments name.

It sets what SIGHUP does, because a signal that is ignored stays ignored in children: so it is under nohup.
"""


async def serve_at_terminal(house: House, disposition: str, log: IO[bytes] | None = None) -> int:
    """Have a server listen at a terminal, where it also logs if there is no `log`; return the other end."""
    terminal, its_end = pty.openpty()
    command = [*ENDS_WITH_US, sys.executable, "-c", AT_TERMINAL.format(disposition=disposition), str(DRAGOMAN), "serve"]
    house.process = await asyncio.create_subprocess_exec(
        *[*command, "--log-level", "info"],  # it has something to say as it stops
        cwd=house.folder,
        stdin=its_end,
        stdout=its_end,
        stderr=log or its_end,
        start_new_session=True,
    )
    os.close(its_end)

    def read() -> str:
        said = ""
        while "Ctrl-C" not in said:
            said += os.read(terminal, 65_536).decode()
        return said

    async with asyncio.timeout(DEADLINE_S):
        said = await asyncio.to_thread(read)
    house.url = re.findall(r"listens on (http://\S+)/ ", said)[0]
    return terminal


async def test_a_server_whose_terminal_is_closed_stops(own: House) -> None:
    os.close(await serve_at_terminal(own, "SIG_DFL"))
    assert own.process is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await own.process.wait() == 0


async def test_under_nohup_a_server_whose_terminal_is_closed_stays(own: House, http: aiohttp.ClientSession) -> None:
    with (own.folder / "log").open("wb") as log:
        os.close(await serve_at_terminal(own, "SIG_IGN", log))
    async with asyncio.timeout(DEADLINE_S):
        while "reloaded" not in own.log():  # the closing is a SIGHUP as any other
            await asyncio.sleep(0.01)
    async with http.get(f"{own.url}/health") as answer:
        assert answer.status == 200
    assert await own.reload()
