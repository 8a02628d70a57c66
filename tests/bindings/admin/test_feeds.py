"""The streams of the admin API: the log of a task, and what changes on a server or on several that share a store."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from dragoman.admin.overview import (
    DeliveryFacts,
    FeedReset,
    ReplicaFacts,
    ReplicaLines,
    ServedAgentFacts,
    TaskChange,
    UpstreamFacts,
    WorkerFacts,
)
from dragoman.admin.question import PREFIX
from dragoman.bindings.admin.routes import routes
from dragoman.bus.api import NoBus
from dragoman.config import Config
from dragoman.engine.admin.change_feeds import CHANGES_MAX, GAP_MAX_MS, ChangeReader
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.overview import Overview
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from dragoman.model.task import TaskState
from dragoman.server import serving
from dragoman.store.api import StatusRow, StoreError
from dragoman.store.open import open_store
from dragoman.store.outage import WriteRecord
from dragoman.store.sql.tasks import TaskTable
from tests.bindings.admin.test_admin import DEADLINE_S, make_keys, make_task, operated, read, server, waiting_agent
from tests.buses import Hub
from tests.kit.facts import NoFacts
from tests.kit.places import bearer, sqlite_url
from tests.store.cases.bench import new_task

EVENTS = {route.path: route.events for route in routes() if route.events}
STREAM = {"Accept": "text/event-stream"}


class Event(NamedTuple):
    name: str
    data: dict[str, Any]
    id: str


class Reader:
    """Reads the events of a stream, each of which must fit the type that the API declares."""

    def __init__(self, path: str, answer: aiohttp.ClientResponse) -> None:
        self._types = EVENTS[path]
        self._answer = answer
        self.seen: list[Event] = []

    async def next(self) -> Event | None:
        fields: dict[str, str] = {}
        while line := (await self._answer.content.readline()).decode():
            name, colon, value = line.rstrip("\n").partition(": ")
            if colon and name:
                fields[name] = value
            elif "data" in fields:
                break
        if "data" not in fields:
            return None
        event = Event(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
        assert msgspec.convert(event.data, self._types[event.name])
        self.seen.append(event)
        return event

    async def until(self, name: str, **members: Any) -> Event:
        """The next event of that name with these members."""
        while (event := await self.next()) is not None:
            if event.name == name and event.data | members == event.data:
                return event
        raise AssertionError(f"the stream ended without {name} {members}: {self.seen}")

    @property
    def last_id(self) -> str:
        return next(event.id for event in reversed(self.seen) if event.id)


@asynccontextmanager
async def reading(
    http: aiohttp.ClientSession, path: str, headers: dict[str, str], last_id: str | None = None, **ids: str
) -> AsyncIterator[Reader]:
    resumed = {} if last_id is None else {"Last-Event-ID": last_id}
    async with http.get(PREFIX + path.format(**ids), headers=headers | STREAM | resumed) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Reader(path, answer)


LOG, CHANGES = "/tasks/{id}/log", "/events"


async def test_the_log_of_a_task_is_followed_to_its_end_and_resumed(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        task_id = await make_task(http, "echo", "one")
        async with reading(http, LOG, ops, id=task_id) as reader:
            await reader.until("event", state="input-required")
            assert [event.id for event in reader.seen] == [str(seq) for seq in range(1, len(reader.seen) + 1)]
            assert reader.seen[0].data["text"] == "one"
            last_id = reader.last_id
        assert (await read(http, f"/tasks/{task_id}:cancel", ops, "POST", json={"reason": "too dear"}))[0] == 200
        async with reading(http, LOG, ops, last_id, id=task_id) as reader:
            word, end, over = [await reader.next() for _ in range(3)]
            assert word is not None
            assert (word.id, word.data["kind"], word.data["action"]) == (str(int(last_id) + 1), "operator", "cancel")
            assert end is not None
            assert end.data["state"] == "canceled"
            assert over == Event("end", {"state": "canceled"}, "")
            assert await reader.next() is None
        async with reading(http, LOG, ops, end.id, id=task_id) as reader:
            assert await reader.next() == Event("end", {"state": "canceled"}, ""), (
                "a reader that returns learns the end"
            )
        for wrong in ("x", "999"):
            status, _ = await read(http, f"/tasks/{task_id}/log", ops | STREAM | {"Last-Event-ID": wrong})
            assert status == 400
        assert (await read(http, "/tasks/none/log", ops | STREAM))[0] == 404


async def test_readers_begin_anew_after_a_reading_that_met_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, whole, faults = sqlite_url(tmp_path), TaskTable.changes, 0

    async def changes(self: TaskTable, since_ms: int, limit: int) -> Any:
        nonlocal faults
        if faults:
            faults -= 1
            raise KeyError("planted")
        return await whole(self, since_ms, limit)

    monkeypatch.setattr(TaskTable, "changes", changes)
    async with server(store) as http:
        ops = bearer(store)
        async with reading(http, CHANGES, ops) as reader:
            await reader.until("replicas")
            faults = 1
            task_id = await make_task(http, "echo", "one")
            await reader.until("reset", reason="start")
            await reader.until("replicas")
            assert (await read(http, "/stats", ops))[1]["jobs"] == {"changes": "failed once, runs again"}
            assert (await read(http, f"/tasks/{task_id}:cancel", ops, "POST"))[0] == 200
            await reader.until("task", id=task_id, state="canceled")


async def test_the_log_of_a_deleted_task_ends(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        task_id = await make_task(http, "echo", "one")
        async with reading(http, LOG, ops, id=task_id) as reader:
            await reader.until("event", state="input-required")
            assert (await read(http, f"/tasks/{task_id}?force=true", ops, "DELETE"))[0] == 200
            assert (await reader.until("end")).data == {"state": "canceled"}


async def test_changes_are_told_once_and_a_reader_that_returns_misses_none(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        async with reading(http, CHANGES, ops) as reader:
            reset = await reader.next()
            assert reset is not None
            assert (reset.name, reset.data["reason"]) == ("reset", "start")
            agents = await reader.until("agents")
            assert [agent["id"] for agent in agents.data["agents"]] == ["echo", "other"]
            assert len((await reader.until("replicas")).data["replicas"]) == 1
            first = await make_task(http, "echo", "one")
            change = await reader.until("task", id=first, state="input-required")
            assert (change.data["agent"], change.data["principal"]) == ("echo", "anonymous")
            second = await make_task(http, "other", "two")
            await reader.until("task", id=second, state="input-required")
            told = [event.data for event in reader.seen if event.name == "task" and event.data["id"] == first]
            assert len(told) == len({(data["at"], data["state"]) for data in told}), "no change is told twice"
            last_id = reader.last_id
        for looked_at in ("log", "content", "tree", "wire?dialects=1.0"):
            assert (await read(http, f"/tasks/{first}/{looked_at}", ops))[0] == 200
        assert (await read(http, f"/tasks/{first}?force=true", ops, "DELETE"))[0] == 200
        assert (await read(http, f"/tasks/{second}:cancel", ops, "POST"))[0] == 200
        async with reading(http, CHANGES, ops, last_id) as reader:
            await reader.until("task", id=second, state="canceled")
            await reader.until("act", action="tasks.delete", task=first, principal="operator:local")
            assert all(event.name != "reset" for event in reader.seen)
            told_acts = {event.data["action"] for event in reader.seen if event.name == "act"}
            assert told_acts <= {"tasks.delete", "tasks.cancel"}, "reading is no change"
        milliseconds, acts = last_id.split("-")
        async with reading(http, CHANGES, ops, f"{int(milliseconds) - GAP_MAX_MS - 60_000}-{acts}") as reader:
            assert (await reader.until("reset")).data["reason"] == "gap"
        assert (await read(http, CHANGES, ops | {"Last-Event-ID": "yesterday"}))[0] == 400
        assert (await read(http, CHANGES, {}))[0] == 401


async def test_a_change_is_told_although_the_store_fails_in_the_middle_of_a_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = Overview.replicas
    failing, failed = False, asyncio.Event()

    async def replicas_or_not(overview: Overview) -> ReplicaLines:
        if failing:
            failed.set()
            raise StoreError("the disk does not answer")
        return await replicas(overview)

    monkeypatch.setattr(Overview, "replicas", replicas_or_not)
    async with operated(tmp_path) as (http, ops), reading(http, CHANGES, ops) as reader:
        await reader.until("replicas")
        task_id = await make_task(http, "echo", "one")
        await reader.until("task", id=task_id, state="input-required")
        failing = True
        assert (await read(http, f"/tasks/{task_id}:cancel", ops, "POST"))[0] == 200
        failed.clear()
        async with asyncio.timeout(DEADLINE_S):
            await failed.wait()
        failing = False
        await reader.until("task", id=task_id, state="canceled")


async def test_too_many_changes_at_once_are_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHANGES_MAX > 1
    monkeypatch.setattr("dragoman.engine.admin.change_feeds.CHANGES_MAX", 1)
    async with operated(tmp_path) as (http, ops), reading(http, CHANGES, ops) as reader:
        await reader.until("replicas")
        await asyncio.gather(make_task(http, "echo", "one"), make_task(http, "echo", "two"))
        await reader.until("reset", reason="many")


async def test_commits_wake_one_reading_for_all_who_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.engine.admin.change_feeds.READ_EVERY_S", 3600.0)
    readings = 0
    changes, watch = TaskTable.changes, WriteRecord.watch
    unwatched = asyncio.Event()

    async def counted(store: TaskTable, since_ms: int, limit: int) -> tuple[StatusRow, ...]:
        nonlocal readings
        readings += 1
        return await changes(store, since_ms, limit)

    def watched(writing: WriteRecord, committed: asyncio.Event | None) -> None:
        watch(writing, committed)
        if committed is None:
            unwatched.set()

    monkeypatch.setattr(TaskTable, "changes", counted)
    monkeypatch.setattr(WriteRecord, "watch", watched)
    async with operated(tmp_path) as (http, ops):
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(reading(http, CHANGES, ops)) for _ in range(60)]
            for reader in readers:
                await reader.until("replicas")
            before = readings
            task_id = await make_task(http, "echo", "one")
            for reader in readers:
                await reader.until("task", id=task_id, state="input-required")
            assert readings - before < len(readers) / 2, "a reading for each commit at most, not for each reader"
        async with asyncio.timeout(DEADLINE_S):
            await unwatched.wait()
        before = readings
        await make_task(http, "echo", "two")
        assert readings == before, "nothing is read while nobody follows"


async def test_a_slow_reader_is_told_that_it_missed_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.engine.admin.change_feeds.BUFFER_MAX", 8)
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    hints = ChangeHints(store, NoBus())
    reader = ChangeReader(store, hints, 3600.0)
    reader.serve(NoFacts())
    running, hearing = asyncio.create_task(reader.run()), asyncio.create_task(hints.run())
    try:
        slow, quick = reader.open(None), reader.open(None)
        missed = 0
        while missed <= 8:
            await store.create(new_task(f"t{missed}", at=store.clock.now_ms(), state=TaskState.WORKING))
            told: list[str] = []
            while f"t{missed}" not in told:
                batch = await quick.next()
                assert batch is not None
                told += [item.data.id for item in batch if isinstance(item.data, TaskChange)]
            missed += 1
        items = await slow.next()
        assert items is not None
        reset, *lists = [item.data for item in items][:6]
        assert isinstance(reset, FeedReset)
        assert reset.reason == "slow"
        assert [type(data) for data in lists] == [
            ServedAgentFacts,
            WorkerFacts,
            UpstreamFacts,
            DeliveryFacts,
            ReplicaFacts,
        ]
        assert len(items) <= 8
        assert any(item.position for item in items), "from which it may go on"
    finally:
        reader.stop()
        running.cancel()
        hearing.cancel()
        await store.close()
    assert await slow.next() is None


async def test_replicas_tell_of_commits_only_while_somebody_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.engine.admin.change_hints.ATTENDED_S", 0.2)
    monkeypatch.setattr("dragoman.engine.admin.change_hints.REPEATED_S", 0.05)
    hub, store = Hub(), open_store("memory:", SystemClock())
    await store.open("h1")
    here, there = hub.bus(), hub.bus()
    hints, theirs = ChangeHints(open_store("memory:", SystemClock()), here), ChangeHints(store, there)
    running = [asyncio.create_task(each.run()) for each in (hints, theirs)]
    signals: list[str] = []
    signal, watch = there.signal, store.writing.watch
    watching, changed = False, asyncio.Event()

    def sent(name: str, payload: bytes = b"") -> None:
        signals.append(name)
        signal(name, payload)

    def watched(committed: asyncio.Event | None) -> None:
        nonlocal watching
        watch(committed)
        watching = committed is not None
        changed.set()

    monkeypatch.setattr(there, "signal", sent)
    monkeypatch.setattr(store.writing, "watch", watched)
    heard = asyncio.Event()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await here.open()
            await there.open()
            await store.create(new_task("t"))
            assert signals == [], "nobody follows"
            hints.watch(heard)
            written = 0
            while not heard.is_set():
                await store.create(new_task(f"t{written}"))
                written += 1
                await asyncio.sleep(0)
            hints.rest(heard)
            while watching:
                changed.clear()
                await changed.wait()
            told = len(signals)
            await store.create(new_task("last"))
            assert len(signals) == told, "nobody follows any more"
    finally:
        for each in running:
            each.cancel()
        await here.close()
        await there.close()
        await store.close()


async def test_a_stream_of_changes_ends_with_the_server(tmp_path: Path) -> None:
    config = Config(port=0, store=sqlite_url(tmp_path), shutdown_grace_s=2)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopping = asyncio.Event()

    async def serve() -> None:
        async with serving(config, [waiting_agent("echo")]) as url:
            started.set_result(url)
            await stopping.wait()

    serves = asyncio.create_task(serve())
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with (
        aiohttp.ClientSession(await started, timeout=timeout) as http,
        reading(http, CHANGES, bearer(config.store)) as reader,
    ):
        await reader.until("replicas")
        stopping.set()
        assert await reader.next() is None
    await serves


async def test_every_replica_tells_what_the_others_change(postgres_url: str) -> None:
    keys = await make_keys(postgres_url, ann=(AccessRole.CALLER, None), ops=(AccessRole.OPERATOR, None))
    config = Config(port=0, store=postgres_url, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(serving(config, [waiting_agent("echo"), waiting_agent("other")]))
            for _ in range(2)
        ]
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        one, other = [await stack.enter_async_context(aiohttp.ClientSession(url, timeout=timeout)) for url in urls]
        async with reading(one, CHANGES, keys["ops"]) as reader:
            await reader.until("replicas")
            task_id = await make_task(other, "echo", "one", keys["ann"])
            change = await reader.until("task", id=task_id, state="input-required")
            assert change.data["principal"] == "key:ann"
            async with reading(one, LOG, keys["ops"], id=task_id) as log:
                await log.until("event", state="input-required")
                assert (await read(other, f"/tasks/{task_id}?force=true", keys["ops"], "DELETE"))[0] == 200
                await reader.until("act", action="tasks.delete", task=task_id)
                last_id = reader.last_id
        async with reading(other, CHANGES, keys["ops"], last_id) as reader:
            second = await make_task(one, "other", "two", keys["ann"])
            await reader.until("task", id=second, state="input-required")
            assert all(event.name != "reset" for event in reader.seen), "it goes on at another replica"
