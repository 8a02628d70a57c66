"""Runs: how they end, what they give out, what happens when they cannot write."""

import asyncio
import logging
import re
from typing import Any
from uuid import uuid4

import pytest

from dragoman.engine.api import Reject, Run
from dragoman.engine.runs import run_writer
from dragoman.model.errors import TaskTimeout, Unavailable
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.message import Artifact, Part
from dragoman.model.task import ModelUsage, Progress, TaskState, Usage
from tests.engine.house import House, Scripted, echo, house, read, say, seqs, streaming, text_of

S = TaskState


async def test_a_failure_has_a_reference_and_no_exception_text(caplog: pytest.LogCaptureFixture) -> None:
    """The text stays in the log of the server."""

    async def script(run: Run) -> None:
        await say(run, "half")
        raise RuntimeError("the secret of the database")

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is S.FAILED
        assert "secret" not in repr(task)
        assert task.status.message is not None
        found = re.search(r"reference ([0-9a-f]+)", task.status.message.text)
        assert found
        assert task.status.message.metadata == {"reason": "agent_error"}
        assert text_of(task) == "half"
        assert found[1] in caplog.text
        assert "the secret of the database" in caplog.text


class Foreign(BaseException):
    """As some libraries have for what nobody shall catch."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        BaseExceptionGroup("x", [SystemExit()]),
        RecursionError(),
        KeyboardInterrupt(),
        GeneratorExit(),
        Foreign(),
    ],
    ids=repr,
)
async def test_whatever_an_agent_raises_fails_its_task_and_nothing_else(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(run: Run) -> None:
        if run.message.text == "raise":
            raise error
        await echo(run)

    async with house(Scripted(script)) as h:
        task = await h.send("raise")
        assert task.state is S.FAILED
        assert (await h.send("go on")).state is S.COMPLETED
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_reject_rejects_with_its_text() -> None:
    async def script(run: Run) -> None:
        raise Reject("I only do weather")

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is S.REJECTED
        assert task.status.message is not None
        assert task.status.message.text == "I only do weather"


async def test_progress_usage_and_duration_are_in_the_task() -> None:
    """Fields that 1.0 lacks."""

    async with house(Scripted(lambda run: script(run))) as h:

        async def script(run: Run) -> None:
            run.usage(Usage(1, 2, 3))
            await run.status((Part(text="Looking"),), progress=(1, 3), metadata={"k": 1})
            run.usage(Usage(10, 20, 30))
            h.clock.ms += 1500

        items = await read(await h.open(streaming()))
        reported = items[2].event
        assert reported.progress == Progress(1, 3, "Looking")
        assert reported.usage == Usage(1, 2, 3)
        assert reported.metadata == {"k": 1}
        task = await h.get(items[0].record.head.id)
        assert task.progress == Progress(1, 3, "Looking")
        assert task.usage == Usage(11, 22, 33)
        assert task.duration_ms == 1500


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        (Usage.of(1 << 63, 1, model="m"), Usage.unknown("m")),
        (Usage.of(10**9999, 10**30), Usage.unknown()),
        (Usage.of(-5, 7), Usage.unknown()),
        (Usage.of(0, 7, -1), Usage.unknown()),
        (Usage.of(1, 7, cached_tokens=-1), Usage.unknown()),
        (Usage.of(1001, 7, model="m", upstream="eu"), Usage.unknown("m", "eu")),
        (Usage(1, 7, 8, (ModelUsage("m", 1, 7, 8), ModelUsage("n", 1, -7))), Usage.unknown("m") + Usage.unknown("n")),
        (Usage.of(500, 500, model="m"), Usage.of(500, 500, model="m")),
        (Usage.of(1, 2, model="\ud800"), Usage(1, 2, 3, (ModelUsage("?", 1, 2, 3),))),
    ],
)
async def test_a_task_ends_whatever_its_agent_reports_of_tokens(
    reported: Usage, kept: Usage, caplog: pytest.LogCaptureFixture
) -> None:
    """A report that is out of bounds is not counted. The operator reads so in the log, and finds it as uncertain."""

    async def script(run: Run) -> None:
        run.usage(reported)
        run.usage(Usage.of(1, 1))

    async with asyncio.timeout(60), house(Scripted(script), max_tokens_per_report=1000) as h:
        task = await h.send()
        assert (task.state, task.usage) == (S.COMPLETED, kept + Usage.of(1, 1))
    uncertain = any(model.uncertain for model in kept.models)
    assert ("a report of tokens is not counted" in caplog.text) == uncertain
    assert ("max_tokens_per_report" in caplog.text) == uncertain


async def test_the_first_chunk_of_an_artifact_is_never_an_append() -> None:
    """A2A 1.0 §4.2.2."""

    async def script(run: Run) -> None:
        for chunk in "abc":
            await say(run, chunk, append=True)
        await say(run, "new", append=False)

    async with house(Scripted(script)) as h:
        task = await h.send()
        log = await h.log(task.head.id)
        chunks = [item.event.append for item in log if isinstance(item.event, ArtifactChunk)]
        assert chunks == [False, True, True, False]
        assert text_of(task) == "new"


async def test_an_artifact_without_parts_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A2A 1.0 §4.1.9."""

    async def script(run: Run) -> None:
        await run.artifact(Artifact(artifact_id="a", parts=()), append=False, last_chunk=True)

    async with house(Scripted(script)) as h:
        assert (await h.send()).state is S.FAILED
    assert "has no parts" in caplog.text


async def test_an_agent_sees_what_it_has_given_out() -> None:
    """engine.api.Run.record: written and emitted."""
    seen = []

    async def script(run: Run) -> None:
        await say(run, "one")
        seen.append(text_of(run.record))
        await asyncio.sleep(0.01)
        await say(run, ", two")
        seen.append(text_of(run.record))

    async with house(Scripted(script)) as h:
        await h.send()
        assert seen == ["one", "one, two"]


@pytest.mark.parametrize(("count", "size"), [(1000, 1), (30, 100_000)])
async def test_an_agent_that_says_much_at_once_waits_for_the_store(count: int, size: int) -> None:
    """256 events or 1 MB, then it waits; everything arrives, once, in order."""

    async def script(run: Run) -> None:
        for number in range(count):
            await say(run, f"{number:05d}".ljust(size + 4, "."))

    async with house(Scripted(script)) as h:
        items = await read(await h.open(streaming()))
        assert seqs(items) == list(range(1, count + 4))
        most = max(len(append.events) for append in h.store.appends)
        assert most <= run_writer.BUFFER_EVENTS_MAX
        assert len(h.store.appends) >= count * (size + 4) // 1_500_000
        task = await h.get(items[0].record.head.id)
        assert [int(text[:5]) for text in re.findall(r"\d{5}", text_of(task))] == list(range(count))


async def test_snapshots_of_a_stream_stay_linear() -> None:
    """Invariant 8: all snapshots of n chunks together are O(n) bytes."""

    async def written(count: int) -> float:
        async def script(run: Run) -> None:
            for number in range(count):
                await say(run, f"{number:06d}" + "." * 94)
                if number % 4 == 0:
                    await asyncio.sleep(0)

        async with house(Scripted(script)) as h:
            await h.send()
            kept = [append.snapshot for append in h.store.appends if append.snapshot is not None]
            return sum(len(part.text or "") for task in kept for part in task.artifacts[0].parts) / count

    few, many = await written(100), await written(2000)
    assert many <= 4 * few


async def test_a_run_waits_out_a_full_store() -> None:
    """Issue §6: a full disk gives a clear error and the server recovers when there is space."""

    async def script(run: Run) -> None:
        for number in range(5):
            await say(run, str(number))
            await asyncio.sleep(0.005)

    async with house(Scripted(script), retry_s=0.01) as h:
        stream = await h.open(streaming())
        h.store.full = 5
        items = await read(stream)
        assert h.store.full == 0
        assert seqs(items) == list(range(1, 9))
        assert text_of(await h.get(items[0].record.head.id)) == "01234"


async def test_callers_are_told_of_a_run_that_cannot_write_until_their_time_is_over() -> None:
    began, message_id = asyncio.Event(), str(uuid4())

    async def script(run: Run) -> None:
        await run.written()
        h.store.full = 1 << 30
        began.set()
        answer = await run.ask((Part(text="Which?"),))
        await say(run, answer.text)

    async with house(Scripted(script), retry_s=0.01, blocking_timeout_s=0.5) as h:
        sent = asyncio.create_task(h.send(message_id=message_id))
        await began.wait()
        with pytest.raises(Unavailable, match="goes on when the server's store can be written") as late:
            await sent
        task_id = late.value.task_id
        with pytest.raises(Unavailable, match="disk is full") as refusal:
            await h.send("red", task_id=task_id)
        assert refusal.value.retry_after_s > 0
        h.store.full = 0
        await h.reach(task_id, S.INPUT_REQUIRED)
        again = await h.send(message_id=message_id)
        assert (again.head.id, again.state) == (task_id, S.INPUT_REQUIRED)
        done = await h.send("red", task_id=task_id)
        assert (done.state, text_of(done)) == (S.COMPLETED, "red")


async def test_callers_who_take_late_for_an_error_are_told_so_of_a_run_that_cannot_write() -> None:
    """Not Unavailable: their clients would send again without a key, and the task would be done twice."""

    async def script(run: Run) -> None:
        await run.written()
        h.store.full = 1 << 30
        await say(run, "done")

    async with house(Scripted(script), retry_s=0.01, blocking_timeout_s=0.3) as h:
        with pytest.raises(TaskTimeout) as late:
            await h.send(message_id="msg-1", around={"dialect": "beeos"})
        h.store.full = 0
        assert text_of(await h.reach(late.value.task_id, S.COMPLETED, dialect="beeos")) == "done"


async def test_what_cannot_be_written_fails_the_task(caplog: pytest.LogCaptureFixture) -> None:
    """Metadata that is not JSON: the task fails, with a reference, and the rest of the server goes on."""

    async def emit(run: Run) -> None:
        await run.status((), metadata={"k": object()})

    async def emit_and_wait(run: Run) -> None:
        await emit(run)
        await asyncio.Event().wait()

    async def give_data(run: Run) -> None:
        await run.artifact(Artifact(artifact_id="a", parts=(Part(data={object()}),)), append=False, last_chunk=True)

    async def reject(run: Run) -> None:
        raise Reject("\ud800")

    for script in (emit, emit_and_wait, give_data, reject):
        async with house(Scripted(script)) as h:
            task = await h.send()
            assert task.state is S.FAILED, script
            assert task.status.message is not None
            assert "reference" in task.status.message.text


async def test_what_an_agent_says_after_its_end_is_not_written() -> None:
    """Invariant 4, also for what an agent left running beside itself."""
    later: list[asyncio.Task[None]] = []

    async def script(run: Run) -> None:
        async def beside() -> None:
            while True:
                await say(run, "x")
                await asyncio.sleep(0)

        later.append(asyncio.create_task(beside()))
        await asyncio.sleep(0)

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is S.COMPLETED
        await asyncio.wait(later)
        log = await h.log(task.head.id)
        assert isinstance(log[-1].event, StatusChanged)
        assert log[-1].event.state is S.COMPLETED


async def test_an_agent_sees_its_references_and_the_history_of_the_context() -> None:
    """A2A 1.0 §3.4.1; only what is the caller's with this agent (invariant 9)."""
    seen: dict[str, Any] = {}

    async def script(run: Run) -> None:
        seen["references"] = await run.references()
        seen["history"] = [(m.role.value, m.text) for m in await run.history(3)]
        await echo(run)

    async def named(h: House, text: str, owner: str = "anna") -> str:
        return (await h.send(text, context_id="c", around={"owner": owner})).head.id

    async with house(Scripted(script)) as h:
        one, two, foreign = await named(h, "one"), await named(h, "two"), await named(h, "x", "bob")
        await h.send("three", context_id="c", reference_task_ids=(two, foreign, "nope", one))
        assert [task.head.id for task in seen["references"]] == [two, one]
        assert seen["history"] == [("ROLE_AGENT", "one"), ("ROLE_USER", "two"), ("ROLE_AGENT", "two")]
