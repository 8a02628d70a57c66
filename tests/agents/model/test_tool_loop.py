"""A model that calls tools: what it is told, what its caller is told and asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.agents.tools import ModelTool, ToolResult, Tools
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Run as EngineRun
from dragoman.model.events import StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import TaskState, Usage
from dragoman.testing import Ran, run
from tests.agents.model.completions import Completions, called, completions, said
from tests.agents.model.test_agent import asked, model

ADD = '{"a": 1, "b": 2}'


class Adding(Tools):
    """Tools that add; `approves` are those that the caller is asked about."""

    def __init__(self, *approves: str, parts: tuple[Part, ...] = ()) -> None:
        self.calls: list[tuple[str, dict[str, Any], str]] = []
        self._approves = approves
        self._parts = parts

    async def list_tools(self) -> tuple[ModelTool, ...]:
        return (
            ModelTool(name="add", description="Adds.", parameters={"type": "object"}),
            ModelTool(name="look", repeatable=True),
        )

    def needs_approval(self, name: str) -> bool:
        return name in self._approves

    async def call(self, run: EngineRun, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        self.calls.append((name, arguments, call_id))
        if name != "add":
            return ToolResult(text=f"there is no tool {name}", error=True)
        return ToolResult(text=str(arguments["a"] + arguments["b"]), parts=self._parts)


@pytest.fixture
async def api() -> AsyncIterator[Completions]:
    async with completions() as endpoint:
        endpoint.answers(called(("c1", "add", ADD), text="Let me see."), said("It is 3."))
        yield endpoint


def phases(ran: Ran) -> list[tuple[str, str]]:
    """The calls that callers were told of: their ids and phases."""
    metadata = [event.metadata for event in ran.events if isinstance(event, StatusChanged) and event.metadata]
    return [(each[TOOL_CALL]["toolCallId"], each[TOOL_CALL]["phase"]) for each in metadata]


def test_a_fake_is_what_the_loop_calls() -> None:
    assert isinstance(Adding(), Tools)


async def test_a_call_is_made_told_and_answered(api: Completions) -> None:
    tools = Adding()
    ran = await asked(model(api.url, tools=tools))
    assert tools.calls == [("add", {"a": 1, "b": 2}, "c1")]
    assert phases(ran) == [("c1", "started"), ("c1", "completed")]
    assert [artifact.parts[0].text for artifact in ran.artifacts] == ["Let me see.", "It is 3."]
    assert ran.usage == Usage.of(14, 6, model="small")
    assert api.body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": ADD}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    assert [tool["function"]["name"] for tool in api.body["tools"]] == ["add", "look"]


async def test_several_calls_are_made_in_their_order(api: Completions) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "add", '{"a":2,"b":2}')), said("3 and 4."))
    tools = Adding()
    await asked(model(api.url, tools=tools))
    assert [call_id for _, _, call_id in tools.calls] == ["c1", "c2"]
    assert [message["content"] for message in api.body["messages"][-2:]] == ["3", "4"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("c1", "add", "{a"), "not a JSON object"),
        (("c1", "add", "[1]"), "not a JSON object"),
        (("c1", "x", ""), "no tool x"),
    ],
)
async def test_a_call_that_fails_is_told_to_the_model(api: Completions, call: tuple[str, str, str], told: str) -> None:
    api.answers(called(call), said("Sorry."))
    ran = await asked(model(api.url, tools=Adding()))
    assert ran.state is TaskState.COMPLETED
    assert api.body["messages"][-1]["content"].startswith("Error: ")
    assert told in api.body["messages"][-1]["content"]
    assert phases(ran)[-1] == ("c1", "failed")


async def test_calls_without_ids_get_some(api: Completions) -> None:
    api.answers(called(("", "add", ADD), ("", "add", ADD)), said("3."))
    tools = Adding()
    await asked(model(api.url, tools=tools))
    assert len({call_id for _, _, call_id in tools.calls}) == 2


async def test_what_a_tool_gives_to_the_caller_is_an_artifact(api: Completions) -> None:
    ran = await asked(model(api.url, tools=Adding(parts=(Part(raw=b"\x89PNG", media_type="image/png"),))))
    assert [part.media_type for part in ran.files] == ["image/png"]


@pytest.mark.parametrize("approves", [(), ("add",)])
async def test_a_number_of_64_bits_in_a_call_or_its_result_is_told_as_text(approves: tuple[str, ...]) -> None:
    """Ids of many services are such numbers. The tool itself gets the number."""
    large = 2**60
    tools = Adding(*approves, parts=(Part(data={"id": large}),))
    async with completions() as endpoint:
        endpoint.answers(called(("c1", "add", json.dumps({"a": large, "b": 1}))), said("Done."))
        ran = await asked(model(endpoint.url, tools=tools), answers=["yes"] if approves else [])
    assert tools.calls[0][1] == {"a": large, "b": 1}
    assert ran.data == [{"id": str(large)}]
    told = [event.metadata for event in ran.events if isinstance(event, StatusChanged) and event.metadata]
    assert {each[TOOL_CALL]["args"]["a"] for each in told} == {str(large)}


async def test_calls_without_end_are_ended(api: Completions) -> None:
    api.answers(called(("c1", "add", ADD)))
    tools = Adding()
    message = (await asked(model(api.url, tools=tools, tool_rounds=3))).record.status.message
    assert message is not None
    assert message.metadata == {"reason": "model_tool_rounds"}
    assert len(tools.calls) == 3


@pytest.mark.parametrize("yes", ["yes", "Yes!", " OK ", Part(data={"approved": True})])
async def test_the_caller_is_asked_first(api: Completions, yes: Any) -> None:
    tools = Adding("add")
    ran = await asked(model(api.url, tools=tools), answers=[yes])
    assert ran.questions == ['May I call add with {"a":1,"b":2}? Answer yes or no.']
    assert tools.calls
    assert ran.state is TaskState.COMPLETED


@pytest.mark.parametrize("no", ["no", "why?", "", Part(data={"approved": False}), "yes, but not that one"])
async def test_anything_but_a_yes_is_a_no(api: Completions, no: Any) -> None:
    tools = Adding("add")
    ran = await asked(model(api.url, tools=tools), answers=[no])
    assert not tools.calls
    assert "does not allow" in api.body["messages"][-1]["content"]
    assert phases(ran) == [("c1", "failed")]
    assert ran.state is TaskState.COMPLETED


async def test_a_call_that_waits_for_approval_is_not_made(api: Completions) -> None:
    tools = Adding("add")
    ran = await asked(model(api.url, tools=tools))
    assert ran.state is TaskState.INPUT_REQUIRED
    assert not tools.calls


async def test_a_tool_that_is_away_is_asked_about_all_the_same(api: Completions) -> None:
    """It may be back when it is called."""
    api.answers(called(("c1", "rm", "{}")), said("Sorry."))
    tools = Adding("rm")
    ran = await asked(model(api.url, tools=tools), answers=["no"])
    assert len(ran.questions) == 1
    assert not tools.calls


async def test_a_cancel_reaches_the_tool(api: Completions) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    class Slow(Adding):
        async def call(self, run: EngineRun, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            raise AssertionError

    agent = model(api.url, tools=Slow())
    task = asyncio.create_task(run(agent, "Hi"))
    await asyncio.wait_for(began.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    await agent.close()
