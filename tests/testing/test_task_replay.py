"""`dragoman.testing.replay` runs an agent against the log of a task, and `ctx.patched` lets its code change."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Agent, Context, TaskState, __version__
from dragoman.admin.logs import RecordedTask
from dragoman.testing import replay, task_replay
from tests.agents.python.test_steps import Ledger, agent_of, crash_at, stepped
from tests.engine.house import House, house

S = TaskState


async def recording(h: House, task_id: str) -> bytes:
    """The task as `dragoman admin tasks record` writes it."""
    log = await h.log(task_id)
    head = (await h.get(task_id)).head
    events = tuple(logged.event for logged in log)
    return msgspec.json.encode(RecordedTask(dragoman=__version__, head=head, events=events, seq=len(events)))


async def nothing(word: str = "") -> str:
    return word


async def journey(ctx: Context) -> str:
    await ctx.step("book", nothing, "train")
    answer = await ctx.ask("Window?")
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(branch(ctx))
    return answer


async def branch(ctx: Context) -> None:
    await ctx.step("seat", nothing, "12")


async def recorded(skill: Callable[[Any], Any], *answers: str) -> bytes:
    async with house(agent_of(skill)) as h:
        task = await h.send()
        for answer in answers:
            task = await h.send(answer, task_id=task.head.id)
        return await recording(h, task.head.id)


async def test_the_same_code_fits_a_task_that_has_ended_and_one_that_asks(tmp_path: Path) -> None:
    async def never(word: str = "") -> str:
        raise AssertionError("executed again")

    agent = agent_of(journey)
    whole = await recorded(journey, "yes")
    assert (await replay(whole, agent)).fits
    assert (await replay(whole, agent)).told == 4
    part = await recorded(journey)
    (tmp_path / "task.json").write_bytes(part)
    outcome = await replay(tmp_path / "task.json", agent)
    assert outcome.fits
    assert outcome.told == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (('"book"', '"reserve"'), "the step “book” is recorded, but the step “reserve” came"),
        (("Window?", "Aisle?"), "the question “Window?” is recorded, but the question “Aisle?” came"),
        (("range(2)", "range(1)"), "the step “seat” is recorded, but the end of the run came"),
        (("range(2)", "range(3)"), "the end of the task is recorded, but the step “seat” came"),
        (("return answer", "raise ValueError(3)"), "completed is recorded, but failed (ValueError: 3) came"),
    ],
)
async def test_the_first_word_that_differs_is_reported(change: tuple[str, str], text: str) -> None:
    whole = await recorded(journey, "yes")
    names: dict[str, Any] = dict(globals())
    exec(inspect.getsource(journey).replace(*change), names)
    outcome = await replay(whole, agent_of(names["journey"]))
    assert not outcome.fits
    assert text in str(outcome)


async def test_what_is_no_recorded_task_is_refused() -> None:
    for content in (b"{}", b"no", b'{"format": 2, "head": {}, "events": []}'):
        with pytest.raises(ValueError, match="dragoman admin tasks record"):
            await replay(content, agent_of(journey))


async def test_a_change_is_taken_by_new_tasks_and_not_by_those_of_before(tmp_path: Path) -> None:
    ledger = Ledger()

    async def before(ctx: Context) -> str:
        await ctx.step("one", ledger.charge, "one")
        await ctx.step("two", ledger.charge, "two")
        await ledger.reach("here")
        return "old"

    async def after(ctx: Context) -> str:
        await ctx.step("one", ledger.charge, "one")
        new = await ctx.patched("check-first")
        if new:
            await ctx.step("check", ledger.charge, "check")
        await ctx.step("two", ledger.charge, "two")
        await ledger.reach("here")
        return f"{new} {await ctx.patched('check-first')}"

    old = await crash_at(agent_of(before), tmp_path / "old", ledger, "here")
    new = await crash_at(agent_of(after), tmp_path / "new", ledger, "here")
    assert ledger.calls == ["one", "two", "one", "check", "two"]
    async with house(agent_of(after), url=f"sqlite:///{tmp_path}/old") as h:
        assert (await h.reach(old, S.COMPLETED)).artifacts[0].parts[0].text == "False False"
        assert [event.name for event in await stepped(h, old)] == ["one", "two"]
        assert (await replay(await recording(h, old), agent_of(after))).fits
    async with house(agent_of(after), url=f"sqlite:///{tmp_path}/new") as h:
        assert (await h.reach(new, S.COMPLETED)).artifacts[0].parts[0].text == "True True"
        assert [event.name for event in await stepped(h, new)] == ["one", "$patched", "check", "two"]
        assert (await replay(await recording(h, new), agent_of(after))).fits
        assert not (await replay(await recording(h, new), agent_of(before))).fits
    assert len(ledger.calls) == 5


@pytest.mark.parametrize("word", ["delegate", "ask"])
async def test_a_change_is_not_taken_before_a_delegation_or_an_early_answer_of_before(
    tmp_path: Path, word: str
) -> None:
    """Neither makes what was said before it a repetition, and yet the code of before has come further."""
    ledger, changed = Ledger(), asyncio.Event()

    async def skill(ctx: Context) -> str:
        await ledger.reach("beginning")
        new = changed.is_set() and await ctx.patched("weigh-first")
        if new:
            await ctx.step("weigh", ledger.charge, "weigh")
        said = (await ctx.delegate("other", "hello")).text if word == "delegate" else await ctx.ask("Which?")
        await ctx.progress(1, 2)
        await ledger.reach("here")
        return f"{new} {said}"

    async def other(ctx: Context) -> str:
        return "red"

    helper = Agent("other")
    helper.skill("help")(other)
    agent = agent_of(skill, restartable=True)
    ledger.hangs_at = "here"
    async with house(agent, helper, url=f"sqlite:///{tmp_path}/store", crashes=True) as h:
        if word == "ask":
            gate, reach = asyncio.Event(), ledger.reach

            async def wait(place: str) -> None:
                await (gate.wait() if place == "beginning" else reach(place))

            ledger.reach = wait  # type: ignore[method-assign]
            task_id = await h.begin()
            await h.begin("red", task_id=task_id)
            gate.set()
        else:
            task_id = await h.begin()
        async with asyncio.timeout(60):
            await ledger.hanging.wait()
        await asyncio.sleep(0.1)
    ledger.hangs_at = ""
    changed.set()
    async with house(agent, helper, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.COMPLETED, S.FAILED)
        assert done.state is S.COMPLETED, done.status.message
        assert done.artifacts[0].parts[0].text == "False red"


async def test_a_name_that_is_empty_is_refused() -> None:
    async def skill(ctx: Context) -> str:
        try:
            await ctx.patched("")
        except ValueError as error:
            return str(error)
        return ""

    async with house(Agent("agent"), agent_of(skill)) as h:
        assert "name is empty" in (await h.send()).artifacts[0].parts[0].text  # type: ignore[operator]


async def test_an_agent_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = await recorded(journey, "yes"), list[str]()

    async def endless(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(ctx.task_id)

    monkeypatch.setattr(task_replay, "REPLAY_S", 0.05)
    with pytest.raises(TimeoutError):
        await replay(whole, agent_of(endless))
    await asyncio.sleep(0)
    assert stopped
