"""SendMessage: what is refused, what is written, when it is answered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine.api import Run
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import (
    AgentNotFound,
    ContentTypeNotSupported,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.message import Part, Role
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    GetExtendedCard,
    GetTask,
    ListPushConfigs,
    PushConfig,
    Subscribe,
)
from dragoman.model.task import TaskState
from tests.engine.house import Scripted, echo, house, read, say, sending, seqs, streaming, text_of

S = TaskState


class Gate:
    """An agent that waits until it is let through."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        self.started.set()
        await self.opened.wait()
        await say(run, "done")


async def ask_city(run: Run) -> None:
    answer = await run.ask((Part(text="Which city?"),))
    await say(run, f"to {answer.text}")


async def test_a_blocking_send_is_answered_when_the_task_is_terminal() -> None:
    """A2A 1.0 §3.1.1, §3.2.2."""
    async with house() as h:
        task = await h.send("hello")
        assert task.state is S.COMPLETED
        assert text_of(task) == "hello"
        assert [m.text for m in task.history] == ["hello"]
        assert task.history[0].task_id == task.head.id
        assert task.history[0].context_id == task.head.context_id
        assert await h.get(task.head.id) == task


async def test_a_blocking_send_is_answered_when_the_task_waits_for_its_caller() -> None:
    """A2A 1.0 §3.2.2: interrupted states answer, too."""
    async with house(Scripted(ask_city)) as h:
        task = await h.send()
        assert task.state is S.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "Which city?"
        done = await h.send("Lyon", task_id=task.head.id)
        assert done.state is S.COMPLETED
        assert text_of(done) == "to Lyon"
        assert [m.text for m in done.history] == ["hi", "Which city?", "Lyon"]


async def test_a_send_that_does_not_wait_is_answered_once_the_task_is_written() -> None:
    """A2A 1.0 §3.2.2 returnImmediately."""
    gate = Gate()
    async with house(Scripted(gate)) as h:
        task = await h.send(return_immediately=True)
        assert task.state in (S.SUBMITTED, S.WORKING)
        gate.opened.set()
        await h.reach(task.head.id, S.COMPLETED)


async def test_the_task_is_written_before_the_agent_runs() -> None:
    """Invariant 7."""
    seen = []

    async with house(Scripted(lambda run: look(run))) as h:

        async def look(run: Run) -> None:
            seen.append(await h.store.load(run.head.id))

        await h.send()
        assert seen[0] is not None


async def test_a_context_id_is_generated_kept_inferred_and_refused_on_mismatch() -> None:
    """A2A 1.0 §3.4.1, §3.4.2."""
    async with house(Scripted(ask_city)) as h:
        fresh = await h.send()
        assert fresh.head.context_id
        kept = await h.send(context_id="mine")
        assert kept.head.context_id == "mine"
        with pytest.raises(InvalidParams, match="contextId"):
            await h.send("x", task_id=kept.head.id, context_id="other")
        done = await h.send("Lyon", task_id=kept.head.id)
        assert done.head.context_id == "mine"
        assert done.history[-1].context_id == "mine"


async def test_an_unknown_foreign_or_other_agents_task_is_not_found() -> None:
    """A2A 1.0 §3.4.2; invariant 9."""
    async with house(Scripted(ask_city), Scripted(ask_city, "other")) as h:
        task_id = (await h.send()).head.id
        for around in ({"owner": "bob"}, {"agent": "other"}):
            with pytest.raises(TaskNotFound):
                await h.send("x", task_id=task_id, around=around)
        with pytest.raises(TaskNotFound):
            await h.send("x", task_id="nope")
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
        await h.cancel(task_id)


async def test_a_foreign_task_is_not_read_to_find_out_whose_it_is(tmp_path: Path) -> None:
    """Else the time that takes would tell that there is one, and how large."""
    agents, url = (Scripted(echo), Scripted(echo, "other")), f"sqlite:///{tmp_path}/tasks.db"
    async with house(*agents, url=url) as h:
        task_id = (await h.send()).head.id
    async with house(*agents, url=url) as h:
        for operation in (GetTask(id=task_id), CancelTask(id=task_id), sending(task_id=task_id)):
            for around in ({"owner": "bob"}, {"agent": "other"}):
                with pytest.raises(TaskNotFound):
                    await h.ask(operation, **around)
        assert h.store.loaded == []
        await h.get(task_id)
        assert h.store.loaded == [task_id]


async def test_a_message_to_a_terminal_task_is_refused() -> None:
    """A2A 1.0 §3.1.1 UnsupportedOperationError."""
    async with house() as h:
        task = await h.send()
        with pytest.raises(UnsupportedOperation, match="has ended"):
            await h.send("more", task_id=task.head.id)
        assert (await h.get(task.head.id)).seq == task.seq


async def test_a_message_to_a_working_task_is_kept_and_answers_the_next_question() -> None:
    """Kept in the history, given to the next ask."""
    gate = Gate()

    async def script(run: Run) -> None:
        await gate(run)
        answer = await run.ask((Part(text="never asked"),))
        await say(run, answer.text, "b", append=False)

    async with house(Scripted(script)) as h:
        task_id = await h.begin()
        await gate.started.wait()
        await h.send("early", task_id=task_id, return_immediately=True)
        assert [m.text for m in (await h.get(task_id)).history] == ["hi", "early"]
        gate.opened.set()
        done = await h.reach(task_id, S.COMPLETED)
        assert text_of(done, 1) == "early"


async def test_an_agent_of_one_message_takes_no_further_one_while_it_works() -> None:
    gate = Gate()
    async with house(Scripted(gate, one_message=True)) as h:
        task_id = await h.begin()
        await gate.started.wait()
        with pytest.raises(UnsupportedOperation, match="no further message"):
            await h.send("early", task_id=task_id)
        gate.opened.set()


async def test_a_message_that_meets_the_question_on_its_way_answers_it() -> None:
    """Nothing decides by what is not in the log; no order of commits loses a message."""

    async def script(run: Run) -> None:
        first = await run.ask((Part(text="one?"),))
        second = await run.ask((Part(text="two?"),))
        await say(run, f"{first.text},{second.text}")

    async with house(Scripted(script)) as h:
        for turns in range(12):
            task_id = await h.begin()
            for _ in range(turns):
                await asyncio.sleep(0)
            await h.send("a", task_id=task_id, return_immediately=True)
            for _ in range(turns):
                await asyncio.sleep(0)
            await h.send("b", task_id=task_id, return_immediately=True)
            done = await h.reach(task_id, S.COMPLETED)
            assert text_of(done) == "a,b"


async def test_a_blocking_send_that_lasts_too_long_is_answered_with_the_task_as_it_is() -> None:
    """Invariant 6: the task goes on."""
    gate = Gate()
    async with house(Scripted(gate), blocking_timeout_s=0.05) as h:
        task = await h.send()
        assert task.state in (S.SUBMITTED, S.WORKING)
        gate.opened.set()
        await h.reach(task.head.id, S.COMPLETED)


async def test_a_blocking_answer_counts_only_what_follows_its_own_message() -> None:
    """The earlier question does not answer the next send."""
    gate = Gate()

    async def script(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await gate(run)

    async with house(Scripted(script)) as h:
        task = await h.send()
        sent = asyncio.create_task(h.send("Lyon", task_id=task.head.id))
        await gate.started.wait()
        assert not sent.done()
        gate.opened.set()
        assert (await sent).state is S.COMPLETED


async def test_a_caller_that_leaves_changes_nothing() -> None:
    """Invariant 6, at every moment of the way in."""
    async with house(Scripted(ask_city)) as h:
        for turns in range(8):
            context = f"context-{turns}"
            sent = asyncio.create_task(h.send(context_id=context))
            for _ in range(turns):
                await asyncio.sleep(0)
            sent.cancel()
            await asyncio.wait((sent,))
        while (page := await h.listed()).total_size < 7:  # the first caller left before its call had begun
            await asyncio.sleep(0)
        tasks = page.records
        for task in tasks:
            await h.reach(task.head.id, S.INPUT_REQUIRED)
        for turns, task in enumerate(tasks):
            sent = asyncio.create_task(h.send("Lyon", task_id=task.head.id))
            for _ in range(turns + 1):
                await asyncio.sleep(0)
            sent.cancel()
            await asyncio.wait((sent,))
            done = await h.reach(task.head.id, S.COMPLETED)
            assert text_of(done) == "to Lyon"


async def test_what_a_message_must_be() -> None:
    """A2A 1.0 §4.1.4, §4.1.5, §3.3.4."""
    async with house() as h:
        with pytest.raises(InvalidParams, match=r"message\.role"):
            await h.send(role=Role.AGENT)
        with pytest.raises(InvalidParams, match=r"message\.parts"):
            await h.send(parts=())
        with pytest.raises(PushNotificationNotSupported):
            await h.send(push_config=PushConfig(url="http://localhost"))
        with pytest.raises(InvalidParams, match=r"metadata\.skill"):
            await h.send(skill="fly")
        with pytest.raises(InvalidParams, match=r"configuration\.skills"):
            await h.send(skills=("talk", "fly"))
        with pytest.raises(AgentNotFound):
            await h.send(around={"agent": "nobody"})
        assert (await h.listed()).total_size == 0


async def test_media_types_that_do_not_fit_are_refused() -> None:
    """A2A 1.0 §3.1.1 ContentTypeNotSupportedError; the skill's modes before the agent's."""
    picture = Part(raw=b"x", media_type="image/png; q=1")
    draw = AgentSkill(
        id="draw", name="D", description="D", tags=(), input_modes=("image/*",), output_modes=("image/png",)
    )
    talk = AgentSkill(id="talk", name="T", description="T", tags=())
    modes: dict[str, Any] = {"input_modes": ("text/plain; charset=utf-8",), "output_modes": ("text/plain",)}
    async with house(Scripted(echo, skills=(talk, draw), **modes)) as h:
        assert (await h.send("x", accepted_output_modes=("Text/Plain",))).state is S.COMPLETED
        assert (await h.send("x", accepted_output_modes=("text/*", "image/png"))).state is S.COMPLETED
        with pytest.raises(ContentTypeNotSupported, match=r"parts\[0\]: .* does not accept image/png: send"):
            await h.send(parts=(picture,))
        with pytest.raises(ContentTypeNotSupported, match="acceptedOutputModes"):
            await h.send("x", accepted_output_modes=("image/png",))
        assert (await h.send(parts=(picture,), skill="draw", accepted_output_modes=("image/png",))).head.skill == "draw"
        with pytest.raises(ContentTypeNotSupported):
            await h.send("x", skills=("draw",))


async def test_push_and_the_extended_card_are_not_there() -> None:
    """A2A 1.0 §3.3.4, §3.1.11."""
    async with house() as h:
        for operation in (
            CreatePushConfig(config=PushConfig(url="http://x", task_id="t")),
            ListPushConfigs(task_id="t"),
        ):
            with pytest.raises(PushNotificationNotSupported):
                await h.ask(operation)
        with pytest.raises(UnsupportedOperation):
            await h.ask(GetExtendedCard())


async def test_the_extended_card_is_there_as_soon_as_callers_are_identified() -> None:
    """A2A 1.0 §3.1.11; what it has beyond the public one runs when it is named, and is not given away before."""
    talk, cook = (AgentSkill(id=name, name=name, description=name, tags=()) for name in ("talk", "cook"))
    asked = [False]
    agent = Scripted(echo, skills=(talk,), extended_skills=(cook,))
    async with house(agent, identified=lambda agent: asked[0]) as h:
        with pytest.raises(UnsupportedOperation):
            await h.ask(GetExtendedCard())
        asked[0] = True
        profile = await h.ask(GetExtendedCard())
        assert isinstance(profile, Profile)
        assert (profile.id, profile.skills, profile.extended_skills) == ("agent", (talk, cook), ())
        assert (await h.send(skill="cook")).head.skill == "cook"
        with pytest.raises(InvalidParams, match=r"use talk$"):
            await h.send(skill="fly")


async def test_a_full_store_is_unavailable_and_works_again() -> None:
    """Nothing is written, nothing runs; then it goes on as if nothing had been."""
    async with house() as h:
        h.store.full = 1
        with pytest.raises(Unavailable, match="full"):
            await h.send()
        assert h.in_memory == 0
        assert (await h.send()).state is S.COMPLETED
        assert (await h.listed()).total_size == 1


async def test_a_draining_engine_takes_no_new_work() -> None:
    """A2A message and stream alike: try again in a moment."""
    async with house() as h:
        await h.engine.drain(0)
        with pytest.raises(Unavailable):
            await h.send()
        with pytest.raises(Unavailable):
            await h.open(streaming())
        assert (await h.listed()).total_size == 0


async def test_numbers_beyond_64_bits_are_taken() -> None:
    """JSON has no largest integer."""
    async with house() as h:
        one = sending(metadata={"n": 10**30}, parts=(Part(data={"n": -(10**40)}),))
        first = await h.ask(one)
        assert first.state is S.COMPLETED
        assert (await h.ask(one)).head.id == first.head.id
        assert (await h.get(first.head.id)).head.metadata == {"n": 10**30}


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_task_that_a_list_shows_before_its_maker_knows_is_one_task(cancels: bool) -> None:
    """All see the same run of a task, in whatever order they find it."""
    gate = Gate()
    async with house(Scripted(gate)) as h:
        h.store.held = asyncio.Event()
        sent = asyncio.create_task(h.send())
        while not (found := (await h.listed()).records):
            await asyncio.sleep(0)
        task_id = found[0].head.id
        assert (await h.get(task_id)).state is S.SUBMITTED
        with pytest.raises(TaskNotFound):
            await h.get(task_id, owner="bob")
        stream = await h.open(Subscribe(id=task_id))
        canceled = asyncio.create_task(h.cancel(task_id)) if cancels else None
        await asyncio.sleep(0)
        h.store.held.set()
        gate.opened.set()
        items = await read(stream)
        assert seqs(items) == list(range(1, items[-1].seq + 1))
        assert (await sent).state is (S.CANCELED if cancels else S.COMPLETED)
        assert canceled is None or await canceled == await sent


async def test_a_task_that_is_written_after_the_drain_waits_for_the_next_start(tmp_path: Path) -> None:
    gate = Gate()
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with house(Scripted(gate, restartable=True), url=url) as h:
        sent = asyncio.create_task(h.send())
        await asyncio.sleep(0)
        await h.engine.drain(0)
        assert (await sent).state is S.SUBMITTED
        assert not gate.started.is_set()
    async with house(Scripted(gate, restartable=True), url=url) as h:
        gate.opened.set()
        await h.reach((await sent).head.id, S.COMPLETED)
