"""Agents made of Python functions: declaring them, and running each kind of skill."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentExtension,
    AgentProvider,
    Artifact,
    Context,
    Message,
    Part,
    Reject,
    Role,
    SyncContext,
    TaskState,
)
from dragoman.agents.python.threads import Threads
from dragoman.engine.api import Runner, Traits
from dragoman.model.card import AgentSkill, Profile
from dragoman.testing.run import FakeRun, run

DEADLINE_S = 60.0


@pytest.fixture
def agent() -> Agent:
    return Agent("test", description="Is tested")


def test_an_agent_is_a_runner(agent: Agent) -> None:
    runner: Runner = agent
    assert runner.traits == Traits(kind="python")


def test_the_card_says_what_the_code_says() -> None:
    provider = AgentProvider(organization="Acme", url="https://acme.example")
    agent = Agent(
        "weather",
        name="Weather",
        description="Forecasts",
        version="1.2.0",
        provider=provider,
        icon_url="https://acme.example/icon.png",
        documentation_url="https://acme.example/docs",
        input_modes=["text/plain"],
        output_modes=["text/plain", "image/png"],
        extensions=["https://acme.example/ext", AgentExtension(uri="https://acme.example/must", required=True)],
        streams=False,
    )

    @agent.skill(
        "forecast",
        name="Forecast",
        description="Tomorrow's weather",
        tags=["weather"],
        examples=["Rain?"],
        input_modes=["text/plain"],
        output_modes=["image/png"],
    )
    async def forecast(ctx: Context) -> None: ...

    assert agent.profile == Profile(
        id="weather",
        name="Weather",
        description="Forecasts",
        version="1.2.0",
        skills=(
            AgentSkill(
                id="forecast",
                name="Forecast",
                description="Tomorrow's weather",
                tags=("weather",),
                examples=("Rain?",),
                input_modes=("text/plain",),
                output_modes=("image/png",),
            ),
        ),
        input_modes=("text/plain",),
        output_modes=("text/plain", "image/png"),
        provider=provider,
        icon_url="https://acme.example/icon.png",
        documentation_url="https://acme.example/docs",
        extensions=(
            AgentExtension(uri="https://acme.example/ext"),
            AgentExtension(uri="https://acme.example/must", required=True),
        ),
        streams=False,
    )


def test_what_is_left_out_has_a_default() -> None:
    agent = Agent("weather")

    @agent.skill
    async def forecast(ctx: Context) -> None:
        """Tomorrow's weather."""

    (skill,) = agent.profile.skills
    assert (agent.profile.name, agent.profile.description) == ("weather", "weather")
    assert (skill.id, skill.name, skill.description, skill.tags) == ("forecast", "forecast", "Tomorrow's weather.", ())


def test_the_decorated_function_stays_a_function(agent: Agent) -> None:
    async def plain(ctx: Context) -> str:
        return "x"

    assert agent.skill(plain) is plain
    assert agent.skill("again")(plain) is plain


@pytest.mark.parametrize("agent_id", ["tasks", "v1", "message:send", "a/b", "", "é", "-a", "a" * 65])
def test_an_id_that_cannot_be_a_path_is_refused(agent_id: str) -> None:
    with pytest.raises(ValueError, match=r"^agent id "):
        Agent(agent_id)


def test_two_skills_of_one_id_are_refused(agent: Agent) -> None:
    async def one(ctx: Context) -> None: ...

    agent.skill(one)
    with pytest.raises(ValueError, match=r"has a skill 'one' already: give one\(\) another id"):
        agent.skill(one)


@pytest.mark.parametrize("key", ["tags", "examples", "input_modes", "output_modes"])
def test_a_text_in_place_of_a_list_is_refused(agent: Agent, key: str) -> None:
    async def forecast(ctx: Context) -> None: ...

    declare: Any = agent.skill
    with pytest.raises(TypeError, match=rf"^skill forecast: {key} must be a list of texts, not 'weather'$"):
        declare(**{key: "weather"})(forecast)


async def yields_text(ctx: Context) -> AsyncIterator[str]:
    yield "a"
    yield "b"


async def returns_text(ctx: Context) -> str:
    return "ab"


async def returns_a_generator(ctx: Context) -> AsyncIterator[str]:
    return yields_text(ctx)


def plain(ctx: SyncContext) -> str:
    return "ab"


def plain_generator(ctx: SyncContext) -> Iterator[str]:
    yield "a"
    yield "b"


def returns_an_iterator(ctx: SyncContext) -> Iterator[str]:
    return iter(("a", "b"))


class CalledObject:
    """An object that is called like a coroutine function."""

    async def __call__(self, ctx: Context) -> str:
        return "ab"


class Methods:
    """A bound method is a skill, too."""

    async def skill(self, ctx: Context) -> str:
        return "ab"


async def with_option(ctx: Context, tail: str) -> str:
    return "a" + tail


KINDS: list[Any] = [yields_text, returns_text, returns_a_generator, plain, plain_generator, returns_an_iterator]
KINDS += [CalledObject(), Methods().skill, functools.partial(with_option, tail="b")]


@pytest.mark.parametrize("function", KINDS)
async def test_every_kind_of_function_is_a_skill(agent: Agent, function: Any) -> None:
    agent.skill("skill")(function)
    ran = await run(agent)
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "ab")
    assert agent.threads.taken == 0


async def test_plain_functions_run_beside_the_loop(agent: Agent) -> None:
    @agent.skill
    def where(ctx: SyncContext) -> int:
        return threading.get_ident()

    (ident,) = (await run(agent)).data
    assert ident != threading.get_ident()


async def test_without_output_the_task_is_completed_without_artifacts(agent: Agent) -> None:
    @agent.skill
    async def silent(ctx: Context) -> None: ...

    ran = await run(agent)
    assert (ran.state, ran.artifacts) == (TaskState.COMPLETED, ())


@pytest.mark.parametrize("function", [yields_text, plain_generator])
async def test_what_is_yielded_streams_as_one_artifact(agent: Agent, function: Any) -> None:
    agent.skill(function)
    chunks = (await run(agent)).chunks
    assert [(c.artifact.artifact_id, c.artifact.parts[0].text, c.append) for c in chunks] == [
        ("result", "a", False),
        ("result", "b", True),
    ]


async def test_what_is_returned_is_a_whole_artifact(agent: Agent) -> None:
    @agent.skill
    async def answer(ctx: Context) -> dict[str, int]:
        return {"answer": 42}

    (chunk,) = (await run(agent)).chunks
    assert (chunk.append, chunk.last_chunk, chunk.artifact.parts) == (False, True, (Part(data={"answer": 42}),))


async def test_none_and_empty_text_are_no_output(agent: Agent) -> None:
    @agent.skill
    async def sparse(ctx: Context) -> AsyncIterator[str | None]:
        yield ""
        yield None
        yield "a"
        yield ""

    assert [chunk.artifact.parts[0].text for chunk in (await run(agent)).chunks] == ["a"]


async def test_reject_rejects(agent: Agent) -> None:
    @agent.skill
    async def refuse(ctx: Context) -> None:
        raise Reject("not today")

    ran = await run(agent)
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "not today")


async def test_reject_rejects_from_a_thread(agent: Agent) -> None:
    @agent.skill
    def refuse(ctx: SyncContext) -> None:
        raise Reject("not today")

    assert (await run(agent)).reason == "not today"


async def test_other_exceptions_are_not_swallowed(agent: Agent) -> None:
    @agent.skill
    async def fail(ctx: Context) -> None:
        raise KeyError("secret")

    with pytest.raises(KeyError):
        await run(agent)


async def test_content_that_cannot_be_sent_is_raised_at_the_yield(agent: Agent) -> None:
    caught: list[str] = []

    @agent.skill
    def careless(ctx: SyncContext) -> None:
        try:
            ctx.artifact(object())
        except TypeError as error:
            caught.append(str(error))

    await run(agent)
    assert caught[0].startswith("content: object has no JSON form")


@pytest.mark.parametrize(
    ("skill", "skills", "runs"),
    [(None, (), "one"), ("two", (), "two"), (None, ("two", "one"), "two"), ("one", ("two", "one"), "one")],
)
async def test_the_skill_that_runs(agent: Agent, skill: str | None, skills: tuple[str, ...], runs: str) -> None:
    async def name(ctx: Context) -> str:
        return ctx.skill

    agent.skill("one")(name)
    agent.skill("two")(name)
    assert (await run(agent, skill=skill, skills=skills)).text == runs


async def test_an_extended_skill_is_not_on_the_public_card_and_runs_when_it_is_named(agent: Agent) -> None:
    async def name(ctx: Context) -> str:
        return ctx.skill

    agent.skill("hidden", extended=True)(name)
    agent.skill("shown")(name)
    assert [skill.id for skill in agent.profile.skills] == ["shown"]
    assert [skill.id for skill in agent.profile.extended_skills] == ["hidden"]
    assert (await run(agent)).text == "shown"
    assert (await run(agent, skill="hidden")).text == "hidden"


async def test_an_agent_without_skills_says_so(agent: Agent) -> None:
    with pytest.raises(LookupError, match=r"agent test has no skill None; it has none: write @agent\.skill"):
        await run(agent)


async def test_canceling_closes_the_generator_where_it_waits(agent: Agent) -> None:
    closed: list[str] = []
    waiting = asyncio.Event()

    @agent.skill
    async def endless(ctx: Context) -> AsyncIterator[str]:
        try:
            yield "a"
            waiting.set()
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    task = asyncio.ensure_future(run(agent))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["closed"]


class Stuck(FakeRun):
    """A run whose buffer is full."""

    def __init__(self) -> None:
        super().__init__(Message(message_id="m", role=Role.USER, parts=(Part(text=""),)))
        self.given = 0
        self.waiting = asyncio.Event()

    def emit(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> Awaitable[None]:
        self.given += 1
        self.waiting.set()
        return asyncio.get_running_loop().create_future()


async def test_a_generator_waits_while_the_buffer_is_full_and_is_closed_there(agent: Agent) -> None:
    made: list[str] = []

    @agent.skill
    async def eager(ctx: Context) -> AsyncIterator[str]:
        try:
            for text in ("a", "b"):
                made.append(text)
                yield text
        finally:
            made.append("closed")

    stuck = Stuck()
    task = asyncio.ensure_future(agent.run(stuck))
    await stuck.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (made, stuck.given) == (["a", "closed"], 1)


async def test_a_plain_generator_waits_while_the_buffer_is_full_and_is_closed_there(agent: Agent) -> None:
    made: list[str] = []
    closed = threading.Event()

    @agent.skill
    def eager(ctx: SyncContext) -> Iterator[str]:
        try:
            for text in ("a", "b"):
                made.append(text)
                yield text
        finally:
            closed.set()

    stuck = Stuck()
    task = asyncio.ensure_future(agent.run(stuck))
    await stuck.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(closed.wait, DEADLINE_S)
    assert (made, stuck.given) == (["a"], 1)


async def test_a_plain_function_sees_that_it_was_canceled(agent: Agent) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    seen = threading.Event()

    @agent.skill
    def patient(ctx: SyncContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not ctx.canceled:
            seen.wait(0.001)
        seen.set()

    task = asyncio.ensure_future(run(agent))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(seen.wait, DEADLINE_S)


async def test_agents_can_share_their_threads() -> None:
    shared = Threads(1)
    one, two = Agent("one"), Agent("two")
    one.threads = two.threads = shared
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @one.skill
    def first(ctx: SyncContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(DEADLINE_S)

    two.skill(plain)
    async with asyncio.TaskGroup() as group:
        group.create_task(run(one))
        await begun.wait()
        second = group.create_task(run(two))
        await asyncio.sleep(0)
        assert shared.full
        go.set()
    assert second.result().text == "ab"


async def test_a_plain_function_that_returns_a_coroutine_is_told_to_be_async(agent: Agent) -> None:
    async def work() -> str:
        return "x"

    made = work()

    @agent.skill
    def forgetful(ctx: SyncContext) -> Any:
        return made

    with pytest.raises(TypeError, match="skill forgetful returned something to await: write it as `async def`"):
        await run(agent)
    made.close()


async def test_an_agent_with_one_skill_does_it_whatever_its_card_calls_it() -> None:
    agent = Agent("test")

    @agent.skill
    async def say(ctx: Context) -> str:
        return ctx.skill

    assert (await run(agent, "Hi", skill="talk")).text == "say"


def test_how_an_agent_answers_is_checked() -> None:
    agent = Agent("either", direct="auto", direct_wait_s=0.5)
    assert (agent.traits.direct, agent.traits.direct_wait_s, agent.profile.pushes) == ("auto", 0.5, True)
    for wrong, error, text in (
        ({"steps_version": "a b"}, ValueError, "must be 1 to 64 letters, digits"),
        ({"steps_version": 2}, TypeError, "must be text"),
        ({"direct": "always"}, ValueError, "must be True, False or 'auto'"),
        ({"direct_wait_s": 0}, ValueError, "must be from 0.01 to 60 seconds"),
        ({"direct_wait_s": "1"}, TypeError, "must be a number of seconds"),
        ({"deadline_s": 0}, ValueError, "must be from 0.1 to 2592000 seconds"),
        ({"deadline_s": True}, TypeError, "must be a number of seconds"),
    ):
        with pytest.raises(error, match=text):
            Agent("either", **wrong)  # type: ignore[arg-type]


def test_a_direct_agent_offers_no_webhooks_since_it_makes_no_task() -> None:
    assert not Agent("at-once", direct=True).profile.pushes
    assert Agent("echo").profile.pushes
