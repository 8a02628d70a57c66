"""Pydantic AI, with its own model for tests that calls a function."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, BinaryContent, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    SystemPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from tests.frameworks.completions import Answer, Call
from tests.frameworks.kit import Kit
from tests.frameworks.kits.scripted import ScriptedModel, scripted
from tests.frameworks.weather import City


def chat(model: ScriptedModel) -> FunctionModel:
    """The script as a model of Pydantic AI's."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        contents = [content for message in messages for part in message.parts for content in contents_of(part)]
        answer = model.ask(
            [text for message in messages if (text := text_of(message))],
            [content.data for content in contents if isinstance(content, BinaryContent)],
        )
        if answer.status != 200:
            raise ModelHTTPError(answer.status, "test-model", answer.text)
        async for word in model.words_of(answer):
            yield word
        for number, call in enumerate(answer.calls):
            yield {number: DeltaToolCall(call.name, call.json_arguments, tool_call_id=call.id)}

    return FunctionModel(stream_function=stream, model_name="script")


def contents_of(part: Any) -> list[Any]:
    """The content of a part of a prompt."""
    if isinstance(part, SystemPromptPart):
        return []
    content = getattr(part, "content", "")
    return list(content) if isinstance(content, list | tuple) else [content]


def text_of(message: ModelMessage) -> str:
    """The texts of a message, results of tools included."""
    return "".join(content for part in message.parts for content in contents_of(part) if isinstance(content, str))


def forecast(city: str) -> str:
    """The forecast for a city."""
    return f"Sunny in {city}"


class PydanticAi(Kit):
    page = None  # its agent needs a package that is not installed here
    counts = False
    model_name = "script"
    failure = None  # a tool that raises ends the run
    city = Answer(calls=[Call("final_result", {"name": "Lyon", "people": 5})])
    denial = "The user did not allow this call: no, keep it"

    def model(self, *answers: Answer | str) -> AbstractContextManager[ScriptedModel]:
        return scripted(*answers)

    def agent(self, model: ScriptedModel, *, forecasts: bool = False, **given: Any) -> Agent[Any, Any]:
        return Agent(chat(model), tools=[forecast] if forecasts else (), **given)

    def introduced(self, model: ScriptedModel) -> Agent[Any, Any]:
        return self.agent(model, forecasts=True, name="Weather", description="Knows the weather")

    def structured(self, model: ScriptedModel) -> Agent[Any, Any]:
        return self.agent(model, output_type=City)

    def careful(self, model: ScriptedModel, done: list[str]) -> Agent[Any, Any]:
        agent = self.agent(model, output_type=[str, DeferredToolRequests])

        @agent.tool_plain
        def look() -> str:
            """Look around."""
            done.append("looked")
            return "a.txt"

        @agent.tool
        def delete(ctx: RunContext[None], path: str) -> str:
            """Delete a file."""
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            done.append(path)
            return f"{path} is gone"

        return agent

    def stranger(self, model: ScriptedModel) -> TestModel:
        return TestModel()


KIT = PydanticAi()
