"""A graph that is killed in the middle: its nodes say something word by word, and write a ledger of their own.

It is served by a process of its own: `errands.py:graph`. `LEDGER` names the file.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

WORDS = {name: tuple(f"{name}-{number} " for number in range(6)) for name in ("first", "left", "right", "last")}
"""The words of each node."""

PAUSE_S = 0.01


class Slow(BaseChatModel):
    """Says its words one after the other."""

    words: tuple[str, ...]

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for word in self.words:
            await asyncio.sleep(PAUSE_S)
            yield ChatGenerationChunk(message=AIMessageChunk(word))


def write(line: str) -> None:
    """Add a line to the ledger, which is on disk when this returns."""
    ledger = os.open(Path(os.environ["LEDGER"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{line}\n".encode())
        os.fsync(ledger)
    finally:
        os.close(ledger)


def speaking(name: str) -> Any:
    """A node that says the words of that name."""

    async def speak(state: MessagesState) -> dict[str, Any]:
        task = state["messages"][0].content
        write(f"{task} {name}")
        return {"messages": [await Slow(words=WORDS[name]).ainvoke("go")]}

    return speak


def ask(state: MessagesState) -> dict[str, Any]:
    """A node that asks."""
    answer = interrupt("Go on?")
    write(f"{state['messages'][0].content} asked {answer}")
    return {}


builder = StateGraph(MessagesState)
for each in WORDS:
    builder.add_node(each, speaking(each))
builder.add_node("ask", ask)
builder.add_edge(START, "first").add_edge("first", "left").add_edge("first", "right")
builder.add_edge(["left", "right"], "ask").add_edge("ask", "last")
graph = builder.compile()
