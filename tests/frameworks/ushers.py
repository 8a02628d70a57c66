"""An agent of Google ADK that is killed in the middle: it calls two tools in turn, and then answers.

It is served by a process of its own: `ushers.py:agent`. `LEDGER` names the file in which it writes what the model was
given.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types

PAUSE_S = 0.01
CALLS = 2


async def seat(guest: str, tool_context: ToolContext) -> dict[str, Any]:
    """Give a guest a seat."""
    await asyncio.sleep(PAUSE_S)
    tool_context.state["guests"] = [*tool_context.state.get("guests", []), guest]
    return {"seat": len(tool_context.state["guests"])}


def shown(part: types.Part) -> str:
    """A part of a message, as a text."""
    if part.function_call is not None:
        return f"call {part.function_call.args['guest']}"
    return f"seat {part.function_response.response['seat']}" if part.function_response is not None else part.text or ""


class Usher(BaseLlm):
    """Calls the tool for a guest twice, and in the end says so."""

    model: str = "usher"

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        """One answer."""
        given = ["".join(map(shown, content.parts)) for content in request.contents]
        ledger = os.open(Path(os.environ["LEDGER"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(ledger, f"{json.dumps(given)}\n".encode())
            os.fsync(ledger)
        finally:
            os.close(ledger)
        await asyncio.sleep(PAUSE_S)
        last = max(place for place, text in enumerate(given) if text.startswith("task"))
        number = sum(text.startswith("seat ") for text in given[last:])
        if number < CALLS:
            part = types.Part(function_call=types.FunctionCall(name="seat", args={"guest": f"{given[last]}-{number}"}))
        else:
            part = types.Part(text=f"Welcome, {given[last]}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


agent = LlmAgent(name="usher", model=Usher(), tools=[seat])
