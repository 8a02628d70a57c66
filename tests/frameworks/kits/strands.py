"""Strands Agents, with its own client of chat completions."""

from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models.openai import OpenAIModel

from tests.frameworks.completions import MODEL, Answer, Call, Completions
from tests.frameworks.kit import Kit, Page
from tests.frameworks.weather import City, forecast


class Strands(Kit):
    page = Page("strands.md", "agent", "Assistant")
    fetches = True
    city = Answer(calls=[Call("City", {"name": "Lyon", "people": 5})])
    question = "approval: Delete a.txt?"
    denial = "was not allowed: no, keep it"

    def agent(self, model: Completions, *, forecasts: bool = False, **given: Any) -> Agent:
        client = {"base_url": model.url, "api_key": "test", "max_retries": 0}
        tools = [tool(forecast)] if forecasts else given.pop("tools", None)
        return Agent(model=OpenAIModel(client_args=client, model_id=MODEL), retry_strategy=None, tools=tools, **given)

    def introduced(self, model: Completions) -> Agent:
        return self.agent(model, forecasts=True, name="Weather", description="Knows the weather")

    def structured(self, model: Completions) -> Agent:
        return self.agent(model, structured_output_model=City)

    def careful(self, model: Completions, done: list[str]) -> Agent:
        @tool
        def look() -> str:
            """Look around."""
            done.append("looked")
            return "a.txt"

        @tool
        def delete(path: str) -> str:
            """Delete a file."""
            done.append(path)
            return f"{path} is gone"

        def approve(event: BeforeToolCallEvent) -> None:
            if event.tool_use["name"] != "delete":
                return
            answer = event.interrupt("approval", reason=f"Delete {event.tool_use['input']['path']}?")
            if answer != "yes":
                event.cancel_tool = f"was not allowed: {answer}"

        return self.agent(model, tools=[look, delete], hooks=[approve])

    def stranger(self, model: Completions) -> OpenAIModel:
        return self.agent(model).model


KIT = Strands()
