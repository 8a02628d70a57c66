"""Delegated tasks that wait for an answer end when their time is over, or their parent is gone."""

import asyncio

import pytest
from msgspec.structs import replace

from dragoman.engine.api import DelegationFailed, Run
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.open import open_store
from tests.engine.house import Scripted, StandingClock, house, say, text_of
from tests.engine.test_delegate import booking, child, order
from tests.store.cases.bench import ending, new_task, status
from tests.virtual_time import Waited, in_virtual_time

S = TaskState

TIME_S = 0.2


async def patient(run: Run) -> None:
    """Says something, and what became of a task that it gives only so much time."""
    await say(run, "[", "a")
    try:
        delegated = await run.delegate(order(timeout_s=TIME_S))
        await say(run, f"{delegated.text}]", "a")
    except DelegationFailed as failed:
        await say(run, f"{failed.state.name}: {failed.text}]", "a")


AGENTS = (Scripted(patient), Scripted(booking, "other"))
LATE = "[CANCELED: other did not finish in time.]"


@in_virtual_time
async def test_an_answer_is_not_waited_for_longer_than_the_time_that_was_given() -> None:
    async with house(*AGENTS, seen_as=Waited) as h:
        asked = await h.send()
        assert asked.state is S.INPUT_REQUIRED
        parent = await h.reach(asked.head.id, S.COMPLETED)
        assert text_of(parent) == LATE
        await child(h, parent.head.id, 1, S.CANCELED)


@in_virtual_time
async def test_nor_if_the_run_that_passed_the_question_on_is_kept_no_longer() -> None:
    async with house(*AGENTS, suspend_max_s=0.0, seen_as=Waited) as h:
        asked = await h.send()
        h.clock.ms += 1000
        parent = await h.reach(asked.head.id, S.COMPLETED)
        assert text_of(parent) == LATE
        await child(h, parent.head.id, 1, S.CANCELED)


@pytest.mark.parametrize("crashes", [False, True])
@in_virtual_time
async def test_nor_after_a_restart(url: str, crashes: bool) -> None:
    async with house(*AGENTS, url=url, crashes=crashes, seen_as=Waited) as h:
        task_id = (await h.send()).head.id
    clock = StandingClock()
    clock.ms += 1000
    async with house(*AGENTS, url=url, clock=clock, seen_as=Waited) as h:
        parent = await h.reach(task_id, S.COMPLETED)
        assert text_of(parent) == LATE
        await child(h, task_id, 1, S.CANCELED)


@in_virtual_time
async def test_an_answer_in_time_is_handed_on(url: str) -> None:
    async def script(run: Run) -> None:
        delegated = await run.delegate(order(timeout_s=60.0))
        await say(run, delegated.text)

    async with house(Scripted(script), Scripted(booking, "other"), url=url, seen_as=Waited) as h:
        task_id = (await h.send()).head.id
        await h.send("Lyon", task_id=task_id)
        assert text_of(await h.send("Rome", task_id=task_id)) == "Lyon-Rome"


@in_virtual_time
async def test_a_question_for_a_task_that_ended_meanwhile_is_not_asked() -> None:
    """Two tasks ask at once; when the first is answered, the time of the second is over."""
    failed: list[str] = []

    async def script(run: Run) -> None:
        async def second() -> None:
            try:
                await run.delegate(order("late", timeout_s=TIME_S))
            except DelegationFailed as error:
                failed.append(error.state.name)

        late = asyncio.ensure_future(second())
        await run.ask((Part(text="Mine?"),))
        await late
        await say(run, "done")

    agents = (Scripted(script), Scripted(booking, "late"))
    async with house(*agents, seen_as=Waited) as h:
        asked = await h.send()
        assert asked.status.message is not None
        if asked.status.message.text == "Mine?":
            (late,) = (await h.listed(agent="late")).records
            await h.reach(late.head.id, S.CANCELED, agent="late")
            parent = await h.send("yes", task_id=asked.head.id)
        else:
            parent = await h.reach(asked.head.id, S.INPUT_REQUIRED)
            while (parent := await h.get(asked.head.id)).status.message.text != "Mine?":  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            parent = await h.send("yes", task_id=asked.head.id)
        assert (parent.state, failed) == (S.COMPLETED, ["CANCELED"])


async def test_at_the_start_what_waits_although_its_parent_has_ended_is_canceled(url: str) -> None:
    clock = StandingClock()
    store = open_store(url, clock)
    await store.open("before")
    parents = [("p", S.WORKING, None, False), ("w", S.INPUT_REQUIRED, None, False)]
    children = [
        ("orphan", S.INPUT_REQUIRED, "p", False),
        ("lost", S.AUTH_REQUIRED, "nobody", False),
        ("detached", S.INPUT_REQUIRED, "p", True),
        ("wanted", S.INPUT_REQUIRED, "w", False),
    ]
    for task_id, state, parent, detached in parents + children:
        new = new_task(task_id, holder=None if state is not S.WORKING else "before", state=state)
        head = replace(new.head, owner="anna", agent="other", parent=parent, detached=detached)
        await store.create(replace(new, head=head, events=(*new.events, status(state))))
    await store.append(ending("p", 2))
    await store.close()
    async with house(*AGENTS, url=url, clock=clock) as h:
        for task_id in ("orphan", "lost"):
            await h.reach(task_id, S.CANCELED, agent="other")
        for task_id in ("detached", "wanted"):
            assert (await h.get(task_id, agent="other")).state is S.INPUT_REQUIRED
