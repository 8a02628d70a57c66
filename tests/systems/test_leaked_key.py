"""A key that has leaked: an operator sees what it began, and ends that, and nothing of another key of its name."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent
from dragoman.config import Config
from dragoman.engine.key_stops import KeyStops
from dragoman.model.principal import AccessRole
from dragoman.server import serving
from tests.kit.agents import hired
from tests.kit.places import beside
from tests.postgres import PostgresServer
from tests.push.receiver import Receiver, receiving
from tests.systems.conftest import DEADLINE_S
from tests.systems.test_who_did_what import command

V1 = {"A2A-Version": "1.0"}
SOON_S = 25.0
"""Less than the 30 s for which the claim of a replica counts that is alive."""

RELEASES = Path(__file__).parents[1] / "store" / "releases"


class Keys:
    """Keys by who holds them. `leaked` and `own` are two of one name, `ops` is an operator's."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.ids: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    async def make(self, holder: str, name: str, *options: str) -> None:
        """Make a key with the command."""
        said = await command("keys", "create", name, "--json", "--store", self.store, *options)
        made = json.loads(said)
        self.ids[holder], self._texts[holder] = made["id"], made["key"]

    def __getitem__(self, holder: str) -> str:
        return self._texts[holder]

    async def run(self, verb: str, holder: str, *options: str, server: str = "") -> Any:
        """A command about one key, on the local store or through a server."""
        if server:
            place = ("keys", verb, self.ids[holder], "--server", server)
            return json.loads(await command(*place, "--json", *options, DRAGOMAN_OPERATOR_KEY=self["ops"]))
        return json.loads(await command("keys", verb, self.ids[holder], "--json", "--store", self.store, *options))


class Caller:
    """Somebody with a key, at one server."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str) -> None:
        self.url = url
        self._http = http
        self._headers = V1 | {"x-api-key": key}

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the decoded answer."""
        async with self._http.request(method, self.url + path, json=body, headers=self._headers) as answer:
            return answer.status, json.loads(await answer.read() or b"null")

    async def stream(self, method: str, path: str, body: Any = None, **headers: str) -> "Reader":
        """Open a stream."""
        answer = await self._http.request(method, self.url + path, json=body, headers=self._headers | headers)
        assert answer.status == 200, await answer.text()
        return Reader(answer)

    async def send(self, text: str, hook: str | None = None) -> "Reader":
        """A streamed message, with a webhook."""
        body: dict[str, Any] = {"message": message(text)}
        if hook is not None:
            body["configuration"] = {"taskPushNotificationConfig": {"id": hook.rpartition("/")[2], "url": hook}}
        return await self.stream("POST", "/agents/desk/message:stream", body)

    async def state(self, task_id: str) -> str:
        _, task = await self.ask("GET", f"/agents/desk/tasks/{task_id}")
        return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def message(text: str) -> dict[str, Any]:
    return {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}


class Reader:
    """Reads a stream of events as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.text = ""
        self.ended = asyncio.Event()
        self.headers = answer.headers
        self._answer = answer
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for data in self._answer.content.iter_any():
            async with self._news:
                self.text += data.decode()
                self._news.notify_all()
        self.ended.set()

    async def sees(self, word: str) -> None:
        """Until the text has come."""
        async with self._news:
            await self._news.wait_for(lambda: word in self.text)

    async def task_id(self) -> str:
        """The id of the stream's task."""
        await self.sees("WORKING")
        return str(json.loads(self.text.split("data: ")[1].split("\n")[0])["task"]["id"])

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._answer.close()


def agents(go: asyncio.Event) -> list[Agent]:
    """An agent whose tasks wait until they may end, or for their caller."""
    desk = Agent("desk")

    @desk.skill
    async def work(ctx: Any) -> str:
        """Wait."""
        if "ask" in ctx.text:
            await ctx.ask("Which?")
        await ctx.progress(1, 2)
        await go.wait()
        return "done"

    return [desk]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store for one server, or for two."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/keys.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with server.database() as url:
            yield url


class Site:
    """Servers on one store, with their keys: as many as the store takes, at most two."""

    def __init__(self, keys: Keys, http: aiohttp.ClientSession, urls: list[str], go: asyncio.Event) -> None:
        self.keys = keys
        self.urls = urls
        self.go = go
        self._http = http

    def by(self, holder: str, server: int = 0) -> Caller:
        """A holder of a key at the first server, or at the last."""
        return Caller(self._http, self.urls[server], self.keys[holder])


@asynccontextmanager
async def running(keys: Keys, go: asyncio.Event) -> AsyncIterator[Site]:
    config = Config(
        port=0,
        store=keys.store,
        shutdown_grace_s=0.2,
        push_allowed_hosts=("127.0.0.1",),
        push_allowed_cidrs=("127.0.0.0/8",),
    )
    async with AsyncExitStack() as stack:
        servers = 2 if keys.store.startswith("postgresql") else 1
        urls = [await stack.enter_async_context(serving(config, agents(go))) for _ in range(servers)]
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)))
        yield Site(keys, http, urls, go)


async def keys_of(store: str) -> Keys:
    keys = Keys(store)
    await keys.make("ops", "ops", "--role", "operator")
    await keys.make("leaked", "ann")
    await keys.make("own", "ann")
    return keys


async def until(ask: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    """The first answer that fits."""
    async with asyncio.timeout(DEADLINE_S):
        while not fits(found := await ask()):
            await asyncio.sleep(0.05)  # nothing tells when it has changed
    return found


def ageless(began: Any) -> Any:
    """What a key began, without the ages of its tasks."""
    return began | {"tasks": [{**task, "age_s": 0} for task in began["tasks"]]}


async def known_dead(replica: str) -> bool:
    return False


def calls(receiver: Receiver, path: str) -> int:
    return sum(asked.path == path for asked in receiver.asked)


@pytest.mark.parametrize("far", [False, True], ids=["local store", "through a server"])
async def test_a_leaked_key_is_stopped_with_what_it_began_and_nothing_of_its_namesakes(
    store: str, *, far: bool
) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), receiving() as receiver, running(keys, go) as site:
        server = site.urls[0] if far else ""
        leaked, own = site.by("leaked"), site.by("own")
        theirs = await leaked.send("by the leaked key", f"{receiver.url}/leaked")
        mine = await own.send("by its own key", f"{receiver.url}/own")
        their_task, my_task = await theirs.task_id(), await mine.task_id()
        spying = await site.by("leaked", -1).stream("POST", f"/agents/desk/tasks/{my_task}:subscribe")
        watching = await site.by("own", -1).stream("POST", f"/agents/desk/tasks/{their_task}:subscribe")
        hook = {"id": "spy", "url": f"{receiver.url}/spy"}
        status, _ = await leaked.ask("POST", f"/agents/desk/tasks/{my_task}/pushNotificationConfigs", hook)
        assert status == 200

        shown = await until(
            lambda: keys.run("show", "leaked", server=server),
            lambda shown: sum(each["streams"] for each in shown["began"]["streams"]) == 2,
        )
        began = shown["began"]
        assert len(began["streams"]) == len(site.urls)
        assert [task["id"] for task in began["tasks"]] == [their_task]
        assert {(each["task"], each["id"]) for each in began["webhooks"]} == {(their_task, "leaked"), (my_task, "spy")}
        assert (began["open_tasks"], began["unknown_tasks"], began["unknown_webhooks"], began["stop"]) == (
            1,
            0,
            0,
            None,
        )
        would = await keys.run("revoke", "leaked", "--stop", "--tasks", "--dry-run", server=server)
        assert (would["dry_run"], would["changed"], would["state"]) == (True, False, "active")
        assert ageless(would["began"]) == ageless(began)
        assert await leaked.state(their_task) == "WORKING"

        stopped = await keys.run("revoke", "leaked", "--stop", server=server)
        assert (stopped["changed"], stopped["state"]) == (True, "revoked")
        assert ageless(stopped["began"]) == ageless(began)
        await theirs.ended.wait()
        await spying.ended.wait()
        assert "COMPLETED" not in theirs.text + spying.text
        listed = lambda: own.ask("GET", f"/agents/desk/tasks/{my_task}/pushNotificationConfigs")  # noqa: E731
        await until(listed, lambda answer: [each["id"] for each in answer[1]["configs"]] == ["own"])
        assert await own.state(their_task) == "WORKING", "its tasks go on unless they are named"
        again = await keys.run("revoke", "leaked", "--stop", "--tasks", server=server)
        assert not again["changed"]
        await until(lambda: own.state(their_task), lambda state: bool(state == "CANCELED"))
        await watching.sees("CANCELED")
        assert await own.state(my_task) == "WORKING"
        done = await until(
            lambda: keys.run("show", "leaked", server=server), lambda shown: shown["began"]["stop"]["done"] is not None
        )
        assert (done["began"]["streams"], done["began"]["webhooks"], done["began"]["tasks"]) == ([], [], [])
        assert done["began"]["stop"]["tasks"]
        assert not mine.ended.is_set()

        before = calls(receiver, "/leaked"), calls(receiver, "/spy")
        go.set()
        await mine.sees("COMPLETED")
        async with asyncio.timeout(DEADLINE_S):
            while not any(b"COMPLETED" in asked.body for asked in receiver.asked if asked.path == "/own"):
                await receiver.came(len(receiver.asked) + 1)
        assert (calls(receiver, "/leaked"), calls(receiver, "/spy")) == before
        for reader in (theirs, mine, spying, watching):
            await reader.close()


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_every_kind_of_stream_ends_with_its_key(store: str) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), running(keys, go) as site:
        caller, operator = site.by("leaked"), site.by("ops")
        sent = await caller.send("hello")
        task_id = await sent.task_id()
        chat = {"model": "desk", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
        session = await caller.stream(
            "POST",
            "/mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                },
            },
            Accept="application/json, text/event-stream",
        )
        opened = {"Mcp-Session-Id": session.headers["Mcp-Session-Id"], "Accept": "text/event-stream"}
        streams = {
            "leaked": [
                sent,
                await caller.stream("POST", f"/agents/desk/tasks/{task_id}:subscribe"),
                await caller.stream("POST", "/v1/chat/completions", chat),
                await caller.stream("GET", "/mcp", **opened),
            ],
            "ops": [
                await operator.stream("GET", "/admin/v1/events"),
                await operator.stream("GET", f"/admin/v1/tasks/{task_id}/log"),
            ],
        }
        for holder, readers in streams.items():
            await keys.run("revoke", holder, "--stop")
            for reader in readers:
                await reader.ended.wait()
                await reader.close()
        await session.close()
        assert await site.by("own").state(task_id) == "WORKING"


@pytest.mark.parametrize("holder", ["leaked", "ops"])
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_request_that_was_half_sent_when_its_key_was_stopped_begins_nothing(store: str, holder: str) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    path, wanted = "/agents/desk/message:send", {"message": message("late")}
    if holder == "ops":
        path, wanted = "/admin/v1/keys", {"name": "eve", "role": "operator"}
    async with asyncio.timeout(DEADLINE_S), running(keys, go) as site:
        stream = await site.by(holder).send("hello")
        await stream.task_id()
        body = json.dumps(wanted).encode()
        host, port = site.urls[0].removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\n"
            f"x-api-key: {keys[holder]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body[:10])
        await writer.drain()
        await site.by("own").ask("GET", "/agents/desk/tasks")  # by now the head has been read
        await keys.run("revoke", holder, "--stop")
        await stream.ended.wait()
        writer.write(body[10:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        await stream.close()


@pytest.mark.parametrize("wait", ["for a task", "for an answer"])
async def test_a_worker_that_waited_when_its_key_was_stopped_is_told_nothing(tmp_path: Path, wait: str) -> None:
    keys, go = await keys_of(f"sqlite:///{tmp_path}/keys.db"), asyncio.Event()
    await keys.make("worker", "hand", "--role", "agent")
    await keys.make("other worker", "hand", "--role", "agent")
    far = hired("far")
    config = Config(port=0, store=keys.store, shutdown_grace_s=0.2)
    asked = {"message": message("secret"), "configuration": {"returnImmediately": True}}
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [*agents(go), far]) as url,
        aiohttp.ClientSession() as http,
    ):
        caller, leaked, other = (Caller(http, url, keys[holder]) for holder in ("own", "worker", "other worker"))
        stream = await leaked.send("a stream that says when the server knows")
        await stream.task_id()
        if wait == "for a task":
            waiting = asyncio.create_task(leaked.ask("POST", "/workers/far/lease", {"wait_s": 30}))
            while not any(entry.waits for entry in far.leases.presence.roster()):
                await asyncio.sleep(0.01)
        else:
            _, answer = await caller.ask("POST", "/agents/far/message:send", asked)
            _, task = await leaked.ask("POST", "/workers/far/lease", {"wait_s": 10})
            question = {"lease": task["lease"], "message": "Which?", "wait_s": 10}
            waiting = asyncio.create_task(leaked.ask("POST", "/workers/far/ask", question))
            path = f"/agents/far/tasks/{answer['task']['id']}"
            await until(lambda: caller.ask("GET", path), lambda got: "INPUT" in got[1]["status"]["state"])
        await keys.run("revoke", "worker", "--stop")
        await stream.ended.wait()
        if wait == "for a task":
            await caller.ask("POST", "/agents/far/message:send", asked)
        else:
            reply = message("secret") | {"taskId": answer["task"]["id"], "messageId": "reply"}
            await caller.ask("POST", "/agents/far/message:send", asked | {"message": reply})
        status, told = await waiting
        assert status == 401, told
        assert "secret" not in json.dumps(told)
        if wait == "for a task":
            status, task = await other.ask("POST", "/workers/far/lease", {"wait_s": 10})
            assert (status, task["message"]["parts"][0]["text"]) == (200, "secret"), "it is given back at once"
        await stream.close()


@pytest.mark.parametrize("killed", [False, True], ids=["down", "killed in the middle"])
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_server_that_was_down_ends_it_when_it_starts(store: str, *, killed: bool) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), receiving() as theirs, receiving() as mine:
        receivers = {"leaked": theirs, "own": mine}
        for receiver in receivers.values():
            receiver.hold.clear()  # so that both calls are in flight when the server stops, and due when it starts
        async with running(keys, go) as site:
            for holder, receiver in receivers.items():
                hook = {"id": holder, "url": f"{receiver.url}/{holder}"}
                body = {
                    "message": message(f"ask me, {holder}"),
                    "configuration": {"taskPushNotificationConfig": hook},
                }
                _, sent = await site.by(holder).ask("POST", "/agents/desk/message:send", body)
                assert sent["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                await receiver.came(1)
        await keys.run("revoke", "leaked", "--stop", "--tasks")
        if killed:
            async with beside(store) as opened:
                assert await KeyStops(opened.shared, opened.clock).claim(keys.ids["leaked"], "gone", known_dead)
        for receiver in receivers.values():
            receiver.hold.set()
        async with running(keys, go) as site, asyncio.timeout(SOON_S):
            own = site.by("own")
            _, page = await own.ask("GET", "/agents/desk/tasks?historyLength=1")
            by_text = {task["history"][0]["parts"][0]["text"]: task["id"] for task in page["tasks"]}
            await until(lambda: own.state(by_text["ask me, leaked"]), lambda state: bool(state == "CANCELED"))
            assert await own.state(by_text["ask me, own"]) == "INPUT_REQUIRED"
            await mine.came(2)
            assert len(theirs.asked) == 1, "not even a call that was due at the start"


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_damaged_request_costs_itself_alone(store: str) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    async with beside(store) as opened:
        await opened.shared.put(f"key-stop/{keys.ids['own']}", b"\xc1", 60_000)
        await opened.shared.put("key-streams/gone", b"\xc1", 60_000)
    async with asyncio.timeout(DEADLINE_S), running(keys, go) as site:
        stream = await site.by("leaked").send("hello")
        await keys.run("revoke", "leaked", "--stop")
        await stream.ended.wait()
        await stream.close()
        assert (await keys.run("show", "own"))["began"]["stop"] is None
        assert (await keys.run("revoke", "own", "--stop"))["changed"], "asked anew"


async def test_a_stop_waits_for_no_other_whose_tasks_take_long_to_end(tmp_path: Path) -> None:
    keys, go, free = await keys_of(f"sqlite:///{tmp_path}/keys.db"), asyncio.Event(), asyncio.Event()
    stubborn = Agent("stubborn")

    @stubborn.skill
    async def hold(ctx: Any) -> str:
        """Take long to end."""
        await ctx.progress(1, 2)
        try:
            await go.wait()
        finally:
            await free.wait()
        return "done"

    config = Config(port=0, store=keys.store, shutdown_grace_s=0.2, cancel_grace_s=DEADLINE_S)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [*agents(go), stubborn]) as url,
        aiohttp.ClientSession() as http,
    ):
        first, second = Caller(http, url, keys["leaked"]), Caller(http, url, keys["own"])
        slow = await first.stream("POST", "/agents/stubborn/message:stream", {"message": message("slow")})
        quick = await second.send("quick")
        slow_id, quick_id = await slow.task_id(), await quick.task_id()
        await keys.run("revoke", "leaked", "--stop", "--tasks")
        operator = Caller(http, url, keys["ops"])
        shown = lambda: operator.ask("GET", f"/admin/v1/tasks/{slow_id}")  # noqa: E731
        await until(shown, lambda answer: bool(answer[1]["task"]["cancel_requested"]))
        await keys.run("revoke", "own", "--stop", "--tasks")
        shown = lambda: operator.ask("GET", f"/admin/v1/tasks/{quick_id}")  # noqa: E731
        await until(shown, lambda answer: bool(answer[1]["task"]["state"] == "canceled"))
        free.set()
        for reader in (slow, quick):
            await reader.close()


async def test_a_task_is_canceled_though_only_another_replica_serves_its_agent(postgres_url: str) -> None:
    keys, go = await keys_of(postgres_url), asyncio.Event()
    other = Agent("other")

    @other.skill
    async def nothing(ctx: Any) -> str:
        """Do nothing."""
        return ""

    config = Config(port=0, store=postgres_url, shutdown_grace_s=0.2)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [other]),
        serving(config, agents(go)) as url,
        aiohttp.ClientSession() as http,
    ):
        stream = await Caller(http, url, keys["leaked"]).send("hello")
        task_id = await stream.task_id()
        await keys.run("revoke", "leaked", "--stop", "--tasks")
        own = Caller(http, url, keys["own"])
        await until(lambda: own.state(task_id), lambda state: bool(state == "CANCELED"))
        await until(lambda: keys.run("show", "leaked"), lambda shown: shown["began"]["stop"]["done"] is not None)
        await stream.close()


async def test_the_trail_and_the_list_of_tasks_tell_keys_of_one_name_apart(store: str) -> None:
    keys, go = await keys_of(store), asyncio.Event()
    go.set()
    async with asyncio.timeout(DEADLINE_S), running(keys, go) as site:
        sent = {}
        for holder in ("leaked", "own"):
            body = {"message": message(holder)}
            _, answer = await site.by(holder).ask("POST", "/agents/desk/message:send", body)
            sent[holder] = answer["task"]["id"]
        for holder in ("leaked", "own"):
            place = ("--server", site.urls[0])
            words = ("admin", "tasks", "list", "--key", keys.ids[holder], "-o", "json", *place)
            listed = json.loads(await command(*words, DRAGOMAN_OPERATOR_KEY=keys["ops"]))
            assert [(task["id"], task["key"]) for task in listed["tasks"]] == [(sent[holder], keys.ids[holder])]

            async def trail(holder: str = holder) -> list[Any]:
                printed = await command("audit", "--key", keys.ids[holder], "--json", "--store", store)
                return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

            entries = await until(trail, bool)
            assert [(each["key"], each["principal"], each["task_id"]) for each in entries] == [
                (keys.ids[holder], "key:ann", sent[holder])
            ]
        seen = await command(
            "audit", "--action", "tasks.list", "--json", "--server", site.urls[0], DRAGOMAN_OPERATOR_KEY=keys["ops"]
        )
        assert {json.loads(line)["key"] for line in seen.splitlines() if line.startswith("{")} <= {keys.ids["ops"]}


async def test_a_task_that_was_delegated_is_of_the_key_of_its_parent(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    keys = await keys_of(store)
    lead, hand = Agent("lead"), Agent("hand")

    @lead.skill
    async def pass_on(ctx: Any) -> str:
        """Pass it on."""
        done = await ctx.delegate("hand", ctx.text)
        return str(done.text)

    @hand.skill
    async def answer(ctx: Any) -> str:
        """Answer."""
        return "done"

    async with asyncio.timeout(DEADLINE_S), serving(Config(port=0, store=store), [lead, hand]) as url:
        async with aiohttp.ClientSession() as http:
            body = {"message": message("hello")}
            assert (await Caller(http, url, keys["leaked"]).ask("POST", "/agents/lead/message:send", body))[0] == 200
        words = ("admin", "tasks", "list", "--key", keys.ids["leaked"], "-o", "json", "--store", store)
        listed = json.loads(await command(*words))
    assert sorted(task["agent"] for task in listed["tasks"]) == ["hand", "lead"]


async def test_what_came_before_keys_were_noted_is_said_to_be_unknown(tmp_path: Path) -> None:
    noted = json.loads((RELEASES / "v16.json").read_text(encoding="utf-8"))
    (tmp_path / "store.db").write_bytes(gzip.decompress((RELEASES / "v16.db.gz").read_bytes()))
    store = f"sqlite:///{tmp_path}/store.db"
    key_id = noted["key"].split("_")[1]
    shown = json.loads(await command("keys", "show", key_id, "--json", "--store", store))
    began = shown["began"]
    assert (began["tasks"], began["webhooks"], began["unknown_tasks"] > 0, began["unknown_webhooks"]) == (
        [],
        [],
        True,
        1,
    )
    told = await command("keys", "show", key_id, "--store", store)
    assert "came before keys were noted, so any key of that name may have begun them" in told


async def test_only_what_would_end_is_listed(tmp_path: Path) -> None:
    keys = await keys_of(f"sqlite:///{tmp_path}/keys.db")
    leaked = keys.ids["leaked"]

    async def told(*words: str) -> list[str]:
        lines = (await command("keys", "revoke", leaked, *words, "--store", keys.store)).splitlines()
        assert all(line == line.rstrip() for line in lines), lines
        return lines

    async with running(keys, asyncio.Event()) as site:
        idle = await told("--stop", "--dry-run")
        assert idle[1:] == ["It has no stream and no webhook to end."]
        stream = await site.by("leaked").send("work", "http://127.0.0.1:9/hook")
        task_id = await stream.task_id()
        await until(
            lambda: keys.run("show", "leaked"), lambda shown: shown["began"]["streams"] and shown["began"]["tasks"]
        )
        without = await told("--stop", "--dry-run")
        assert [line.split()[0] for line in without[3:-2]] == ["KIND", "stream", "webhook"]
        assert without[-1] == "Its open task goes on: add --tasks to cancel it, too."
        whole = await told("--stop", "--tasks", "--dry-run")
        assert [line.split()[0] for line in whole[3:]] == ["KIND", "stream", "webhook", "task"]
        assert whole[-1].split() == ["task", task_id, "desk", "working"]
        assert (await told("--stop"))[1] == "Running servers end these within 2 s, others when they start:"
        await stream.close()


@pytest.mark.parametrize("flag", ["--tasks", "--dry-run"])
async def test_a_flag_of_stop_needs_it(tmp_path: Path, flag: str) -> None:
    keys = await keys_of(f"sqlite:///{tmp_path}/keys.db")
    with pytest.raises(AssertionError, match="goes with --stop"):
        await keys.run("revoke", "leaked", flag)
    async with beside(keys.store) as opened:
        found = await opened.keys.find(keys.ids["leaked"])
        assert found is not None
        assert (found.revoked_ms, found.role) == (None, AccessRole.CALLER)
