"""Agents of Pydantic AI (2.x) behind a card.

Invariant: the agent runs as its author made it: model, tools, instructions and limits are its own.
"""

import importlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from dragoman.agents.content import json_of, readable_json
from dragoman.agents.frameworks.calls import (
    Calls,
    answer_value,
    approval_of,
    approved,
    arguments_of,
    denial,
    result_question,
)
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, message
from dragoman.agents.frameworks.model_tokens import ModelTokens
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.engine.api import Reject
from dragoman.model.message import Part

FAILED = frozenset({"failed", "retried", "denied", "interrupted"})
"""Outcomes of a tool call (ToolReturnPart.outcome) other than success."""


def adapts(value: object) -> bool:
    """Whether the object is an agent."""
    return callable(getattr(value, "run_stream_events", None))


def name_of(value: Any) -> str:
    """Its `name`, if it was given one."""
    return str(value.name or "")


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the agent behind a card."""
    return build_agent(
        agent_id,
        lambda ctx: PydanticAiRun(value, ctx),
        name=name_of(value),
        description=str(value.description or ""),
        tools=_tools(value),
    )


class PydanticAiRun(FrameworkRun):
    """One task's run. Its state at a pause is its messages so far, with the ids of the waiting calls."""

    def __init__(self, agent: Any, ctx: Context) -> None:
        self._agent = agent
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._pydantic_ai = importlib.import_module("pydantic_ai")
        self._messages = importlib.import_module("pydantic_ai.messages")

    async def begin(self) -> Any:
        """The message; the earlier conversation is the history."""
        past = [self._message(words) for words in await history(self._ctx)]
        prompt = [self._content(piece) for piece in (await message(self._ctx)).pieces]
        only_text = all(isinstance(piece, str) for piece in prompt)
        given = "\n".join(prompt) if only_text else prompt
        return {"user_prompt": given, "message_history": past or None}

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The calls allowed or denied, or their results from elsewhere."""
        noted = json.loads(state)
        self._calls.open |= noted["open"]
        past = self._messages.ModelMessagesTypeAdapter.validate_json(noted["messages"])
        given = iter(answers)
        approvals = {call: self._decision(next(given)) for call in noted["approvals"]}
        calls = {call: answer_value(next(given)) for call in noted["calls"]}
        results = self._pydantic_ai.DeferredToolResults(calls=calls, approvals=approvals)
        return {"message_history": past, "deferred_tool_results": results}

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the agent."""
        text, result = "", None
        files: list[Any] = []
        try:
            async with self._calls, self._agent.run_stream_events(**given) as events:
                async for event in events:
                    match event.event_kind:
                        case "part_delta" if event.delta.part_delta_kind == "text":
                            text += event.delta.content_delta
                            yield event.delta.content_delta
                        case "part_start" if event.part.part_kind == "text":
                            if text:
                                yield "\n\n"
                            text = event.part.content
                            yield text
                        case "part_start" if event.part.part_kind == "file":
                            files.append(event.part.content)
                            yield _file(event.part.content)
                        case "function_tool_call":
                            await self._calls.report_start(event.tool_call_id, event.part.tool_name, event.part.args)
                        case "function_tool_result":
                            await self._report_result(event)
                        case "agent_run_result":
                            result = event.result
        except self._pydantic_ai.exceptions.ContentFilterError as refused:
            raise Reject("The model refused: its provider's content filter stopped it.") from refused
        if result is None:
            return
        tokens = ModelTokens()
        for each in result.new_messages():
            if each.kind == "response":
                tokens.add(each.model_name, each.usage.input_tokens, each.usage.output_tokens)
        tokens.report(self._ctx, result.usage.input_tokens, result.usage.output_tokens)
        if isinstance(result.output, self._pydantic_ai.DeferredToolRequests):
            yield self._pause(result)
        elif isinstance(result.output, str):
            if result.output != text:  # the agent made its output from something other than the streamed text
                yield result.output
        elif isinstance(result.output, self._pydantic_ai.BinaryContent):
            if result.output not in files:
                yield _file(result.output)
        elif result.output is not None:
            yield Part(data=json_of(result.output))

    async def _report_result(self, event: Any) -> None:
        part = event.part
        failed = getattr(part, "outcome", "failed") in FAILED
        content = part.model_response_str() if hasattr(part, "model_response_str") else str(part.content)
        await self._calls.report_end(
            event.tool_call_id, None if failed else part.content, error=content if failed else None, name=part.tool_name
        )

    def _pause(self, result: Any) -> RunPause:
        requests = result.output
        approvals = [approval_of(call.tool_name, call.args) for call in requests.approvals]
        calls = [result_question(call.tool_name, readable_json(arguments_of(call.args))) for call in requests.calls]
        state = {
            "messages": result.all_messages_json().decode(),
            "open": self._calls.open,
            "approvals": [call.tool_call_id for call in requests.approvals],
            "calls": [call.tool_call_id for call in requests.calls],
        }
        return RunPause((*approvals, *calls), json.dumps(state))

    def _decision(self, answer: Answer) -> Any:
        return True if approved(answer) else self._pydantic_ai.ToolDenied(denial(answer))

    def _message(self, words: PlainMessage) -> Any:
        if words.agent:
            return self._messages.ModelResponse(parts=[self._messages.TextPart(words.text)])
        content = [self._content(piece) for piece in words.pieces]
        prompt = words.text if not words.files else content
        return self._messages.ModelRequest(parts=[self._messages.UserPromptPart(prompt)])

    def _content(self, piece: str | PlainFile) -> Any:
        if isinstance(piece, str):
            return piece
        if piece.raw is not None:
            return self._pydantic_ai.BinaryContent(piece.raw, media_type=piece.media_type)
        return piece.described


def _file(content: Any) -> Part:
    return Part(raw=content.data, media_type=content.media_type)


def _tools(agent: Any) -> list[str]:
    """The names of the agent's own function tools."""
    found: list[str] = []
    for toolset in agent.toolsets:
        tools = getattr(toolset, "tools", None)
        found.extend(tools if isinstance(tools, dict) else ())
    return found
