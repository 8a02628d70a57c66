"""Steps of Python agents: each is executed once, and a later run of its task goes on with what was recorded."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from dragoman import Agent, Context, Part, Reject, StepFailed, SyncContext, TaskState
from dragoman.agents.python.step_values import parts_of_result, result_of_parts
from dragoman.model.events import StepBegun, Stepped
from dragoman.testing import run
from tests.engine.house import House, call, house, sending
from tests.kit.waiting import until

S = TaskState


@dataclass
class Quote:
    price: int
    where: tuple[str, ...] = ()


class Struct(msgspec.Struct):
    price: int


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(alias="guestName")
    photo: bytes = b""


class Room(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    beds: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def guests(self) -> int:
        return 2 * self.beds


@dataclass
class Booking:
    guest: Guest


GUEST = Guest(guestName="Anna")


class Ledger:
    """What steps have done, outside of any task. Each call is an entry; `died` is set when the agent shall hang."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hangs_at = ""
        self.hanging = asyncio.Event()

    def enter(self, name: str) -> str:
        self.calls.append(name)
        return f"{name} {len(self.calls)}"

    async def charge(self, name: str) -> str:
        return self.enter(name)

    async def reach(self, place: str) -> None:
        """Hang at this place for ever, if the test says so."""
        if place == self.hangs_at:
            self.hanging.set()
            await asyncio.Event().wait()


def agent_of(skill: Callable[[Any], Any], **declared: Any) -> Agent:
    agent = Agent("agent", **declared)
    agent.skill("skill")(skill)
    return agent


async def crash_at(agent: Agent, store: Path, ledger: Ledger, place: str) -> str:
    """Send a message, and end the server as by a crash when its agent is at the place. Returns the id of the task."""
    ledger.hangs_at = place
    ledger.hanging.clear()
    async with house(agent, url=f"sqlite:///{store}", crashes=True) as h:
        task_id = await h.begin()
        async with asyncio.timeout(60):
            await ledger.hanging.wait()
    ledger.hangs_at = ""
    return task_id


async def stepped(h: House, task_id: str) -> list[Stepped]:
    return [logged.event for logged in await h.log(task_id) if isinstance(logged.event, Stepped)]


# -- in one run --------------------------------------------------------------------------------------------------------


async def test_a_step_calls_its_function_once_and_is_recorded() -> None:
    ledger = Ledger()

    async def skill(ctx: Context) -> str:
        first = await ctx.step("charge", ledger.charge, "card")
        second = await ctx.step("note", ledger.enter, name="book")
        third = await ctx.step("lambda", lambda: ledger.charge("late"))
        return f"{first}, {second}, {third}"

    ran = await run(agent_of(skill))
    assert ran.text == "card 1, book 2, late 3"
    assert ran.steps == ["charge", "note", "lambda"]
    async with house(agent_of(skill)) as h:
        done = await h.send()
        events = await stepped(h, done.head.id)
    assert [(event.name, event.placed.place, event.attempts) for event in events] == [
        ("charge", "1", 1),
        ("note", "2", 1),
        ("lambda", "3", 1),
    ]
    assert done.steps == 3


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "text",
        "ü" * 700_000,
        b"\x00bytes",
        b"x" * 1_500_000,
        0,
        1.5,
        True,
        [1, "a", None],
        {"a": {"b": [1, 2]}},
        Part(text="hi"),
        [Part(text="a"), Part(raw=b"b", media_type="image/png")],
        Quote(3, ("here",)),
        Struct(4),
        [Quote(1)],
        {"big": "x" * 1_100_000},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_comes_back_from_the_log_as_it_was(value: object) -> None:
    def returning() -> list[Quote]:
        raise NotImplementedError

    def unsaid():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    function = returning if value == [Quote(1)] else unsaid
    parts, form = parts_of_result(value, function)
    assert result_of_parts(parts, form, function) == value


@pytest.mark.parametrize(
    ("value", "comes_back"), [((1, 2), [1, 2]), ({1: "a"}, {"1": "a"}), ([Quote(1)], [{"price": 1, "where": []}])]
)
def test_the_first_run_goes_on_with_what_a_later_one_gets(value: object, comes_back: object) -> None:
    def unsaid():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    parts, form = parts_of_result(value, unsaid)
    assert result_of_parts(parts, form, unsaid) == comes_back


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (GUEST, None),
        (GUEST, Guest),
        (Booking(GUEST), None),
        ([GUEST], list[Guest]),
        ({"first": GUEST}, dict[str, Guest]),
        ((GUEST, 1), tuple[Guest, int]),
        (None, Guest | None),
    ],
)
def test_models_of_pydantic_come_back_from_within_other_values_and_with_aliases(value: object, said: object) -> None:
    def returning():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    if said is not None:
        returning.__annotations__["return"] = said
    parts, form = parts_of_result(value, returning)
    assert result_of_parts(parts, form, returning) == value


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (object, TypeError, "step 'made': result"),
        (lambda: Room(beds=1), TypeError, "step 'made': result: Room cannot be made again of its own JSON"),
        (lambda: Guest(guestName="Anna", photo=b"\xff"), ValueError, "step 'made': .*utf-8"),
    ],
    ids=["object", "unlike its JSON", "unlike text"],
)
async def test_a_result_that_cannot_be_recorded_says_which_step(
    function: Callable[[], object], kind: type[Exception], text: str
) -> None:
    async def skill(ctx: Context) -> None:
        await ctx.step("made", function)

    async with house(agent_of(skill)) as h:
        with pytest.raises(kind, match=text):
            await run(agent_of(skill))
        done = await h.send()
        assert done.state is S.FAILED
        assert await stepped(h, done.head.id) == []


async def test_retries_pause_and_end_in_a_failure_that_has_its_cause() -> None:
    times: list[float] = []

    async def flaky() -> str:
        times.append(time.monotonic())
        if len(times) < 3:
            raise ValueError(f"attempt {len(times)}")
        return "done"

    async def skill(ctx: Context) -> str:
        return await ctx.step("flaky", flaky, retries=2, backoff_s=0.05)

    async with house(agent_of(skill)) as h:
        done = await h.send()
        (event,) = await stepped(h, done.head.id)
    assert event.attempts == 3
    assert times[1] - times[0] >= 0.05
    assert times[2] - times[1] >= 0.1

    async def failing(ctx: Context) -> str:
        try:
            await ctx.step("broken", broken, retries=1, backoff_s=0)
        except StepFailed as failed:
            return f"{failed.name} {failed.type} {failed.text} {failed.__cause__!r}"
        return "no failure"

    def broken() -> None:
        raise ValueError("no money")

    assert (await run(agent_of(failing))).text == "broken ValueError no money ValueError('no money')"


async def test_a_plain_function_that_takes_too_long_is_left_behind_and_not_tried_again() -> None:
    ledger, go_on = Ledger(), Event()

    def slow() -> None:
        ledger.enter("slow")
        go_on.wait(60)

    async def skill(ctx: Context) -> str:
        try:
            await ctx.step("slow", slow, timeout_s=0.05, retries=3, backoff_s=0)
        except StepFailed as failed:
            return failed.type
        return "in time"

    agent = agent_of(skill)
    assert (await run(agent)).text == "TimeoutError"
    assert ledger.calls == ["slow"]
    assert agent.threads.of_steps.left_behind == 1
    go_on.set()
    await until(lambda: agent.threads.of_steps.taken == 0)
    go_on.clear()

    def plain(ctx: SyncContext) -> str:
        try:
            ctx.step("slow", slow, timeout_s=0.05)
        except StepFailed as failed:
            return failed.type
        return "in time"

    assert (await run(agent_of(plain))).text == "TimeoutError"
    go_on.set()


@pytest.mark.parametrize("timeout_s", [None, 5])
async def test_a_plain_function_that_raises_a_timeout_of_its_own_is_tried_again(timeout_s: float | None) -> None:
    ledger = Ledger()

    def read() -> str:
        if ledger.enter("read") == "read 1":
            raise TimeoutError("the socket")
        return "done"

    async def skill(ctx: Context) -> str:
        return await ctx.step("read", read, timeout_s=timeout_s, retries=1, backoff_s=0)

    assert (await run(agent_of(skill))).text == "done"


async def test_an_async_function_is_stopped_at_its_timeout_and_tried_again() -> None:
    ledger = Ledger()

    async def slow() -> str:
        if ledger.enter("slow") == "slow 1":
            await asyncio.Event().wait()
        return "done"

    async def skill(ctx: Context) -> str:
        return await ctx.step("slow", slow, timeout_s=0.05, retries=1, backoff_s=0)

    assert (await run(agent_of(skill))).text == "done"
    assert ledger.calls == ["slow", "slow"]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_step_that_takes_too_long_says_so(kind: str) -> None:
    go_on = Event()

    async def wait() -> None:
        await asyncio.Event().wait()

    slow = wait if kind == "async" else lambda: go_on.wait(60)

    async def skill(ctx: Context) -> str:
        try:
            await ctx.step("slow", slow, timeout_s=0.05)
        except StepFailed as failed:
            return f"{failed.type}: {failed.text}"
        return "in time"

    assert (await run(agent_of(skill))).text == "TimeoutError: it took longer than 0.05 s"
    go_on.set()


async def test_a_plain_skill_has_its_functions_called_in_its_own_thread_and_may_report_meanwhile() -> None:
    def skill(ctx: SyncContext) -> str:
        here: list[object] = []

        def work(word: str) -> str:
            here.append(Thread)
            ctx.progress(1, 2, f"{word}ing")
            return f"{word} {ctx.step_key.rpartition(':')[2]}"

        one, two = ctx.step("one", work, "one"), ctx.step("two", lambda: work("two"))
        return f"{one}, {two}"

    ran = await run(agent_of(skill))
    assert ran.text == "one 1, two 2"
    assert ran.statuses == ["oneing", "twoing"]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_word_told_in_a_step_raises_and_names_both(plain: bool) -> None:
    async def inner(ctx: Context) -> None:
        await ctx.step("inner", print)

    async def skill(ctx: Context) -> None:
        await ctx.step("outer", inner, ctx)

    def plain_skill(ctx: SyncContext) -> None:
        ctx.step("outer", lambda: ctx.step("inner", print))

    async with house(agent_of(plain_skill if plain else skill)) as h:
        with pytest.raises(RuntimeError, match="step 'inner' is told while step 'outer' is executed"):
            await run(agent_of(plain_skill if plain else skill))
        done = await h.send()
        assert done.state is S.FAILED
        assert await stepped(h, done.head.id) == []


async def test_a_thread_of_the_skill_itself_cannot_tell_steps() -> None:
    def skill(ctx: SyncContext) -> str:
        said: list[str] = []

        def elsewhere() -> None:
            try:
                ctx.step("there", print)
            except RuntimeError as error:
                said.append(str(error))

        thread = Thread(target=elsewhere)
        thread.start()
        thread.join(60)
        return said[0]

    assert "a thread that a skill has started itself cannot tell steps" in (await run(agent_of(skill))).text


@pytest.mark.parametrize("word", ["reject", "finish", "fail"])
async def test_an_end_of_the_task_within_a_step_is_not_recorded(word: str) -> None:
    async def skill(ctx: Context) -> None:
        async def end() -> None:
            if word == "reject":
                raise Reject("no")
            await (ctx.finish if word == "finish" else ctx.fail)("so it is")

        await ctx.step("end", end, retries=5)

    async with house(agent_of(skill)) as h:
        done = await h.send()
        assert done.state is {"reject": S.REJECTED, "finish": S.COMPLETED, "fail": S.FAILED}[word]
        assert await stepped(h, done.head.id) == []


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_function_that_makes_an_error_of_a_cancel_has_not_failed(retries: int) -> None:
    ledger = Ledger()

    async def charge() -> str:
        ledger.enter("charge")
        try:
            await ledger.reach("charging")
        except asyncio.CancelledError as error:
            raise RuntimeError("the connection was closed") from error
        return "charged"

    async def skill(ctx: Context) -> str:
        try:
            return await ctx.step("charge", charge, retries=retries, backoff_s=0)
        except StepFailed:
            return "failed"

    ledger.hangs_at = "charging"
    async with house(agent_of(skill)) as h:
        task_id = await h.begin()
        async with asyncio.timeout(60):
            await ledger.hanging.wait()
        assert (await h.cancel(task_id)).state is S.CANCELED
        assert await stepped(h, task_id) == []
    assert ledger.calls == ["charge"]


@pytest.mark.parametrize("word", ["step", "at_most_once", "now", "patched", "memory"])
async def test_a_branch_goes_on_with_its_words_once_the_question_of_another_is_answered(word: str) -> None:
    """Nobody has the lease meanwhile: what would be written then would be taken for that of a run that has lost it."""
    ledger = Ledger()

    async def skill(ctx: Context) -> str:
        ledger.enter("run")
        answer, told = await asyncio.gather(asking(ctx), telling(ctx))
        return f"{answer} {told}"

    async def asking(ctx: Context) -> str:
        return str(await ctx.ask("Which?"))

    async def telling(ctx: Context) -> object:
        await ledger.reach("telling")
        if word == "now":
            return type(await ctx.now()).__name__
        if word == "patched":
            return await ctx.patched("change")
        if word == "memory":
            return await ctx.memory.set("key", "value")
        return await ctx.step("charge", ledger.charge, "charge", at_most_once=word == "at_most_once")

    async def reach(place: str) -> None:
        await asked.wait()

    asked = asyncio.Event()
    ledger.reach = reach  # type: ignore[method-assign]
    async with house(agent_of(skill)) as h:
        task_id = await h.begin()
        await h.reach(task_id, S.INPUT_REQUIRED)
        asked.set()
        await asyncio.sleep(0.1)
        assert (await h.log(task_id))[-1].event.state is S.INPUT_REQUIRED  # type: ignore[union-attr]
        done = await h.send("red", task_id=task_id)
        assert done.state is S.COMPLETED
    told = {"now": "datetime", "patched": "True", "memory": "1"}.get(word, "charge 2")
    assert done.artifacts[0].parts[0].text == f"red {told}"
    assert ledger.calls.count("run") == 1


async def test_a_step_that_is_done_at_most_once_does_not_begin_behind_a_question_of_the_same_page() -> None:
    """The caller may take days, and each restart meanwhile would make it uncertain whether the step was executed."""
    ledger = Ledger()

    async def skill(ctx: Context) -> None:
        await asyncio.gather(ctx.ask("Which?"), ctx.step("charge", ledger.charge, "charge", at_most_once=True))

    async with house(agent_of(skill)) as h:
        task_id = await h.begin()
        await h.reach(task_id, S.INPUT_REQUIRED)
        await asyncio.sleep(0.1)
        assert ledger.calls == []
        assert not any(isinstance(logged.event, StepBegun) for logged in await h.log(task_id))
        assert (await h.send("red", task_id=task_id)).state is S.COMPLETED
    assert ledger.calls == ["charge"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "$now"}, r"name='\$now'"),
        ({"name": 3}, "name must be text"),
        ({"key": 3}, "key must be text"),
        ({"retries": -1}, "retries=-1"),
        ({"retries": "2"}, "retries must be"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": float("nan")}, "timeout_s=nan"),
        ({"backoff_s": -1}, "backoff_s=-1"),
        ({"at_most_once": "yes"}, "at_most_once"),
        ({"fn": "charge"}, "fn must be a function"),
        ({"name": print, "fn": 12}, "name must be text"),
    ],
)
async def test_a_wrong_argument_is_named(arguments: dict[str, Any], text: str) -> None:
    async def skill(ctx: Context) -> None:
        given = {"name": "charge", "fn": print} | arguments
        await ctx.step(given.pop("name"), given.pop("fn"), **given)

    with pytest.raises((TypeError, ValueError), match=text):
        await run(agent_of(skill))


async def test_the_function_gets_the_same_key_in_every_attempt() -> None:
    keys: list[str] = []

    async def charge(amount: int, *, step_key: str) -> int:
        keys.append(step_key)
        if len(keys) < 2:
            raise ValueError
        return amount

    async def skill(ctx: Context) -> int:
        return await ctx.step("charge", charge, 3, retries=1, backoff_s=0)

    async with house(agent_of(skill)) as h:
        done = await h.send()
    assert keys == [f"{done.head.id}:1"] * 2


async def test_too_many_steps_end_the_task_with_the_remedy() -> None:
    ledger = Ledger()

    async def skill(ctx: Context) -> None:
        for number in range(5):
            await ctx.step("count", ledger.enter, str(number))

    async with house(agent_of(skill), max_steps=3) as h:
        done = await h.send()
    assert ledger.calls == ["0", "1", "2"]
    assert done.state is S.FAILED
    assert done.status.message is not None
    assert done.status.message.metadata == {"reason": "too_many_steps"}
    assert "max_steps" in done.status.message.text


async def test_a_step_that_was_given_up_before_its_end_does_not_count() -> None:
    ledger = Ledger()

    async def poll() -> None:
        await asyncio.Event().wait()

    async def skill(ctx: Context) -> str:
        for _ in range(5):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await ctx.step("poll", poll)
        return await ctx.step("count", ledger.enter, "one")

    async with house(agent_of(skill), max_steps=1) as h:
        done = await h.send()
    assert (done.state, done.steps) == (S.COMPLETED, 1)


async def test_an_agent_that_makes_no_task_says_why_it_cannot_step() -> None:
    async def skill(ctx: Context) -> str:
        try:
            await ctx.step("charge", print)
        except RuntimeError as error:
            return str(error)
        return ""

    async with house(agent_of(skill, direct=True)) as h:
        assert "leave direct=True out" in (await h.engine.operations.call(call(sending("hi")))).text
    async with house(agent_of(skill, direct="auto")) as h:
        assert (await h.send()).steps == 1


# -- after a crash -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restartable", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_later_run_calls_no_function_again_and_says_nothing_twice(
    tmp_path: Path, restartable: bool, plain: bool
) -> None:
    ledger = Ledger()

    async def skill(ctx: Context) -> None:
        await ctx.artifact("a", id="out", append=True)
        first = await ctx.step("one", ledger.enter, "one")
        await ctx.artifact(f"[{first}]", id="out", append=True)
        second = await ctx.step("two", ledger.charge, "two")
        await ctx.artifact(f"[{second}]", id="out", append=True)
        await ledger.reach("here")
        third = await ctx.step("three", ledger.charge, "three")
        await ctx.artifact(f"[{third}]", id="out", append=True, last=True)

    loop = asyncio.get_running_loop()

    def plain_skill(ctx: SyncContext) -> None:
        ctx.artifact("a", id="out", append=True)
        first = ctx.step("one", ledger.enter, "one")
        ctx.artifact(f"[{first}]", id="out", append=True)
        second = ctx.step("two", ledger.charge, "two")
        ctx.artifact(f"[{second}]", id="out", append=True)
        asyncio.run_coroutine_threadsafe(ledger.reach("here"), loop).result()
        third = ctx.step("three", ledger.charge, "three")
        ctx.artifact(f"[{third}]", id="out", append=True, last=True)

    agent = agent_of(plain_skill if plain else skill, restartable=restartable)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    assert ledger.calls == ["one", "two"]
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, *[S.COMPLETED, S.FAILED])
        assert done.state is S.COMPLETED
        assert done.artifacts[0].parts[0].text == "a[one 1][two 2][three 3]"
        assert [event.name for event in await stepped(h, task_id)] == ["one", "two", "three"]
    assert ledger.calls == ["one", "two", "three"]


async def test_branches_that_append_to_one_artifact_lose_nothing_of_each_other(tmp_path: Path) -> None:
    ledger = Ledger()
    first_ran = asyncio.Event()

    async def early(ctx: Context) -> None:
        await ctx.artifact("early ", id="out", append=True)
        await ctx.step("early", ledger.charge, "early")
        first_ran.set()
        await ledger.reach("here")

    async def late(ctx: Context) -> None:
        if ledger.hangs_at:
            await first_ran.wait()
        await ctx.artifact("late ", id="out", append=True)

    async def skill(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(late(ctx))
            group.create_task(early(ctx))

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.COMPLETED)
    text = done.artifacts[0].parts[0].text or ""
    assert set(text.split()) == {"early", "late"}


async def test_a_run_without_a_recorded_step_is_interrupted_as_before(tmp_path: Path) -> None:
    ledger = Ledger()

    async def skill(ctx: Context) -> None:
        await ledger.reach("here")
        await ctx.step("one", ledger.charge, "one")

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.FAILED)
    assert done.status.message is not None
    assert done.status.message.metadata == {"reason": "interrupted"}


async def test_a_failure_is_raised_alike_in_every_run(tmp_path: Path) -> None:
    ledger = Ledger()

    def broken() -> None:
        ledger.enter("broken")
        raise KeyError("lost")

    async def skill(ctx: Context) -> str:
        try:
            await ctx.step("broken", broken)
        except StepFailed as failed:
            said = (failed.name, failed.type, failed.text, failed.__cause__ is None)
        await ledger.reach("here")
        return repr(said)

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.COMPLETED)
    assert done.artifacts[0].parts[0].text == repr(("broken", "KeyError", "'lost'", True))
    assert ledger.calls == ["broken"]


async def test_time_chance_and_ids_are_the_same_in_every_run(tmp_path: Path) -> None:
    ledger, seen = Ledger(), []

    async def skill(ctx: Context) -> None:
        seen.append((await ctx.now(), await ctx.random(), await ctx.uuid()))
        await ctx.step("one", ledger.charge, "one")
        await ledger.reach("here")

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        await h.reach(task_id, S.COMPLETED)
    assert seen[0] == seen[1]
    now, chance, identity = seen[0]
    assert abs((now - datetime.now(UTC)).total_seconds()) < 60
    assert 0 <= chance < 1
    assert isinstance(identity, UUID)


async def test_a_run_that_dies_in_a_step_has_recorded_the_id_that_the_step_was_given(tmp_path: Path) -> None:
    """Else a later run would call the function again with another one."""
    ledger = Ledger()

    async def charge(identity: UUID) -> None:
        ledger.enter(str(identity))
        await ledger.reach("charging")

    async def skill(ctx: Context) -> None:
        await ctx.step("charge", charge, await ctx.uuid())

    agent = agent_of(skill, restartable=True)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "charging")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        await h.reach(task_id, S.COMPLETED)
    first, second = ledger.calls
    assert first == second


async def test_another_step_at_a_place_is_a_mismatch_that_says_what_is_recorded(tmp_path: Path) -> None:
    ledger, names = Ledger(), ["first", "other"]

    async def skill(ctx: Context) -> None:
        await ctx.step(names.pop(0), ledger.charge, "one")
        await ledger.reach("here")

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.FAILED)
    assert done.status.message is not None
    assert done.status.message.metadata == {"reason": "replay_mismatch"}
    assert "At place 1, the step “first” is recorded, but the step “other” came." in done.status.message.text
    assert ledger.calls == ["one"]


async def test_a_question_in_place_of_a_step_is_a_mismatch_and_so_is_the_reverse(tmp_path: Path) -> None:
    ledger, asks = Ledger(), [False, True]

    async def skill(ctx: Context) -> None:
        if asks.pop(0):
            await ctx.ask("Why?")
        else:
            await ctx.step("one", ledger.charge, "one")
        await ledger.reach("here")

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.FAILED)
    assert done.status.message is not None
    assert "the step “one” is recorded, but the question “Why?” came" in done.status.message.text


@pytest.mark.parametrize("answer", ["again", "failed", {"paid": 3}])
async def test_a_step_of_which_nobody_knows_is_left_to_the_caller(tmp_path: Path, answer: Any) -> None:
    ledger = Ledger()

    async def charge() -> object:
        ledger.enter("charge")
        await ledger.reach("here")
        return "charged"

    async def skill(ctx: Context) -> str:
        try:
            return str(await ctx.step("charge", charge, at_most_once=True))
        except StepFailed as failed:
            return f"{failed.type}: {failed.text}"

    agent = agent_of(skill, step_uncertain="ask", restartable=True)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        asked = await h.reach(task_id, S.INPUT_REQUIRED)
        assert asked.status.message is not None
        assert "step “charge”" in asked.status.message.text
        for unclear in ("maybe", "again, please"):
            unsure = await h.send(unclear, task_id=task_id)
            assert unsure.status.message is not None
            assert (unsure.state, "step “charge”" in unsure.status.message.text) == (S.INPUT_REQUIRED, True)
        parts = (Part(text=f"“{answer}”"),) if isinstance(answer, str) else (Part(data=answer),)
        done = await h.send(parts=parts, task_id=task_id)
        assert done.state is S.COMPLETED
        begun = [logged for logged in await h.log(task_id) if isinstance(logged.event, StepBegun)]
    wanted = {"again": "charged", "failed": "StepUncertain: failed"}.get(str(answer), "{'paid': 3}")
    assert done.artifacts[0].parts[0].text == wanted
    assert ledger.calls == ["charge"] * (2 if answer == "again" else 1)
    assert len(begun) == len(ledger.calls)


@pytest.mark.parametrize("when", ["before the crash", "before the question"])
async def test_what_the_caller_said_earlier_is_no_answer_about_a_step_of_which_nobody_knows(
    tmp_path: Path, when: str
) -> None:
    ledger = Ledger()

    async def charge() -> str:
        ledger.enter("charge")
        await ledger.reach("charging")
        return "charged"

    async def skill(ctx: Context) -> str:
        await ledger.reach("beginning")
        return f"{await ctx.step('charge', charge, at_most_once=True)}, {await ctx.ask('Anything else?')}"

    agent, url = agent_of(skill, step_uncertain="ask", restartable=True), f"sqlite:///{tmp_path}/store"
    ledger.hangs_at = "charging"
    async with house(agent, url=url, crashes=True) as h:
        task_id = await h.begin()
        async with asyncio.timeout(60):
            await ledger.hanging.wait()
        if when == "before the crash":
            await h.begin("a window seat", task_id=task_id)
    gate = asyncio.Event()

    async def reach(place: str) -> None:
        await gate.wait()

    ledger.reach = reach  # type: ignore[method-assign]
    async with house(agent, url=url) as h:
        if when == "before the question":
            await h.reach(task_id, S.WORKING)
            gate.set()
            await h.begin("a window seat", task_id=task_id)
        gate.set()
        asked = await h.reach(task_id, S.INPUT_REQUIRED, S.COMPLETED, S.FAILED)
        assert asked.state is S.INPUT_REQUIRED, asked.status
        assert ledger.calls == ["charge"]
        done = await h.send("again", task_id=task_id)
        assert done.state is S.COMPLETED, done.status
        assert done.artifacts[0].parts[0].text == "charged, a window seat"
    assert ledger.calls == ["charge", "charge"]


async def test_a_step_of_which_nobody_knows_fails_the_task(tmp_path: Path) -> None:
    ledger = Ledger()

    async def charge() -> None:
        ledger.enter("charge")
        await ledger.reach("here")

    async def skill(ctx: Context) -> None:
        await ctx.step("charge", charge, at_most_once=True)

    agent = agent_of(skill, restartable=True)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        done = await h.reach(task_id, S.FAILED)
    assert done.status.message is not None
    assert done.status.message.metadata == {"reason": "step_uncertain"}
    assert ledger.calls == ["charge"]


async def test_a_resume_of_many_steps_takes_little_time(tmp_path: Path) -> None:
    ledger = Ledger()

    async def nothing() -> None:
        """Do nothing."""

    async def skill(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(work(ctx))
        await ledger.reach("here")

    async def work(ctx: Context) -> None:
        for number in range(500):
            await ctx.step("count", nothing)
            await ctx.artifact(str(number), id="out", append=True)

    agent = agent_of(skill)
    task_id = await crash_at(agent, tmp_path / "store", ledger, "here")
    began = time.process_time()
    async with house(agent, url=f"sqlite:///{tmp_path}/store") as h:
        await h.reach(task_id, S.COMPLETED)
    assert time.process_time() - began < 5  # a square of the number of steps would take a minute
