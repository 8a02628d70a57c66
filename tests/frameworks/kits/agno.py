"""Agno, with its own client of chat completions."""

import os
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"  # it tells its maker of every run unless it is told not to

import httpx
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools import tool

from tests.frameworks.completions import MODEL, Completions
from tests.frameworks.kit import Kit, Page
from tests.frameworks.weather import City, forecast


def chat(model: Completions) -> OpenAIChat:
    """The model with connections of its own: those that Agno shares belong to the event loop of an earlier test."""
    alone = httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0))
    return OpenAIChat(id=MODEL, base_url=model.url, api_key="test", max_retries=0, http_client=alone)


class Agno(Kit):
    page = Page("agno.md", "agent", "Assistant")
    fetches = True

    def agent(self, model: Completions, *, forecasts: bool = False, **given: Any) -> Agent:
        return Agent(model=chat(model), **({"tools": [tool(forecast)]} if forecasts else {}), **given)

    def introduced(self, model: Completions) -> Agent:
        return self.agent(model, forecasts=True, name="Weather", description="Knows the weather")

    def structured(self, model: Completions) -> Agent:
        return self.agent(model, output_schema=City)

    def careful(self, model: Completions, done: list[str]) -> Agent:
        @tool
        def look() -> str:
            """Look around."""
            done.append("looked")
            return "a.txt"

        @tool(requires_confirmation=True)
        def delete(path: str) -> str:
            """Delete a file."""
            done.append(path)
            return f"{path} is gone"

        return Agent(model=chat(model), tools=[look, delete])

    def stranger(self, model: Completions) -> OpenAIChat:
        return chat(model)


KIT = Agno()
