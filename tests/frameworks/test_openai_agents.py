"""Agents of the OpenAI Agents SDK, with a local server as model."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    ModelSettings,
    OpenAIChatCompletionsModel,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from dragoman import Part
from dragoman.agents.frameworks import adapt
from dragoman.agents.python.agent import Agent as Served
from dragoman.cli.references import load_reference
from dragoman.model.message import Message, Role
from dragoman.model.task import Task, TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import MODEL, Answer, Call, Completions, completions
from tests.frameworks.documented import run_block
from tests.frameworks.restarts import handed_over, restarted

COUNTED = ModelSettings(include_usage=True)
"""The SDK asks for the usage of streamed chat completions only if told to."""


@pytest.fixture(autouse=True)
def _untraced() -> None:
    set_tracing_disabled(True)


ModelAt = Callable[[Completions], OpenAIChatCompletionsModel]


@pytest.fixture
async def model_at() -> AsyncIterator[ModelAt]:
    """Makes models; their connections are closed in the loop that they are of."""
    clients: list[AsyncOpenAI] = []

    def made(server: Completions) -> OpenAIChatCompletionsModel:
        clients.append(AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0))
        return OpenAIChatCompletionsModel(MODEL, clients[-1])

    yield made
    for client in clients:
        await client.close()


def served(agent: Agent[Any]) -> Served:
    made = adapt(agent, "test")
    assert made is not None
    return made


@function_tool
def forecast(city: str) -> str:
    """The forecast."""
    return f"Sunny in {city}"


async def test_text_streams_and_usage_is_counted(model_at: ModelAt) -> None:
    with completions("Good morning to you") as server:
        ran = await run(served(Agent("Host", model=model_at(server), model_settings=COUNTED)), "Hello")
    assert ran.text == "Good morning to you"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)
    assert server.requests[0]["messages"][-1] == {"role": "user", "content": "Hello"}


async def test_the_card_says_what_the_agent_says_of_itself() -> None:
    agent = Agent("Weather", handoff_description="Knows the weather", tools=[forecast])
    profile = served(agent).profile
    assert (profile.id, profile.name, profile.description) == ("test", "Weather", "Knows the weather")
    assert profile.skills[0].tags == ("forecast",)


async def test_tool_calls_are_statuses(model_at: ModelAt) -> None:
    with completions(Answer("One moment.", calls=[Call("forecast", {"city": "Lyon"})]), "Sunny.") as server:
        ran = await run(
            served(Agent("Host", model=model_at(server), model_settings=COUNTED, tools=[forecast])), "Weather?"
        )
    assert ran.statuses == ["Calling forecast", "forecast is done"]
    assert ran.text == "One moment.\n\nSunny."
    assert server.requests[1]["messages"][-1]["content"] == "Sunny in Lyon"
    assert ran.usage.input_tokens == 14


async def test_the_conversation_is_the_history(model_at: ModelAt) -> None:
    history = [
        Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
        Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
    ]
    with completions("You are Ada") as server:
        await run(served(Agent("Host", model=model_at(server), model_settings=COUNTED)), "Who am I?", history=history)
    assert [(each["role"], each["content"]) for each in server.requests[0]["messages"]] == [
        ("user", "My name is Ada"),
        ("assistant", "Hello Ada"),
        ("user", "Who am I?"),
    ]


async def test_images_reach_the_model(model_at: ModelAt) -> None:
    with completions("A picture") as server:
        message = (Part(text="What is this?"), Part(raw=b"PNG", media_type="image/png"))
        await run(served(Agent("Host", model=model_at(server), model_settings=COUNTED)), message)
    text, image = server.requests[0]["messages"][0]["content"]
    assert text["text"] == "What is this?"
    assert image["image_url"]["url"] == "data:image/png;base64,UE5H"


class City(BaseModel):
    name: str


async def test_structured_output_is_data(model_at: ModelAt) -> None:
    with completions('{"name": "Lyon"}') as server:
        ran = await run(
            served(Agent("Host", model=model_at(server), model_settings=COUNTED, output_type=City)), "Which?"
        )
    assert (ran.data, ran.text) == ([{"name": "Lyon"}], "")


async def test_a_refusal_rejects(model_at: ModelAt) -> None:
    with completions(Answer(refusal="I will not do that")) as server:
        ran = await run(
            served(Agent("Host", model=model_at(server), model_settings=COUNTED, output_type=City)), "Something bad"
        )
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "I will not do that")


async def test_a_guardrail_rejects(model_at: ModelAt) -> None:
    async def polite(_: Any, __: Any, ___: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    with completions("Hello") as server:
        agent = Agent("Host", model=model_at(server), model_settings=COUNTED, input_guardrails=[InputGuardrail(polite)])
        ran = await run(served(agent), "Rude")
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "Refused by the guardrail polite.")


async def test_a_broken_model_fails_the_task_with_a_reference(
    model_at: ModelAt, dragoman_client: ClientFixture
) -> None:
    with completions(Answer("secret of the provider", status=500)) as server:
        async with dragoman_client(served(Agent("Host", model=model_at(server), model_settings=COUNTED))) as connection:
            task = await connection.send("Hello")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "reference" in task.status.message.text
    assert "secret" not in task.status.message.text


def careful(model: OpenAIChatCompletionsModel, done: list[str]) -> Agent[Any]:
    @function_tool
    def look() -> str:
        """Look around."""
        done.append("looked")
        return "a.txt"

    @function_tool(needs_approval=True)
    def delete(path: str) -> str:
        """Delete a file."""
        done.append(path)
        return f"{path} is gone"

    return Agent("Cleaner", model=model, model_settings=COUNTED, tools=[look, delete])


@pytest.fixture
def cleaning() -> Iterator[Completions]:
    asks = Answer("Let me see.", calls=[Call("look", id="call-0"), Call("delete", {"path": "a.txt"})])
    with completions(asks, "Done.") as server:
        yield server


async def test_a_tool_that_needs_approval_asks(model_at: ModelAt, cleaning: Completions) -> None:
    done: list[str] = []
    ran = await run(served(careful(model_at(cleaning), done)), "Clean up", answers=["yes"])
    assert ran.questions == ['May delete be called with {"path": "a.txt"}? Answer yes or no.']
    assert done == ["looked", "a.txt"]
    assert ran.text.endswith("Done.")
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (14, 6)
    assert "delete is done" in ran.statuses


async def test_a_denial_is_told_to_the_model(model_at: ModelAt, cleaning: Completions) -> None:
    done: list[str] = []
    await run(served(careful(model_at(cleaning), done)), "Clean up", answers=["no, keep it"])
    assert done == ["looked"]
    assert cleaning.requests[1]["messages"][-1]["content"] == "The user did not allow this call: no, keep it"


async def test_an_approval_survives_a_restart_and_nothing_is_done_twice(
    model_at: ModelAt, tmp_path: Path, cleaning: Completions
) -> None:
    done: list[str] = []
    task = await restarted(tmp_path, lambda: served(careful(model_at(cleaning), done)), "Clean up", "yes")
    assert task.status.state is TaskState.COMPLETED
    assert done == ["looked", "a.txt"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["Let me see.", "Done."]


async def test_an_approval_survives_its_worker_and_nothing_is_done_twice(
    model_at: ModelAt, cleaning: Completions
) -> None:
    done: list[str] = []
    task = await handed_over(lambda: served(careful(model_at(cleaning), done)), "Clean up", "yes")
    assert task.status.state is TaskState.COMPLETED
    assert done == ["looked", "a.txt"]


async def test_the_example_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny in Lyon.") as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        (agent,) = load_reference("weather=examples/frameworks/openai_agents_agent.py")
        ran = await run(agent, "How is the weather in Lyon?")
        await sys.modules[_module_of("openai_agents_agent")].client.close()
    assert agent.profile.id == "weather"
    assert ran.statuses == ["Calling forecast", "forecast is done"]
    assert ran.text == "Sunny in Lyon."


def _module_of(stem: str) -> str:
    return next(name for name in sys.modules if name.endswith(f"{stem}_py"))


async def test_the_documentation_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    assert served(run_block("openai-agents.md", 1)["agent"]).profile.name == "Assistant"
    assert run_block("openai-agents.md", 2)["delete_file"].needs_approval


async def test_a_handoff_is_a_status(model_at: ModelAt) -> None:
    with completions(Answer(calls=[Call("transfer_to_french")]), "Bonjour") as server:
        french = Agent("French", model=model_at(server))
        ran = await run(
            served(Agent("Host", model=model_at(server), model_settings=COUNTED, handoffs=[french])), "Bonjour"
        )
    assert "French takes over" in ran.statuses
    assert ran.text == "Bonjour"


async def test_cancel_stops_the_model(model_at: ModelAt, dragoman_client: ClientFixture) -> None:
    with completions(Answer("Once upon a time", held=threading.Event())) as server:
        async with dragoman_client(served(Agent("Host", model=model_at(server), model_settings=COUNTED))) as connection:
            task = await connection.send("A story", return_immediately=True)
            assert isinstance(task, Task)
            async with asyncio.timeout(10):
                async for _ in connection.subscribe(task.id):
                    if server.requests:
                        break
            await connection.cancel(task.id)
            assert await asyncio.to_thread(server.left.wait, 10)
