"""WorkerAgent: tasks go to workers, come back if they die, and end by what the workers report."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.queue import TakenTask
from dragoman.engine import worker_tasks
from dragoman.engine.words import Ask, Say
from dragoman.engine.worker_watch import DRAINED_S
from dragoman.model.errors import (
    AgentOffline,
    Forbidden,
    InvalidParams,
    LeaseLost,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import ArtifactChunk, Logged, Placed, StatusChanged
from dragoman.model.ids import timestamp
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import CompleteTask, PushConfig, UpdateStatus
from dragoman.model.principal import AccessRole
from dragoman.model.task import Record, TaskState, Usage
from dragoman.store.worker_leases import WORKER
from tests.engine.house import DEADLINE_S, House, house, text_of
from tests.engine.webhook import Telling, calls
from tests.kit.agents import hired
from tests.virtual_time import Waited, in_virtual_time

NEVER_S = 1000.0
"""No lease runs out in a test that does not wait for it."""

SOON_S = 0.05


def worker(agent_id: str = "agent", **options: Any) -> WorkerAgent:
    return hired(agent_id, **{"lease_s": NEVER_S, **options})


async def taken(agent: WorkerAgent, name: str = "w1", *, replays: bool = False) -> TakenTask:
    """The task that a worker gets."""
    item = await agent.leases.take(name, DEADLINE_S, replays=replays)
    assert item is not None
    return item


@asynccontextmanager
async def queued() -> AsyncIterator[tuple[House, WorkerAgent, str]]:
    """An engine whose agent is done by workers, and a task that waits for one."""
    agent = worker()
    async with house(agent) as here:
        yield here, agent, await here.begin()


def token(item: TakenTask) -> str:
    return item.lease.token


def artifact(text: str, artifact_id: str = "a") -> Artifact:
    return Artifact(artifact_id=artifact_id, parts=(Part(text=text),))


async def fall_silent(agent: WorkerAgent, item: TakenTask) -> None:
    """Have the worker's lease run out in a moment, and no other."""
    agent.leases.lease_s = SOON_S
    await agent.leases.beat(token(item), 0, 0)
    agent.leases.lease_s = NEVER_S


def done(task_id: str, lease: str | None = None, text: str = "Done!") -> CompleteTask:
    return CompleteTask(id=task_id, artifacts=(artifact(text),), lease=lease)


def updated(task_id: str, state: TaskState, text: str = "", lease: str | None = None) -> UpdateStatus:
    return UpdateStatus(id=task_id, state=state, parts=(Part(text=text),) if text else (), lease=lease)


async def answered(agent: WorkerAgent, lease: str) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        while not (beat := await agent.leases.beat(lease, DEADLINE_S, 0)).answers:
            pass
    return beat.answers[0]


async def test_a_worker_takes_the_task_and_completes_it() -> None:
    agent = worker()
    async with house(agent) as here:
        sending = asyncio.create_task(here.send("hello"))
        item = await taken(agent)
        assert item.message.text == "hello"
        ended = await here.ask(done(item.head.id, token(item)))
        assert (ended.state, text_of(ended)) == (TaskState.COMPLETED, "Done!")
        assert (await sending) == ended


async def test_the_task_that_waited_longest_comes_first_and_each_goes_to_one_worker() -> None:
    agent = worker()
    async with house(agent) as here:
        first, second = await here.begin("1"), await here.begin("2")
        one, other = await taken(agent), await taken(agent, "w2")
        assert [one.head.id, other.head.id] == [first, second]
        assert await agent.leases.take("w3", 0) is None
        for item in (one, other):
            await here.ask(done(item.head.id, token(item)))


@pytest.mark.parametrize("turns", range(40))
async def test_a_worker_that_stops_waiting_leaves_the_task_to_the_next(turns: int) -> None:
    """It has heard of the task when it stops, and looks for it, takes it, or has it just now."""
    agent = worker()
    async with house(agent) as here:
        impatient = asyncio.create_task(agent.leases.take("w1", DEADLINE_S))
        patient = asyncio.create_task(agent.leases.take("w2", DEADLINE_S))
        while agent.leases.presence.wants < 2:
            await asyncio.sleep(0)
        beginning = asyncio.create_task(here.begin())
        while agent.leases.presence.offers == 0:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        impatient.cancel()
        async with asyncio.timeout(30):  # else the patient one waits for its whole minute
            item = await (impatient if impatient.done() else patient)
        assert item is not None
        await here.ask(done(await beginning, token(item)))
        patient.cancel()


async def test_a_silent_worker_loses_its_task_to_another() -> None:
    async with queued() as (here, agent, task_id):
        dead = await taken(agent)
        await agent.leases.say(token(dead), ArtifactChunk(artifact("half of it", "a"), append=False, last_chunk=False))
        old = token(dead)
        await fall_silent(agent, dead)
        again = await taken(agent, "w2")
        new = token(again)
        assert again.head.id == task_id
        assert new != old
        for report in (done(task_id, old), updated(task_id, TaskState.WORKING, "still here", old)):
            with pytest.raises(LeaseLost):
                await here.ask(report)
        with pytest.raises(LeaseLost):
            await agent.leases.beat(old, 0, 0)
        await agent.leases.beat(new, 0, 0)
        await agent.leases.say(token(again), ArtifactChunk(artifact("all of it", "a"), last_chunk=True))
        ended = await here.ask(updated(task_id, TaskState.COMPLETED, lease=new))
        assert [part.text for part in ended.artifacts[0].parts] == ["all of it"]


async def test_what_a_silent_worker_left_of_an_artifact_is_recorded_as_replaced() -> None:
    """A later run of the task knows by this what it still has to repeat."""
    async with queued() as (here, agent, task_id):
        first = await taken(agent, replays=True)
        await agent.leases.say(token(first), ArtifactChunk(artifact("half of it")), number=1)
        await fall_silent(agent, first)
        second = await taken(agent, "w2", replays=True)
        await agent.leases.say(token(second), ArtifactChunk(artifact("all of it"), append=True), number=1)
        chunks = [logged.event for logged in await here.log(task_id) if isinstance(logged.event, ArtifactChunk)]
        assert [chunk.placed for chunk in chunks] == [None, Placed(replaces=0)]
        assert not chunks[1].append
        await here.ask(done(task_id, token(second)))


async def test_a_lost_lease_is_in_the_log_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with queued() as (here, agent, task_id):
        await fall_silent(agent, await taken(agent, "w1\n" + 200 * "x"))
        again = await taken(agent, "w2")
        (record,) = caplog.records
        words = f"agent agent: the lease of task {task_id} is lost: worker w1\n{97 * 'x'} was silent for"
        assert record.getMessage().startswith(words)
        assert agent.leases.lost == 1
        await agent.leases.release(token(again))  # a task that is given back is no loss
        await here.ask(done(task_id, token(await taken(agent, "w3"))))
        assert (agent.leases.lost, len(caplog.records)) == (1, 1)


async def test_a_lease_that_runs_out_while_the_caller_is_asked_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    agent = worker()
    async with house(agent) as here:
        task_id, item = await question(here, agent)
        await fall_silent(agent, item)
        async with asyncio.timeout(DEADLINE_S):
            while (held := await here.store.worker_leases.get(task_id)) is not None and not held.over:
                await asyncio.sleep(0.01)
        assert (agent.leases.lost, caplog.text) == (0, "")
        await here.cancel(task_id)


async def test_a_worker_that_falls_silent_and_comes_back_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.worker")
    agent = worker(seen_s=SOON_S)
    async with house(agent):
        assert await agent.leases.take("w1", 0) is None
        async with asyncio.timeout(DEADLINE_S):
            while not caplog.records:
                await asyncio.sleep(0.01)
        assert await agent.leases.take("w1", 0) is None
        first, second, *_ = (record.getMessage() for record in caplog.records)
        assert first == f"agent agent: no worker has called for {SOON_S:g} s: nobody does its tasks"
        assert second == "agent agent: a worker calls again"


async def test_a_heartbeat_keeps_the_lease() -> None:
    agent = worker(lease_s=1.0)
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        for _ in range(12):
            beat = await agent.leases.beat(token(item), 0.1, 0)  # in all more than the time of a lease
            assert not beat.cancel
        await here.ask(done(task_id, token(item)))


async def test_what_is_given_back_goes_to_the_next_at_once() -> None:
    async with queued() as (here, agent, task_id):
        old = token(await taken(agent))
        await agent.leases.release(old)
        with pytest.raises(LeaseLost):
            await agent.leases.release(old)
        item = await taken(agent, "w2")
        await here.ask(done(task_id, token(item)))


async def test_without_a_lease_a_task_ends_as_long_as_it_was_delivered_once_at_most() -> None:
    agent = worker()
    async with house(agent) as here:
        unleased = await here.begin()
        assert (await here.ask(done(unleased))).state is TaskState.COMPLETED
        assert await agent.leases.take("w1", 0) is None

        once = await here.begin()
        await taken(agent)
        assert (await here.ask(updated(once, TaskState.WORKING, "step 1"))).status.message.text == "step 1"
        assert (await here.ask(done(once))).state is TaskState.COMPLETED

        twice = await here.begin()
        await agent.leases.release(token(await taken(agent)))
        item = await taken(agent, "w2")
        with pytest.raises(InvalidParams, match="send the one you got"):
            await here.ask(done(twice))
        assert (await here.ask(done(twice, token(item)))).state is TaskState.COMPLETED


async def test_what_made_a_state_may_be_said_again_and_nothing_else() -> None:
    async with queued() as (here, agent, task_id):
        lease = token(await taken(agent))
        working = updated(task_id, TaskState.WORKING, "step 2 of 5", lease)
        first = await here.ask(working)
        assert await here.ask(working) == first
        ended = await here.ask(done(task_id, lease))
        assert await here.ask(done(task_id, lease)) == ended
        assert await here.ask(CompleteTask(id=task_id)) == ended
        for report in (
            done(task_id, lease, "another"),
            working,
            updated(task_id, TaskState.FAILED, "no"),
            updated(task_id, TaskState.COMPLETED, "no"),
        ):
            with pytest.raises(InvalidParams, match="TASK_STATE_COMPLETED"):
                await here.ask(report)
        assert await here.get(task_id) == ended


@pytest.mark.parametrize(
    "state",
    [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED],
    ids=lambda state: state.name,
)
async def test_a_terminal_status_ends_the_task(state: TaskState) -> None:
    async with queued() as (here, agent, task_id):
        lease = token(await taken(agent))
        ended = await here.ask(updated(task_id, state, "that is all", lease))
        assert ended.state is state
        assert ended.status.message is not None
        assert ended.status.message.text == "that is all"
        assert await here.ask(updated(task_id, state, "that is all", lease)) == ended


async def test_a_status_that_no_worker_can_set_is_refused() -> None:
    async with queued() as (here, _, task_id):
        with pytest.raises(InvalidParams, match="must be working"):
            await here.ask(updated(task_id, TaskState.SUBMITTED))
        await here.ask(done(task_id))


@pytest.mark.parametrize(
    ("word", "usage", "fault"),
    [
        (Say((Part(data=2**60),)), None, "message[0].data: integers must be within"),
        (Say(metadata={"a": "x" * 11}), None, "metadata: a text in it has more than 10 characters"),
        (
            ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="x" * 11),)), last_chunk=True),
            None,
            "artifact.parts[0].text has 11 characters",
        ),
        (Ask((Part(text="Which?"),), note={"n" * 1025: ""}), None, "note has 1025 characters"),
        (Say(), Usage.of(1, 2, model="m" * 1025), "model has 1025 characters"),
    ],
)
async def test_what_breaks_a_bound_is_refused_and_the_task_goes_on(word: Any, usage: Usage | None, fault: str) -> None:
    agent = worker()
    async with house(agent, max_text=10) as here:
        task_id = await here.begin()
        item = await taken(agent)
        with pytest.raises(InvalidParams, match=re.escape(fault)):
            await agent.leases.say(token(item), word, usage=usage)
        await here.ask(done(task_id, token(item)))
        assert (await here.get(task_id)).state is TaskState.COMPLETED


async def test_a_worker_of_the_agent_ends_the_tasks_of_all_its_callers() -> None:
    """With the lease, or in the bare shape while the task was delivered once."""
    agent, other = worker(), worker("other")
    async with house(agent, other) as here:
        task_id, bare = await here.begin(), await here.begin()
        lease = token(await taken(agent))
        for report in (done("no-such-task"), done("no-such-task", lease)):
            with pytest.raises(TaskNotFound):
                await here.ask(report, owner="eve")
        with pytest.raises(TaskNotFound):
            await here.ask(done(task_id), owner="eve", agent="other")
        with pytest.raises(LeaseLost):
            await here.ask(done(task_id, "1.guessed"), owner="eve")
        assert (await here.ask(done(task_id, lease), owner="worker")).state is TaskState.COMPLETED
        assert (await here.ask(done(bare), owner="worker")).state is TaskState.COMPLETED


@pytest.mark.parametrize("owner", ["anna", "eve"])
async def test_who_is_no_worker_ends_no_task_of_a_worker(owner: str) -> None:
    """Whether it is there or not; not even its own, nor with the lease."""
    async with queued() as (here, agent, task_id):
        lease = token(await taken(agent))
        for report in (done(task_id), done(task_id, lease), done("no-such-task"), updated(task_id, TaskState.WORKING)):
            with pytest.raises(Forbidden):
                await here.ask(report, owner=owner, role=AccessRole.CALLER)
        await here.ask(done(task_id, lease))


async def test_only_workers_tasks_end_from_outside() -> None:
    async with house() as here:
        task_id = (await here.send()).head.id
        for report in (done(task_id), updated(task_id, TaskState.FAILED)):
            with pytest.raises(UnsupportedOperation, match="is not a worker"):
                await here.ask(report)


async def test_reports_on_unknown_and_foreign_tasks_of_an_agent_that_is_no_worker_find_nothing() -> None:
    async with house() as here:
        foreign = (await here.send()).head.id
        for task_id in ("no-such-task", foreign):
            for report in (done(task_id), updated(task_id, TaskState.WORKING)):
                with pytest.raises(TaskNotFound):
                    await here.ask(report, owner="somebody else")


async def question(here: House, agent: WorkerAgent) -> tuple[str, TakenTask]:
    """A task whose worker has asked, and that waits for its caller."""
    task_id = await here.begin()
    item = await taken(agent)
    asked = await here.ask(updated(task_id, TaskState.INPUT_REQUIRED, "Which city?", token(item)))
    assert asked.state is TaskState.INPUT_REQUIRED
    assert asked.status.message.text == "Which city?"
    return task_id, item


async def test_the_answer_comes_with_the_workers_heartbeat() -> None:
    agent = worker()
    async with house(agent) as here:
        task_id, item = await question(here, agent)
        lease = token(item)
        with pytest.raises(InvalidParams, match="waits for its caller"):
            await here.ask(done(task_id, lease))
        again = await here.ask(updated(task_id, TaskState.INPUT_REQUIRED, "Which city?", lease))
        assert again == await here.get(task_id)
        hearing = asyncio.create_task(answered(agent, lease))
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        assert (await hearing).text == "Lyon"
        assert (await here.ask(done(task_id, lease))).state is TaskState.COMPLETED


async def test_an_answer_finds_another_worker_if_the_one_that_asked_is_gone() -> None:
    agent = worker()
    async with house(agent) as here:
        task_id, item = await question(here, agent)
        await agent.leases.release(token(item))
        assert await agent.leases.take("w2", 0) is None  # nobody needs it while the caller thinks
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        other = await taken(agent, "w2")
        assert [message.text for message in other.record.history] == ["hi", "Which city?", "Lyon"]
        assert (await here.ask(done(task_id, token(other)))).state is TaskState.COMPLETED


@pytest.mark.parametrize("store", ["memory:", "postgres:"])
async def test_who_takes_a_task_whose_answer_found_no_worker_writes_that_it_works(
    store: str, request: pytest.FixtureRequest
) -> None:
    """So the ids of the later events are the same as ever."""
    agent, url = worker(), request.getfixturevalue("used_postgres_url") if store == "postgres:" else store
    async with house(agent, url=url) as here:
        task_id, item = await question(here, agent)
        await agent.leases.release(token(item))
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        other = await taken(agent, "w2")
        works = StatusChanged(TaskState.WORKING, timestamp(here.clock.ms))
        assert [logged.event for logged in await here.log(task_id)][4:] == [works, works]
        await agent.leases.release(token(other))
        before = (await here.get(task_id)).seq
        again = await taken(agent, "w3")
        assert (await here.get(task_id)).seq == before
        assert (await here.ask(done(task_id, token(again)))).state is TaskState.COMPLETED


async def test_who_takes_a_task_whose_question_no_worker_has_put_writes_nothing() -> None:
    async with queued() as (here, agent, task_id):
        await here.ask(updated(task_id, TaskState.INPUT_REQUIRED, "Which city?"))
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        before = (await here.get(task_id)).seq
        item = await taken(agent)
        assert (await here.get(task_id)).seq == before
        assert (await here.ask(done(task_id, token(item)))).state is TaskState.COMPLETED


async def test_a_worker_that_replays_is_given_the_recorded_answers() -> None:
    agent = worker()
    async with house(agent) as here:
        task_id, item = await question(here, agent)
        await agent.leases.release(token(item))
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        other = await taken(agent, "w2", replays=True)
        before = (await here.get(task_id)).seq
        await agent.leases.say(token(other), Say((Part(text="looking"),)), number=1)
        answer = await agent.leases.ask(token(other), Ask((Part(text="Which city?"),)), 1, 0)
        assert answer is not None
        assert answer.text == "Lyon"
        assert (await here.get(task_id)).seq == before  # what was said before the answer is not said twice
        assert (await here.ask(done(task_id, token(other)))).state is TaskState.COMPLETED


async def test_a_question_is_asked_once_however_often_its_answer_is_waited_for() -> None:
    async with queued() as (here, agent, task_id):
        lease = token(await taken(agent))
        where = Ask((Part(text="Where?"),))
        assert await agent.leases.ask(lease, where, 1, 0) is None
        seq = (await here.reach(task_id, TaskState.INPUT_REQUIRED)).seq
        assert await agent.leases.ask(lease, where, 1, 0) is None
        assert (await here.get(task_id)).seq == seq
        await here.send("here", task_id=task_id, return_immediately=True)
        for _ in range(2):
            answer = await agent.leases.ask(lease, where, 1, DEADLINE_S)
            assert answer is not None
            assert answer.text == "here"
        with pytest.raises(InvalidParams, match="number 2"):
            await agent.leases.ask(lease, where, 3, 0)
        await here.ask(done(task_id, lease))


async def test_a_cancel_is_done_at_once_and_reaches_the_worker() -> None:
    async with queued() as (here, agent, task_id):
        lease = token(await taken(agent))
        hearing = asyncio.create_task(agent.leases.beat(lease, DEADLINE_S, 0))
        await asyncio.sleep(0)
        assert (await here.cancel(task_id)).state is TaskState.CANCELED
        assert (await hearing).cancel
        assert (await agent.leases.beat(lease, 0, 0)).cancel
        with pytest.raises(InvalidParams, match="TASK_STATE_CANCELED"):
            await here.ask(done(task_id, lease))


async def test_a_task_that_nobody_has_taken_is_canceled_and_not_given_out() -> None:
    async with queued() as (here, agent, task_id):
        await here.cancel(task_id)
        assert await agent.leases.take("w1", 0) is None


@in_virtual_time
async def test_with_no_worker_there_sends_are_refused() -> None:
    seen_s = 10.0
    agent = worker(queues=False, seen_s=seen_s)
    async with house(agent, seen_as=Waited) as here:
        with pytest.raises(AgentOffline):
            await here.send()
        assert (await here.listed()).total_size == 0
        assert await agent.leases.take("w1", 0) is None  # a worker has been seen
        message_id = "0199a1b2-0000-7000-8000-000000000001"
        task_id = await here.begin(message_id=message_id)
        await asyncio.sleep(1.1 * seen_s)
        with pytest.raises(AgentOffline):
            await here.send("something new")
        assert await here.begin(message_id=message_id) == task_id  # the same call again
        waiting = asyncio.create_task(agent.leases.take("w1", DEADLINE_S))
        await asyncio.sleep(1.1 * seen_s)
        item = await waiting
        assert item is not None
        waiting = asyncio.create_task(agent.leases.take("w2", DEADLINE_S))
        await asyncio.sleep(1.1 * seen_s)
        other = await here.begin("a worker that waits is there")
        await waiting
        await here.ask(done(task_id, token(item)))
        await here.ask(done(other))


async def test_a_report_that_was_refused_counts_when_it_comes_again() -> None:
    async with queued() as (here, agent, task_id):
        item = await taken(agent)
        await here.ask(updated(task_id, TaskState.INPUT_REQUIRED, "which?", token(item)))
        said = Say((Part(text="looking"),))
        with pytest.raises(InvalidParams):
            await agent.leases.say(token(item), said, number=1)
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        await answered(agent, token(item))
        await agent.leases.say(token(item), said, number=1)
        record = await here.get(task_id)
        assert record.status.message is not None
        assert record.status.message.text == "looking"
        await here.ask(done(task_id, token(item)))


async def test_a_report_of_a_number_counts_once() -> None:
    async with queued() as (here, agent, task_id):
        item = await taken(agent)
        for number in (1, 1, 2, 1, 2):
            chunk = ArtifactChunk(artifact(f"{number} "), append=True, last_chunk=False)
            await agent.leases.say(token(item), chunk, usage=Usage(1, 1, 2), number=number)
        ended = await here.ask(updated(task_id, TaskState.COMPLETED, lease=token(item)))
        assert text_of(ended) == "1 2 "
        assert ended.usage == Usage(2, 2, 4)


async def test_a_restart_offers_the_task_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    first = worker()
    async with house(first, url=url, crashes=True) as here:
        task_id = await here.begin("work")
        old = token(await taken(first))
        queued = await here.begin("more work")
    second = worker()
    async with house(second, url=url) as here:
        items = {item.head.id: item for item in (await taken(second), await taken(second))}
        assert set(items) == {task_id, queued}
        with pytest.raises(LeaseLost):
            await here.ask(done(task_id, old))
        with pytest.raises(InvalidParams, match="lease"):
            await here.ask(done(task_id))
        for known, item in items.items():
            ended: Record = await here.ask(done(known, token(item)))
            assert ended.state is TaskState.COMPLETED


async def test_a_stopping_server_gives_out_nothing_and_keeps_what_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    agent = worker()
    async with house(agent, url=url) as here:
        task_id = await here.begin()
        waiting = asyncio.create_task(agent.leases.take("w2", DEADLINE_S))
        item = await waiting
        assert item is not None
        queued = await here.begin()
        agent.leases.close()
        with pytest.raises(Unavailable):
            await agent.leases.take("w1", DEADLINE_S)
        await here.ask(done(task_id, token(item)))  # what is under way may end
    agent = worker()
    async with house(agent, url=url) as here:
        item = await taken(agent)
        assert item.head.id == queued
        await here.ask(done(queued, token(item)))


async def test_a_drain_waits_for_workers_that_work_and_for_nobody_else(tmp_path: Path) -> None:
    agent = worker()
    async with house(agent, url=f"sqlite:///{tmp_path}/tasks.db") as here:
        task_id, other = await here.begin(), await here.begin()
        item, silent = await taken(agent), await taken(agent, "w2")
        await question(here, agent)
        await here.begin("nobody takes it")
        draining = asyncio.create_task(here.engine.drain(DEADLINE_S))
        await asyncio.sleep(4 * DRAINED_S)
        await agent.leases.beat(token(item), 0, 0)
        assert not draining.done()
        await here.ask(done(task_id, token(item)))
        await asyncio.sleep(4 * DRAINED_S)
        assert not draining.done()
        await fall_silent(agent, silent)
        async with asyncio.timeout(DEADLINE_S / 2):
            await draining
        stored = await here.store.load(other)
        assert (stored.state, stored.holder) == (TaskState.WORKING, WORKER)


async def test_a_task_that_is_given_back_and_canceled_at_once_is_canceled() -> None:
    agent = worker()
    async with house(agent) as here:
        for _ in range(20):
            task_id = await here.begin()
            await agent.leases.release(token(await taken(agent)))
            assert (await here.cancel(task_id)).state is TaskState.CANCELED
        assert await agent.leases.take("w1", 0) is None


async def test_a_message_while_the_task_goes_to_another_worker_is_kept() -> None:
    agent = worker()
    async with house(agent) as here:
        task_id = await here.begin("first")
        await agent.leases.release(token(await taken(agent)))
        await here.send("second", task_id=task_id, return_immediately=True)
        item = await taken(agent, "w2")
        answer = await agent.leases.ask(token(item), Ask((Part(text="And?"),)), 1, DEADLINE_S)
        assert answer is not None
        assert answer.text == "second"
        await here.ask(done(task_id, token(item)))


async def test_a_full_disk_delays_the_next_worker_and_loses_nothing() -> None:
    async with queued() as (here, agent, task_id):
        item = await taken(agent)
        here.store.full = 1
        await agent.leases.release(token(item))
        again = await taken(agent, "w2")
        assert (await here.ask(done(task_id, token(again)))).state is TaskState.COMPLETED


async def test_a_full_disk_is_tried_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_tasks, "STALLED_S", 0.2)
    agent = worker()
    async with house(agent, retry_s=0.05) as here:
        await here.begin()
        lease, before = token(await taken(agent)), len(here.store.appends)
        here.store.full = 1 << 30
        with pytest.raises(Unavailable):
            await agent.leases.release(lease)
        assert len(here.store.appends) - before <= 5
        here.store.full = 0


async def test_a_worker_cannot_name_a_file_of_the_store() -> None:
    async with queued() as (here, _, task_id):
        sly = Artifact(artifact_id="a", parts=(Part(raw=b"mine", blob=1),))
        ended = await here.ask(CompleteTask(id=task_id, artifacts=(sly,)))
        assert ended.artifacts[0].parts == (Part(raw=b"mine"),)


async def test_artifacts_of_one_id_are_one_and_the_report_is_taken() -> None:
    async with queued() as (here, _, task_id):
        report = CompleteTask(id=task_id, artifacts=(artifact("old"), artifact("new")))
        assert text_of(await here.ask(report)) == "new"


async def test_what_cannot_be_an_artifact_is_refused() -> None:
    async with queued() as (here, _, task_id):
        for parts in ((), (Part(),), (Part(text="x", url="y"),)):
            with pytest.raises(InvalidParams, match="artifacts"):
                await here.ask(CompleteTask(id=task_id, artifacts=(Artifact(artifact_id="", parts=parts),)))
        ended = await here.ask(CompleteTask(id=task_id, artifacts=(Artifact(artifact_id="", parts=(Part(text="x"),)),)))
        assert ended.artifacts[0].artifact_id


async def test_what_a_worker_reports_is_told_to_webhooks_in_order_whatever_worker_it_is() -> None:
    agent, telling = worker(), Telling()
    async with house(agent, announcer=telling) as here:
        task_id = await here.begin(push_config=PushConfig(url="https://hooks.example/w"))
        await fall_silent(agent, await taken(agent))
        item = await taken(agent, "w2")
        await here.ask(updated(task_id, TaskState.WORKING, "half", token(item)))
        await here.ask(done(task_id, token(item)))
        bodies = await calls(here)
    states = [(each["kind"], each["state"]) for each in bodies]
    assert states[0] == ("Submitted", "submitted")
    assert states[-2:] == [("ArtifactChunk", "working"), ("StatusChanged", "completed")]
    assert states.count(("StatusChanged", "completed")) == 1
    assert [each["seq"] for each in bodies] == sorted(each["seq"] for each in bodies)
    assert bodies[-1]["texts"] == {"a": "Done!"}


async def test_calls_about_a_task_that_its_worker_has_not_leave_nothing_behind() -> None:
    def waiting() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.Future) and not each.done() for each in gc.get_objects())

    async with queued() as (here, agent, task_id):
        await agent.leases.release(token(await taken(agent)))
        before = waiting()
        for number in range(20):
            for lease in (f"t{number}.x", f"{task_id}.{number}"):
                with pytest.raises(LeaseLost):
                    await agent.leases.beat(lease, DEADLINE_S, 0)
                with pytest.raises(LeaseLost):
                    await agent.leases.say(lease, Say((Part(text="hm"),)))
        assert waiting() <= before
        await here.cancel(task_id)


async def test_a_task_that_cannot_be_read_stays_in_the_queue_and_holds_up_no_other(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with asyncio.timeout(DEADLINE_S), house(worker(), url=f"sqlite:///{path}") as here:
        damaged, sound = await here.begin(), await here.begin()
    with apsw.Connection(str(path)) as database:
        database.execute(
            "UPDATE pages SET events = x'c1' WHERE task = (SELECT task FROM tasks WHERE id = ?)", (damaged,)
        )
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent, url=f"sqlite:///{path}"):
        assert (await taken(agent)).head.id == sound
        assert await agent.leases.take("w2", 0.0) is None


async def test_workers_that_ask_at_once_get_a_task_each_at_the_first_try(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, reads = worker(), list[str]()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        made = [await here.begin() for _ in range(6)]
        read = here.store.read

        async def counting(task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
            reads.append(task_id)
            return await read(task_id, after, limit_bytes)

        monkeypatch.setattr(here.store, "read", counting)
        items = await asyncio.gather(*(taken(agent, f"w{number}") for number in range(6)))
        assert sorted(item.head.id for item in items) == sorted(made) == sorted(reads)
