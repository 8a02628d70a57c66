"""`ctx.delegate`: in a test without a server, and on one, also for agents whose work is done by a worker."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman import Agent, Artifact, Context, DelegationFailed, Part, Reject, SyncContext, TaskState
from dragoman.agents.python.delegation import HeardArtifact
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.config import Config
from dragoman.model.card import Profile
from dragoman.model.events import ArtifactChunk
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing import Ran, run

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}


async def of(skill: Any, message: Any = "", **more: Any) -> Ran:
    agent = Agent("test")
    agent.skill("skill")(skill)
    return await run(agent, message, **more)


async def awaited(ctx: Context) -> list[Any]:
    one = await ctx.delegate("other", "do it", skill="talk", timeout_s=60.0)
    two = await ctx.delegate("other")
    return [one.text, one.state, two.data, [file.filename for file in two.files]]


def plain(ctx: SyncContext) -> list[Any]:
    one = ctx.delegate("other", "do it", skill="talk", timeout_s=60.0)
    two = ctx.delegate("other")
    return [one.text, one.state, two.data, [file.filename for file in two.files]]


@pytest.mark.parametrize("skill", [awaited, plain])
async def test_a_test_says_what_comes_of_a_delegation(skill: Any) -> None:
    outcomes = ["done", [Part(data={"a": 1}), Part(raw=b"x", filename="x.bin")]]
    ran = await of(skill, "hello", delegated={"other": outcomes})
    assert ran.data == [["done", "TASK_STATE_COMPLETED", {"a": 1}, ["x.bin"]]]
    first, second = ran.orders
    assert (first.agent, first.parts, first.skill, first.timeout_s) == ("other", (Part(text="do it"),), "talk", 60)
    assert second.parts == (Part(text="hello"),)


@pytest.mark.parametrize(
    ("outcome", "state"), [(Reject("no"), TaskState.REJECTED), (ValueError("no"), TaskState.FAILED)]
)
async def test_a_test_lets_a_delegation_fail(outcome: Exception, state: TaskState) -> None:
    async def skill(ctx: Context) -> str:
        with pytest.raises(DelegationFailed) as failed:
            await ctx.delegate("other", "do it")
        assert (failed.value.agent, failed.value.state) == ("other", state)
        return failed.value.text

    assert (await of(skill, delegated={"other": [outcome]})).text == "no"


async def test_a_delegation_that_the_test_does_not_know_of_fails_it() -> None:
    async def skill(ctx: Context) -> None:
        await ctx.delegate("other", "do it")

    with pytest.raises(AssertionError, match="delegated="):
        await of(skill)


async def streaming(ctx: Context) -> AsyncIterator[object]:
    async for piece in ctx.delegate_stream("other", "do it"):
        yield piece


def plainly_streaming(ctx: SyncContext) -> Iterator[object]:
    yield from ctx.delegate_stream("other", "do it")


@pytest.mark.parametrize("skill", [streaming, plainly_streaming])
async def test_what_the_other_gives_out_can_be_given_on_as_it_comes(skill: Any) -> None:
    ran = await of(skill, delegated={"other": [["one", Part(raw=b"x", filename="x.bin")]]})
    assert ran.text == "one"
    assert [file.filename for file in ran.files] == ["x.bin"]
    with pytest.raises(DelegationFailed):
        await of(skill, delegated={"other": [ValueError("no")]})


@pytest.mark.parametrize("wrong", [{"agent": ""}, {"agent": 1}, {"asks": "perhaps"}, {"timeout_s": 0}])
async def test_a_wrong_order_is_said_where_it_is_given(wrong: dict[str, Any]) -> None:
    async def skill(ctx: Context) -> None:
        with pytest.raises((TypeError, ValueError)):
            await ctx.delegate(**{"agent": "other", "message": "do it", **wrong})

    await of(skill)


def chunk(text: str, *, append: bool = True) -> ArtifactChunk:
    return ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text=text), Part(data=1))), append, False)


def test_what_an_agent_repeats_that_is_run_again_is_not_heard_twice() -> None:
    heard = HeardArtifact()
    pieces = [chunk("ab", append=False), chunk("cd"), chunk("a", append=False), chunk("bcde"), chunk("f")]
    new = [heard.new(piece) for piece in pieces]
    assert [[part.text for part in parts if part.text is not None] for parts in new] == [
        ["ab"],
        ["cd"],
        [],
        ["e"],
        ["f"],
    ]
    assert [len(parts) for parts in new] == [2, 2, 0, 1, 2]
    assert [part.text for part in heard.new(chunk("xyz", append=False))] == ["xyz"]


def test_the_same_data_twice_is_heard_twice_unless_it_is_repeated() -> None:
    heard = HeardArtifact()
    tick = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(data=1),)), True, False)
    pieces = [replace(tick, append=False), tick, tick, replace(tick, append=False), tick, tick, tick]
    assert [len(heard.new(piece)) for piece in pieces] == [1, 1, 1, 0, 0, 0, 1]


# -- on a server -------------------------------------------------------------------------------------------------------


def other() -> Agent:
    agent = Agent("other")

    @agent.skill
    async def talk(ctx: Context) -> AsyncIterator[str]:
        """Answers, after a question if asked to."""
        if ctx.text == "fail":
            raise Reject("I will not")
        await ctx.status("on it")
        yield "one "
        yield await ctx.ask("Which?") if ctx.text == "ask" else "two"

    return agent


def parent() -> Agent:
    agent = Agent("parent")

    @agent.skill
    async def give(ctx: Context) -> AsyncIterator[object]:
        """Gives the text on, and says what came of it."""
        try:
            came = await ctx.delegate("other", progress=True)
        except DelegationFailed as failed:
            yield f"{failed.state.name}: {failed.text}"
        else:
            yield f"got {came.text}"

    return agent


class Site:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def send(self, text: str, task_id: str | None = None) -> dict[str, Any]:
        said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]} | (
            {"taskId": task_id} if task_id else {}
        )
        async with self.http.post("/agents/parent/message:send", json={"message": said}, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
            return dict((await answer.json())["task"])

    async def tasks(self, agent: str) -> list[dict[str, Any]]:
        async with self.http.get(f"/agents/{agent}/tasks?includeArtifacts=true", headers=V1) as answer:
            return list((await answer.json())["tasks"])


@pytest.fixture(params=["here", "worker"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The same agent on the server itself, and in a worker."""
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2, cancel_grace_s=0.2)
    remote = request.param == "worker"
    profile = Profile(id="parent", name="parent", description="Elsewhere", version="1", skills=parent().profile.skills)
    served = WorkerAgent(profile, queues=True) if remote else parent()
    egress, stop = Egress(operator_named), asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    try:
        async with serving(config, [served, other()]) as url, aiohttp.ClientSession(url, timeout=timeout) as http:
            lessee = Lessee(parent(), WorkerApi(egress, url, "parent"), name="w", tasks=2)
            working = asyncio.create_task(lessee.work(stop, 0.2)) if remote else None
            try:
                yield Site(http)
            finally:
                stop.set()
                if working is not None:
                    await working
    finally:
        await egress.close()


async def test_a_skill_delegates_and_the_task_says_whose_it_is(site: Site) -> None:
    task = await site.send("do it")
    assert task["artifacts"][0]["parts"] == [{"text": "got one two"}]
    (child,) = await site.tasks("other")
    assert child["metadata"]["urn:dragoman:parent:v1"] == {"taskId": task["id"], "agent": "parent"}
    assert child["contextId"] == task["contextId"]
    assert "urn:dragoman:parent:v1" not in task["metadata"]


async def test_a_skill_is_told_that_the_other_would_not(site: Site) -> None:
    task = await site.send("fail")
    assert task["artifacts"][0]["parts"] == [{"text": "REJECTED: I will not"}]


async def test_the_caller_is_asked_what_the_other_asks(site: Site) -> None:
    task = await site.send("ask")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["status"]["message"]["parts"] == [{"text": "Which?"}]
    task = await site.send("this", task["id"])
    assert task["artifacts"][0]["parts"] == [{"text": "got one this"}]
    assert len(await site.tasks("other")) == 1
