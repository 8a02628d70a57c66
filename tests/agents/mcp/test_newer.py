"""Servers of the newer official MCP SDK (2.x) as tools: requests without sessions, questions, tasks, headers."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.mcp.calls import CallHandle
from dragoman.agents.mcp.link import Reach
from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.tools import ToolAnswer, ToolPending, ToolResult
from dragoman.testing.run import FakeRun
from tests.agents.mcp.peer import DEADLINE_S, ROOT, at, begun, call, fake_run, tools
from tests.kit.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PYTHON = Path(os.environ.get("DRAGOMAN_PEER_MCP2", ROOT / ".venv-mcp2" / "bin" / "python"))
SCRIPT = ROOT / "tests" / "peers" / "servers" / "mcp2_server.py"


@contextmanager
def listening(*words: str) -> Iterator[str]:
    """The URL of a server that is there as long as the block lasts."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    with subprocess.Popen([PYTHON, SCRIPT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip() + "/mcp"
            process.stdin.close()
            process.wait(DEADLINE_S)
        finally:
            process.kill()


def program(*words: str) -> Reach:
    return ProgramReach("newer", (str(PYTHON), str(SCRIPT), "stdio", *words), {"PATH": os.environ["PATH"]})


def grant(reach: Reach, **more: Any) -> McpGrant:
    return McpGrant(name="newer", reach=reach, **{"start_s": DEADLINE_S, "call_s": DEADLINE_S, **more})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening() as url:
        yield url


@pytest.fixture
async def newer(url: str) -> AsyncIterator[McpTools]:
    async with tools(grant(at(url))) as made:
        await made.list_tools()
        yield made


async def test_a_program_is_spoken_to_in_the_same_ways() -> None:
    """One test, since each process of the SDK takes a second to start."""
    async with tools(grant(program())) as made:
        await made.list_tools()
        await test_tools_are_listed_called_and_tell_of_progress(made)
        await test_a_question_is_answered_in_a_further_request(made)
        await test_a_call_that_becomes_a_task_is_polled_to_its_end(made)
        await test_a_task_asks_and_goes_on_with_the_answer(made)
        await test_a_cancel_reaches_the_server(made)
        await test_tools_that_change_are_listed_anew(made)


async def saw(made: McpTools, what: str) -> int:
    return int(json.loads((await call(made, "saw")).text)[what])


async def resumed(
    made: McpTools, pending: ToolPending, run: FakeRun | None = None, **answers: ToolAnswer
) -> ToolResult | ToolPending:
    return await made.resume(fake_run() if run is None else run, {}, "call-2", pending.handle, answers)


async def test_tools_are_listed_called_and_tell_of_progress(newer: McpTools) -> None:
    assert {"forecast", "book"} <= {tool.name for tool in await newer.list_tools()}
    assert (await call(newer, "forecast", city="Lyon")).text == "Sunny in Lyon"
    run = fake_run()
    assert (await call(newer, "steps", run, n=100)).text == "arrived"
    progress = [event.progress for event in run.events if getattr(event, "progress", None) is not None]
    assert progress[0].total == 100


async def test_a_question_is_answered_in_a_further_request(newer: McpTools) -> None:
    pending = await begun(newer, "book", place="Chez Louis")
    assert isinstance(pending, ToolPending)
    (question,) = pending.questions
    assert (question.asker, question.text) == ("newer", "How many people go to Chez Louis?")
    assert list(question.form["properties"]) == ["people"]
    assert not pending.repeatable
    answers = {question.id: ToolAnswer("accept", {"people": 3})}
    booked = await newer.resume(fake_run(), {"place": "Chez Louis"}, "call-2", pending.handle, answers)
    assert isinstance(booked, ToolResult)
    assert booked.text == "A table for 3 at Chez Louis"


async def test_a_call_that_becomes_a_task_is_polled_to_its_end(newer: McpTools) -> None:
    built = await saw(newer, "built")
    pending = await begun(newer, "build")
    assert isinstance(pending, ToolPending)
    assert (pending.questions, pending.repeatable) == ((), True)
    run = fake_run()
    done = await resumed(newer, pending, run)
    assert isinstance(done, ToolResult)
    assert done.text == "build is done"
    assert await resumed(newer, pending) == done, "it may be polled by another run"
    assert await saw(newer, "built") == built + 1


async def test_a_task_that_fails_says_why(newer: McpTools) -> None:
    pending = await begun(newer, "build", fails=True)
    assert isinstance(pending, ToolPending)
    assert await resumed(newer, pending) == ToolResult(text="The tool failed: out of paint.", error=True)


async def test_a_task_asks_and_goes_on_with_the_answer(newer: McpTools) -> None:
    updates = await saw(newer, "updates")
    pending = await begun(newer, "paint")
    assert isinstance(pending, ToolPending)
    asks = await resumed(newer, pending)
    assert isinstance(asks, ToolPending)
    assert [question.text for question in asks.questions] == ["Which color?"]
    done = await resumed(newer, asks, c=ToolAnswer("accept", {"color": "blue"}))
    assert isinstance(done, ToolResult)
    assert done.text == "paint is done in blue"
    assert await saw(newer, "updates") == updates + 1


async def test_a_task_is_canceled_with_ours_and_left_alone_by_a_run_that_stops(newer: McpTools) -> None:
    canceled = await saw(newer, "tasks_canceled")
    pending = await begun(newer, "build", endless=True)
    assert isinstance(pending, ToolPending)

    async def stop(run: FakeRun) -> None:
        polls = await saw(newer, "polls")
        polling = asyncio.create_task(resumed(newer, pending, run))

        async def is_polled() -> bool:
            return await saw(newer, "polls") > polls

        await until(is_polled)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling

    await stop(fake_run())
    assert await saw(newer, "tasks_canceled") == canceled
    await stop(canceled_run())
    assert await saw(newer, "tasks_canceled") == canceled + 1
    again = await resumed(newer, pending)
    assert again == ToolResult(text="The tool failed: its server canceled it.", error=True)


async def test_a_task_is_given_up_after_task_s(url: str) -> None:
    async with tools(grant(at(url), task_s=0.3)) as made:
        await made.list_tools()
        canceled = await saw(made, "tasks_canceled")
        pending = await begun(made, "build", endless=True)
        assert isinstance(pending, ToolPending)
        late = await resumed(made, pending)
        assert late == ToolResult(text="The tool failed: its server did not end its task within 0.3 s.", error=True)
        assert await saw(made, "tasks_canceled") == canceled + 1


async def test_a_question_that_waits_is_given_up_with_its_task(newer: McpTools) -> None:
    canceled = await saw(newer, "tasks_canceled")
    pending = await begun(newer, "paint")
    assert isinstance(pending, ToolPending)
    await newer.give_up(pending.handle)
    assert await saw(newer, "tasks_canceled") == canceled + 1


async def test_a_server_that_was_started_again_goes_on_with_its_task(tmp_path: Path) -> None:
    """As does ours: the handle is all that is kept."""
    words = f"tasks={tmp_path / 'tasks.json'}"
    async with tools(grant(program(words))) as made:
        await made.list_tools()
        pending = await begun(made, "build")
        assert isinstance(pending, ToolPending)
    async with tools(grant(program(words))) as made:
        done = await resumed(made, pending)
        assert isinstance(done, ToolResult)
        assert done.text == "build is done"
        assert await made.list_tools()
        assert await saw(made, "built") == 0


async def test_a_task_that_the_server_does_not_know_any_more_fails(newer: McpTools) -> None:
    handle = CallHandle(server="newer", tool="build", task="forgotten", poll_s=0.01)
    gone = await resumed(newer, ToolPending(handle=handle.spelled))
    assert gone == ToolResult(text="The tool failed: Failed to retrieve task: Task not found.", error=True)


async def test_an_argument_is_repeated_in_a_header_where_the_tool_says_so(url: str) -> None:
    async with tools(grant(at(url))) as made:
        await made.list_tools()
        assert (await call(made, "shard", region="Île")).text == "=?base64?w45sZQ==?="
        assert (await call(made, "shard", region="us-west1")).text == "us-west1"


async def test_a_server_that_may_not_ask_is_told_so(url: str) -> None:
    async with tools(grant(at(url), elicitation=False)) as made:
        await made.list_tools()
        told = await call(made, "book", place="Chez Louis")
        assert told.error
        assert "capabilit" in told.text.lower()


async def test_a_cancel_reaches_the_server(newer: McpTools) -> None:
    begins, canceled = await saw(newer, "begun"), await saw(newer, "canceled")

    async def has_begun() -> bool:
        return await saw(newer, "begun") > begins

    async def has_heard() -> bool:
        return await saw(newer, "canceled") > canceled

    calling = asyncio.create_task(call(newer, "slow"))
    await until(has_begun)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(has_heard)


async def test_tools_that_change_are_listed_anew(newer: McpTools) -> None:
    await call(newer, "grow")

    async def has_grown() -> bool:
        return "grown" in {tool.name for tool in await newer.list_tools()}

    await until(has_grown)


def canceled_run() -> FakeRun:
    class Canceled(FakeRun):
        @property
        def canceled(self) -> bool:
            return True

    return fake_run(Canceled)
