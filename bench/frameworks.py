"""The cost of an adapter beside its framework: a streamed answer of 2,000 tokens, called directly and behind a card.

Run it where the framework is installed: `.venv-fw-langgraph/bin/python -P bench/frameworks.py`. Both ways take turns in
one process, each as often first as second; compared are CPU seconds, pair by pair, and the median of the pairs is told:
what slows the machine for a while slows both of a pair. With -P bench/agents.py is not taken for the SDK's package.
"""

import asyncio
import gc
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

from dragoman.agents.frameworks import adapt
from dragoman.testing import run

TOKENS = 2_000
ROUNDS = 60

WARMING = 3
"""Rounds that do not count: what is made once, by either, is made in them."""

WORDS = tuple(f"word{number} " for number in range(TOKENS))

Direct = Callable[[], Awaitable[str]]


def pydantic_ai() -> tuple[Any, Direct]:
    """An agent whose model is a function, and its stream of events."""
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    async def stream(_: Any, __: Any) -> AsyncIterator[str]:
        for word in WORDS:
            yield word

    agent = Agent(FunctionModel(stream_function=stream))

    async def direct() -> str:
        text = []
        async with agent.run_stream_events("Hello") as events:
            async for event in events:
                if event.event_kind == "part_start" and event.part.part_kind == "text":
                    text.append(event.part.content)
                elif event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
                    text.append(event.delta.content_delta)
        return "".join(text)

    return agent, direct


def langgraph() -> tuple[Any, Direct]:
    """A graph of one node, which calls a model, and its stream of messages."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langgraph.graph import START, MessagesState, StateGraph

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "bench"

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(WORDS)))])

        def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
            for word in WORDS:
                yield ChatGenerationChunk(message=AIMessageChunk(word))

        async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
            for word in WORDS:
                yield ChatGenerationChunk(message=AIMessageChunk(word))

    model = Model()

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()

    async def direct() -> str:
        text = []
        async for message, _ in graph.astream({"messages": [HumanMessage("Hello")]}, stream_mode="messages"):
            text.append(message.content)
        return "".join(text)

    return graph, direct


def openai_agents() -> tuple[Any, Direct]:
    """An agent whose client gives chunks from memory, and its stream of events."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai.types.chat import ChatCompletionChunk

    set_tracing_disabled(True)
    chunks = [
        ChatCompletionChunk.model_validate(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": "bench",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}],
            }
        )
        for word in WORDS
    ]

    async def stream() -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk

    async def create(**_: Any) -> Any:
        return stream()

    client: Any = SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=create)), base_url="http://127.0.0.1/v1"
    )
    agent = Agent("Bench", model=OpenAIChatCompletionsModel("bench", client))

    async def direct() -> str:
        text = []
        result = Runner.run_streamed(agent, [{"role": "user", "content": "Hello"}])
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text.append(event.data.delta)
        return "".join(text)

    return agent, direct


BENCHES = {"pydantic_ai": pydantic_ai, "langgraph": langgraph, "agents": openai_agents}
"""By the package that has to be there."""


async def measured(name: str, made: Callable[[], tuple[Any, Direct]]) -> dict[str, Any]:
    """Both ways in turns."""
    value, direct = made()
    agent = adapt(value, "bench")
    assert agent is not None
    whole = "".join(WORDS)

    async def through() -> str:
        return (await run(agent, "Hello")).text

    ways: dict[str, Direct] = {"direct": direct, "adapted": through}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS + WARMING):
        for way in sorted(ways, reverse=number % 2 == 0):
            # Neither pays for what the other left, nor for the walk over all that a framework has imported: that would
            # leave the processor's caches cold, which costs both ways the same time, not the same share.
            gc.collect()
            gc.freeze()
            began = time.process_time()
            assert await ways[way]() == whole
            seconds[way].append(time.process_time() - began)
    pairs = list(zip(seconds["direct"][WARMING:], seconds["adapted"][WARMING:], strict=True))
    lower, ratio, upper = statistics.quantiles((adapted_s / direct_s for direct_s, adapted_s in pairs), n=4)
    return {
        "framework": name,
        "tokens": TOKENS,
        "direct_ms": round(1000 * statistics.median(direct_s for direct_s, _ in pairs), 1),
        "adapted_ms": round(1000 * statistics.median(adapted_s for _, adapted_s in pairs), 1),
        "ratio": round(ratio, 3),
        "quartiles": [round(lower, 3), round(upper, 3)],
    }


def main() -> int:
    """The exit code: 1 if there is nothing to measure."""
    there = {name: made for name, made in BENCHES.items() if importlib.util.find_spec(name) is not None}
    for name, made in there.items():
        print(json.dumps(asyncio.run(measured(name, made))))
    return 0 if there else 1


if __name__ == "__main__":
    sys.exit(main())
