"""A server takes over that has not received all that was committed, and an engine that has it in memory."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.model.events import ArtifactChunk, Logged
from dragoman.model.ids import SystemClock
from dragoman.model.operations import Subscribe
from dragoman.model.task import TaskState
from dragoman.store.open import open_store
from dragoman.store.replicas import Heartbeat
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import Fragile, House, StandingClock, read
from tests.engine.replicas import Stage
from tests.postgres import PostgresServer


def _has(text: str) -> Callable[[list[Any]], bool]:
    """Whether a chunk with this text is among the items of a stream."""
    return lambda items: any(
        part.text == text
        for item in items
        if isinstance(item, Logged) and isinstance(item.event, ArtifactChunk)
        for part in item.event.artifact.parts
    )


async def test_a_task_goes_on_from_what_the_new_primary_has() -> None:
    """Its run stops, because what it wrote is gone, and runs again; its followers are sent to come back."""
    stage = Stage()
    agent = stage.agent()
    with PostgresServer() as server:
        store = open_store(server.url(), SystemClock(), Heartbeat(lease_s=600, beat_s=0.2))
        await store.open("h1")
        settings = EngineSettings(poll_s=0.2, claim_s=0.2, retry_s=0.1)
        engine = Engine(store, {agent.profile.id: agent}, clock=store.clock, settings=settings, holder="h1")
        house = House(engine, Fragile(store), StandingClock())
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            await engine.start(JobGroup(group))
            task_id = await house.begin()
            following = await house.open(Subscribe(id=task_id))
            stage.pieces.put_nowait("kept")
            await read(following, until=_has("kept"))
            standby = server.data.with_name("standby")
            server.stop(signal.SIGINT)
            subprocess.run(["cp", "-a", server.data, standby], check=True)
            server.start()

            stage.pieces.put_nowait("lost")
            await read(following, until=_has("lost"))
            ending = asyncio.create_task(read(following))
            stage.begun.clear()
            server.stop(signal.SIGINT)
            server.data = standby
            (standby / "recovery.signal").touch()
            with (standby / "postgresql.conf").open("a") as conf:
                conf.write("restore_command = 'false'\n")
            server.start()

            await stage.canceled.wait()
            assert await ending == []
            assert following.retry
            await stage.begun.wait()
            stage.pieces.put_nowait("anew")
            stage.pieces.put_nowait(None)
            while (record := await house.get(task_id)).state is not TaskState.COMPLETED:
                await asyncio.sleep(0.01)
            assert [part.text for artifact in record.artifacts for part in artifact.parts] == ["anew"]
            seqs = [logged.seq for logged in await house.log(task_id)]
            assert seqs == list(range(1, len(seqs) + 1))
            await engine.drain(1)
        await store.close()
