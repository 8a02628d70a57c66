"""Spans by OpenTelemetry's semantic conventions for generative AI, in the state of their repository of November 2026.

https://github.com/open-telemetry/semantic-conventions-genai (Development): `invoke_agent`, `chat` and `execute_tool`.

Invariant: a span holds content only if the operator wants it captured: messages, and arguments and results of tools.
"""

from typing import Any

import msgspec
from opentelemetry import context as current
from opentelemetry import trace

from dragoman.telemetry.genai import ChatReply, InvokedHead, InvokedRunner, ModelCall, ToolCall
from dragoman.telemetry.trace_context import traceparent_of

OURS = "dragoman"
"""The provider of agents that are code: the conventions know only providers of models."""

CONTENT_CHARACTERS_MAX = 16_384
"""The longest text that is captured as one part; collectors refuse requests of a few megabytes."""

NAME_CHARACTERS_MAX = 128

REPORTED = ("toolCallId", "name", "phase")
"""The texts in every report on the call of a tool."""

BEGINNINGS = ("started", "start")
"""The phase of a call that has not ended, also as 0.3 spells it."""

Attributes = dict[str, Any]


class GenAi:
    """Makes these spans with a tracer. With `captures`, they hold content."""

    def __init__(self, tracer: trace.Tracer, *, captures: bool) -> None:
        self.tracer = tracer
        self.captures = captures

    def invoke(self, head: InvokedHead, runner: InvokedRunner | None, parent: current.Context) -> "InvocationSpan":
        """Begin the span of an agent's run. An agent of another server is called there."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": OURS,
            "gen_ai.agent.id": head.agent,
            "gen_ai.conversation.id": head.context_id,
        }
        name, kind = head.agent, trace.SpanKind.INTERNAL
        if runner is not None:
            profile, traits = runner.profile, runner.traits
            name = profile.name
            attributes |= {"gen_ai.agent.description": profile.description, "gen_ai.agent.version": profile.version}
            if traits.provider:
                attributes["gen_ai.provider.name"] = traits.provider
            if traits.kind == "upstream":
                kind = trace.SpanKind.CLIENT
        attributes["gen_ai.agent.name"] = name
        return InvocationSpan(self.tracer.start_span(f"invoke_agent {name}", parent, kind, attributes), self)


class InvocationSpan:
    """The span of an agent's run, with the answers of models and the calls of tools in it."""

    __slots__ = ("_genai", "_input", "_output", "_tools", "span")

    def __init__(self, span: trace.Span, genai: GenAi) -> None:
        self.span = span
        self._genai = genai
        self._tools: dict[str, trace.Span] = {}
        """The calls that have begun and not ended, by their ids."""
        self._input = self._output = 0

    def begin_chat(self, request: ModelCall, body: bytes, conversation: str) -> "ChatSpan":
        """Begin the span of an answer, below the present one: that of a step, if the answer is one."""
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": request.provider,
            "gen_ai.request.model": request.model,
            "gen_ai.request.stream": True,
            "gen_ai.conversation.id": conversation,
            "gen_ai.output.type": "json" if request.json_wanted else "text",
            "server.address": request.address,
            "server.port": request.port,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.frequency_penalty": request.frequency_penalty,
            "gen_ai.request.presence_penalty": request.presence_penalty,
            "gen_ai.request.reasoning.level": request.reasoning,
            "gen_ai.request.stop_sequences": request.stop or None,
        }
        if self._genai.captures:
            attributes["gen_ai.input.messages"] = _input_messages(body)
        given = {name: value for name, value in attributes.items() if value is not None}
        tracer = self._genai.tracer
        span = tracer.start_span(f"chat {request.model}", kind=trace.SpanKind.CLIENT, attributes=given)
        return ChatSpan(span, self, request, captures=self._genai.captures)

    def add_tokens(self, given: int, made: int) -> None:
        """Add the tokens of an answer to those of the run."""
        self._input += given
        self._output += made

    def tool_called(self, call: ToolCall) -> None:
        """Begin the span of a tool's call, or end it. One whose beginning was not reported has no length.

        A report that is none is ignored: another server's agent may say anything.
        """
        if not isinstance(call, dict) or not all(isinstance(call.get(key), str) for key in REPORTED):
            return
        call_id, phase = call["toolCallId"], call["phase"]
        span = self._tools.pop(call_id, None) or self._begin_tool(call_id, call)
        if phase in BEGINNINGS:
            self._tools[call_id] = span
            return
        if self._genai.captures and "result" in call:
            span.set_attribute("gen_ai.tool.call.result", _json(call["result"]))
        _end(span, "tool_error" if phase == "failed" else None)

    def _begin_tool(self, call_id: str, call: ToolCall) -> trace.Span:
        name = call["name"][:NAME_CHARACTERS_MAX]  # models invent names
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
        }
        if self._genai.captures and "args" in call:
            attributes["gen_ai.tool.call.arguments"] = _json(call["args"])
        parent = trace.set_span_in_context(self.span, current.Context())
        return self._genai.tracer.start_span(f"execute_tool {name}", parent, attributes=attributes)

    def finished(self, state: str) -> None:
        """End the span, and those of tools that are open still."""
        for span in self._tools.values():
            _end(span, "interrupted")
        self._tools.clear()
        if self._input or self._output:
            self.span.set_attribute("gen_ai.usage.input_tokens", self._input)
            self.span.set_attribute("gen_ai.usage.output_tokens", self._output)
        _end(self.span, "failed" if state == "failed" else None)


class ChatSpan:
    """The span of one answer of a model in the run `invocation`. `request` is the one that was sent first."""

    __slots__ = ("_captures", "_invocation", "_request", "_span", "traceparent")

    def __init__(self, span: trace.Span, invocation: InvocationSpan, request: ModelCall, *, captures: bool) -> None:
        self.traceparent = traceparent_of(span)
        self._span = span
        self._invocation = invocation
        self._request = request
        self._captures = captures

    def answered(self, reply: ChatReply) -> None:
        """End the span with what the model said of its answer."""
        span, by = self._span, reply.by
        if by is not self._request:  # another endpoint has answered
            span.update_name(f"chat {by.model}")
            span.set_attribute("gen_ai.provider.name", by.provider)
            span.set_attribute("gen_ai.request.model", by.model)
            span.set_attribute("server.address", by.address)
            span.set_attribute("server.port", by.port)
        if reply.finish:
            span.set_attribute("gen_ai.response.finish_reasons", (reply.finish,))
        if reply.input_tokens is not None and reply.output_tokens is not None:
            span.set_attribute("gen_ai.usage.input_tokens", reply.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", reply.output_tokens)
            if reply.cached_tokens:
                span.set_attribute("gen_ai.usage.cache_read.input_tokens", reply.cached_tokens)
            self._invocation.add_tokens(reply.input_tokens, reply.output_tokens)
        if self._captures:
            span.set_attribute("gen_ai.output.messages", _output_messages(reply))
        _end(span, None)

    def failed(self, error: str) -> None:
        """End the span of an answer that did not come."""
        _end(self._span, error)


def _end(span: trace.Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(trace.StatusCode.ERROR)
    span.end()


# -- content -----------------------------------------------------------------------------------------------------------


def _input_messages(body: bytes) -> str:
    """The messages of a request to an API of chat completions, as the conventions have them.

    Parts that are no text have their kind alone: images would be larger than all else.
    """
    return _json([_message(said) for said in msgspec.json.decode(body).get("messages", ())])


def _message(said: dict[str, Any]) -> Attributes:
    content, role = said.get("content"), said["role"]
    if role == "tool":
        answer = {"type": "tool_call_response", "id": said.get("tool_call_id"), "response": content}
        return {"role": role, "parts": [answer]}
    parts: list[Attributes] = []
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        is_text = part.get("type") == "text"
        parts.append({"type": "text", "content": part["text"]} if is_text else {"type": part.get("type", "file")})
    for call in said.get("tool_calls") or ():
        parts.append(_tool_call(call.get("id"), call["function"]["name"], call["function"]["arguments"]))
    return {"role": role, "parts": parts}


def _output_messages(reply: ChatReply) -> str:
    parts: list[Attributes] = [{"type": "text", "content": reply.text}] if reply.text else []
    parts += [_tool_call(*call) for call in reply.calls]
    return _json([{"role": "assistant", "parts": parts, "finish_reason": reply.finish}])


def _tool_call(call_id: str | None, name: str, arguments: str) -> Attributes:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def _json(value: Any) -> str:
    return msgspec.json.encode(_shortened(value)).decode()


def _shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > CONTENT_CHARACTERS_MAX:
            return value[:CONTENT_CHARACTERS_MAX] + "…"
        case dict():
            return {key: _shortened(item) for key, item in value.items()}
        case list() | tuple():
            return [_shortened(item) for item in value]
    return value
