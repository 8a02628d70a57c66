"""LangGraph: a graph around a model of LangChain's own class for tests."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, SystemMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.frameworks.completions import Answer, image_of
from tests.frameworks.kit import Card, Kit, Page
from tests.frameworks.kits.scripted import ScriptedModel, scripted
from tests.frameworks.weather import forecast


class Scripted(BaseChatModel):
    """Says what the script says: text word by word, then calls of tools."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        said = [message for message in messages if not isinstance(message, SystemMessage)]
        contents = [message.content for message in said if isinstance(message.content, list)]
        urls = [part["image_url"]["url"] for content in contents for part in content if part["type"] == "image_url"]
        answer = self.script.ask([message.text for message in said], [image_of(url) for url in urls])
        if answer.status != 200:
            raise RuntimeError(answer.text)
        async for word in self.script.words_of(answer):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        for index, call in enumerate(answer.calls):
            made = {"name": call.name, "args": json.dumps(dict(call.arguments)), "id": call.id, "index": index}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[made]))
        yield ChatGenerationChunk(message=AIMessageChunk("", response_metadata={"model_name": "scripted"}))
        used = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        used["total_tokens"] = sum(used.values())
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=used))

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


class LangGraph(Kit):
    model_name = "scripted"
    page = Page("langgraph.md", "graph", "test")
    card = Card("Talker", "Talker", ())

    def model(self, *answers: Answer | str) -> AbstractContextManager[ScriptedModel]:
        return scripted(*answers)

    def agent(self, model: ScriptedModel, *, forecasts: bool = False) -> Any:
        chat = Scripted(script=model)

        async def talk(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await chat.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk")
        if forecasts:
            graph.add_node("tools", ToolNode([tool(forecast)], handle_tool_errors=True))
            graph.add_conditional_edges("talk", tools_condition).add_edge("tools", "talk")
        return graph.compile(name="Talker")

    def introduced(self, model: ScriptedModel) -> Any:
        return self.agent(model)

    def structured(self, model: ScriptedModel) -> None:
        """A graph gives its state: see `test_langgraph.py`."""

    def careful(self, model: ScriptedModel, done: list[str]) -> None:
        """A graph asks by interrupts, which its nodes make: see `test_langgraph.py`."""

    def stranger(self, model: ScriptedModel) -> Any:
        return StateGraph(MessagesState)


KIT = LangGraph()
