"""An Agno agent behind a card: `dragoman serve examples/frameworks/agno_agent.py:agent`.

It needs no key: the model is a stand-in. Write `OpenAIChat(…)` or any other model in its place.
"""

from collections.abc import AsyncIterator
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.tools import tool


class StandIn(Model):
    """Wants to pay, then says what came of it."""

    def invoke(self, *_: Any, **__: Any) -> Any:
        """It streams."""
        raise NotImplementedError

    ainvoke = invoke_stream = invoke
    _parse_provider_response = _parse_provider_response_delta = invoke

    async def ainvoke_stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        """One answer."""
        last = messages[-1]
        if last.role == "tool":
            yield ModelResponse(role="assistant", content=last.content)
        else:
            call = {"index": 0, "id": "call-1", "type": "function"}
            function = {"name": "pay", "arguments": '{"euros": 12}'}
            yield ModelResponse(role="assistant", tool_calls=[call | {"function": function}])


@tool(requires_confirmation=True)
def pay(euros: int) -> str:
    """Pay the bill. The caller is asked first: the task waits in input-required."""
    return f"Paid {euros} euros."


agent = Agent(
    name="Bills",
    description="Pays bills, once you have allowed it",
    model=StandIn(id="stand-in"),
    tools=[pay],
    telemetry=False,
)
