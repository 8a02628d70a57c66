"""What an engine does when the store says what has become of its replica."""

import asyncio

import pytest

from dragoman.engine.runs.run import TaskRun
from dragoman.store.replicas import ReplicaFenced
from tests.buses import Hub
from tests.engine.replicas import Stage, replicas


async def test_a_run_that_cannot_be_stopped_keeps_no_other_one_at_work_after_a_fence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, abandon, failed = Stage(), TaskRun.abandon, []

    def fail_once(run: TaskRun) -> None:
        if not failed:
            failed.append(run.head.id)
            raise ValueError
        abandon(run)

    async with replicas(1, stage, Hub().bus) as (one,):
        first = await one.begin()
        await stage.begun.wait()
        stage.begun.clear()
        await one.begin()
        await stage.begun.wait()
        with monkeypatch.context() as patched:
            patched.setattr(TaskRun, "abandon", fail_once)
            await asyncio.wait_for(one.store.replicas.say(ReplicaFenced("r0")), 60)
        await asyncio.wait_for(stage.canceled.wait(), 60)
        assert failed == [first]
        assert f"task {first}: its run cannot be stopped" in caplog.text
        stage.pieces.put_nowait(None)
