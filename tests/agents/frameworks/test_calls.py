"""Calls of tools, as the caller is told of them."""

import pytest

from dragoman.agents.content import Artifacts
from dragoman.agents.frameworks.calls import Calls
from dragoman.agents.python.context import Context
from dragoman.agents.python.threads import Threads
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Reject
from dragoman.model.events import StatusChanged
from dragoman.model.message import Message, Part, Role
from dragoman.testing.run import FakeRun


@pytest.fixture
def run() -> FakeRun:
    return FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))


@pytest.fixture
def ctx(run: FakeRun) -> Context:
    return Context(run, "answer", Artifacts(run), Threads())


def told(run: FakeRun) -> list[tuple[str, str]]:
    statuses = (event for event in run.events if isinstance(event, StatusChanged) and event.metadata)
    return [(event.metadata[TOOL_CALL]["toolCallId"], event.metadata[TOOL_CALL]["phase"]) for event in statuses]  # type: ignore[index]


async def test_a_call_begins_and_ends_once(run: FakeRun, ctx: Context) -> None:
    calls = Calls(ctx)
    await calls.report_start("1", "look", '{"at": "sky"}')
    await calls.report_start("1", "look")
    await calls.report_end("1", "blue")
    await calls.report_end("1", "blue")
    assert told(run) == [("1", "started"), ("1", "completed")]


@pytest.mark.parametrize("error", [LookupError("no agent"), Reject("The model refused.")], ids=["broken", "refused"])
async def test_what_is_open_when_the_run_breaks_has_failed(run: FakeRun, ctx: Context, error: Exception) -> None:
    calls = Calls(ctx)
    with pytest.raises(type(error)):
        async with calls:
            await calls.report_start("1", "look")
            await calls.report_start("2", "listen")
            await calls.report_end("1")
            raise error
    assert told(run)[-1] == ("2", "failed")
    assert calls.open == {}


async def test_a_call_that_was_open_at_a_pause_ends_in_a_later_run(run: FakeRun, ctx: Context) -> None:
    before, after = Calls(ctx), Calls(ctx)
    await before.report_start("1", "look")
    after.open |= before.open
    await after.report_start("1", "look")
    await after.report_end("1", error="nothing there")
    assert told(run) == [("1", "started"), ("1", "failed")]


async def test_what_has_no_json_form_is_shown_as_text(run: FakeRun, ctx: Context) -> None:
    await Calls(ctx).report_start("1", "look", {"at": object})
    assert told(run) == [("1", "started")]
