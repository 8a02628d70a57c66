"""A task's log in memory: a prefix of the committed log, also while others write to the same task."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from dragoman.bus.api import HintInbox
from dragoman.engine.hints import Hints
from dragoman.engine.log import Log, Page, await_settled
from dragoman.engine.log_reader import LogReader
from dragoman.engine.rules import Decision
from dragoman.engine.stopping import Stopping
from dragoman.engine.subscriptions import Tail, TailServices
from dragoman.engine.timer_wheel import TimerWheel
from dragoman.model.events import Event, Logged, MessageReceived, StatusChanged, Submitted
from dragoman.model.ids import new_id, timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import (
    Append,
    Appended,
    Fenced,
    Held,
    Moved,
    NewTask,
    Repeat,
    Store,
    Stored,
    StoreError,
    Unknown,
)
from dragoman.store.open import open_store
from dragoman.store.outbox import Registration
from dragoman.store.replicas import LocalReplicas
from tests.buses import Hub
from tests.engine.house import StandingClock
from tests.engine.test_log_turns import Alone, Listening
from tests.kit.values import chunk

S = TaskState
TIME = "2026-01-01T00:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="agent", owner="ann", dialect="1.0", mount="/", created_at=TIME)


def said(text: str) -> Message:
    return Message(message_id=text, role=Role.USER, parts=(Part(text=text),))


def status(state: TaskState) -> StatusChanged:
    return StatusChanged(state, TIME)


def write(*events: Event, epoch: int | None = None) -> Decision:
    return Decision(events=events, now_ms=1, epoch=epoch)


def stream(log: Log, store: Store, after: int) -> Tail:
    """A stream of the log from a place on."""
    services = TailServices(store, asyncio.get_running_loop(), 60, Stopping())
    return Tail(log, services, after=after)


async def begun_store(holder: str = "here") -> Store:
    """With one task, which a run works on (epoch 1)."""
    opened = open_store("memory:", StandingClock())
    await opened.open(holder)
    new = NewTask(head=HEAD, events=(Submitted(said("go"), TIME),), state=S.SUBMITTED, status_ms=1, holder=holder)
    await opened.create(new)
    return opened


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = await begun_store()
    yield opened
    await opened.close()


async def failing_log(store: Store) -> tuple[Log, "Failing"]:
    """The task as it stands, in a store behind whose address another one can come."""
    behind, stored = Failing(store), await store.load("t")
    assert stored is not None
    return Log.of(stored, cast("Store", behind), Alone()), behind


async def log_of(store: Store) -> Log:
    """The task as it stands, as another process would read it."""
    stored = await store.load("t")
    assert stored is not None
    return Log.of(stored, store, Alone())


async def test_writes_are_decided_one_after_the_other_upon_what_the_one_before_left(store: Store) -> None:
    log = await log_of(store)
    seen: list[int] = []

    def decide(log: Log) -> Decision:
        seen.append(log.seq)
        return write(chunk("x"), epoch=1)

    await asyncio.gather(*(log.writes.append(log, decide) for _ in range(5)))
    assert seen == [1, 2, 3, 4, 5]
    assert (log.seq, log.writes.busy) == (6, False)


async def test_a_write_that_somebody_else_came_before_is_decided_again(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    await other.writes.append(other, lambda log: write(status(S.WORKING)))
    states: list[TaskState] = []

    def decide(log: Log) -> Decision:
        states.append(log.state)
        return write(MessageReceived(said("more"), TIME))

    written = await mine.writes.append(mine, decide)
    assert isinstance(written, Appended)
    assert states == [S.SUBMITTED, S.WORKING]
    assert (written.last_seq, mine.seq, mine.state) == (3, 3, S.WORKING)
    assert mine.record() == (await log_of(store)).record()


async def test_an_end_that_somebody_else_wrote_is_seen_and_decided_upon(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    await other.writes.append(other, lambda log: write(status(S.CANCELED)))
    assert await mine.writes.append(mine, lambda log: None if log.terminal else write(status(S.COMPLETED))) is None
    assert mine.state is S.CANCELED


async def test_what_others_wrote_between_the_chunks_of_a_run_is_not_missed(store: Store) -> None:
    """A run's chunks do not depend on the seq, so the store takes them; followers see all events all the same."""
    mine, other = await log_of(store), await log_of(store)
    heard: list[str] = []
    mine.followers.attach(Listening(lambda message, _: heard.append(message.text)))
    recent = mine.followers.enter()
    await mine.writes.append(mine, lambda log: write(chunk("a"), epoch=1))
    await other.writes.append(other, lambda log: write(MessageReceived(said("hi"), TIME)))
    await mine.writes.append(mine, lambda log: write(chunk("b"), epoch=1))
    assert heard == ["hi"]
    assert [logged.seq for logged in recent.after(1, 10, 1 << 20) or ()] == [2, 3, 4]
    assert mine.record() == (await log_of(store)).record()
    mine.followers.leave()


async def test_a_question_does_not_overtake_a_message_that_nobody_here_has_read(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    await other.writes.append(other, lambda log: write(MessageReceived(said("hi"), TIME)))
    heard: list[str] = []
    mine.followers.attach(Listening(lambda message, _: heard.append(message.text)))

    def ask(log: Log) -> Decision | None:
        return None if heard else write(status(S.INPUT_REQUIRED), epoch=1)

    assert await mine.writes.append(mine, ask) is None
    assert heard == ["hi"]
    assert mine.state is S.SUBMITTED


async def test_a_run_hears_of_a_lease_that_another_engine_took_and_not_of_the_answer_that_took_it(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    await mine.writes.append(
        mine, lambda log: Decision(events=(status(S.INPUT_REQUIRED),), now_ms=1, epoch=1, release=True)
    )
    assert (mine.state, mine.row.holder) == (S.INPUT_REQUIRED, None)
    heard: list[str] = []
    mine.followers.attach(
        Listening(lambda message, _: heard.append(message.text), lambda: bool(heard.append("fenced")))
    )
    answer = Decision(events=(MessageReceived(said("yes"), TIME), status(S.WORKING)), now_ms=1, holder="there")
    await other.writes.append(other, lambda log: answer)
    await LogReader().catch_up(mine)
    assert heard == ["fenced"]
    assert (mine.row.holder, mine.row.epoch, mine.seq) == ("there", 2, 4)


async def test_a_suspended_run_hears_of_an_end_that_another_engine_wrote(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    await mine.writes.append(
        mine, lambda log: Decision(events=(status(S.INPUT_REQUIRED),), now_ms=1, epoch=1, release=True)
    )
    heard: list[str] = []
    mine.followers.attach(
        Listening(lambda message, _: heard.append(message.text), lambda: heard.append("lost") is not None)
    )
    await LogReader().catch_up(other)
    await other.writes.append(other, lambda log: write(status(S.CANCELED)))
    await LogReader().catch_up(mine)
    assert (heard, mine.followers.attached, mine.state) == (["lost"], False, S.CANCELED)


async def test_a_run_that_has_lost_its_lease_is_told(store: Store) -> None:
    mine, other = await log_of(store), await log_of(store)
    leased = Decision(events=(status(S.WORKING),), now_ms=1, holder="there")
    await other.writes.append(other, lambda log: leased)
    with pytest.raises(Fenced):
        await mine.writes.append(mine, lambda log: write(chunk("a"), epoch=1))
    assert not mine.writes.busy


async def test_a_decision_that_raises_and_one_that_cannot_be_written_keep_nobody_waiting(store: Store) -> None:
    log = await log_of(store)

    def broken(log: Log) -> Decision:
        raise ValueError("not like this")

    strange = StatusChanged(S.WORKING, TIME, metadata={"k": object()})
    failing, unwritable, fine = await asyncio.gather(
        log.writes.append(log, broken),
        log.writes.append(log, lambda log: write(strange, epoch=1)),
        log.writes.append(log, lambda log: write(chunk("a"), epoch=1)),
        return_exceptions=True,
    )
    assert isinstance(failing, ValueError)
    assert isinstance(unwritable, TypeError)
    assert isinstance(fine, Appended)
    assert not log.writes.busy


async def test_nothing_is_written_during_the_turn_of_another(store: Store) -> None:
    log = await log_of(store)
    async with log.writes.turn(log):
        waiting = asyncio.create_task(log.writes.append(log, lambda log: write(chunk("a"), epoch=1)))
        left = asyncio.create_task(_take_turn(log))
        await asyncio.sleep(0)
        left.cancel()
        assert log.seq == 1
    assert isinstance(await waiting, Appended)
    assert not log.writes.busy


async def _take_turn(log: Log) -> None:
    async with log.writes.turn(log):
        raise AssertionError("it has left")


async def test_a_task_that_was_swept_away_is_unknown(store: Store) -> None:
    log = await log_of(store)
    await log.writes.append(log, lambda log: write(status(S.COMPLETED)))
    fresh = await log_of(store)
    assert await store.sweep(1 << 50, 0, 0, 0)
    with pytest.raises(Unknown):
        await fresh.writes.append(fresh, lambda log: write(MessageReceived(said("late"), TIME)))


async def test_a_replica_with_a_new_id_follows_the_tasks_that_it_has_lost(store: Store) -> None:
    bus, log = Hub().bus(), await log_of(store)
    hints = Hints(store, bus, poll_s=1, healthy_poll_s=1)
    hints.serve("here", ["agent"])
    hints.add(log)
    log.followers.wait(log, asyncio.get_running_loop())
    hints.serve("here", ["another"])
    assert not bus.followed
    hints.serve("there", ["another"])
    assert bus.followed == {"t": 1}
    hints.forget(log)
    assert not bus.followed


async def test_the_time_of_a_status_never_goes_back(store: Store) -> None:
    """The clock of the replica that wrote the one before may be ahead."""
    log = await log_of(store)
    ahead = replace(write(status(S.WORKING), epoch=1), now_ms=1_800_000_000_500)
    await log.writes.append(log, lambda _: ahead)
    behind = Decision(events=(status(S.INPUT_REQUIRED),), now_ms=1_800_000_000_000, epoch=1, release=True)
    await log.writes.append(log, lambda _: behind)
    stored = await store.load("t")
    assert stored is not None
    assert (log.row.status_ms, stored.status_ms) == (1_800_000_000_500, 1_800_000_000_500)
    assert log.record().status.timestamp == timestamp(1_800_000_000_500)


async def test_a_task_that_others_ended_before_its_maker_heard_of_it_is_taken_in_as_it_stands(store: Store) -> None:
    other, mine = await log_of(store), Log(HEAD, store, Alone())
    await other.writes.append(other, lambda log: write(status(S.CANCELED)))
    stored = await store.load("t")
    assert stored is not None
    mine.extend_to(stored)
    assert (mine.seq, mine.state, mine.terminal, mine.row.holder) == (2, S.CANCELED, True, None)
    assert mine.record() == other.record()


async def test_a_write_that_expects_an_epoch_is_decided_again_when_the_lease_has_moved(store: Store) -> None:
    log, other = await log_of(store), await log_of(store)
    epoch = log.row.epoch
    await other.writes.append(other, lambda _: Decision(events=(), now_ms=0, holder="h2"))
    decided: list[int] = []

    def take_over(log: Log) -> Decision:
        decided.append(log.row.epoch)
        return Decision(events=(), now_ms=0, holder="h3", expected_epoch=log.row.epoch)

    await log.writes.append(log, take_over)
    assert decided == [epoch, epoch + 1]
    assert (log.row.holder, log.row.epoch) == ("h3", epoch + 2)


async def test_a_lease_is_known_even_if_the_events_before_it_cannot_be_read(store: Store) -> None:
    stored = await store.load("t")
    assert stored is not None
    log, other = Log.of(stored, cast("Store", Unreadable(store)), Alone()), await log_of(store)
    await other.writes.append(other, lambda _: write(MessageReceived(said("other"), TIME)))
    await log.writes.append(log, lambda log: Decision(events=(), now_ms=0, holder="h3", expected_epoch=log.row.epoch))
    assert (log.row.holder, log.row.epoch, log.seq) == ("h3", stored.epoch + 1, stored.seq)


class Unreadable:
    """A store that can be written, and not be read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        raise StoreError("it cannot be read")

    async def load_after(self, task_id: str, after: int) -> Stored | None:
        raise StoreError("it cannot be read")


class Busy:
    """A store in which others write to the task, and change its webhooks, just before each write without a hold."""

    def __init__(self, store: Store) -> None:
        self.held = False
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        if append.expected_seq is not None:
            events = (MessageReceived(said("others"), TIME),)
            hook = PushConfig(id=new_id(), task_id="t", url="http://hook.test/")
            other = Append(
                task_id="t",
                events=events,
                state=S.SUBMITTED,
                status_ms=1,
                push=Registration(config=hook, host="http://hook.test:80"),
            )
            self._store.append(other).add_done_callback(asyncio.Future.exception)
        return self._store.append(append)

    @asynccontextmanager
    async def hold(self, task_id: str) -> AsyncIterator[Held]:
        async with self._store.hold(task_id) as held:
            self.held = True
            try:
                yield held
            finally:
                self.held = False


async def test_nothing_is_read_while_a_task_is_held(store: Store) -> None:
    """A hold has a connection of the store. Holds that wait for a second one could wait for each other."""
    busy = Busy(store)
    stored = await store.load("t")
    assert stored is not None
    renewed: list[bool] = []

    class Renewing(Alone):
        async def renew_audience(self, log: Log, stored: Stored) -> None:
            renewed.append(busy.held)

    log = Log.of(stored, cast("Store", busy), Renewing())
    written = await log.writes.append(log, lambda log: write(MessageReceived(said("more"), TIME)))
    assert isinstance(written, Appended)
    assert renewed
    assert not any(renewed)


class Failing:
    """A store behind whose address another one can come."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.replicas: Any = Renamed("one")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Renamed(LocalReplicas):
    """The replicas of a store with a history of that name."""

    def __init__(self, history: str) -> None:
        super().__init__(StandingClock())
        self.history = history


@pytest.mark.parametrize("lost", [True, False])
async def test_a_task_begins_anew_if_the_store_has_lost_what_was_written(store: Store, lost: bool) -> None:
    """After a failover to a standby that lagged. If nothing is missing there, the run goes on."""
    log, behind = await failing_log(store)
    stopped: list[bool] = []
    recent = log.followers.enter()
    standby = await begun_store()
    await standby.append(Append(task_id="t", events=(status(S.WORKING),), state=S.WORKING, status_ms=1, epoch=1))
    await log.writes.append(log, lambda log: write(status(S.WORKING)))
    log.followers.attach(Listening(lambda message, _: None, lambda: bool(stopped.append(True))))
    if lost:
        await log.writes.append(log, lambda log: write(chunk("gone"), epoch=1))
        assert log.seq == 3
    follower = stream(log, cast("Store", behind), log.seq)
    behind.store = standby
    before = log.record()
    await LogReader().reread(log)
    assert await follower.next(0) == (None if lost else ())
    assert follower.retry is lost
    assert log.seq == 2
    assert log.record() == (await log_of(standby)).record()
    assert (log.record() == before) is not lost
    assert stopped == ([True] if lost else [])
    assert log.followers.attached is not lost
    assert (recent.after(1, 10, 1 << 20) is None) is lost
    await log.writes.append(log, lambda log: write(chunk("b")))
    assert log.record() == (await log_of(standby)).record()
    log.followers.leave()
    await standby.close()


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("history", ["one", "another"])
async def test_a_run_that_remembers_what_no_event_says_begins_anew_after_a_failover(
    store: Store, history: str, remembers: bool
) -> None:
    """The standby has the whole log. What the run wrote to its memory may be lost nevertheless."""
    log, behind = await failing_log(store)
    stopped: list[bool] = []
    run = Listening(lambda message, _: None, lambda: bool(stopped.append(True)), remembers=remembers)
    log.followers.attach(run)
    behind.replicas = Renamed(history)
    await LogReader().reread(log)
    begins_anew = remembers and history == "another"
    assert stopped == ([True] if begins_anew else [])
    assert log.followers.attached is not begins_anew
    assert (log.seq, log.outdated) == (1, False)


@pytest.mark.parametrize("guarded", ["by seq", "by epoch"])
async def test_a_write_upon_what_the_store_has_lost_can_be_made_again(store: Store, guarded: str) -> None:
    """A standby that lagged has taken over, and nobody here has noticed. There is nothing new to decide upon."""
    log, behind = await failing_log(store)
    standby = await begun_store()
    await log.writes.append(log, lambda log: write(status(S.WORKING)))
    await log.writes.append(log, lambda _: Decision(events=(), now_ms=0, holder="h2"))
    behind.store = standby

    def more(log: Log) -> Decision:
        if guarded == "by seq":
            return write(status(S.INPUT_REQUIRED))
        return Decision(events=(), now_ms=0, holder="h3", expected_epoch=log.row.epoch)

    with pytest.raises(StoreError, match="has lost"):
        await log.writes.append(log, more)
    await LogReader().reread(log)
    await log.writes.append(log, more)
    assert (log.state is S.INPUT_REQUIRED, log.row.holder == "h3") == (guarded == "by seq", guarded == "by epoch")
    assert log.record() == (await log_of(standby)).record()
    await standby.close()


@pytest.mark.parametrize("kept", [True, False])
async def test_a_caller_hears_that_its_message_is_lost(store: Store, kept: bool) -> None:
    """One whose message the standby has waits on."""
    log, behind = await failing_log(store)
    standby, more = await begun_store(), MessageReceived(said("more"), TIME)
    if kept:
        await standby.append(Append(task_id="t", events=(more,), state=S.SUBMITTED, status_ms=1))
    await log.writes.append(log, lambda log: write(more, chunk("a")))
    loop, message_id = asyncio.get_running_loop(), more.message.message_id
    waiting = asyncio.create_task(await_settled(log, loop, TimerWheel(60), 2, 60, Stopping(), message_id))
    await asyncio.sleep(0)
    behind.store = standby
    await LogReader().reread(log)
    if kept:
        await log.writes.append(log, lambda log: write(status(S.WORKING), status(S.COMPLETED)))
        assert await waiting
    else:
        with pytest.raises(Unknown):
            await waiting
    await standby.close()


async def test_a_stream_ends_if_other_events_stand_where_those_were_that_it_showed(store: Store) -> None:
    log, behind = await failing_log(store)
    standby = await begun_store()
    others = (status(S.WORKING), chunk("b"), chunk("c"))
    await standby.append(Append(task_id="t", events=others, state=S.WORKING, status_ms=1, epoch=1))
    await log.writes.append(log, lambda log: write(status(S.WORKING), chunk("a")))
    follower = stream(log, cast("Store", behind), log.seq)
    behind.store = standby
    await LogReader().reread(log)
    assert log.seq == 4
    assert await follower.next(0) is None
    assert follower.retry
    await standby.close()


async def failed_over(store: Store, *events: Event) -> tuple[Log, Failing, Store]:
    """A log that has read an event which the standby lacks that has taken over, where `events` follow instead."""
    log, behind = await failing_log(store)
    await log.writes.append(log, lambda log: write(chunk("lost"), epoch=1))
    standby = await begun_store()
    await standby.append(Append(task_id="t", events=events, state=S.SUBMITTED, status_ms=1, epoch=1))
    return log, behind, standby


async def test_what_is_written_after_a_failover_does_not_follow_what_it_lost(store: Store) -> None:
    """Its page comes by the bus before this process has noticed that a standby has taken over."""
    log, _, standby = await failed_over(store, chunk("a"), chunk("b"))
    page = Page(3, (chunk("b"),), 1, 10, 1, "here", history="another")
    assert not log.adopt(page)
    assert log.seq == 2
    assert log.adopt(replace(page, history=log.history)), "so would one of its own history"
    await standby.close()


@pytest.mark.parametrize("read", ["by hints", "by the log"])
async def test_a_log_is_compared_before_it_takes_in_what_another_history_has(store: Store, read: str) -> None:
    log, behind, standby = await failed_over(store, chunk("a"), chunk("b"))
    behind.store = standby
    behind.replicas = Renamed("another")
    if read == "by hints":
        hints = Hints(cast("Store", behind), Hub().bus(), poll_s=1, healthy_poll_s=1)
        hints.add(log)
        await hints.refresh()
        async with asyncio.timeout(60):
            while not log.rewound:
                await asyncio.sleep(0)
    else:
        await LogReader().catch_up(log)
    assert (log.rewound, log.seq, log.history) == (1, 3, "another")
    assert log.record() == (await log_of(standby)).record()
    await standby.close()


@pytest.mark.parametrize("reads", ["the snapshot", "the events"])
async def test_a_snapshot_of_an_earlier_program_is_no_sign_of_a_loss(store: Store, reads: str) -> None:
    """While replicas are replaced one after the other. An earlier program does not keep whether a task was revised."""
    log, behind = await failing_log(store)
    for event in (status(S.INPUT_REQUIRED), MessageReceived(said("there"), TIME), status(S.WORKING)):
        await log.writes.append(log, lambda log, event=event: write(event))  # type: ignore[misc]
    last = chunk("a")
    earlier = replace(fold(HEAD, log.record(), [Logged(5, last)]), revised=False)
    appended = await store.append(
        Append(task_id="t", events=(last,), state=S.WORKING, status_ms=1, expected_seq=4, snapshot=earlier)
    )
    if reads == "the snapshot":
        assert isinstance(appended, Appended)
        log.publish((last,), appended, 1, own=False)  # as its writer announces it
    else:
        log, behind = await failing_log(store)
        await store.append(Append(task_id="t", events=(chunk("b"),), state=S.WORKING, status_ms=1, expected_seq=5))
    assert log.seq == 5
    behind.replicas = Renamed("another")
    await log.compare()
    assert (log.rewound, log.history) == (0, "another")


async def test_nothing_is_announced_to_others_that_follows_what_was_lost(store: Store) -> None:
    log, behind, standby = await failed_over(store, chunk("a"))
    hub = Hub()
    here, there = hub.bus(), hub.bus()
    hints = Hints(cast("Store", behind), here, poll_s=1, healthy_poll_s=1)
    for bus, name in ((here, "here"), (there, "there")):
        await bus.open()
        bus.serve(name, ())
    heard = HintInbox()
    there.listen(heard)
    there.follow("t")
    assert await heard.next() == ("t", None, None)
    append = Append(task_id="t", events=(chunk("b"),), state=S.SUBMITTED, status_ms=1, epoch=1)
    pages: list[bytes | None] = []
    for behind.replicas in (Renamed(log.history), Renamed("another")):
        hints.announce(log, append, Appended(3, 1, 10))
        pages.append((await asyncio.wait_for(heard.next(), 60))[2])
    assert [page is None for page in pages] == [False, True]
    await standby.close()


async def test_a_write_is_decided_again_after_a_failover_that_lost_nothing(store: Store) -> None:
    behind, stored = Failing(store), await store.load("t")
    assert stored is not None

    def append(append: Append) -> Any:
        if append.history == behind.replicas.history:
            return store.append(append)
        refused = asyncio.get_running_loop().create_future()
        refused.set_exception(Moved("t"))
        return refused

    behind.append = append
    log = Log.of(stored, cast("Store", behind), Alone())
    behind.replicas = Renamed("another")
    await log.writes.append(log, lambda log: write(chunk("a"), epoch=1))
    assert (log.seq, log.history, log.rewound) == (2, "another", 0)


async def test_a_lease_is_lost_of_which_another_replica_has_the_number(store: Store) -> None:
    log, behind = await failing_log(store)
    stopped: list[bool] = []
    log.followers.attach(Listening(lambda message, _: None, lambda: bool(stopped.append(True))))
    standby = await begun_store("there")
    behind.store = standby
    await LogReader().reread(log)
    assert stopped == [True]
    assert log.row.holder == "there"
    await standby.close()


async def test_everybody_hears_of_a_task_that_the_store_has_lost_as_a_whole(store: Store) -> None:
    log, behind = await failing_log(store)
    stopped: list[bool] = []
    log.followers.attach(Listening(lambda message, _: None, lambda: bool(stopped.append(True))))
    follower = stream(log, cast("Store", behind), log.seq)
    waiting = asyncio.create_task(
        await_settled(log, asyncio.get_running_loop(), TimerWheel(60), log.seq, 60, Stopping())
    )
    await asyncio.sleep(0)
    behind.store = open_store("memory:", StandingClock())
    await behind.store.open("here")
    with pytest.raises(Unknown):
        await LogReader().reread(log)
    assert stopped == [True]
    assert await follower.next(0) is None
    assert follower.retry
    with pytest.raises(Unknown):
        await waiting
    await behind.store.close()


async def test_a_refresh_shows_that_a_lease_was_given_back_without_an_event(store: Store) -> None:
    """So that a cancel does not wait for a replica that has given its task back to the queue."""
    log = await log_of(store)
    assert log.row.holder is not None
    await store.append(
        Append(task_id="t", events=(), state=log.state, status_ms=log.row.status_ms, epoch=log.row.epoch, release=True)
    )
    await LogReader().catch_up(log)
    assert log.row.holder is None


async def test_a_stream_tells_of_another_commit_once_its_log_has_heard_of_it(store: Store) -> None:
    """A reader of the store sees a commit before the log of this process hears of it."""
    log = await log_of(store)
    follower = stream(log, store, 0)
    writer = await log_of(store)
    await writer.writes.append(writer, lambda log: write(status(S.WORKING), chunk("a")))
    known = await follower.next(0)
    assert known is not None
    assert len(known) == log.seq == 1
    assert await follower.next(0) == ()
    await LogReader().catch_up(log)
    rest = await follower.next(0)
    assert rest is not None
    assert len(known) + len(rest) == log.seq == 3
    assert not follower.retry
    follower.close()


async def test_a_stream_ends_whose_log_is_rewound_while_it_reads(store: Store) -> None:
    before = await store.load("t")
    log, behind = await failing_log(store)
    await log.writes.append(log, lambda log: write(status(S.WORKING), chunk("a")))
    follower = stream(log, cast("Store", behind), 1)

    async def read_late(task_id: str, after: int, limit_bytes: int) -> Sequence[Logged]:
        page = await store.read(task_id, after, limit_bytes)
        log.rewind(before, "another")
        return page

    behind.read = read_late
    assert await follower.next(0) is None
    assert follower.retry
