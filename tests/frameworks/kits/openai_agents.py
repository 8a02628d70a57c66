"""The OpenAI Agents SDK, with its own client of chat completions."""

from typing import Any

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from tests.frameworks.completions import MODEL, Completions
from tests.frameworks.kit import Card, Kit, Page
from tests.frameworks.weather import City, forecast

set_tracing_disabled(True)

COUNTED = ModelSettings(include_usage=True)
"""The SDK asks for the usage of streamed chat completions only if told to."""


def chat(model: Completions) -> OpenAIChatCompletionsModel:
    """The model with connections that are not kept: nobody closes them."""
    once = {"Connection": "close"}
    client = AsyncOpenAI(base_url=model.url, api_key="test", max_retries=0, default_headers=once)
    return OpenAIChatCompletionsModel(MODEL, client)


class OpenAIAgents(Kit):
    page = Page("openai-agents.md", "agent", "Assistant")
    card = Card("Weather", "Knows the weather")
    failure = "forecast is done"  # the SDK tells the model of the error, as any other result
    denial = "The user did not allow this call: no, keep it"

    def agent(self, model: Completions, *, forecasts: bool = False, name: str = "Host", **given: Any) -> Agent[Any]:
        tools = [function_tool(forecast)] if forecasts else given.pop("tools", [])
        return Agent(name, model=chat(model), model_settings=COUNTED, tools=tools, **given)

    def introduced(self, model: Completions) -> Agent[Any]:
        return self.agent(model, forecasts=True, name="Weather", handoff_description="Knows the weather")

    def structured(self, model: Completions) -> Agent[Any]:
        return self.agent(model, output_type=City)

    def careful(self, model: Completions, done: list[str]) -> Agent[Any]:
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

        return self.agent(model, tools=[look, delete])

    def stranger(self, model: Completions) -> OpenAIChatCompletionsModel:
        return chat(model)


KIT = OpenAIAgents()
