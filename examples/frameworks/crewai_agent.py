"""A crew of CrewAI behind a card: `dragoman serve examples/frameworks/crewai_agent.py:crew`.

It needs no key: the model is a stand-in. Write `llm="openai/gpt-5-mini"` or any other model in its place.
"""

import os
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # set before CrewAI is imported: it reports runs to its maker
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import Agent, BaseLLM, Crew, Task


class StandIn(BaseLLM):
    """Says something about what it is asked."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        """One answer: the subject of the first task, praised by the second."""
        asked = messages if isinstance(messages, str) else messages[-1]["content"]
        if "Look at " in asked:
            return str(asked.partition("Look at ")[2].splitlines()[0])
        return f"{asked.rpartition('working with:')[2].split()[0]} is great."


def made() -> Crew:
    """A crew whose second task continues with the result of the first."""
    writer = Agent(role="Writer", goal="Write", backstory="You write.", llm=StandIn(model="stand-in"))
    look = Task(name="look", description="Look at {topic}", expected_output="A note", agent=writer)
    praise = Task(name="praise", description="Praise what was found.", expected_output="A line", agent=writer)
    return Crew(name="Praise", agents=[writer], tasks=[look, praise])


crew = made()
