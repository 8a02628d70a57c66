"""Google's Agent Development Kit, with a model that is a class of the test's own, as the kit has it."""

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types

from tests.frameworks.completions import Answer
from tests.frameworks.kit import Card, Kit, Page
from tests.frameworks.kits.scripted import ScriptedModel, scripted
from tests.frameworks.weather import City


class Scripted(BaseLlm):
    """Says what the script says: text word by word, then calls of tools."""

    model: str = "scripted"
    script: Any = None

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        """One answer."""
        parts = [part for content in request.contents for part in content.parts]
        answer = self.script.ask(
            ["".join(map(text_of, content.parts)) for content in request.contents],
            [part.inline_data.data for part in parts if part.inline_data is not None],
        )
        if answer.refusal is not None:
            yield LlmResponse(error_code="SAFETY", error_message=answer.refusal)
            return
        if answer.status != 200:
            yield LlmResponse(error_code=str(answer.status), error_message=answer.text)
            return
        async for word in self.script.words_of(answer):
            yield LlmResponse(content=said(types.Part(text=word)), partial=True)
        whole = [types.Part(text=answer.text)] if answer.text else []
        for call in answer.calls:
            whole.append(types.Part(function_call=types.FunctionCall(name=call.name, args=dict(call.arguments))))
        used = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=answer.input_tokens, candidates_token_count=answer.output_tokens
        )
        yield LlmResponse(content=said(*whole), usage_metadata=used)


def said(*parts: types.Part) -> types.Content:
    """A message of the model's."""
    return types.Content(role="model", parts=list(parts))


def text_of(part: types.Part) -> str:
    """A part's text, or the result that a tool gave."""
    return str(part.function_response.response) if part.function_response is not None else part.text or ""


async def forecast(city: str) -> Any:
    """The forecast for a city."""
    return {"error": f"no city {city}"} if city == "Atlantis" else f"Sunny in {city}"


class GoogleAdk(Kit):
    model_name = "scripted"
    page = Page("google-adk.md", "agent", "assistant")
    card = Card("weather", "Knows the weather")
    failure = "forecast failed: no city Atlantis"  # a tool says so; one that raises ends the run
    denial = "This tool call is rejected."

    def model(self, *answers: Answer | str) -> AbstractContextManager[ScriptedModel]:
        return scripted(*answers)

    def agent(self, model: ScriptedModel, *, forecasts: bool = False, **given: Any) -> LlmAgent:
        tools = [forecast] if forecasts else []
        return LlmAgent(**{"name": "helper", "model": Scripted(script=model), "tools": tools, **given})

    def introduced(self, model: ScriptedModel) -> LlmAgent:
        return self.agent(model, forecasts=True, name="weather", description="Knows the weather")

    def structured(self, model: ScriptedModel) -> LlmAgent:
        return self.agent(model, output_schema=City)

    def careful(self, model: ScriptedModel, done: list[str]) -> LlmAgent:
        async def look() -> str:
            """Look around."""
            done.append("looked")
            return "a.txt"

        async def delete(path: str) -> str:
            """Delete a file."""
            done.append(path)
            return f"{path} is gone"

        return self.agent(model, tools=[look, FunctionTool(delete, require_confirmation=True)])

    def stranger(self, model: ScriptedModel) -> FunctionTool:
        return FunctionTool(forecast)


KIT = GoogleAdk()
