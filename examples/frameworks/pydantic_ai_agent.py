"""A Pydantic AI agent behind a card: `dragoman serve examples/frameworks/pydantic_ai_agent.py:agent`.

It needs no key: the model is a stand-in. Write `Agent("openai:…")` or any other model in its place.
"""

from collections.abc import AsyncIterator

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel


async def model(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Wants to send what it is told, then says what came of it."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        yield str(last.content)
    else:
        yield {0: DeltaToolCall(name="send_mail", json_args='{"to": "ada@example.org"}', tool_call_id="call-1")}


agent = Agent(
    FunctionModel(stream_function=model),
    name="Mail",
    description="Sends mail, once you have allowed it",
    output_type=[str, DeferredToolRequests],
)


@agent.tool
def send_mail(ctx: RunContext[None], to: str) -> str:
    """Send a mail. The caller is asked first: the task waits in input-required."""
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return f"Sent to {to}"
