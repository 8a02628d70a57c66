"""The queue of writes of one task: whatever goes wrong with one of them, the next has its turn."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.engine.log import SNAPSHOT_BYTES_MIN, Log, LogOwner
from dragoman.engine.rules import Decision
from dragoman.engine.writes import Outcome, state_after
from dragoman.engine.writes import WriteState as S
from dragoman.model.events import Event, MessageReceived, StatusChanged, Submitted
from dragoman.model.ids import new_id, timestamp
from dragoman.model.message import Message
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.api import (
    Append,
    Appended,
    Fenced,
    Moved,
    NewTask,
    OutcomeUnknown,
    Repeat,
    Store,
    Stored,
    StoreFull,
    TaskEnded,
)
from dragoman.store.budgets import Charge
from dragoman.store.open import open_store
from tests.engine.house import StandingClock, message

CLOCK = StandingClock()
AT = timestamp(CLOCK.ms)


class Unread:
    """The store, which cannot be read for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, task_id: str, size: int | None = None) -> Any:
        if self.down:
            raise StoreFull("cannot be read")
        return await self._store.load(task_id, size)


@asynccontextmanager
async def a_task() -> AsyncIterator[tuple[Log, Unread]]:
    """A task whose run is leased, and its store."""
    store = Unread(open_store("memory:", CLOCK))
    await store.open("here")
    try:
        head = TaskHead(id=new_id(), context_id="c", agent="a", owner="o", dialect="1.0", mount="/", created_at=AT)
        first = Submitted(message(), AT)
        new = NewTask(head=head, events=(first,), state=TaskState.SUBMITTED, status_ms=CLOCK.ms, holder="here")
        await store.create(new)
        yield await loaded(head.id, store), store
    finally:
        await store.close()


class Alone:
    """The owner of a log that nobody else hears of: see `engine.log.LogOwner`."""

    def release(self, log: Log) -> None: ...

    def ended(self, log: Log, event: StatusChanged, own: bool) -> None: ...

    def charges(self, record: Record) -> tuple[Charge, ...]:
        return ()

    async def renew_audience(self, log: Log, stored: Stored) -> None: ...


class Listening:
    """Has a run, and tells what that hears: see `engine.followers.RunKeeper`."""

    def __init__(
        self,
        heard: Callable[[Message, bool], object],
        leased: Callable[[], bool] = lambda: False,
        *,
        remembers: bool = False,
    ) -> None:
        self._heard = heard
        self._leased = leased
        self._remembers = remembers

    def deliver(self, log: Log, message: Message, answers: bool = False) -> None:
        self._heard(message, answers)

    def leased_anew(self, log: Log) -> bool:
        return self._leased()

    def remembers_more(self, log: Log) -> bool:
        return self._remembers


async def loaded(task_id: str, store: Any, owner: LogOwner | None = None) -> Log:
    stored = await store.load(task_id)
    assert stored is not None
    return Log.of(stored, store, owner or Alone())


def said(text: str, epoch: int | None = None) -> Decision:
    events: tuple[Event, ...] = (MessageReceived(message(text), AT),)
    return Decision(events=events, now_ms=CLOCK.ms, epoch=epoch)


async def in_time(write: Any) -> Any:
    async with asyncio.timeout(60):
        return await write


def texts(log: Log) -> list[str]:
    return [each.text for each in log.record().history]


async def test_a_write_that_others_preceded_lands_although_their_events_cannot_be_read() -> None:
    async with a_task() as (log, store):
        theirs = await loaded(log.head.id, store)
        await theirs.writes.append(theirs, lambda _: said("theirs"))
        store.down = True
        written = await in_time(log.writes.append(log, lambda own: said("mine", epoch=1)))
        assert isinstance(written, Appended)
        assert not log.writes.busy
        store.down = False
        await in_time(log.writes.append(log, lambda own: said("more")))
        assert texts(log) == ["hi", "theirs", "mine", "more"]


async def test_whoever_hears_of_an_end_and_fails_does_not_keep_the_turn() -> None:
    class Faulty(Alone):
        def ended(self, log: Log, event: StatusChanged, own: bool) -> None:
            raise RuntimeError("of no use")

    async with a_task() as (made, store):
        log = await loaded(made.head.id, store, Faulty())
        end = StatusChanged(TaskState.CANCELED, AT)
        await in_time(log.writes.append(log, lambda own: Decision(events=(end,), now_ms=CLOCK.ms)))
        assert not log.writes.busy
        assert await in_time(log.writes.append(log, lambda own: None)) is None


async def test_what_follows_a_commit_and_fails_does_not_keep_the_turn() -> None:
    async with a_task() as (log, _):

        def fail() -> None:
            raise RuntimeError("of no use")

        writes = asyncio.gather(
            log.writes.append(log, lambda own: said("one"), fail),
            log.writes.append(log, lambda own: said("two")),
            return_exceptions=True,
        )
        _, second = await in_time(writes)
        assert isinstance(second, Appended)
        assert not log.writes.busy


async def test_whoever_hears_of_a_write_and_fails_does_not_keep_the_turn() -> None:
    async with a_task() as (log, _):

        def fail(outcome: Outcome) -> None:
            raise RuntimeError("of no use")

        log.writes.submit(log, lambda own: said("one"), fail)
        log.writes.submit(log, lambda own: None, fail)
        assert isinstance(await in_time(log.writes.append(log, lambda own: said("two"))), Appended)
        assert texts(log) == ["hi", "one", "two"]


async def test_a_write_that_could_not_be_read_is_refused_and_the_next_has_its_turn() -> None:
    async with a_task() as (log, _):
        broken = Decision(events=(StatusChanged(TaskState.CANCELED, 5),), now_ms=CLOCK.ms)  # type: ignore[arg-type]
        first, second = await in_time(
            asyncio.gather(
                log.writes.append(log, lambda own: broken),
                log.writes.append(log, lambda own: said("two")),
                return_exceptions=True,
            )
        )
        assert isinstance(first, TypeError)
        assert str(first) == "StatusChanged.timestamp must not hold 5"
        assert isinstance(second, Appended)


async def test_a_turn_that_nobody_wants_any_more_is_passed_on() -> None:
    async with a_task() as (log, _):
        order: list[str] = []

        async def take(name: str) -> None:
            async with log.writes.turn(log):
                order.append(name)

        first = asyncio.ensure_future(log.writes.append(log, lambda own: said("one")))
        await asyncio.sleep(0)
        left, kept = asyncio.ensure_future(take("left")), asyncio.ensure_future(take("kept"))
        await asyncio.sleep(0)
        left.cancel()
        await in_time(asyncio.gather(first, kept))
        assert order == ["kept"]
        assert not log.writes.busy


async def test_a_task_is_busy_until_whoever_wrote_has_heard_of_it() -> None:
    async with a_task() as (log, _):
        busy: list[bool] = []
        await in_time(log.writes.append(log, lambda own: said("one"), lambda: busy.append(log.writes.busy)))
        log.writes.submit(log, lambda own: None, lambda outcome: busy.append(log.writes.busy))
        assert busy == [True, True]
        assert not log.writes.busy


async def test_a_thousand_writes_that_come_to_nothing_are_refused_one_after_another() -> None:
    async with a_task() as (log, _):

        def refuse(own: Log) -> Decision | None:
            raise ValueError("no")

        first = log.writes.append(log, lambda own: said("one"))
        refused = [log.writes.append(log, refuse) for _ in range(2000)]
        outcomes = await in_time(asyncio.gather(first, *refused, return_exceptions=True))
        assert isinstance(outcomes[0], Appended | Repeat)
        assert all(isinstance(outcome, ValueError) for outcome in outcomes[1:])


async def test_a_run_hears_what_others_wrote_also_from_their_snapshot() -> None:
    async with a_task() as (log, store):
        heard: list[str] = []
        log.followers.attach(Listening(lambda message, _: heard.append(message.text[:5])))
        other = await loaded(log.head.id, store)
        for text in ("large" * (SNAPSHOT_BYTES_MIN // 5 + 1), "after"):
            await other.writes.append(other, lambda own, text=text: said(text))  # type: ignore[misc]
        await in_time(log.writes.append(log, lambda own: said("mine")))
        assert heard == ["large", "after"]


OUTCOMES: dict[str, Outcome] = {
    "appended": Appended(2, 1, 10),
    "an earlier call": Repeat("task", b"", 1),
    "unknown": OutcomeUnknown("lost"),
    "store failed": StoreFull("full"),
    "moved": Moved("seq"),
    "ended": TaskEnded("task"),
    "fenced": Fenced("epoch"),
}

AFTER = {
    (S.UNDER_WAY, True): [S.LANDED, S.LANDED, S.IN_DOUBT, S.LANDED, S.OVERTAKEN, S.OVERTAKEN, S.LANDED],
    (S.IN_DOUBT, True): [S.LANDED, S.LANDED, S.IN_DOUBT, S.IN_DOUBT, S.OVERTAKEN, S.OVERTAKEN, S.LANDED],
    (S.UNDER_WAY, False): [S.LANDED, S.LANDED, S.IN_DOUBT, S.LANDED, S.LANDED, S.LANDED, S.LANDED],
    (S.IN_DOUBT, False): [S.LANDED, S.LANDED, S.IN_DOUBT, S.IN_DOUBT, S.LANDED, S.LANDED, S.LANDED],
}


@pytest.mark.parametrize(("state", "appends"), AFTER)
def test_a_write_goes_where_the_outcome_leads(state: S, appends: bool) -> None:
    assert [state_after(state, outcome, appends=appends) for outcome in OUTCOMES.values()] == AFTER[state, appends]


async def test_a_write_shows_that_it_is_in_doubt_or_overtaken(caplog: pytest.LogCaptureFixture) -> None:
    async with a_task() as (log, store):
        real, answers, seen = store._store, deque[BaseException | None]((OutcomeUnknown("lost"), None)), []  # noqa: SLF001

        def append(append: Append) -> Any:
            seen.append(log.writes.state)
            error = answers.popleft() if answers else None
            if error is None:
                return real.append(append)
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

        store.append = append  # type: ignore[method-assign,attr-defined]
        assert log.writes.state is None
        await in_time(log.writes.append(log, lambda _: said("one")))
        assert (log.writes.state, texts(log)[-1]) == (None, "one")
        assert seen == [S.UNDER_WAY, S.IN_DOUBT]
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        other = await loaded(log.head.id, real)
        await in_time(other.writes.append(other, lambda _: said("theirs")))
        states = []

        def decide(_: Log) -> Decision:
            states.append(log.writes.state)
            return said("two")

        await in_time(log.writes.append(log, decide))
        assert states == [S.QUEUED, S.OVERTAKEN]
        assert texts(log)[-2:] == ["theirs", "two"]
