"""Agents that operators drain, disable and enable: what begins, what ends, and what stays as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.admin.switches import KIND
from dragoman.engine import switch_watch
from dragoman.engine.api import Delegation, DelegationFailed, Run
from dragoman.engine.ends import AGENT_DISABLED
from dragoman.engine.record_reader import STALE_S
from dragoman.model.errors import AgentOffline, Unavailable
from dragoman.model.events import Intervened
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import StoreError
from tests.buses import Hub
from tests.engine.house import House, Scripted, forever, house, read, say, sending, states, streaming
from tests.engine.replicas import HOUR, Stage, replicas
from tests.kit.agents import hired
from tests.kit.waiting import until
from tests.store.cases.bench import by_run, chunk, loaded, new_task, status
from tests.virtual_time import Waited, in_virtual_time

S = TaskState


class Player:
    """An agent that does what the message says, and notes what becomes of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()
        self.clean_up = asyncio.Event()
        self.cleaned = asyncio.Event()
        self.canceled: bool | None = None
        self.go_on = asyncio.Event()

    async def run(self, run: Run) -> None:
        self.begun.set()
        match run.message.text:
            case "ask":
                await say(run, (await run.ask((Part(text="what?"),))).text)
            case "sleep":
                await run.sleep(HOUR)
                await say(run, "awake")
            case "work":
                try:
                    await say(run, "begun")
                    await self.go_on.wait()
                    await say(run, "done")
                finally:
                    self.stopped.set()
                    self.canceled = run.canceled
                    if run.canceled:
                        await self.clean_up.wait()
                    self.cleaned.set()
                    await say(run, "last words")
            case text:
                await say(run, text)


@pytest.fixture
def player() -> Player:
    return Player()


async def offline(home: House, text: str = "hi", **fields: Any) -> None:
    """A send is refused as of an agent that is offline."""
    with pytest.raises(AgentOffline, match=r"it is out of service at present|it takes no new task at present"):
        await home.send(text, **fields)


def said(home_log: list[Any]) -> list[str]:
    """The chunks of an artifact in a log."""
    return [logged.event.artifact.parts[0].text for logged in home_log if hasattr(logged.event, "artifact")]


# -- what begins -------------------------------------------------------------------------------------------------------


async def test_a_draining_agent_takes_no_new_task_and_goes_on_with_those_that_it_has(player: Player) -> None:
    async with house(Scripted(player.run)) as home:
        working, asked = await home.at_work("work"), (await home.send("ask")).head.id
        await home.switch("draining")
        await offline(home)
        assert (await home.send("Lyon", task_id=asked)).state is S.COMPLETED
        assert (await home.send("more", task_id=working, return_immediately=True)).state is S.WORKING
        player.go_on.set()
        await home.reach(working, S.COMPLETED)
        await home.switch("enabled")
        assert (await home.send()).state is S.COMPLETED


@pytest.mark.parametrize("running", ["cancel", "finish"])
async def test_a_disabled_agent_takes_no_task_and_no_answer_until_it_is_enabled(player: Player, running: Any) -> None:
    async with house(Scripted(player.run)) as home:
        asked = (await home.send("ask")).head.id
        other = (await home.send("ask")).head.id
        await home.switch("disabled", running=running)
        await offline(home)
        await offline(home, "Lyon", task_id=asked)
        await asyncio.sleep(0.3)
        assert (await home.get(asked)).state is S.INPUT_REQUIRED
        assert (await home.cancel(other)).state is S.CANCELED, "its caller may cancel one that waits"
        await home.switch("enabled")
        assert (await home.send("Lyon", task_id=asked)).state is S.COMPLETED


async def test_a_call_that_is_repeated_gets_its_task_although_the_agent_is_disabled(player: Player) -> None:
    key = {"around": {"idempotency_key": "once"}}
    async with house(Scripted(player.run)) as home:
        first = await home.send("hi", message_id="m", **key)
        await home.switch("disabled")
        assert (await home.send("hi", message_id="m", **key)).head.id == first.head.id
        await offline(home, around={"idempotency_key": "another"})


async def test_a_child_of_a_disabled_agent_is_refused_and_its_parent_goes_on(player: Player) -> None:
    told: list[str] = []

    async def lead(run: Run) -> None:
        try:
            await run.delegate(Delegation(agent="agent", parts=(Part(text="hi"),)))
        except DelegationFailed as failed:
            told.append(str(failed))

    async with house(Scripted(player.run), Scripted(lead, "lead")) as home:
        await home.switch("disabled")
        assert (await home.send(around={"agent": "lead"})).state is S.COMPLETED
        assert told == ["agent agent: rejected: agent 'agent' is offline: it is out of service at present"]


# -- what ends ---------------------------------------------------------------------------------------------------------


async def test_what_a_disabled_agent_works_on_is_canceled_at_once_and_its_cleanup_goes_on(player: Player) -> None:
    async with house(Scripted(player.run), cancel_grace_s=60.0) as home:
        stream = await home.open(streaming("work"))
        reading = asyncio.ensure_future(read(stream))
        await player.begun.wait()
        (task_id,) = [log.head.id for log in home.engine.tasks.all()]
        await home.switch("disabled")
        seen = await reading
        assert states(seen)[-1] is S.CANCELED
        assert not player.cleaned.is_set(), "the end does not wait for the agent"
        player.clean_up.set()
        await player.cleaned.wait()
        assert player.canceled
        record = await home.get(task_id)
        assert record.status.message is not None
        assert record.status.message.metadata == {"reason": AGENT_DISABLED}
        log = await home.log(task_id)
        assert "last words" not in said(log)
        (act,) = [logged.event for logged in log if isinstance(logged.event, Intervened)]
        assert (act.operator, act.action, act.reason) == ("operator:root", "cancel", "agent agent was disabled: why")


async def test_what_it_works_on_may_finish(player: Player) -> None:
    async with house(Scripted(player.run)) as home:
        working = await home.at_work("work")
        await home.switch("disabled", running="finish")
        await offline(home, "more", task_id=working)
        await asyncio.sleep(0.3)
        player.go_on.set()
        record = await home.reach(working, S.COMPLETED)
        assert "".join(part.text or "" for part in record.artifacts[0].parts) == "begundonelast words"


async def test_finish_may_become_cancel(player: Player) -> None:
    async with house(Scripted(player.run)) as home:
        working = await home.at_work("work")
        await home.switch("disabled", running="finish")
        await home.switch("disabled", running="cancel")
        await home.reach(working, S.CANCELED)


@pytest.mark.parametrize("direct", [True, "auto"])
async def test_answers_without_a_task_are_stopped_and_their_callers_told(direct: Any) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def answer(run: Run) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with house(Scripted(answer, direct=direct)) as home:
        asking = asyncio.ensure_future(home.ask(sending()))
        await begun.wait()
        await home.switch("disabled")
        with pytest.raises(AgentOffline, match="it is out of service at present"):
            await asking
        await stopped.wait()
        await offline(home)
        await home.switch("enabled")


async def test_a_message_that_was_let_in_just_before_starts_nothing_that_lasts(player: Player) -> None:
    """The task is committed, but its sender hears of that after the switch: its run begins, and is cut off."""
    async with house(Scripted(player.run)) as home:
        home.store.held = asyncio.Event()
        sending_ = asyncio.ensure_future(home.send("work", return_immediately=True))
        await until(lambda: home.store.held is not None and home.engine.tasks.all())
        await home.switch("disabled")
        home.store.held.set()
        task_id = (await sending_).head.id
        await home.reach(task_id, S.CANCELED)


# -- what stays --------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_task_that_sleeps_stays_asleep_when_its_time_comes_and_wakes_when_its_agent_is_enabled() -> None:
    player = Player()
    async with house(Scripted(player.run), suspend_after_s=0.0, seen_as=Waited) as home:
        task_id = await home.begin("sleep")
        await until(lambda: home.in_memory == 0)
        await home.switch("disabled")
        home.clock.ms += 3_700_000
        await asyncio.sleep(10)
        assert (await loaded(home.store, task_id)).holder == "asleep"
        await home.switch("enabled")
        record = await home.reach(task_id, S.COMPLETED)
        assert record.artifacts[0].parts[0].text == "awake"


@in_virtual_time
async def test_workers_get_no_task_of_a_disabled_agent_and_keep_none() -> None:
    workers = hired("agent")
    async with house(workers, seen_as=Waited) as home:  # type: ignore[arg-type]
        first, second = await home.begin("one"), await home.begin("two")
        taken = await workers.leases.take("w1", 0.0)
        assert taken is not None
        assert taken.head.id == first
        await home.switch("disabled")
        await home.reach(first, S.CANCELED)
        assert await workers.leases.take("w1", 1.0) is None
        assert (await home.get(second)).state is S.SUBMITTED
        await home.switch("draining")
        taken = await workers.leases.take("w1", 1.0)
        assert taken is not None, "a draining agent works off what it has"
        assert taken.head.id == second


async def test_what_a_dead_process_worked_on_is_canceled_at_the_start_or_waits() -> None:
    """A switch outlives the process, and the one that comes next carries it out: for a dead holder's task, too."""
    for running, state in (("cancel", S.CANCELED), ("finish", S.WORKING)):
        async with house(Scripted(forever, restartable=True)) as home:
            await home.switch("disabled", running=running)  # type: ignore[arg-type]
            await home.store.create(new_task("lost", owner="anna", agent="agent", holder="dead"))
            await home.store.append(by_run("lost", status(S.WORKING), chunk("x")))
            await home.switch("disabled", running=running)  # type: ignore[arg-type]
            await asyncio.sleep(0.3)
            assert (await home.get("lost")).state is state


@in_virtual_time
async def test_a_parent_whose_question_nobody_need_answer_goes_on_when_its_agent_is_enabled() -> None:
    """The time of the child that asked is over while the parent's agent is disabled: it may not go on before."""
    told: list[str] = []

    async def lead(run: Run) -> None:
        try:
            await run.delegate(Delegation(agent="other", parts=(Part(text="ask"),), timeout_s=0.3))
        except DelegationFailed as failed:
            told.append(str(failed))
            await say(run, "alone, then")

    async with house(Scripted(lead), Scripted(Player().run, "other"), seen_as=Waited) as home:
        parent = (await home.send()).head.id
        assert (await home.get(parent)).state is S.INPUT_REQUIRED
        (child,) = [record.head.id for record in (await home.listed(agent="other")).records]
        await home.switch("disabled")
        await home.reach(child, S.CANCELED, agent="other")
        await home.reach(parent, S.WORKING)
        await asyncio.sleep(0.3)
        assert (told, (await home.get(parent)).state) == ([], S.WORKING)
        assert (await home.store.load(parent)).holder is None
        await home.switch("enabled")
        assert (await home.reach(parent, S.COMPLETED)).artifacts[0].parts[0].text == "alone, then"


# -- several replicas --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(count: int, **settings: Any) -> AsyncIterator[Any]:
    """Replicas of which the first works on a task, which is followed at the last."""
    stage, hub = Stage(), Hub()
    async with replicas(count, stage, hub.bus, **settings) as made:
        task_id = await made[0].begin()
        await stage.begun.wait()
        yield stage, hub, task_id, made


async def test_all_replicas_hear_of_a_switch_and_the_one_that_runs_the_task_ends_it() -> None:
    async with at_work(3) as (stage, _, task_id, made):
        following = await made[2].follow(task_id)
        await made[1].switch("disabled")
        assert states(await following)[-1] is S.CANCELED
        await stage.canceled.wait()
        for one in made:
            await offline(one)


@in_virtual_time
async def test_without_the_bus_they_hear_of_it_by_the_poll() -> None:
    async with at_work(3, poll_s=1.0, seen_as=Waited) as (stage, hub, task_id, made):
        hub.down = True
        await made[1].switch("disabled")
        began_s = asyncio.get_running_loop().time()
        await stage.canceled.wait()
        assert asyncio.get_running_loop().time() - began_s <= 1.0
        await made[1].reach(task_id, S.CANCELED)


@in_virtual_time
async def test_others_end_what_a_replica_works_on_that_hears_of_nothing() -> None:
    """The one that runs the task is cut off from the switch, as one that died is: its task ends all the same."""
    async with at_work(3, claim_s=1.0, seen_as=DeafFirst()) as (stage, hub, task_id, made):
        hub.down = True
        await made[1].switch("disabled")
        began_s = asyncio.get_running_loop().time()
        await made[1].reach(task_id, S.CANCELED)
        assert asyncio.get_running_loop().time() - began_s <= 2.5
        stage.pieces.put_nowait("too late")
        stage.pieces.put_nowait(None)
        await until(lambda: not made[0].in_memory)
        assert "too late" not in said(await made[1].log(task_id))


@in_virtual_time
async def test_others_end_all_that_such_a_replica_works_on_however_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_watch, "LOOK_MAX", 2)
    async with at_work(2, claim_s=1.0, seen_as=DeafFirst()) as (_, hub, task_id, made):
        tasks = [task_id, await made[0].begin(), await made[0].begin()]
        hub.down = True
        await made[1].switch("disabled")
        began_s = asyncio.get_running_loop().time()
        for each in tasks:
            await made[1].reach(each, S.CANCELED)
        assert asyncio.get_running_loop().time() - began_s <= 3


@in_virtual_time
async def test_a_replica_that_cannot_read_what_operators_set_takes_nothing_after_a_while() -> None:
    """Nothing else of the store is away, so that it could write the task of an agent that was disabled meanwhile."""
    seen = Unread()
    async with at_work(1, poll_s=1.0, seen_as=seen) as (_, _, _, made):
        seen.away = True
        await asyncio.sleep(STALE_S - 1)
        await made[0].begin()
        await asyncio.sleep(2)
        with pytest.raises(Unavailable, match="lost touch with its store"):
            await made[0].begin()
        seen.away = False
        await asyncio.sleep(1.5)
        await made[0].begin()


class Unread:
    """Gives a replica the store. While it is `away`, nobody can read what operators set."""

    def __init__(self) -> None:
        self.away = False

    def __call__(self, store: Any) -> Any:
        seen = self

        class Records(Waited):
            async def read_records(self, revision: int = 0) -> Any:
                if seen.away:
                    raise StoreError("away")
                return await super().__getattr__("read_records")(revision)

        class Seen(Waited):
            def __getattr__(self, name: str) -> Any:
                return Records(store.operator_records) if name == "operator_records" else super().__getattr__(name)

        return Seen(store)


class DeafFirst:
    """Gives replicas the store. The first of them reads nothing there of what operators set, after it has started."""

    def __init__(self) -> None:
        self._given = 0

    def __call__(self, store: Any) -> Any:
        self._given += 1
        return Deaf(store) if self._given == 1 else Waited(store)


class Deaf(Waited):
    """A store whose records stay as they are at first."""

    def __getattr__(self, name: str) -> Any:
        return NoNews() if name == "operator_records" else super().__getattr__(name)


class NoNews:
    async def read_records(self, revision: int = 0) -> tuple[Any, ...]:
        """Nothing."""
        return ()


async def test_a_switch_that_cannot_be_read_is_that_of_a_disabled_agent() -> None:
    async with house() as home:
        assert home.records is not None
        await home.records.put_record(KIND, "agent", b"\x00")
        await offline(home)
        await home.switch("enabled")
        assert (await home.send()).state is S.COMPLETED
