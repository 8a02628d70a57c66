"""One script of an agent, on each kind of sink: what it reads back is the same, and so is what its caller gets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.client import connect
from dragoman.config import Config
from dragoman.engine.api import DirectMode, Run
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import Record, Task, Usage
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing.run import FakeRun
from tests.engine.house import DEADLINE_S, Scripted, house, message, sending

Script = Callable[[Run], Awaitable[None]]
Place = Callable[[Script], Awaitable[tuple[Artifact, ...]]]


def text(words: str) -> tuple[Part, ...]:
    return (Part(text=words),)


async def on_memory(script: Script) -> tuple[Artifact, ...]:
    run = FakeRun(message("hi"))
    await script(run)
    return run.record.artifacts


def here(direct: DirectMode) -> Place:
    async def place(script: Script) -> tuple[Artifact, ...]:
        async with house(Scripted(script, direct=direct)) as h:
            answer = await h.ask(sending("hi"))
            if isinstance(answer, Message):
                return (Artifact(artifact_id="a", name="name", parts=answer.parts),)
            assert isinstance(answer, Record)
            return answer.artifacts

    return place


async def on_a_server(script: Script) -> tuple[Artifact, ...]:
    agent = Scripted(script)
    there, egress, stop = WorkerAgent(agent.profile, queues=True), Egress(operator_named), asyncio.Event()
    try:
        async with (
            asyncio.timeout(DEADLINE_S),
            serving(Config(port=0, store="memory:", shutdown_grace_s=0.2), [there]) as url,
            connect(f"{url}/agents/agent") as connection,
        ):
            lessee = Lessee(agent, WorkerApi(egress, url, "agent"), name="w", tasks=1)
            working = asyncio.create_task(lessee.work(stop, 0.2))
            try:
                task = await connection.send("hi")
                assert isinstance(task, Task)
                return task.artifacts
            finally:
                stop.set()
                await working
    finally:
        await egress.close()


PLACES: dict[str, Place] = {
    "memory": on_memory,
    "a task": here(False),
    "a message that becomes a task": here("auto"),
    "a server": on_a_server,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_what_an_agent_says_is_in_its_record_and_in_the_answer(place: Place) -> None:
    seen: list[Any] = []

    async def script(run: Run) -> None:
        run.working()
        run.usage(Usage(1, 2, 3))
        await run.artifact(Artifact(artifact_id="a", name="name", parts=text("one")), append=False, last_chunk=False)
        await run.status(text("so far"), progress=(1, 2))
        run.note(place="Rome")
        await run.artifact(Artifact(artifact_id="a", parts=text(", two")), append=True, last_chunk=True)
        record = run.record
        assert record.progress is not None
        assert record.status.message is not None
        seen.append((record.status.message.text, record.progress.current, record.progress.total, record.note))
        seen.append(["".join(part.text or "" for part in artifact.parts) for artifact in record.artifacts])
        seen.append((run.message.text, run.epoch, run.canceled, run.shown, await run.history(5), await run.noted()))

    artifacts = await place(script)
    assert seen == [("so far", 1, 2, {"place": "Rome"}), ["one, two"], ("hi", 1, False, None, (), {})]
    assert [(a.artifact_id, a.name, "".join(part.text or "" for part in a.parts)) for a in artifacts] == [
        ("a", "name", "one, two")
    ]


@pytest.mark.parametrize("place", [*PLACES.values(), here(True)], ids=[*PLACES, "a message"])
async def test_an_argument_that_does_not_fit_never_becomes_a_word(place: Place) -> None:
    unfit: Any = [Part(text="half \ud800 a character")]
    refused: list[str] = []

    async def script(run: Run) -> None:
        words: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: run.status(unfit),
            lambda: run.status((), progress=(1, 1 << 60)),
            lambda: run.artifact(Artifact(artifact_id="a", parts=tuple(unfit)), append=False, last_chunk=True),
            lambda: run.ask(unfit),
        )
        for word in words:
            with pytest.raises(ValueError, match=r"^(parts|artifact\.parts|total)") as error:
                await word()
            refused.append(str(error.value))
        before = run.record
        for say in (run.note, run.note_soon):
            with pytest.raises(TypeError, match="note key"):
                say(key=unfit)
        assert run.record == before
        await run.artifact(Artifact(artifact_id="a", name="name", parts=text("fits")), append=False, last_chunk=True)

    artifacts = await place(script)
    assert len(refused) == 4
    assert [part.text for artifact in artifacts for part in artifact.parts] == ["fits"]
