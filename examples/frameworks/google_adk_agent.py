"""An agent of Google's ADK behind a card: `dragoman serve examples/frameworks/google_adk_agent.py:agent`.

It needs no key: the model is a stand-in. Write `model="gemini-2.5-flash"` or any other model in its place.
"""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types


class StandIn(BaseLlm):
    """Wants to book what it is told, then says what came of it."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        last = request.contents[-1].parts[-1]
        if last.function_response is None:
            call = types.FunctionCall(name="book_room", args={"hotel": "Ritz"})
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=str(last.function_response.response.get("result", "Not booked.")))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def book_room(hotel: str) -> str:
    """Book a room. The caller is asked first: the task waits in input-required."""
    return f"Booked at the {hotel}."


agent = LlmAgent(
    name="rooms",
    description="Books rooms, once you have allowed it",
    model=StandIn(model="stand-in"),
    tools=[FunctionTool(book_room, require_confirmation=True)],
)
