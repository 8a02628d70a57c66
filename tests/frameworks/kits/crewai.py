"""CrewAI, with its own client of chat completions."""

import os
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

os.environ |= {  # CrewAI reads them as it is imported: it tells its maker of every run unless it is told not to
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_STORAGE_DIR": (STORAGE := TemporaryDirectory(prefix="dragoman-crewai-")).name,
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from tests.frameworks.completions import MODEL, Completions
from tests.frameworks.kit import Card, Kit, Page
from tests.frameworks.weather import City, forecast


def writer(model: Completions, **given: Any) -> Agent:
    llm = LLM(model=f"openai/{MODEL}", base_url=model.url, api_key="test", max_retries=0)
    return Agent(role="Writer", goal="Write well", backstory="You write.", llm=llm, **given)


def crew(model: Completions, *tasks: str, tools: Sequence[Any] = (), **given: Any) -> Crew:
    """A crew of one agent; `given` is for its last task."""
    agent = writer(model, tools=list(tools))
    made = [Task(description=text, expected_output="A text", agent=agent) for text in tasks[:-1]]
    made.append(Task(description=tasks[-1], expected_output="A text", agent=agent, **given))
    return Crew(agents=[agent], tasks=made)


class CrewAi(Kit):
    page = Page("crewai.md", "crew", "Writers")
    card = Card("test", "Look; Write")
    prints = True
    hears_history = False
    gets_pictures = False
    speaks_before_calls = False
    stops_at_once = False

    def agent(self, model: Completions, *, forecasts: bool = False) -> Crew:
        return crew(model, "Answer: {message}", tools=[tool("forecast")(forecast)] if forecasts else [])

    def introduced(self, model: Completions) -> Crew:
        return crew(model, "Look", "Write", tools=[tool("forecast")(forecast)])

    def structured(self, model: Completions) -> Crew:
        return crew(model, "Which {what}?", output_pydantic=City)

    def careful(self, model: Completions, done: list[str]) -> None:
        """The caller reviews a text, and allows no tools: see `test_crewai.py`."""

    def stranger(self, model: Completions) -> LLM:
        return writer(model).llm


KIT = CrewAi()
