"""A skill sees and does the same through a Context and a SyncContext."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dragoman import Agent, Answer, Artifact, Context, Message, Part, Principal, Role, SyncContext, TaskState, Usage
from dragoman.testing import Ran, run

MESSAGE = Message(
    message_id="m1",
    role=Role.USER,
    parts=(
        Part(text="one"),
        Part(data={"a": 1}),
        Part(raw=b"raw", filename="a.bin"),
        Part(text="two"),
        Part(url="https://example.org/b"),
        Part(data=2),
    ),
)
EARLIER = Message(message_id="m0", role=Role.AGENT, parts=(Part(text="earlier"),))


async def of(skill: Callable[[Any], Any], message: Any = "", **more: Any) -> Ran:
    agent = Agent("test")
    agent.skill("skill")(skill)
    return await run(agent, message, **more)


async def test_the_facts() -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append(ctx)

    await of(
        look,
        MESSAGE,
        metadata={"k": "v"},
        extensions=("https://example.org/ext",),
        principal=Principal("ada"),
        skills=("skill",),
    )
    (ctx,) = seen
    assert ctx.message is MESSAGE
    assert ctx.parts == MESSAGE.parts
    assert ctx.text == "one\ntwo"
    assert ctx.data == {"a": 1}
    assert [file.raw or file.url for file in ctx.files] == [b"raw", "https://example.org/b"]
    assert (ctx.task_id, ctx.context_id) == ("task-1", "context-1")
    assert ctx.principal == Principal("ada")
    assert (ctx.skill, ctx.skills) == ("skill", ("skill",))
    assert ctx.extensions == ("https://example.org/ext",)
    assert ctx.metadata == {"k": "v"}


async def test_what_is_not_there_is_empty() -> None:
    async def look(ctx: Context) -> dict[str, Any]:
        return {"text": ctx.text, "data": ctx.data, "files": ctx.files, "metadata": ctx.metadata, "skills": ctx.skills}

    ran = await of(look, Part(url="https://example.org/a"))
    assert ran.data[0]["text"] == ""
    assert (ran.data[0]["data"], ran.data[0]["metadata"], ran.data[0]["skills"]) == (None, {}, [])


async def everything(ctx: Context) -> list[Any]:
    """Every call of a Context; `everything_in_a_thread` is its twin."""
    await ctx.status("Thinking", metadata={"k": 1})
    await ctx.progress(1, 2, "Half")
    await ctx.progress(2, 2)
    ctx.usage(input=1, output=2)
    ctx.usage(total=10)
    first = await ctx.artifact("a", name="log", append=True)
    await ctx.artifact("b", name="log", append=True, last=True)
    await ctx.artifact(b"c", id="own", description="Mine", media_type="image/png", name="c.png")
    answer = await ctx.ask("Which?")
    signed = await ctx.require_auth("Who?")
    earlier = await ctx.history(5)
    return [first, answer, signed, earlier[0].text, len(await ctx.references())]


def everything_in_a_thread(ctx: SyncContext) -> list[Any]:
    ctx.status("Thinking", metadata={"k": 1})
    ctx.progress(1, 2, "Half")
    ctx.progress(2, 2)
    ctx.usage(input=1, output=2)
    ctx.usage(total=10)
    first = ctx.artifact("a", name="log", append=True)
    ctx.artifact("b", name="log", append=True, last=True)
    ctx.artifact(b"c", id="own", description="Mine", media_type="image/png", name="c.png")
    answer = ctx.ask("Which?")
    signed = ctx.require_auth("Who?")
    earlier = ctx.history(5)
    return [first, answer, signed, earlier[0].text, len(ctx.references())]


@pytest.mark.parametrize("skill", [everything, everything_in_a_thread])
async def test_every_call_does_the_same_in_both(skill: Any) -> None:
    ran = await of(skill, answers=["this", "me"], history=[EARLIER])
    assert ran.data == [["artifact", "this", "me", "earlier", 0]]
    assert ran.statuses == ["Thinking", "Half"]
    assert ran.progress == [(1, 2), (2, 2)]
    assert ran.usage == Usage(1, 2, 13)
    assert ran.questions == ["Which?", "Who?"]
    assert [(c.artifact.artifact_id, c.append, c.last_chunk) for c in ran.chunks] == [
        ("artifact", False, False),
        ("artifact", True, True),
        ("own", False, True),
        ("result", False, True),
    ]
    own = next(artifact for artifact in ran.artifacts if artifact.artifact_id == "own")
    assert (own.name, own.description, own.parts) == (
        "c.png",
        "Mine",
        (Part(raw=b"c", media_type="image/png", filename="c.png"),),
    )


def test_both_contexts_have_the_same_calls() -> None:
    def calls(of_: type) -> set[str]:
        return {name for name in dir(of_) if not name.startswith("_")}

    assert calls(SyncContext) - {"canceled"} == calls(Context)


async def test_an_answer_is_text_with_all_of_the_message() -> None:
    kept: list[Answer] = []

    async def ask(ctx: Context) -> None:
        kept.append(await ctx.ask([Part(text="Which?"), Part(data={"choices": [1, 2]})]))

    ran = await of(ask, answers=[MESSAGE])
    (answer,) = kept
    assert answer == "one\ntwo"
    assert answer.message is MESSAGE
    assert (answer.parts, answer.data, len(answer.files)) == (MESSAGE.parts, {"a": 1}, 2)
    assert ran.questions == ["Which?"]


async def test_without_an_answer_the_task_waits() -> None:
    async def ask(ctx: Context) -> str:
        return await ctx.require_auth("Who?")

    ran = await of(ask)
    assert (ran.state, ran.artifacts) == (TaskState.AUTH_REQUIRED, ())


async def test_the_message_stays_the_first_one() -> None:
    async def ask(ctx: Context) -> str:
        await ctx.ask("Which?")
        return ctx.text

    assert (await of(ask, "first", answers=["second"])).text == "first"


async def test_what_is_yielded_after_an_answer_is_a_new_artifact() -> None:
    async def talk(ctx: Context) -> AsyncIterator[str]:
        yield "a"
        await ctx.ask("More?")
        yield "b"
        yield "c"

    ran = await of(talk, answers=["yes"])
    assert [(a.artifact_id, a.parts[0].text) for a in ran.artifacts] == [("result", "a"), ("result-2", "bc")]


async def test_an_artifact_stands_beside_what_is_yielded() -> None:
    async def talk(ctx: Context) -> AsyncIterator[object]:
        yield "a"
        yield Artifact(artifact_id="own", parts=(Part(text="x"),))
        await ctx.artifact("y")
        yield "b"

    ran = await of(talk)
    assert {a.artifact_id: a.parts[0].text for a in ran.artifacts} == {"result": "ab", "own": "x", "artifact-3": "y"}
    assert [c.last_chunk for c in ran.chunks] == [False, True, True, False]


async def test_artifacts_of_one_name_are_several_unless_appended() -> None:
    async def talk(ctx: Context) -> None:
        for text in "ab":
            await ctx.artifact(text, name="image.png")
        await ctx.artifact("c", name="image.png", append=True)

    ran = await of(talk)
    assert [(a.name, a.parts[0].text) for a in ran.artifacts] == [("image.png", "a"), ("image.png", "bc")]


async def test_the_first_chunk_of_an_artifact_is_never_an_append() -> None:
    async def talk(ctx: Context) -> None:
        await ctx.artifact("a", append=True)
        await ctx.artifact("b", append=True)
        await ctx.artifact("c", id="own", append=True)
        await ctx.artifact(Artifact(artifact_id="mine", parts=(Part(text="d"),)), append=True, last=True)

    assert [(c.artifact.artifact_id, c.append, c.last_chunk) for c in (await of(talk)).chunks] == [
        ("artifact", False, False),
        ("artifact", True, False),
        ("own", False, False),
        ("mine", False, True),
    ]


async def test_an_artifact_can_be_relabelled() -> None:
    async def talk(ctx: Context) -> None:
        await ctx.artifact(Artifact(artifact_id="a", name="old", parts=(Part(text="x"),)), id="b", name="new")

    (artifact,) = (await of(talk)).artifacts
    assert (artifact.artifact_id, artifact.name) == ("b", "new")


async def test_ids_are_the_same_when_the_code_runs_again() -> None:
    async def talk(ctx: Context) -> AsyncIterator[str]:
        await ctx.artifact("a")
        yield "b"
        await ctx.artifact("c", name="c")

    first, second = await of(talk), await of(talk)
    assert [c.artifact.artifact_id for c in first.chunks] == [c.artifact.artifact_id for c in second.chunks]
    assert len({c.artifact.artifact_id for c in first.chunks}) == 3


async def test_an_artifact_of_an_id_given_by_the_agent_is_not_overwritten_by_a_made_one() -> None:
    async def talk(ctx: Context) -> AsyncIterator[str]:
        await ctx.artifact("a", id="result")
        yield "b"

    assert [a.artifact_id for a in (await of(talk)).artifacts] == ["result", "result-2"]


async def remembering(ctx: Context) -> list[str | None]:
    before = ctx.noted("place")
    ctx.note("place", "page 3")
    return [before, ctx.noted("place")]


def remembering_in_a_thread(ctx: SyncContext) -> list[str | None]:
    before = ctx.noted("place")
    ctx.note("place", "page 3")
    return [before, ctx.noted("place")]


@pytest.mark.parametrize("skill", [remembering, remembering_in_a_thread])
async def test_what_is_noted_can_be_read_again(skill: Any) -> None:
    assert (await of(skill)).data == [[None, "page 3"]]
