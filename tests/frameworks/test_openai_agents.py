"""Agents of the OpenAI Agents SDK, with a local server as model."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    Model,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.response_output_item import ImageGenerationCall

from dragoman import Part
from dragoman.cli.references import load_reference
from dragoman.model.task import Task, TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Call, completions
from tests.frameworks.documented import run_block
from tests.frameworks.kit import served
from tests.frameworks.kits.openai_agents import KIT
from tests.frameworks.weather import City


async def test_a_refusal_rejects() -> None:
    with completions(Answer(refusal="I will not do that")) as server:
        ran = await run(served(KIT.agent(server, output_type=City)), "Something bad")
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "I will not do that")


async def test_a_guardrail_rejects() -> None:
    async def polite(_: Any, __: Any, ___: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    with completions("Hello") as server:
        agent = KIT.agent(server, input_guardrails=[InputGuardrail(polite)])
        ran = await run(served(agent), "Rude")
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "Refused by the guardrail polite.")


class Painter(Model):
    """Draws a picture and says so."""

    async def get_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        drawn = ImageGenerationCall(
            id="1", result="UE5H", status="completed", type="image_generation_call", output_format="webp"
        )
        text = ResponseOutputText(annotations=[], text="Here", type="output_text")
        said = ResponseOutputMessage(id="2", content=[text], role="assistant", status="completed", type="message")
        for number, item in enumerate((drawn, said)):
            yield ResponseOutputItemDoneEvent(
                item=item, output_index=number, sequence_number=number, type="response.output_item.done"
            )
        whole = Response.model_construct(id="3", output=[drawn, said], usage=None, model="painter")
        yield ResponseCompletedEvent.model_construct(response=whole, sequence_number=2, type="response.completed")


async def test_a_picture_that_the_model_draws_is_a_file_part() -> None:
    ran = await run(served(Agent("Painter", model=Painter())), "Draw a cat")
    assert ran.artifacts[0].parts == (Part(raw=b"PNG", media_type="image/webp"), Part(text="Here"))


async def test_a_broken_model_fails_the_task_with_a_reference(dragoman_client: ClientFixture) -> None:
    with completions(Answer("secret of the provider", status=500)) as server:
        async with dragoman_client(served(KIT.agent(server))) as connection:
            task = await connection.send("Hello")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "reference" in task.status.message.text
    assert "secret" not in task.status.message.text


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


async def test_the_tool_of_the_page_needs_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    assert run_block("openai-agents.md", 3)["delete_file"].needs_approval


def test_the_agent_of_the_page_with_a_session_of_its_own_is_one() -> None:
    assert run_block("openai-agents.md", 2)["agent"].profile.id == "assistant"


async def test_a_handoff_is_a_status() -> None:
    with completions(Answer(calls=[Call("transfer_to_french")]), "Bonjour") as server:
        french = KIT.agent(server, name="French")
        ran = await run(served(KIT.agent(server, handoffs=[french])), "Bonjour")
    assert "French takes over" in ran.statuses
    assert ran.text == "Bonjour"
