"""Agents that answer with a Message or a task, as their work needs it (A2A 1.0 §3.1.1)."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from dragoman.bus.api import NoBus
from dragoman.engine import writes
from dragoman.engine.api import Delegation, Ended, Reject, Replied, Run
from dragoman.engine.handler import Direct, Snapshot
from dragoman.engine.runs.auto_run import AutoRun
from dragoman.engine.runs.message_sink import MessageSink
from dragoman.engine.runs.run_writer import BUFFER_EVENTS_MAX
from dragoman.model.errors import InvalidParams, TaskNotFound, TooManyRequests, Unavailable
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import PushConfig, SendMessage, Subscribe
from dragoman.model.task import Record, TaskState, Usage
from dragoman.telemetry.genai import InvokedHead, InvokedRunner, ToolCall
from tests.engine.house import DEADLINE_S, House, Scripted, echo, house, read, say, sending, states, streaming, text_of
from tests.engine.replicas import Stage, replicas
from tests.engine.webhook import Telling

Script = Callable[[Run], Awaitable[None]]
HI = (Part(text="hi"),)


def auto(script: Script, **fields: Any) -> Scripted:
    """An agent that has all the time that a test takes, unless it is given less."""
    return Scripted(script, direct="auto", **fields)


class Held:
    """An agent that says something, waits, and says something more."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.canceled: list[bool] = []
        self.runs = 0

    async def __call__(self, run: Run) -> None:
        self.runs += 1
        self.begun.set()
        await say(run, "one", "a", append=False)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.canceled.append(run.canceled)
            raise
        await say(run, " two", "a")


async def begun(h: House, held: Held, operation: SendMessage, **around: Any) -> "asyncio.Task[Any]":
    """A call whose agent is at work."""
    asked = asyncio.create_task(h.ask(operation, **around))
    async with asyncio.timeout(DEADLINE_S):
        await held.begun.wait()
    return asked


async def draining(h: House) -> "asyncio.Task[None]":
    """A stop of the engine that has begun, and gives runs all the time they need."""
    stopping = asyncio.create_task(h.drain(DEADLINE_S))
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await h.open(Subscribe(id=new_id()))
            except TaskNotFound:
                await asyncio.sleep(0)
            except Unavailable:
                return stopping


async def test_a_run_that_needs_no_task_is_a_message() -> None:
    async def script(run: Run) -> None:
        run.usage(Usage(1, 1, 1))
        run.working()
        await say(run, "one", "a", append=False)
        await say(run, ", two", "a")
        await say(run, "three", "b", append=False)
        assert [a.artifact_id for a in run.record.artifacts] == ["a", "b"]
        assert (run.canceled, run.shown) == (False, None)

    async with house(auto(script)) as h:
        answer = await h.ask(sending("hi", context_id="c"))
        assert isinstance(answer, Message)
        assert [part.text for part in answer.parts] == ["one, two", "three"]
        assert (answer.role, answer.context_id, answer.task_id) == (Role.AGENT, "c", None)
        assert (await h.listed()).total_size == 0


async def test_a_message_that_is_said_outright() -> None:
    async def script(run: Run) -> None:
        await say(run, "so far")
        raise Replied((Part(text="and this"),))

    async with house(auto(script)) as h:
        answer = await h.ask(sending())
        assert [part.text for part in answer.parts] == ["so far", "and this"]
        task = await h.send(return_immediately=True)
        ended = await h.reach(task.head.id, TaskState.COMPLETED)
        assert text_of(ended) == "so far"
        assert ended.status.message is not None
        assert ended.status.message.text == "and this"


async def test_a_run_that_says_nothing_is_an_empty_message() -> None:
    async def script(run: Run) -> None:
        return

    async with house(auto(script)) as h:
        assert (await h.ask(sending())).parts == (Part(text=""),)


async def status(run: Run) -> None:
    await run.status(HI)


async def progress(run: Run) -> None:
    await run.status((), progress=(1, 2))


async def named(run: Run) -> None:
    await run.artifact(Artifact(artifact_id="x", parts=HI, name="x.txt"), append=False, last_chunk=True)


async def large(run: Run) -> None:
    await run.artifact(Artifact(artifact_id="x", parts=(Part(raw=bytes(1_000_001)),)), append=False, last_chunk=True)


async def history(run: Run) -> None:
    assert await run.history(1) == ()


async def note(run: Run) -> None:
    run.note(a="b")
    assert run.record.note == {"a": "b"}


async def waiting(run: Run) -> None:
    run.waiting(HI)


async def written(run: Run) -> None:
    await run.written()


async def delegate(run: Run) -> None:
    assert (await run.delegate(Delegation(agent="other", parts=HI))).task_id


async def fail(run: Run) -> None:
    raise Ended(TaskState.FAILED, HI)


async def finish(run: Run) -> None:
    raise Ended(TaskState.COMPLETED, HI)


async def reject(run: Run) -> None:
    raise Reject("no")


async def error(run: Run) -> None:
    raise RuntimeError("secret")


async def own_cancel(run: Run) -> None:
    raise asyncio.CancelledError


NEEDS = (status, progress, named, large, history, note, waiting, written, delegate, finish)
FAILS = {fail: TaskState.FAILED, reject: TaskState.REJECTED, error: TaskState.FAILED, own_cancel: TaskState.FAILED}


@pytest.mark.parametrize("need", [*NEEDS, *FAILS], ids=lambda need: need.__name__)
async def test_what_a_message_cannot_hold_makes_a_task_with_all_that_was_said(need: Script) -> None:
    ids: list[str] = []

    async def script(run: Run) -> None:
        ids.append(run.head.id)
        await say(run, "before", append=False)
        run.usage(Usage(1, 2, 3))
        await need(run)
        await say(run, ", after")

    async with house(auto(script), Scripted(echo, "other")) as h:
        record = await h.ask(sending())
        assert isinstance(record, Record)
        assert (record.head.id, record.usage) == (ids[0], Usage(1, 2, 3))
        assert record.state is FAILS.get(need, TaskState.COMPLETED)
        assert text_of(record) == ("before" if need in FAILS or need is finish else "before, after")
        assert len(ids) == 1
        assert await h.get(ids[0]) == record


async def test_a_question_makes_a_task_that_waits_for_the_caller() -> None:
    runs = 0

    async def script(run: Run) -> None:
        nonlocal runs
        runs += 1
        await say(run, "before", append=False)
        await say(run, (await run.ask((Part(text="which?"),))).text, "b")

    async with house(auto(script)) as h:
        asked = await h.send()
        assert asked.state is TaskState.INPUT_REQUIRED
        ended = await h.send("this", task_id=asked.head.id)
        assert (ended.state, text_of(ended), text_of(ended, 1)) == (TaskState.COMPLETED, "before", "this")
        assert runs == 1


async def test_a_run_that_takes_long_becomes_a_task_and_its_stream_begins() -> None:
    held = Held()
    async with house(auto(held, direct_wait_s=0.01)) as h:
        stream = await h.open(streaming())
        assert stream.head is not None
        held.gate.set()
        items = await read(stream)
        assert isinstance(items[0], Snapshot)
        assert items[0].record.state is TaskState.SUBMITTED
        assert states(items) == [TaskState.WORKING, TaskState.COMPLETED]
        assert text_of(await h.get(stream.head.id)) == "one two"
        assert held.runs == 1


async def test_a_stream_of_a_message_is_exactly_that() -> None:
    async with house(auto(echo)) as h:
        stream = await h.open(streaming("hi"))
        assert stream.head is None
        items = await read(stream)
        assert [type(item) for item in items] == [Direct]
        assert items[0].message.text == "hi"


async def test_some_requests_are_always_tasks() -> None:
    async with house(auto(echo), announcer=Telling()) as h:
        assert isinstance(await h.ask(sending(return_immediately=True)), Record)
        assert isinstance(await h.ask(sending(push_config=PushConfig(task_id="", url="http://hook.test/"))), Record)
        assert isinstance(await h.ask(sending(), dialect="kaos"), Record)

    async def asks(run: Run) -> None:
        await run.ask(HI)

    async with house(auto(asks)) as h:
        asked = await h.send()
        assert isinstance(await h.ask(sending(task_id=asked.head.id)), Record)


async def test_a_delegation_to_it_is_a_task() -> None:
    async def boss(run: Run) -> None:
        outcome = await run.delegate(Delegation(agent="agent", parts=HI))
        await say(run, outcome.task_id)

    async with house(Scripted(boss, "boss"), auto(echo)) as h:
        record = await h.send(around={"agent": "boss"})
        assert (await h.get(text_of(record))).state is TaskState.COMPLETED


async def test_a_repeated_call_has_the_same_outcome_however_it_is_repeated() -> None:
    runs: list[str] = []

    async def script(run: Run) -> None:
        runs.append(run.message.text)
        if run.message.text == "task":
            await run.status(HI)
        await echo(run)

    async with house(auto(script)) as h:
        once = sending("hi")
        answer = await h.ask(once)
        again = SendMessage(message=once.message, return_immediately=True)
        assert await h.ask(once) == await h.ask(again) == answer
        assert isinstance((await read(await h.open(streaming(message_id=once.message.message_id))))[0], Direct)
        assert runs == ["hi"]
        assert isinstance(await h.ask(once, dialect="kaos"), Record), "there it cannot be shown"
        assert runs == ["hi", "hi"]

        made = sending("task")
        task = await h.ask(made)
        assert await h.ask(made) == task
        assert runs == ["hi", "hi", "task"]

        await h.ask(sending("x"), idempotency_key="k")
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.ask(sending("other"), idempotency_key="k")


@pytest.mark.parametrize("becomes_task", [True, False])
async def test_a_call_that_is_repeated_meanwhile_waits_for_the_same_run(becomes_task: bool) -> None:
    held = Held()

    async def script(run: Run) -> None:
        await held(run)
        if becomes_task:
            await run.status(HI)

    async with house(auto(script)) as h:
        once = sending()
        first = await begun(h, held, once, idempotency_key="k")
        second = asyncio.create_task(h.ask(once, idempotency_key="k"))
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.ask(sending("other"), idempotency_key="k")
        held.gate.set()
        answers = await asyncio.gather(first, second)
        assert isinstance(answers[0], Record if becomes_task else Message)
        assert answers[0] == answers[1]
        assert held.runs == 1


async def test_another_call_with_the_same_message_id_has_an_outcome_of_its_own() -> None:
    held = Held()
    async with house(auto(held)) as h:
        message_id = new_id()
        first = await begun(h, held, sending("one", message_id=message_id))
        held.gate.set()
        second = await h.ask(sending("two", message_id=message_id))
        assert second.message_id != (await first).message_id


@pytest.mark.parametrize("becomes_task", [True, False])
async def test_a_caller_that_leaves_changes_nothing(becomes_task: bool) -> None:
    held = Held()
    async with house(auto(held, direct_wait_s=0.01 if becomes_task else DEADLINE_S)) as h:
        once = sending()
        first = await begun(h, held, once)
        first.cancel()
        await asyncio.wait([first])
        if not becomes_task:
            held.gate.set()
        again = asyncio.create_task(h.ask(once))
        if becomes_task:
            async with asyncio.timeout(DEADLINE_S):
                while not (page := await h.listed()).records:
                    await asyncio.sleep(0)
            await h.reach(page.records[0].head.id, TaskState.WORKING)
            held.gate.set()
        assert isinstance(await again, Record if becomes_task else Message)
        assert held.runs == 1


async def test_what_became_a_task_is_canceled_as_every_task() -> None:
    held = Held()
    async with house(auto(held, direct_wait_s=0.01)) as h:
        stream = await h.open(streaming())
        assert stream.head is not None
        await h.reach(stream.head.id, TaskState.WORKING)
        assert (await h.cancel(stream.head.id)).state is TaskState.CANCELED
        assert held.canceled == [True]
        await read(stream)


async def test_a_stop_ends_an_undecided_run_without_a_trace() -> None:
    held = Held()
    async with house(auto(held)) as h:
        asked = await begun(h, held, sending())
        await h.drain(0.0)
        with pytest.raises(Unavailable, match="stopping"):
            await asked
        assert held.canceled == [True]
        assert not (await h.listed()).records


async def test_a_stop_waits_for_an_undecided_run() -> None:
    held = Held()
    async with house(auto(held)) as h:
        asked = await begun(h, held, sending())
        stopping = await draining(h)
        held.gate.set()
        assert (await asked).parts[0].text == "one two"
        await stopping


async def test_a_run_may_become_a_task_while_the_server_stops() -> None:
    held = Held()

    async def script(run: Run) -> None:
        await held(run)
        await run.status(HI)

    async with house(auto(script)) as h:
        asked = await begun(h, held, sending())
        stopping = await draining(h)
        held.gate.set()
        assert (await asked).state is TaskState.COMPLETED
        await stopping


async def test_a_reload_waits_for_an_undecided_run_even_if_its_caller_has_left() -> None:
    held = Held()
    agent = auto(held)
    async with house(agent) as h:
        asked = await begun(h, held, sending())
        asked.cancel()
        await asyncio.wait([asked])
        finished = asyncio.create_task(h.engine.finished(h.engine.serve({}), [agent]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not finished.done()
        held.gate.set()
        async with asyncio.timeout(DEADLINE_S):
            await finished


class Watching:
    """An observer of the runs, and their one execution."""

    context = None
    traceparent = "00-trace"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def submitted(self, agent: str) -> None:
        self.seen.append("submitted")

    def cancel_requested(self, agent: str) -> None:
        pass

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        pass

    def taken_over(self, agent: str) -> None:
        pass

    def lease_lost(self, agent: str) -> None:
        pass

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        pass

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> "Watching":
        self.seen.append("executing")
        return self

    def step_begins(self, name: str, key: str) -> "Watching":
        return self

    def executed(self, attempts: int, failure: str | None) -> None:
        pass

    def interrupted(self) -> None:
        pass

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        pass

    def step_replayed(self) -> None:
        pass

    def sleeps(self, until: str) -> None:
        pass

    def tool_called(self, call: ToolCall) -> None:
        pass

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        pass

    def finished(self, state: str) -> None:
        self.seen.append(state)


async def test_a_run_is_observed_once_whatever_it_becomes() -> None:
    traced: list[str | None] = []

    async def script(run: Run) -> None:
        traced.append(run.traceparent)
        if run.message.text == "task":
            await run.status(HI)
        if run.message.text == "fail":
            raise RuntimeError("secret")

    watching = Watching()
    async with house(auto(script), observer=watching) as h:
        for text, expected in (
            ("message", ["executing", "completed"]),
            ("task", ["executing", "submitted", "completed"]),
            ("fail", ["executing", "submitted", "failed"]),
        ):
            watching.seen.clear()
            await h.ask(sending(text))
            async with asyncio.timeout(DEADLINE_S):
                while len(watching.seen) < len(expected):
                    await asyncio.sleep(0)
            assert watching.seen == expected
        assert traced == ["00-trace"] * 3


async def test_after_a_crash_an_undecided_run_is_run_anew_and_a_task_goes_on(tmp_path: Any) -> None:
    held, url = Held(), f"sqlite://{tmp_path}/s.db"
    once = sending()
    async with house(auto(held), url=url, crashes=True) as h:
        asked = await begun(h, held, once)
    assert isinstance((await asyncio.gather(asked, return_exceptions=True))[0], Unavailable)
    held.gate.set()
    async with house(auto(held), url=url) as h:
        assert not (await h.listed()).records
        assert isinstance(await h.ask(once), Message)
        assert held.runs == 2

    held = Held()
    async with house(auto(held, direct_wait_s=0.01, restartable=True), url=url, crashes=True) as h:
        stream = await h.open(streaming())
        assert stream.head is not None
        await h.reach(stream.head.id, TaskState.WORKING)
    held.gate.set()
    async with house(auto(held, restartable=True), url=url) as h:
        ended = await h.reach(stream.head.id, TaskState.COMPLETED)
        assert (text_of(ended), held.runs) == ("one two", 2)


async def test_only_a_task_counts_against_the_quota() -> None:
    canceled: list[bool] = []

    async def script(run: Run) -> None:
        await echo(run)
        if run.message.text == "task":
            try:
                await run.status(HI)
            except asyncio.CancelledError:
                canceled.append(run.canceled)
                raise

    async with house(auto(script), max_daily_tasks=1) as h:
        for _ in range(3):
            assert isinstance(await h.ask(sending()), Message)
        assert isinstance(await h.ask(sending("task")), Record)
        with pytest.raises(TooManyRequests):
            await h.ask(sending("task"))
        assert canceled == [True]
        assert isinstance(await h.ask(sending()), Message)


async def test_a_task_that_cannot_be_written_stops_the_agent_and_may_be_sent_again() -> None:
    held = Held()
    async with house(auto(held, direct_wait_s=0.01)) as h:
        h.store.full = 1
        once = sending()
        with pytest.raises(Unavailable):
            await h.ask(once)
        assert held.canceled == [True]
        held.gate.set()
        assert isinstance(await h.ask(once), Message | Record)
        assert held.runs == 2


async def test_a_task_whose_write_is_unacknowledged_goes_on_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "STALLED_S", 0.05)
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)
    runs = 0

    async def script(run: Run) -> None:
        nonlocal runs
        runs += 1
        await echo(run)
        await run.status(HI)

    async with house(auto(script)) as h:
        h.store.lost = 1 << 30
        once = sending()
        with pytest.raises(Unavailable):  # it is not known yet whether there is a task
            await h.ask(once)
        h.store.lost = 0
        again = await h.ask(once)
        assert isinstance(again, Record)
        assert text_of(await h.reach(again.head.id, TaskState.COMPLETED)) == "hi"
        assert runs == 1


async def test_the_first_outcome_on_any_replica_counts() -> None:
    """A call that reaches two replicas at once is run twice, and has one outcome."""
    for first, second in ((Message, Message), (Record, Record)):
        stage = TwoRuns(becomes_task=first is Record)
        async with replicas(2, stage, NoBus) as (a, b):
            once = sending()
            calls = [asyncio.create_task(replica.ask(once)) for replica in (a, b)]
            async with asyncio.timeout(DEADLINE_S):
                await stage.both.wait()
            stage.gates[0].set()
            done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
            assert len(done) == len(pending) == 1
            stage.gates[1].set()
            answers = await asyncio.gather(*calls)
            assert [type(answer) for answer in answers] == [first, second]
            if first is Message:
                assert answers[0] == answers[1]
            else:
                assert answers[0].head.id == answers[1].head.id


class TwoRuns(Stage):
    """An agent on two replicas; each of its runs waits for a gate."""

    def __init__(self, *, becomes_task: bool) -> None:
        super().__init__()
        self.both = asyncio.Event()
        self.gates = [asyncio.Event(), asyncio.Event()]
        self._becomes_task = becomes_task
        self._runs = 0

    def agent(self) -> Scripted:
        return auto(self._wait)

    async def _wait(self, run: Run) -> None:
        gate = self.gates[self._runs]
        self._runs += 1
        if self._runs == 2:
            self.both.set()
        await gate.wait()
        await echo(run)
        if self._becomes_task:
            await run.status(HI)


# -- what it leaves ----------------------------------------------------------------------------------------------------


async def _reports(run: Run) -> None:
    await run.status(HI)
    await say(run, "done", "a", append=False)


@pytest.mark.parametrize("script", [echo, _reports])
async def test_an_execution_that_is_over_waits_for_no_garbage_collection(script: Script) -> None:
    async with house(auto(script)) as h:
        await h.ask(sending())
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await h.ask(sending())
            await asyncio.sleep(0.05)
            left = [each for each in gc.get_objects() if isinstance(each, AutoRun | MessageSink)]
        finally:
            gc.enable()
    assert left == []


async def test_tokens_that_are_reported_while_the_task_takes_over_count() -> None:
    """The task takes what was said before in several writes; the agent goes on meanwhile."""

    async def script(run: Run) -> None:
        for number in range(2 * BUFFER_EVENTS_MAX):
            await say(run, f"{number} ", "a")
        run.usage(Usage.of(1, 1))
        sink = run.sink
        run.note(kept="yes")
        while not run.record.note and run.sink is sink:
            await asyncio.sleep(0)
        while run.sink is sink:
            run.usage(Usage.of(0, 1))
            counted.append(1)
            await asyncio.sleep(0)

    counted: list[int] = []
    async with house(auto(script)) as h:
        task = await h.send()
    assert counted
    assert task.usage is not None
    assert (task.usage.input_tokens, task.usage.output_tokens) == (1, 1 + len(counted))
