"""Agents of Pydantic AI, with its own test models."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryImage, CallDeferred, DeferredToolRequests
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.messages import FilePart, ModelMessage, TextPart
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from dragoman import Part
from dragoman.agents.python.agent import Agent as Served
from dragoman.cli.references import load_reference
from dragoman.model.message import Message, Role
from dragoman.model.task import TaskState
from dragoman.testing import run
from tests.frameworks.documented import PAGES
from tests.frameworks.kit import served


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


class Painted(StreamedResponse):
    """A picture, and a text."""

    model_name = "painter"
    provider_name = provider_url = None
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)

    async def close_stream(self) -> None:
        """Nothing is open."""

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        picture = FilePart(BinaryImage(b"PNG", media_type="image/png"))
        yield self._parts_manager.handle_part(vendor_part_id=1, part=picture)
        yield self._parts_manager.handle_part(vendor_part_id=2, part=TextPart("Here"))


class Painter(FunctionModel):
    """Draws a picture."""

    @asynccontextmanager
    async def request_stream(self, messages: Any, settings: Any, parameters: Any, *_: Any) -> AsyncIterator[Painted]:
        yield Painted(parameters)


@pytest.mark.parametrize("output", [str, BinaryImage])
async def test_a_file_of_the_model_is_a_file_part_once(output: Any) -> None:
    async def unused(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield ""

    agent = Agent(Painter(stream_function=unused), output_type=output)
    ran = await run(served(agent), "Draw a cat")
    assert [file.raw for file in ran.files] == [b"PNG"]
    assert ran.text == "Here"


async def test_a_content_filter_rejects() -> None:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        raise ContentFilterError("filtered")
        yield ""

    ran = await run(served(Agent(FunctionModel(stream_function=stream))), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert "refused" in ran.reason
