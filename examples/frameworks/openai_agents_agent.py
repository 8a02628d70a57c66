"""An agent of the OpenAI Agents SDK behind a card: `dragoman serve examples/frameworks/openai_agents_agent.py:agent`.

OPENAI_API_KEY is used as the SDK does; MODEL_URL and MODEL name another server that speaks chat completions.
"""

import os

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI


@function_tool
def forecast(city: str) -> str:
    """The weather of tomorrow."""
    return f"Sunny in {city}, 24 °C"


client = AsyncOpenAI(base_url=os.environ.get("MODEL_URL"), api_key=os.environ.get("OPENAI_API_KEY", "none"))

agent = Agent(
    name="Weather",
    handoff_description="Forecasts for any city",
    instructions="You answer questions about the weather. Use the tool.",
    tools=[forecast],
    model=OpenAIChatCompletionsModel(os.environ.get("MODEL", "gpt-5-mini"), client),
    model_settings=ModelSettings(include_usage=True),  # without it, streams do not report the tokens used
)
