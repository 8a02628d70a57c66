"""Sessions of MCP that several replicas serve: a client's word reaches the call that waits on another one."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dragoman.bindings.mcp import sessions as module
from dragoman.bindings.mcp.sessions import NOTES, Notifications, OpenCall, Sessions
from dragoman.bindings.mcp.tool_call import ToolCallStream, Wanted
from dragoman.bus.api import NoBus
from dragoman.engine.handler import Snapshot, StreamItem
from dragoman.model.errors import NotFound
from dragoman.model.ids import SystemClock, new_id
from dragoman.model.principal import Principal, Scope
from dragoman.model.task import TaskHead, TaskState, TaskStatus
from dragoman.store.api import Store
from dragoman.store.open import open_store
from tests.bindings.conftest import DEADLINE_S, HEAD, NOW, RECORD
from tests.kit.waiting import no_hang

ANNA = Principal("anna", scopes=frozenset({Scope.CANCEL}))
KEY = ("anna", new_id())
ASKS = replace(RECORD, status=TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp=NOW))


class Asking:
    """The stream of a task that asks a question, and then says nothing until it is closed."""

    head: TaskHead | None = HEAD

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self._asked = False

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        if not self._asked:
            self._asked = True
            return [Snapshot(ASKS)]
        await self.closed.wait()
        return None

    def close(self) -> None:
        self.closed.set()

    def when_closed(self, call: Callable[[], None]) -> None:
        """Nobody counts it."""


class Line:
    """A bus between sessions of one process; `cut` loses every signal."""

    def __init__(self) -> None:
        self.cut = False
        self._heard: list[asyncio.Queue[bytes]] = []

    def end(self) -> "LineEnd":
        """The bus of one replica."""
        return LineEnd(self)

    def hear(self, heard: asyncio.Queue[bytes]) -> None:
        self._heard.append(heard)

    def say(self, payload: bytes) -> None:
        if not self.cut:
            for heard in self._heard:
                if not heard.full():
                    heard.put_nowait(payload)


class LineEnd(NoBus):
    def __init__(self, line: Line) -> None:
        self._line = line

    def signal(self, name: str, payload: bytes = b"") -> None:
        self._line.say(payload)

    def on_signal(self, name: str, heard: asyncio.Queue[bytes]) -> None:
        self._line.hear(heard)


class Waiting:
    """A call that waits for its task on one replica."""

    def __init__(self, sessions: Sessions, request_id: bytes = b"7") -> None:
        self.canceled: list[Principal] = []
        self.cancels = asyncio.Event()
        self.task = Asking()
        self.stream = ToolCallStream(
            self.task,
            Wanted(request_id, "2025-11-25"),
            SystemClock(),
            reopen=None,
            on_end=lambda stream: sessions.remove(KEY, request_id, stream),
            until_terminal=True,
        )
        sessions.add(KEY, request_id, OpenCall(self.stream, self._cancel))

    async def _cancel(self, principal: Principal) -> None:
        self.canceled.append(principal)
        self.cancels.set()


async def _nothing(principal: Principal) -> None:
    """Cancels nothing."""


@asynccontextmanager
async def replicas(line: Line | None = None) -> AsyncIterator[tuple[Store, Sessions, Sessions]]:
    """The sessions of two replicas on one store."""
    store = open_store("memory:", SystemClock())
    await store.open("r0")
    one, other = (
        Sessions(Notifications(None, 60), store.shared, None if line is None else line.end()) for _ in range(2)
    )
    running = [asyncio.create_task(sessions.run()) for sessions in (one, other)]
    try:
        async with no_hang():
            yield store, one, other
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await store.close()


async def test_a_server_alone_keeps_nothing_of_calls_that_are_over() -> None:
    sessions = Sessions(Notifications(None, 60))
    await asyncio.wait_for(sessions.run(), DEADLINE_S)  # no other replica leaves notes
    call = OpenCall(Waiting(sessions).stream, _nothing)
    sessions.remove(KEY, b"7", call.stream)
    gc.collect()
    kept: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(2):
            for _ in range(3000):
                sessions.add(KEY, b"7", call)
                sessions.remove(KEY, b"7", call.stream)
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert kept[1] - kept[0] < 3000


async def test_a_call_is_canceled_through_any_replica() -> None:
    async with replicas() as (store, one, other):
        call, neighbour = Waiting(one), Waiting(one, b"8")
        await other.cancel(KEY, b"7", ANNA)
        await call.cancels.wait()
        assert call.canceled == [ANNA]
        assert neighbour.canceled == []
        assert await store.shared.scan(NOTES)


async def test_the_bus_alone_makes_a_word_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NOTES_S", 2 * DEADLINE_S)  # nobody looks meanwhile without being told
    async with replicas(Line()) as (_, one, other):
        for request_id in (b"7", b"8"):
            call = Waiting(one, request_id)
            await other.cancel(KEY, request_id, ANNA)
            await call.cancels.wait()


async def test_a_signal_that_is_lost_costs_a_word_nothing_but_time() -> None:
    line = Line()
    async with replicas(line) as (_, one, other):
        call = Waiting(one)
        await other.cancel(KEY, b"7", ANNA)
        await call.cancels.wait()
        line.cut = True
        call = Waiting(one)
        await other.cancel(KEY, b"7", ANNA)
        await call.cancels.wait()


async def test_a_question_is_declined_through_any_replica() -> None:
    async with replicas() as (_, one, other):
        call = Waiting(one)
        await other.decline(KEY, HEAD.id)
        await call.task.closed.wait()


async def test_a_word_in_another_session_or_of_another_principal_reaches_nothing() -> None:
    async with replicas() as (_, one, other):
        call = Waiting(one)
        for key in (("anna", new_id()), ("ben", KEY[1]), ("", "anna" + KEY[1])):
            await other.cancel(key, b"7", ANNA)
            await other.decline(key, HEAD.id)
        after = Waiting(one, b"9")
        await other.cancel(KEY, b"9", ANNA)
        await after.cancels.wait()
        assert call.canceled == []
        assert not call.task.closed.is_set()


async def test_a_word_is_followed_once_however_long_the_store_keeps_it() -> None:
    async with replicas() as (_, one, other):
        call, next_call = Waiting(one), Waiting(one, b"8")
        await other.cancel(KEY, b"7", ANNA)
        await call.cancels.wait()
        await other.cancel(KEY, b"8", ANNA)
        await next_call.cancels.wait()
        assert call.canceled == [ANNA]


async def test_a_log_level_holds_on_every_replica() -> None:
    async with replicas() as (_, one, other):
        await one.set_level(KEY, "warning")
        assert await other.level(KEY) == "warning"
        assert await other.level(("ben", KEY[1])) is None
        await one.set_level(("anna", ""), "error")
        assert await one.level(("anna", "")) is None
        await other.end(KEY)
        with pytest.raises(NotFound, match="has ended"):
            await one.level(KEY)
