"""Agents of Pydantic AI, with its own test models."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ApprovalRequired, BinaryContent, CallDeferred, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel

from dragoman import Part
from dragoman.agents.frameworks import adapt, framework_of
from dragoman.agents.python.agent import Agent as Served
from dragoman.cli.references import load_reference
from dragoman.model.message import Message, Role
from dragoman.model.task import TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.documented import PAGES
from tests.frameworks.restarts import handed_over, restarted


def served(agent: Agent) -> Served:
    made = adapt(agent, "test")
    assert made is not None
    return made


def words(*texts: str) -> FunctionModel:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for text in texts:
            yield text

    return FunctionModel(stream_function=stream)


async def test_text_streams() -> None:
    ran = await run(served(Agent(words("Good ", "morning", "!"))), "Hello")
    assert ran.text == "Good morning!"
    assert len(ran.chunks) >= 1
    assert ran.usage.output_tokens > 0


async def test_the_card_says_what_the_agent_says_of_itself() -> None:
    agent = Agent(TestModel(), name="Weather", description="Knows the weather")

    @agent.tool_plain
    def forecast(city: str) -> str:
        """The forecast."""
        return f"Sunny in {city}"

    profile = served(agent).profile
    assert (profile.id, profile.name, profile.description) == ("test", "Weather", "Knows the weather")
    assert profile.skills[0].tags == ("forecast",)


async def test_tool_calls_are_statuses() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain
    def forecast(city: str) -> str:
        """The forecast."""
        return f"Sunny in {city}"

    ran = await run(served(agent), "Weather?")
    assert ran.statuses == ["Calling forecast", "forecast is done"]
    assert "Sunny in a" in ran.text


async def test_a_tool_that_breaks_is_told_and_fails_the_task() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain
    def forecast(city: str) -> str:
        """The forecast."""
        raise RuntimeError("secret of the server")

    made = served(agent)
    said: list[str] = []
    with pytest.raises(RuntimeError, match="secret"):
        await _run_saying(made, said)
    assert said == ["Calling forecast", "forecast failed: it broke off"]


async def _run_saying(agent: Served, said: list[str]) -> None:
    from dragoman.testing.run import FakeRun

    fake = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Weather?"),)))
    try:
        await agent.run(fake)
    finally:
        said.extend(
            event.message.text  # type: ignore[union-attr]
            for event in fake.events
            if getattr(event, "message", None) is not None and getattr(event, "metadata", None)
        )


class City(BaseModel):
    name: str
    people: int


async def test_structured_output_is_data() -> None:
    agent = Agent(TestModel(custom_output_args={"name": "Lyon", "people": 5}), output_type=City)
    ran = await run(served(agent), "Which city?")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert ran.text == ""


async def test_the_conversation_is_the_history() -> None:
    seen: list[list[ModelMessage]] = []

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        seen.append(messages)
        yield "Yes"

    history = [
        Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
        Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
    ]
    await run(served(Agent(FunctionModel(stream_function=stream))), "Who am I?", history=history)
    first, second, third = seen[0]
    assert isinstance(first, ModelRequest)
    assert first.parts[0].content == "My name is Ada"  # type: ignore[union-attr]
    assert isinstance(second, ModelResponse)
    assert second.text == "Hello Ada"
    assert third.parts[-1].content == "Who am I?"  # type: ignore[union-attr]


async def test_images_reach_the_model() -> None:
    seen: list[object] = []

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        seen.extend(part.content for part in messages[-1].parts if isinstance(part, UserPromptPart))
        yield "A picture"

    message = (Part(text="What is this?"), Part(raw=b"PNG", media_type="image/png"))
    await run(served(Agent(FunctionModel(stream_function=stream))), message)
    assert seen == [["What is this?", BinaryContent(b"PNG", media_type="image/png")]]


def careful(deleted: list[str]) -> Agent[None, str | DeferredToolRequests]:
    """An agent that deletes a file after it was allowed to, and says what became of it."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if returned:
            yield f"Result: {returned[-1].content}"
        else:
            yield "Let me see. "
            yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="look-1")}
            yield {1: DeltaToolCall(name="delete", json_args='{"path": "a.txt"}', tool_call_id="call-1")}

    agent = Agent(FunctionModel(stream_function=stream), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def look() -> str:
        """Look around."""
        deleted.append("looked")
        return "a.txt"

    @agent.tool
    def delete(ctx: RunContext[None], path: str) -> str:
        """Delete a file."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        deleted.append(path)
        return f"{path} is gone"

    return agent


async def test_a_tool_that_needs_approval_asks() -> None:
    deleted: list[str] = []
    ran = await run(served(careful(deleted)), "Clean up", answers=["Yes."])
    assert ran.questions == ['May delete be called with {"path": "a.txt"}? Answer yes or no.']
    assert deleted == ["looked", "a.txt"]
    assert ran.text.endswith("Result: a.txt is gone")


async def test_a_denial_is_told_to_the_model() -> None:
    deleted: list[str] = []
    ran = await run(served(careful(deleted)), "Clean up", answers=["no, keep it"])
    assert deleted == ["looked"]
    assert "The user did not allow this call: no, keep it" in ran.text


async def test_an_approval_survives_a_restart_and_nothing_is_done_twice(tmp_path: Path) -> None:
    deleted: list[str] = []
    task = await restarted(tmp_path, lambda: served(careful(deleted)), "Clean up", "yes")
    assert deleted == ["looked", "a.txt"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["Let me see. ", "Result: a.txt is gone"]


async def test_an_approval_survives_its_worker_and_nothing_is_done_twice() -> None:
    deleted: list[str] = []
    task = await handed_over(lambda: served(careful(deleted)), "Clean up", "yes")
    assert task.status.state is TaskState.COMPLETED
    assert deleted == ["looked", "a.txt"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["Let me see. ", "Result: a.txt is gone"]


async def test_the_example_asks_before_it_sends() -> None:
    (agent,) = load_reference("mail=examples/frameworks/pydantic_ai_agent.py")
    assert (agent.profile.id, agent.profile.name) == ("mail", "Mail")
    ran = await run(agent, "Write to Ada", answers=["yes"])
    assert ran.questions == ['May send_mail be called with {"to": "ada@example.org"}? Answer yes or no.']
    assert ran.text == "Sent to ada@example.org"


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_the_tool_of_the_documentation_asks(answer: str) -> None:
    code = (PAGES / "pydantic-ai.md").read_text()
    assert "requires_approval=True" in code
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])
    done: list[str] = []

    @agent.tool_plain(requires_approval=True)
    def delete_file(path: str) -> str:
        """Delete a file."""
        done.append(path)
        return "gone"

    ran = await run(served(agent), "Clean up", answers=[answer])
    assert ran.questions == ['May delete_file be called with {"path": "a"}? Answer yes or no.']
    assert done == (["a"] if answer == "yes" else [])


async def test_a_call_that_is_done_elsewhere_is_asked_for() -> None:
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def price(item: str) -> str:
        """Looked up by the caller."""
        raise CallDeferred

    ran = await run(served(agent), "What is it?", answers=["12 EUR"])
    assert ran.questions == ['What does price give for {"item": "a"}?']
    assert "12 EUR" in ran.text


async def test_a_content_filter_rejects() -> None:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        raise ContentFilterError("filtered")
        yield ""

    ran = await run(served(Agent(FunctionModel(stream_function=stream))), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert "refused" in ran.reason


async def test_cancel_stops_the_model(dragoman_client: ClientFixture) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        try:
            yield "Once "
            began.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with dragoman_client(served(Agent(FunctionModel(stream_function=stream)))) as connection:
        task = await connection.send("Tell me a story", return_immediately=True)
        async with asyncio.timeout(10):
            await began.wait()
            await connection.cancel(task.id)
            await stopped.wait()


async def test_other_objects_of_the_package_are_no_agents() -> None:
    assert framework_of(TestModel()) is not None
    assert adapt(TestModel(), "test") is None
