"""As bench/frameworks.py, for CrewAI, Google's ADK, Strands and Agno: what an adapter adds to the framework.

Run it where the framework is installed: `.venv-fw-agno/bin/python -P bench/agent_kits.py`. Their models are stand-ins
that stream from memory.
"""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).parent))

from frameworks import WORDS, Direct, measured


def google_adk() -> tuple[Any, Direct]:
    """An agent, and the events of a runner with a new session each time."""
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    class StandIn(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            for word in WORDS:
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
            whole = types.Part(text="".join(WORDS))
            yield LlmResponse(content=types.Content(role="model", parts=[whole]))

    agent = LlmAgent(name="bench", model=StandIn(model="stand-in"))

    async def direct() -> str:
        runner = InMemoryRunner(agent, app_name="bench")
        await runner.session_service.create_session(app_name="bench", user_id="user", session_id="one")
        message = types.Content(role="user", parts=[types.Part(text="Hello")])
        text = []
        async for event in runner.run_async(
            user_id="user",
            session_id="one",
            new_message=message,
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        ):
            if event.partial:
                text.append(event.content.parts[0].text)
        return "".join(text)

    return agent, direct


def client() -> Any:
    """A client of chat completions that streams from memory."""
    from openai.types.chat import ChatCompletionChunk

    def chunk(delta: dict[str, Any], reason: str | None = None) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        said = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "bench", "choices": [choice]}
        return ChatCompletionChunk.model_validate(said)

    chunks = [*(chunk({"role": "assistant", "content": word}) for word in WORDS), chunk({}, "stop")]

    async def stream() -> AsyncIterator[Any]:
        for each in chunks:
            yield each

    async def create(**_: Any) -> Any:
        return stream()

    completions = SimpleNamespace(create=create)
    return SimpleNamespace(chat=SimpleNamespace(completions=completions), is_closed=lambda: False)


def strands() -> tuple[Any, Direct]:
    """An agent, and its stream; its conversation is emptied after each time: a twin would begin with it."""
    from strands import Agent
    from strands.models.openai import OpenAIModel

    agent = Agent(model=OpenAIModel(client=client(), model_id="bench"), callback_handler=None)

    async def direct() -> str:
        text = "".join([event["data"] async for event in agent.stream_async("Hello") if "data" in event])
        agent.messages.clear()
        return text

    return agent, direct


def agno() -> tuple[Any, Direct]:
    """An agent, and its stream of events."""
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    agent = Agent(model=OpenAIChat(id="bench", async_client=client()), telemetry=False)

    async def direct() -> str:
        text = []
        async for event in agent.arun("Hello", stream=True, stream_events=True):
            if event.event == "RunContent" and event.content:
                text.append(event.content)
        return "".join(text)

    return agent, direct


def crewai() -> tuple[Any, Direct]:
    """A crew of one agent with one task, and its stream of chunks from a thread, of a copy each time."""
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
    from crewai import Agent, BaseLLM, Crew, Task

    class StandIn(BaseLLM):
        def call(self, *_: Any, from_task: Any = None, from_agent: Any = None, **__: Any) -> str:
            for word in WORDS:
                self._emit_stream_chunk_event(chunk=word, from_task=from_task, from_agent=from_agent)
            return "".join(WORDS)

    agent = Agent(role="Writer", goal="Write", backstory="You write.", llm=StandIn(model="stand-in"))
    crew = Crew(agents=[agent], tasks=[Task(description="Write {it}", expected_output="A text", agent=agent)])

    async def direct() -> str:
        copy = crew.copy()
        copy.stream = True
        chunks = await copy.kickoff_async(inputs={"it": "Hello"})
        return "".join([chunk.content async for chunk in chunks])

    return crew, direct


BENCHES: dict[str, Callable[[], tuple[Any, Direct]]] = {
    "google.adk": google_adk,
    "strands": strands,
    "agno": agno,
    "crewai": crewai,
}
"""By the package that has to be there."""


def main() -> int:
    """The exit code: 1 if there is nothing to measure."""
    there = {name: made for name, made in BENCHES.items() if _there(name)}
    for name, made in there.items():
        print(json.dumps(asyncio.run(measured(name, made))), flush=True)
    return 0 if there else 1


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
