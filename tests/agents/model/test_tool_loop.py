"""A model that calls tools: what it is told, what its caller is told and asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from dragoman.agents.model.tool_loop import ASKS_MAX, LEGS_MAX
from dragoman.agents.tools import ModelTool, ToolAnswer, ToolPending, ToolQuestion, ToolResult, Tools
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Execute
from dragoman.engine.api import Run as EngineRun
from dragoman.engine.runs.places import within_first_branch
from dragoman.engine.words import Step
from dragoman.model.events import StatusChanged, Stepped
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import TaskState, Usage
from dragoman.testing import Ran, run
from dragoman.testing.run import FakeRun
from tests.agents.model.completions import Completions, called, completions, said
from tests.agents.model.test_agent import asked, model

ADD = '{"a": 1, "b": 2}'
YES = Message(message_id="yes", role=Role.USER, parts=(Part(text="yes"),))


class Adding(Tools):
    """Tools that add; `approves` are those that the caller is asked about, `once` those that are called once."""

    def __init__(self, *approves: str, parts: tuple[Part, ...] = (), once: str = "") -> None:
        self.calls: list[tuple[str, dict[str, Any], str]] = []
        self._approves = approves
        self._parts = parts
        self._once = once

    async def list_tools(self) -> tuple[ModelTool, ...]:
        return (
            ModelTool(name="add", description="Adds.", parameters={"type": "object"}),
            ModelTool(name="look"),
        )

    def needs_approval(self, name: str) -> bool:
        return name in self._approves

    def at_most_once(self, name: str) -> bool:
        return name == self._once

    async def call(self, run: EngineRun, name: str, arguments: dict[str, Any], key: str) -> ToolResult | ToolPending:
        self.calls.append((name, arguments, key))
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
    assert tools.calls == [("add", {"a": 1, "b": 2}, "task-1:2")]
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


async def test_an_answer_that_calls_tools_and_each_of_its_calls_are_steps_and_the_last_answer_is_none(
    api: Completions,
) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "x", "")), said("3."))
    ran = await asked(model(api.url, tools=Adding()))
    steps = [event for event in ran.events if isinstance(event, Stepped)]
    assert [(step.name, step.placed.place) for step in steps] == [("$model", "1"), ("add", "2"), ("x", "3")]
    assert [step.failure is None for step in steps] == [True, True, False]


async def test_an_answer_without_tools_is_no_step(api: Completions) -> None:
    api.answers(said("3."))
    ran = await asked(model(api.url))
    assert not [event for event in ran.events if isinstance(event, Stepped)]


@pytest.mark.parametrize("name", ["", "a\0b", "é" * 5000])
async def test_a_model_may_invent_any_name(api: Completions, name: str) -> None:
    api.answers(called(("c1", name, "{}")), said("Sorry."))
    assert (await asked(model(api.url, tools=Adding()))).text == "Sorry."


async def test_several_calls_are_made_in_their_order(api: Completions) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "add", '{"a":2,"b":2}')), said("3 and 4."))
    tools = Adding()
    ran = await asked(model(api.url, tools=tools))
    assert phases(ran) == [("c1", "started"), ("c1", "completed"), ("c2", "started"), ("c2", "completed")]
    assert [key for _, _, key in tools.calls] == ["task-1:2", "task-1:3"]
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
    ran = await asked(model(api.url, tools=Adding()))
    assert len({call_id for call_id, _ in phases(ran)}) == 2


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
        async def call(self, run: EngineRun, name: str, arguments: dict[str, Any], key: str) -> ToolResult:
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


# -- calls that are not over with their first answer ------------------------------------------------------------------

FORM = {"type": "object", "properties": {"people": {"type": "integer"}}, "required": ["people"]}
ASKS = ToolPending(handle="a", questions=(ToolQuestion(id="q", asker="host", text="How many?", form=FORM),))
WORKS = ToolPending(handle="w", repeatable=True)


class Pending(Adding):
    """A tool whose calls give these answers, one after the other."""

    def __init__(self, *answers: ToolResult | ToolPending, once: str = "") -> None:
        super().__init__(once=once)
        self.left = list(answers)
        self.resumed: list[tuple[str, str, dict[str, ToolAnswer]]] = []
        self.given_up: list[str] = []

    async def call(self, run: EngineRun, name: str, arguments: dict[str, Any], key: str) -> ToolResult | ToolPending:
        self.calls.append((name, arguments, key))
        return self.left.pop(0)

    async def resume(
        self, run: EngineRun, arguments: dict[str, Any], key: str, handle: str, answers: Mapping[str, ToolAnswer]
    ) -> ToolResult | ToolPending:
        assert arguments == {"a": 1, "b": 2}
        self.resumed.append((handle, key, dict(answers)))
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    async def give_up(self, handle: str) -> None:
        self.given_up.append(handle)


async def test_a_call_that_is_pending_goes_on_in_steps_of_its_own(api: Completions) -> None:
    tools = Pending(WORKS, ASKS, ToolResult(text="3"))
    ran = await asked(model(api.url, tools=tools), answers=["many", "4"])
    assert tools.resumed == [("w", "task-1:3", {}), ("a", "task-1:4", {"q": ToolAnswer("accept", {"people": 4})})]
    assert ran.questions == [
        "host asks: How many?\n- people (a whole number)\nAnswer with its value, or decline.",
        "people must be a whole number.\nhost asks: How many?\n- people (a whole number)\n"
        "Answer with its value, or decline.",
    ]
    steps = [event for event in ran.events if isinstance(event, Stepped)]
    assert [(step.name, step.form) for step in steps[1:]] == [("add", "pending"), ("add", "pending"), ("add", "text")]
    assert phases(ran) == [("c1", "started"), ("c1", "completed")]
    assert api.body["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "3"}


async def test_answers_that_never_fit_cancel_the_question(api: Completions) -> None:
    tools = Pending(ASKS, ToolResult(text="none"))
    ran = await asked(model(api.url, tools=tools), answers=["many"] * ASKS_MAX)
    assert tools.resumed[0][2] == {"q": ToolAnswer("cancel")}
    assert len(ran.questions) == ASKS_MAX


async def test_a_tool_that_asks_without_end_is_given_up(api: Completions) -> None:
    tools = Pending(WORKS, WORKS)
    await asked(model(api.url, tools=tools))
    assert len(tools.resumed) == LEGS_MAX
    assert tools.given_up == ["w"]
    assert api.body["messages"][-1]["content"].startswith("Error: Its server asks without end")


@pytest.mark.parametrize(("pending", "begins"), [(ASKS, 2), (WORKS, 1)])
async def test_a_leg_that_may_do_harm_twice_is_taken_at_most_once(
    api: Completions, pending: ToolPending, begins: int
) -> None:
    class Counts(FakeRun):
        begun = 0

        async def step(self, word: Step, execute: Execute) -> Stepped:
            self.begun += word.at_most_once
            return await super().step(word, execute)

    fake = Counts(
        Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)),
        answers=[Message(message_id="a", role=Role.USER, parts=(Part(text="4"),))],
    )
    agent = model(api.url, tools=Pending(pending, ToolResult(text="3"), once="add"))
    with within_first_branch():
        await agent.run(fake)
    await agent.close()
    assert fake.begun == begins


@pytest.mark.parametrize("canceled", [True, False])
async def test_a_call_is_given_up_while_its_question_waits_if_the_task_is_canceled(
    api: Completions, canceled: bool
) -> None:
    class Stopped(FakeRun):
        @property
        def canceled(self) -> bool:
            return canceled

    tools = Pending(ASKS)
    agent = model(api.url, tools=tools)
    fake = Stopped(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))
    with within_first_branch(), pytest.raises(asyncio.CancelledError):
        await agent.run(fake)
    await agent.close()
    assert tools.given_up == (["a"] if canceled else [])


@pytest.mark.parametrize("canceled", [True, False])
async def test_a_call_is_given_up_before_its_next_leg_begins_if_the_task_is_canceled(
    api: Completions, canceled: bool
) -> None:
    class Stopped(FakeRun):
        @property
        def canceled(self) -> bool:
            return canceled

        async def written(self) -> None:
            if tools.calls:
                raise asyncio.CancelledError

    tools = Pending(WORKS)
    agent = model(api.url, tools=tools)
    fake = Stopped(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))
    with within_first_branch(), pytest.raises(asyncio.CancelledError):
        await agent.run(fake)
    await agent.close()
    assert (tools.resumed, tools.given_up) == ([], ["w"] if canceled else [])


# -- what version 0.1.0 noted ------------------------------------------------------------------------------------------


def noted(**more: object) -> dict[str, str]:
    """The notes of a task whose model had called `add` twice and `look` once in its first answer."""
    calls = [{"id": f"c{number}", "name": name, "arguments": ADD} for number, name in enumerate(("add", "look", "add"))]
    usage = Usage.of(7, 3, model="small")
    notes = {"round-1": {"text": "Let me see.", "calls": calls, "usage": usage}, **more}
    return {name: msgspec.json.encode(value).decode() for name, value in notes.items()}


async def test_a_task_of_version_0_1_0_goes_on_after_what_it_noted(api: Completions) -> None:
    """Its first call is done, and nobody knows of the second whether it is."""
    api.answers(said("It is 3."))
    tools = Adding("add", "look")
    fake = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)), answers=[YES])
    outcome = {"text": "3", "error": False}
    fake.note(**noted(**{"begun-1.0": True, "result-1.0": outcome, "begun-1.1": True}))
    agent = model(api.url, tools=tools)
    with within_first_branch():
        await agent.run(fake)
    await agent.close()
    assert [name for name, _, _ in tools.calls] == ["add"]
    contents = [message["content"] for message in api.body["messages"] if message["role"] == "tool"]
    assert contents[0] == "3"
    assert contents[1].startswith("Error: It is not known whether")
    assert contents[2] == "3"
    assert len(api.asked) == 1
    assert not fake.waits, "it asks about the third call alone"


async def test_an_answer_that_version_0_1_0_asked_for_is_taken_for_its_question(api: Completions) -> None:
    api.answers(said("It is 3."))
    tools = Adding()
    no = Message(message_id="a", role=Role.USER, parts=(Part(text="no"),))
    fake = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)), answers=[no])
    fake.note(**noted(**{"asked-1.0": True}))
    agent = model(api.url, tools=tools)
    with within_first_branch():
        await agent.run(fake)
    await agent.close()
    assert [name for name, _, _ in tools.calls] == ["look", "add"]
