"""Versions of the code of workers: a task goes on with the one that it began with, waits for it, or fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.agents.worker import queue
from tests.agents.worker.test_worker_steps import hiring, site, text_of
from tests.kit.waiting import until
from tests.kit.workers import WorkerDoor


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "PASSED_OVER_S", 0.05)


async def asked(door: WorkerDoor, version: str, wait_s: float = 0.0) -> dict[str, Any] | None:
    """What a worker gets that asks for work, and has that version of the code."""
    body = {"worker": f"w{version}", "wait_s": wait_s} | ({"steps_version": version} if version else {})
    status, answer = await door.act("lease", body)
    assert status in (200, 204), answer
    return answer if status == 200 else None


async def begun(door: WorkerDoor, version: str) -> str:
    """The id of a task that waits in the queue, after a worker with that version has begun it."""
    task = await door.send()
    delivery = await asked(door, version)
    assert delivery is not None
    assert delivery["task"]["id"] == task["id"]
    assert (await door.act("release", {"lease": delivery["lease"]}))[0] == 204
    return str(task["id"])


async def test_a_task_is_given_to_workers_with_its_code_or_without_a_version(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        for version, taken_by in (("1", "1"), ("1", ""), ("", "2")):
            task_id = await begun(door, version)
            if version:
                for _ in range(3):
                    assert await asked(door, "2") is None
                    await asyncio.sleep(0.03)
            delivery = await asked(door, taken_by)
            assert delivery is not None
            assert (delivery["task"]["id"], delivery["note"]) == (task_id, None)
            await door.report("complete", delivery["lease"])
        later = await door.send()
        delivery = await asked(door, "2")
        assert delivery is not None
        assert delivery["task"]["id"] == later["id"]


async def test_a_task_that_others_pass_over_does_not_hold_up_the_next_ones(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        leases = []
        for number in range(12):
            await door.send(f"old {number}")
            delivery = await asked(door, "1")
            assert delivery is not None
            leases.append(delivery["lease"])
        for lease in leases:
            await door.act("release", {"lease": lease})
        new = await door.send("new")
        delivery = await asked(door, "2")
        assert delivery is not None
        assert delivery["task"]["id"] == new["id"]


async def test_the_worker_that_has_the_code_hears_of_the_task_at_once(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task = await door.send()
        delivery = await asked(door, "1")
        assert delivery is not None
        async with asyncio.TaskGroup() as group:
            news = [group.create_task(asked(door, "2", 20.0)) for _ in range(3)]
            await asyncio.sleep(0.1)
            old = group.create_task(asked(door, "1", 30.0))
            await asyncio.sleep(0.1)
            await door.act("release", {"lease": delivery["lease"]})
            got = await old
            assert got is not None
            assert got["task"]["id"] == task["id"]
            assert not any(new.done() for new in news), "it is told at once, not when the others have waited"
            for new in news:
                new.cancel()


async def test_without_such_a_worker_it_waits_and_then_fails(tmp_path: Path) -> None:
    async with site(tmp_path, agent_absent_s=1.5) as door:
        task_id = await begun(door, "1")
        events = (await door.task(task_id))["status"]
        await asyncio.sleep(0.3)
        assert await asked(door, "2") is None
        assert (await door.task(task_id))["status"] == events
        await asyncio.sleep(1.3)
        assert await asked(door, "1", 0) is not None  # the newest sight of it counts
        assert await asked(door, "2") is None


async def test_it_fails_once_nobody_has_had_its_code_for_too_long(tmp_path: Path) -> None:
    async with site(tmp_path, agent_absent_s=0.6) as door:
        task_id = await begun(door, "1")
        assert await asked(door, "2", 2.0) is None  # a worker that waits for work is enough

        async def has_failed() -> bool:
            return bool((await door.task(task_id))["status"]["state"] == "TASK_STATE_FAILED")

        await until(has_failed)
        message = (await door.task(task_id))["status"]["message"]
        assert message["metadata"] == {"reason": "steps_version_absent"}
        assert "began with steps_version 1" in message["parts"][0]["text"]
        assert "2 is served" in message["parts"][0]["text"]


async def test_a_worker_at_work_counts_as_seen(tmp_path: Path) -> None:
    async with site(tmp_path, agent_absent_s=1.5) as door:
        task_id = await begun(door, "1")
        await door.send("another")
        delivery = await asked(door, "1")
        assert delivery is not None
        for _ in range(16):
            await asyncio.sleep(0.1)
            await door.report("heartbeat", delivery["lease"])
            assert (other := await asked(door, "2")) is None or other["task"]["id"] != task_id
        assert (await door.task(task_id))["status"]["state"] == "TASK_STATE_WORKING"


@pytest.mark.parametrize("version", ["a b", "x" * 65, "é"])
async def test_what_is_no_version_is_refused_and_named(tmp_path: Path, version: str) -> None:
    async with site(tmp_path) as door:
        status, answer = await door.act("lease", {"worker": "w", "steps_version": version})
        assert (status, "steps_version: must be 1 to 64" in answer["error"]["message"]) == (400, True), answer


async def test_worker_processes_take_the_tasks_of_their_version(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        def agent(version: str) -> Agent:
            made = Agent("far", steps_version=version)

            @made.skill
            async def skill(ctx: Context) -> str:
                """Work."""
                before = await ctx.step("begin", lambda: version)
                await workers.hang(f"begun by {version}")
                return f"{before} and {version}"

            return made

        workers.hire(agent("1"))
        old = await workers.door.send("old")
        await workers.gate("begun by 1").wait()
        await workers.kill()
        workers.gate("begun by 2").set()
        workers.hire(agent("2"))
        new = await workers.door.send("new")
        assert await text_of(workers.door, new["id"]) == "2 and 2"
        assert (await workers.door.task(old["id"]))["status"]["state"] == "TASK_STATE_WORKING"
        workers.hire(agent("1"))
        assert await text_of(workers.door, old["id"]) == "1 and 1"
