"""An agent says how its task ends: with the words of `ctx.finish` or `ctx.fail`, and with nothing after them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context, Part, Reject, SyncContext, TaskState
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.client import Connection
from dragoman.config import Config
from dragoman.model.errors import InternalError
from dragoman.model.message import Message
from dragoman.model.task import Task
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing import client, run
from tests.engine.house import DEADLINE_S, house
from tests.kit.agents import hired

S = TaskState
AT_DESK = {"agent": "desk"}
CLEANED: list[str] = []


async def coroutine(ctx: Context) -> str:
    await ctx.artifact("ticket")
    try:
        await ctx.finish("Booked")
    except Exception:  # noqa: BLE001  as agents do that must not break
        return "swallowed"
    finally:
        CLEANED.append("coroutine")


async def generator(ctx: Context) -> AsyncIterator[str]:
    yield "ticket"
    try:
        await ctx.finish("Booked")
    except Exception:  # noqa: BLE001
        yield "swallowed"
    finally:
        CLEANED.append("generator")


def plain(ctx: SyncContext) -> str:
    ctx.artifact("ticket")
    try:
        ctx.finish("Booked")
    except Exception:  # noqa: BLE001
        return "swallowed"
    finally:
        CLEANED.append("plain")


def plain_generator(ctx: SyncContext) -> Iterator[str]:
    yield "ticket"
    try:
        ctx.finish("Booked")
    except Exception:  # noqa: BLE001
        yield "swallowed"
    finally:
        CLEANED.append("plain_generator")


def agent_of(skill: Callable[[Any], Any], **declared: Any) -> Agent:
    agent = Agent("desk", **declared)
    agent.skill("skill")(skill)
    return agent


def said(message: Message | None) -> str:
    return "" if message is None else message.text


@pytest.mark.parametrize("skill", [coroutine, generator, plain, plain_generator])
async def test_finish_completes_the_task_with_its_words_and_nothing_follows(skill: Any) -> None:
    CLEANED.clear()
    ran = await run(agent_of(skill))
    assert (ran.state, said(ran.message), ran.text) == (S.COMPLETED, "Booked", "ticket")
    assert [skill.__name__] == CLEANED
    async with client(agent_of(skill)) as agent:
        task = await agent.send("go")
        assert isinstance(task, Task)
        assert (task.status.state, said(task.status.message)) == (S.COMPLETED, "Booked")
        assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["ticket"]


async def test_the_words_may_be_any_content() -> None:
    async def skill(ctx: Context) -> None:
        await ctx.finish(["See", b"raw", Part(data={"seats": 2})])

    async with client(agent_of(skill)) as agent:
        task = await agent.send("go")
        assert isinstance(task, Task)
        assert task.status.message is not None
        text, file, data = task.status.message.parts
        assert (text.text, file.raw, data.data) == ("See", b"raw", {"seats": 2})


async def test_what_cannot_be_sent_is_raised_where_it_is_said() -> None:
    async def skill(ctx: Context) -> str:
        with pytest.raises(TypeError):
            await ctx.finish(object())
        return "went on"

    assert (await run(agent_of(skill))).text == "went on"


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_fail_fails_the_task_in_the_agents_words(asynchronous: bool) -> None:
    async def skill(ctx: Context) -> None:
        await ctx.fail("The airline does not answer")

    def in_a_thread(ctx: SyncContext) -> None:
        ctx.fail("The airline does not answer")

    agent = agent_of(skill if asynchronous else in_a_thread)
    assert said((await run(agent)).message) == "The airline does not answer"
    async with client(agent) as connection:
        task = await connection.send("go")
        assert isinstance(task, Task)
        assert (task.status.state, said(task.status.message)) == (S.FAILED, "The airline does not answer")


async def booking(ctx: Context) -> AsyncIterator[str]:
    yield "looking "
    where = await ctx.ask("Where to?")
    yield f"ticket to {where}"
    await ctx.finish(f"Booked: {where}")


async def test_a_run_that_is_replayed_finishes_once() -> None:
    async with house(agent_of(booking), suspend_max_s=0.0) as here:
        task_id = (await here.send(around=AT_DESK)).head.id
        async with asyncio.timeout(DEADLINE_S):
            while here.in_memory:
                await asyncio.sleep(0)
        ended = await here.send("Lyon", task_id=task_id, around=AT_DESK)
        assert (ended.state, said(ended.status.message)) == (S.COMPLETED, "Booked: Lyon")
        texts = [part.text for artifact in ended.artifacts for part in artifact.parts]
        assert texts == ["looking ", "ticket to Lyon"]


async def test_a_run_that_finishes_before_it_has_asked_again_does_not_fit_its_answers() -> None:
    runs = 0

    async def skill(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await ctx.ask("Where to?")
        await ctx.finish("Booked")

    async with house(agent_of(skill), suspend_max_s=0.0) as here:
        task_id = (await here.send(around=AT_DESK)).head.id
        async with asyncio.timeout(DEADLINE_S):
            while here.in_memory:
                await asyncio.sleep(0)
        ended = await here.send("Lyon", task_id=task_id, around=AT_DESK)
        assert ended.state is S.FAILED
        assert ended.status.message is not None
        assert ended.status.message.metadata == {"reason": "replay_mismatch"}


async def test_a_direct_agent_answers_with_the_words_after_the_rest() -> None:
    async with client(agent_of(generator, direct=True)) as agent:
        answer = await agent.send("go")
        assert isinstance(answer, Message)
        assert [part.text for part in answer.parts] == ["ticket", "Booked"]

    async def failing(ctx: Context) -> None:
        await ctx.fail("No")

    async with client(agent_of(failing, direct=True)) as agent:
        with pytest.raises(InternalError):
            await agent.send("go")


@pytest.mark.parametrize("plain", [False, True])
async def test_an_agent_replies_with_a_message_or_ends_its_task(plain: bool) -> None:
    async def replying(ctx: Context) -> AsyncIterator[str]:
        yield "I think "
        await ctx.message_reply("so")

    def replying_in_a_thread(ctx: SyncContext) -> Iterator[str]:
        yield "I think "
        ctx.message_reply("so")

    skill = replying_in_a_thread if plain else replying
    async with client(agent_of(skill, direct="auto", direct_wait_s=60)) as agent:
        answer = await agent.send("go")
        assert isinstance(answer, Message)
        assert [part.text for part in answer.parts] == ["I think ", "so"]
    async with client(agent_of(skill)) as agent:
        task = await agent.send("go")
        assert isinstance(task, Task)
        assert task.status.message is not None
        assert (task.status.state, task.status.message.text) == (S.COMPLETED, "so")


async def test_an_agent_that_finishes_with_words_has_a_task() -> None:
    async with client(agent_of(generator, direct="auto", direct_wait_s=60)) as agent:
        task = await agent.send("go")
        assert isinstance(task, Task)
        assert task.status.message is not None
        assert task.status.message.text == "Booked"


@pytest.mark.parametrize(
    ("skill", "state"), [("finish", S.COMPLETED), ("message_reply", S.COMPLETED), ("fail", S.FAILED)]
)
async def test_a_worker_says_it_to_the_server(skill: str, state: TaskState) -> None:
    async def ending(ctx: Context) -> None:
        await ctx.artifact("ticket")
        await getattr(ctx, skill)("That is it")

    there = hired("desk")
    egress, stop = Egress(operator_named), asyncio.Event()
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2)
    try:
        async with serving(config, [there]) as url, aiohttp.ClientSession(url) as http:
            lessee = Lessee(agent_of(ending), WorkerApi(egress, url, "desk"), name="w", tasks=1)
            working = asyncio.create_task(lessee.work(stop, 0.2))
            try:
                message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
                async with http.post(
                    "/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
                ) as answer:
                    task = (await answer.json())["task"]
            finally:
                stop.set()
                await working
    finally:
        await egress.close()
    assert task["status"]["state"] == state.value
    assert task["status"]["message"]["parts"] == [{"text": "That is it"}]
    assert task["artifacts"][0]["parts"] == [{"text": "ticket"}]


async def words(ctx: Context) -> None:
    await ctx.finish("Booked")


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "evoai", "protoagent", "kaos"])
async def test_the_words_are_told_in_every_dialect(dialect: str) -> None:
    """In KAOS, whose status always says "Done", as the answer at the end of the history."""

    async def told(agent: Connection) -> str:
        task = await agent.send("go")
        assert isinstance(task, Task)
        assert task.status.state is S.COMPLETED
        return task.history[-1].text if dialect == "kaos" else said(task.status.message)

    async with client(agent_of(words), dialect=dialect) as agent:
        assert await told(agent) == "Booked"


@pytest.mark.parametrize("stream", [True, False])
async def test_words_alone_are_the_answer_of_a_chat_completion(stream: bool) -> None:
    asked = {"model": "desk", "stream": stream, "messages": [{"role": "user", "content": "go"}]}
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2)
    async with (
        serving(config, [agent_of(words)]) as url,
        aiohttp.ClientSession(url) as http,
        http.post("/v1/chat/completions", json=asked) as answer,
    ):
        assert answer.status == 200
        body = await answer.text()
    assert body.count("Booked") == 1


async def test_a_word_said_in_a_group_of_tasks_ends_the_task(caplog: pytest.LogCaptureFixture) -> None:
    async def skill(ctx: Context) -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(asyncio.Event().wait())
            async with asyncio.TaskGroup() as inner:
                inner.create_task(ctx.fail("Sold out") if ctx.text == "fail" else ctx.finish("Booked"))

    async def rejecting(ctx: Context) -> None:
        async def look() -> None:
            raise Reject("Not to Mars")

        async with asyncio.TaskGroup() as group:
            group.create_task(look())

    async def failing(ctx: Context) -> None:
        async def look() -> None:
            raise ValueError("no seats")

        async def say() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await ctx.finish("Booked")

        async with asyncio.TaskGroup() as group:
            group.create_task(say())
            group.create_task(look())

    for does, text, state, word in (
        (skill, "finish", S.COMPLETED, "Booked"),
        (skill, "fail", S.FAILED, "Sold out"),
        (rejecting, "go", S.REJECTED, "Not to Mars"),
    ):
        async with client(agent_of(does)) as connection:
            task = await connection.send(text)
            assert isinstance(task, Task)
            assert (task.status.state, said(task.status.message)) == (state, word)
    assert "no seats" not in caplog.text
    async with client(agent_of(failing)) as connection:
        task = await connection.send("go")
        assert isinstance(task, Task)
        assert task.status.state is S.FAILED
    assert "no seats" in caplog.text
