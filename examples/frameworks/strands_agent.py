"""A Strands agent behind a card: `dragoman serve examples/frameworks/strands_agent.py:agent`.

It needs no key: the model is a stand-in. Write `OpenAIModel(…)`, `BedrockModel(…)` or any other model in its place.
"""

from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model


class StandIn(Model):
    """Wants to delete a file, then says what came of it."""

    def update_config(self, **model_config: Any) -> None:
        """Do nothing: there is no configuration."""

    def get_config(self) -> dict[str, Any]:
        """The configuration, which is empty."""
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Not supported."""
        raise NotImplementedError
        yield {}

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        """One answer, as a model streams it."""
        result = messages[-1]["content"][-1].get("toolResult")
        yield {"messageStart": {"role": "assistant"}}
        if result is None:
            start = {"toolUse": {"name": "delete_file", "toolUseId": "call-1"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"path": "a.txt"}'}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": result["content"][0]["text"]}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if result is None else "end_turn"}}


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted."


def ask_first(event: BeforeToolCallEvent) -> None:
    """Ask the caller: the task waits in input-required."""
    if event.interrupt("leave", reason=f"Delete {event.tool_use['input']['path']}?") != "yes":
        event.cancel_tool = "It was not allowed."


agent = Agent(
    name="Cleaner",
    description="Deletes files, once you have allowed it",
    model=StandIn(),
    tools=[delete_file],
    hooks=[ask_first],
)
