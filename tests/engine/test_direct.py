"""Agents that answer with a Message instead of a task (A2A 1.0 §3.1.1, §3.1.2)."""

import asyncio
from typing import Any

import pytest

from dragoman.engine.api import Delegation, Reject, Run
from dragoman.engine.handler import Direct
from dragoman.model.errors import InternalError, InvalidParams, Unavailable, UnsupportedOperation
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, Usage
from tests.engine.house import Scripted, echo, house, read, say, sending, streaming


def direct(script: Any, **fields: Any) -> Scripted:
    return Scripted(script, direct=True, **fields)


async def test_the_answer_is_one_message_and_no_task() -> None:
    async def script(run: Run) -> None:
        await run.status((Part(text="thinking"),), progress=(1, 2))
        run.usage(Usage(1, 1, 1))
        await say(run, "one", "a")
        await say(run, ", two", "a")
        await say(run, "three", "b")
        assert [a.artifact_id for a in run.record.artifacts] == ["a", "b"]

    async with house(direct(script)) as h:
        answer = await h.ask(sending("hi", context_id="c"))
        assert isinstance(answer, Message)
        assert [part.text for part in answer.parts] == ["one, two", "three"]
        assert (answer.role, answer.context_id, answer.task_id) == (Role.AGENT, "c", None)
        assert (await h.listed()).total_size == 0


async def test_a_stream_is_exactly_the_message() -> None:
    async with house(direct(echo)) as h:
        stream = await h.open(streaming("hi"))
        assert stream.head is None
        items = await read(stream)
        assert len(items) == 1
        assert isinstance(items[0], Direct)
        assert items[0].message.text == "hi"


async def test_a_repeated_call_gets_the_task_that_it_has_made_already() -> None:
    """At a replica that does not serve the agent, or before a reload."""
    async with house(Scripted(echo)) as h:
        once = sending("hi")
        task = await h.ask(once)
        assert isinstance(task, Record)
        h.engine.serve({"agent": direct(echo)})
        assert await h.ask(once) == task


async def test_a_repeated_call_gets_the_same_message() -> None:
    runs = []

    async def script(run: Run) -> None:
        runs.append(1)
        await echo(run)

    async with house(direct(script)) as h:
        once = sending("hi")
        first = await h.ask(once)
        assert await h.ask(once) == first
        assert len(runs) == 1
        at_once = sending("hi")
        assert len({m.message_id for m in await asyncio.gather(h.ask(at_once), h.ask(at_once))}) == 1
        await h.ask(once, idempotency_key="k")
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.ask(sending("other"), idempotency_key="k")


async def test_in_dialects_without_a_message_result_it_is_a_task() -> None:
    async with house(direct(echo)) as h:
        once = sending("hi")
        assert isinstance(await h.ask(once), Message)
        assert isinstance(await h.ask(once, dialect="kaos"), Record)


@pytest.mark.parametrize("end", ["cancels itself", "cancels itself at last", SystemExit(3), KeyboardInterrupt()])
async def test_the_end_of_an_agent_is_not_the_end_of_the_call(end: Any) -> None:
    async def script(run: Run) -> None:
        if isinstance(end, BaseException):
            raise end
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        if end == "cancels itself":
            await asyncio.sleep(60)

    async with house(direct(script)) as h:
        call = asyncio.create_task(h.ask(sending("hi")))
        with pytest.raises(InternalError):
            await call
        assert not call.cancelling()


async def test_what_a_direct_agent_cannot_do() -> None:
    async def ask(run: Run) -> None:
        await run.ask((Part(text="?"),))

    async def reject(run: Run) -> None:
        raise Reject("only weather")

    async def slow(run: Run) -> None:
        await asyncio.Event().wait()

    async def own_timeout(run: Run) -> None:
        raise TimeoutError("secret")

    async def cancel(run: Run) -> None:
        raise asyncio.CancelledError

    async def close(run: Run) -> None:
        raise GeneratorExit("secret")

    for script, error, text in (
        (ask, InternalError, "reference"),
        (reject, UnsupportedOperation, "only weather"),
        (slow, Unavailable, "did not answer within"),
        (own_timeout, InternalError, "reference"),
        (cancel, InternalError, "reference"),
        (close, InternalError, "reference"),
    ):
        async with house(direct(script), blocking_timeout_s=0.02 if script is slow else 60.0) as h:
            with pytest.raises(error, match=text) as caught:
                await h.ask(sending("hi"))
            assert "secret" not in caught.value.message


async def test_a_run_without_a_task_cannot_own_others_and_says_so_at_once() -> None:
    caught: list[str] = []

    async def script(run: Run) -> None:
        try:
            await run.delegate(Delegation(agent="other", parts=(Part(text="do it"),)))
        except RuntimeError as error:
            caught.append(str(error))
        await say(run, "alone")

    async with house(direct(script), Scripted(echo, "other")) as h:
        await h.ask(sending("hi"))
        assert caught == ["agent 'agent' is declared direct: it cannot delegate; leave direct=True out"]
        assert (await h.listed(agent="other")).total_size == 0
