"""Versions of an agent's code: a task goes on with the one that it began with, waits for it, or fails."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from dragoman.bus.api import NoBus
from dragoman.engine import code_versions
from dragoman.engine.api import Run
from dragoman.engine.words import Sleep
from dragoman.model.ids import timestamp
from dragoman.model.message import Part
from dragoman.model.task import Record
from dragoman.model.task import TaskState as S
from dragoman.store.api import ASIDE
from tests.engine.house import House, Scripted, house, say, text_of
from tests.engine.replicas import Stage, replicas
from tests.engine.test_sleep import MovingClock
from tests.kit.waiting import until

KINDS = "ask", "sleep", "crash"

SOON = {"claim_s": 0.02, "suspend_max_s": 0, "suspend_after_s": 0}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_versions, "ASIDE_MS", 20)
    monkeypatch.setattr(code_versions, "APART_MS", 1)


class Code:
    """The code of an agent in its versions, and which of them has run which task."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.crashing: set[str] = set()
        """The tasks whose first run waits until it is stopped."""

    def agent(self, version: str) -> Scripted:
        return Scripted(partial(self._run, version), restartable=True, steps_version=version)

    def versions_of(self, task_id: str) -> set[str]:
        """The versions that have run a task."""
        return {version for ran, version in self.ran if ran == task_id}

    async def _run(self, version: str, run: Run) -> None:
        again = run.head.id in {ran for ran, _ in self.ran}
        self.ran.append((run.head.id, version))
        await say(run, f"begun by {version}, ")
        if run.message.text == "ask":
            await run.ask((Part(text="what?"),))
        elif run.message.text == "sleep":
            await run.sleep(Sleep(for_ms=300))
        elif run.message.text == "crash" and not again:
            await asyncio.Event().wait()
        await say(run, f"done by {version}")


class Versions(Stage):
    """An agent whose replicas have these versions of its code, in this order."""

    def __init__(self, code: Code, *versions: str) -> None:
        super().__init__()
        self._code, self._versions = code, iter(versions)

    def agent(self) -> Scripted:
        return self._code.agent(next(self._versions))


async def open_tasks(here: House, code: Code) -> dict[str, str]:
    """The ids of a task that asks, one that sleeps, and one at work, by kind."""
    found = {kind: await here.begin(kind) for kind in KINDS}
    await here.reach(found["ask"], S.INPUT_REQUIRED)
    await until(lambda: len(code.ran) == len(KINDS))
    await until(lambda: here.in_memory <= 1)  # neither the one that asks nor the one that sleeps is kept
    return found


async def answer(here: House, task_id: str) -> None:
    await here.begin("this", task_id=task_id)


async def end_of(here: House, tasks: dict[str, str]) -> list[Record]:
    return [await here.reach(task_id, S.COMPLETED, S.FAILED) for task_id in tasks.values()]


def assert_done_by(records: list[Record], version: str) -> None:
    assert [text_of(record) for record in records] == [f"begun by {version}, done by {version}"] * len(records)


async def put_aside(here: House, task_id: str) -> int:
    """Wait until a task is put aside. Returns the epoch of its lease."""
    async with asyncio.timeout(60):
        while (stored := await here.store.load(task_id)).holder != ASIDE:
            await asyncio.sleep(0.005)
    epoch: int = stored.epoch
    return epoch


async def test_a_rolling_upgrade_leaves_tasks_to_the_replica_with_their_code() -> None:
    code = Code()
    clock = MovingClock()
    async with replicas(3, Versions(code, "1", "1", "2"), NoBus, poll_s=0.02, clock=clock, **SOON) as (first, _, new):
        tasks = await open_tasks(first, code)
        await first.drain(0)
        await answer(new, tasks["ask"])
        assert_done_by(await end_of(new, tasks), "1")
        begun = await new.begin()
        assert_done_by([await new.reach(begun, S.COMPLETED)], "2")
    assert all(code.versions_of(task_id) == {"1"} for task_id in tasks.values())


async def test_without_a_replica_with_their_code_tasks_wait_until_there_is_one_again() -> None:
    code = Code()
    clock = MovingClock()
    async with replicas(2, Versions(code, "1", "2"), NoBus, poll_s=0.02, clock=clock, **SOON) as (old, new):
        tasks = await open_tasks(old, code)
        await old.drain(0)
        await answer(new, tasks["ask"])
        for task_id in tasks.values():
            await put_aside(new, task_id)
            events = len(await new.log(task_id))
            epoch = await put_aside(new, task_id)
            while (await new.store.load(task_id)).epoch < epoch + 3:
                await asyncio.sleep(0.01)
            assert len(await new.log(task_id)) == events
            assert (await new.get(task_id)).state is S.WORKING
        new.engine.serve({"agent": code.agent("1")})
        assert_done_by(await end_of(new, tasks), "1")
    assert all(code.versions_of(task_id) == {"1"} for task_id in tasks.values())


async def test_tasks_whose_code_is_served_no_more_fail_in_time() -> None:
    code = Code()
    clock = MovingClock()
    around = {**SOON, "agent_absent_s": 0.6}
    async with replicas(2, Versions(code, "1", "2"), NoBus, poll_s=0.02, clock=clock, **around) as (old, new):
        tasks = await open_tasks(old, code)
        await old.drain(0)
        asked_ms = clock.now_ms()
        await answer(new, tasks["ask"])
        for record in await end_of(new, tasks):
            assert record.state is S.FAILED
            said = record.status.message
            assert said is not None
            assert said.metadata == {"reason": "steps_version_absent"}
            assert "steps_version 1" in said.text
            assert "2 is served" in said.text
        asked = await new.get(tasks["ask"])
        assert asked.status.timestamp >= timestamp(asked_ms + 600)
    assert all(code.versions_of(task_id) == {"1"} for task_id in tasks.values())


async def test_a_server_alone_that_starts_with_the_code_of_before_goes_on(tmp_path: Path) -> None:
    code, url = Code(), f"sqlite:///{tmp_path / 'store.db'}"
    async with house(code.agent("1"), url=url, clock=MovingClock(), crashes=True, **SOON) as here:
        tasks = await open_tasks(here, code)
    async with house(code.agent("2"), url=url, clock=MovingClock(), **SOON) as here:
        await answer(here, tasks["ask"])
        for task_id in tasks.values():
            await put_aside(here, task_id)
    async with house(code.agent("1"), url=url, clock=MovingClock(), **SOON) as here:
        assert_done_by(await end_of(here, tasks), "1")
    assert all(code.versions_of(task_id) == {"1"} for task_id in tasks.values())


async def test_a_server_alone_that_starts_with_other_code_ends_tasks_in_time(tmp_path: Path) -> None:
    code, url = Code(), f"sqlite:///{tmp_path / 'store.db'}"
    async with house(code.agent("1"), url=url, clock=MovingClock(), crashes=True, **SOON) as here:
        tasks = await open_tasks(here, code)
    async with house(code.agent("2"), url=url, clock=MovingClock(), agent_absent_s=0.5, **SOON) as here:
        await answer(here, tasks["ask"])
        ended = await end_of(here, tasks)
    assert [record.status.message.metadata for record in ended if record.status.message] == [
        {"reason": "steps_version_absent"}
    ] * len(KINDS)
    assert all(code.versions_of(task_id) == {"1"} for task_id in tasks.values())


async def test_a_run_in_memory_goes_on_with_its_code_after_the_agent_was_replaced() -> None:
    code = Code()
    async with house(code.agent("1"), clock=MovingClock(), claim_s=0.02) as here:
        asking, working = await here.begin("ask"), await here.begin("sleep")
        await here.reach(asking, S.INPUT_REQUIRED)
        await until(lambda: len(code.ran) == 2)
        here.engine.serve({"agent": code.agent("2")})
        await answer(here, asking)
        assert_done_by(await end_of(here, {"ask": asking, "sleep": working}), "1")
    assert code.ran == [(asking, "1"), (working, "1")]


async def test_a_run_that_is_kept_no_more_waits_for_its_code_after_the_agent_was_replaced() -> None:
    code = Code()
    async with house(code.agent("1"), clock=MovingClock(), **SOON) as here:
        asking = await here.begin("ask")
        await here.reach(asking, S.INPUT_REQUIRED)
        await until(lambda: here.in_memory == 0)
        here.engine.serve({"agent": code.agent("2")})
        await answer(here, asking)
        await put_aside(here, asking)
        here.engine.serve({"agent": code.agent("1")})
        assert_done_by(await end_of(here, {"ask": asking}), "1")
    assert code.versions_of(asking) == {"1"}


@pytest.mark.parametrize(("began", "now"), [("", "2"), ("1", "")])
async def test_where_either_names_no_version_any_code_goes_on(began: str, now: str) -> None:
    code = Code()
    async with house(code.agent(began), clock=MovingClock(), **SOON) as here:
        asking = await here.begin("ask")
        await here.reach(asking, S.INPUT_REQUIRED)
        await until(lambda: here.in_memory == 0)
        here.engine.serve({"agent": code.agent(now)})
        await answer(here, asking)
        await here.reach(asking, S.COMPLETED)
    assert code.ran == [(asking, began), (asking, now)]
