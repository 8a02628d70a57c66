"""Agents of Strands (1.x) behind a card.

Invariant: a twin of the agent runs each task. It has the agent's tools, hooks and model, but its own messages, state
and interrupts. So no conversation sees another, and any number run at once.
"""

import copy
import importlib
import json
import threading
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from dragoman.agents.content import json_of, readable_json
from dragoman.agents.frameworks.calls import Calls, answer_value
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, message
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent, flush_output, text_sink
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.engine.api import Reject
from dragoman.model.message import Part

REFUSALS = frozenset({"content_filtered", "guardrail_intervened"})
"""Stop reasons (StopReason) by which the model, or its guard, refuses."""

IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
"""Formats of images (ImageFormat): the second part of their media types."""

DOCUMENTS = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
"""Formats of documents (DocumentFormat) by media type; texts are sent as texts."""


def adapts(value: object) -> bool:
    """Whether the object is an agent; graphs and swarms are not."""
    return callable(getattr(value, "stream_async", None)) and hasattr(value, "tool_registry")


def name_of(value: Any) -> str:
    """Its `name`, if it was given one."""
    default = importlib.import_module("strands.agent.agent")._DEFAULT_AGENT_NAME
    return "" if value.name in (None, default) else str(value.name)


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the agent behind a card. Raises ValueError if its conversations cannot be kept apart."""
    if value._session_manager is not None:
        raise ValueError("the session manager keeps one conversation for all callers: leave it out, tasks have theirs")
    if value._background_tasks is not None:
        raise ValueError("background_tasks outlive the task that began them: leave them out")
    return build_agent(
        agent_id,
        lambda ctx: StrandsRun(value, ctx),
        name=name_of(value),
        description=value.description or value.system_prompt or "",
        tools=value.tool_registry.registry,
        file_modes=("image/*", "application/pdf"),
    )


class StrandsRun(FrameworkRun):
    """One task's run. Its state at a pause is a snapshot of its twin."""

    def __init__(self, agent: Any, ctx: Context) -> None:
        self._agent = agent
        self._ctx = ctx
        self._calls = Calls(ctx)

    async def begin(self) -> Any:
        """A twin, and the message. The earlier conversation comes after the agent's own messages."""
        twin = twin_of(self._agent)
        twin.messages.extend(_turns(await history(self._ctx)))
        return twin, _content(await message(self._ctx))

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """A twin with the state, and the answers to its interrupts."""
        twin = twin_of(self._agent)
        noted = importlib.import_module("strands.types.session").decode_bytes_values(json.loads(state))
        twin.load_snapshot(importlib.import_module("strands.types._snapshot").Snapshot.from_dict(noted["snapshot"]))
        return twin, [
            {"interruptResponse": {"interruptId": interrupt, "response": answer_value(answer)}}
            for interrupt, answer in zip(noted["interrupts"], answers, strict=True)
        ]

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the twin."""
        twin, prompt = given
        names = {use["toolUseId"]: use["name"] for use in _of(twin.messages, "toolUse")}
        result: Any = None
        gap, spoken, say = False, False, text_sink()
        try:
            async with self._calls, aclosing(twin.stream_async(prompt)) as events:
                async for event in events:
                    if (text := event.get("data")) is not None:
                        if gap:
                            yield "\n\n"
                            gap = False
                        spoken = True
                        if not say(text):
                            await flush_output()
                    elif "event" in event:  # the model's raw stream, from which the other events are made
                        continue
                    elif "message" in event:
                        gap = spoken
                        await self._report(twin, event["message"], names)
                    elif "result" in event:
                        result = event["result"]
        finally:
            used = twin.event_loop_metrics.accumulated_usage
            self._ctx.usage(
                input=used["inputTokens"],
                output=used["outputTokens"],
                total=used["totalTokens"],
                model=_model_name(twin.model),
            )
        if result.stop_reason in REFUSALS:
            raise Reject("\n".join(_of([result.message], "text")) or "The model refused.")
        if result.stop_reason == "interrupt":
            yield _pause(twin, result.interrupts)
        elif result.structured_output is not None:
            yield Part(data=json_of(result.structured_output))

    async def _report(self, twin: Any, message: Any, names: dict[str, str]) -> None:
        """Report the tools that a message calls, or their results, except the tool that shapes the output."""
        for use in _of([message], "toolUse"):
            if use["name"] in twin.tool_registry.registry:
                names[use["toolUseId"]] = use["name"]
                await self._calls.report_start(use["toolUseId"], use["name"], use["input"])
        for outcome in _of([message], "toolResult"):
            name = names.get(outcome["toolUseId"], "")
            content = [next(iter(block.values())) for block in outcome["content"]]
            result = content[0] if len(content) == 1 else content
            if outcome["status"] == "error":
                await self._calls.report_failure(outcome["toolUseId"], str(result), name=name)
            else:
                await self._calls.report_end(outcome["toolUseId"], result, name=name)


def twin_of(agent: Any) -> Any:
    """A copy of the agent as it was made, with its own state for everything that a run changes."""
    twin = copy.copy(agent)
    vars(twin).update(own_of(agent))
    twin.tool_caller = type(agent.tool_caller)(twin)
    if (
        type(agent.callback_handler).__name__ == "PrintingCallbackHandler"
    ):  # the default: it writes every word to stdout
        twin.callback_handler = importlib.import_module("strands.handlers.callback_handler").null_callback_handler
    return twin


def own_of(agent: Any) -> dict[str, Any]:
    """The fields of an Agent object that belong to a run (1.62), as they are before one; the rest is its author's."""
    registry = type(agent.tool_registry)()  # without the tool providers: closing them is up to the agent
    registry.registry = {name: _own(tool) for name, tool in agent.tool_registry.registry.items()}
    registry.dynamic_tools = dict(agent.tool_registry.dynamic_tools)
    return {
        "_cancel_message": None,
        "_cancel_signal": threading.Event(),
        "_checkpoint": None,
        "_checkpoint_cycle_index": 0,
        "_checkpoint_resume_position": None,
        "_concurrency": type(agent._concurrency)(agent._concurrency.mode),
        "_deferred_cancel": False,
        "_external_cancel_signal": None,
        "_interrupt_state": type(agent._interrupt_state)(),
        "_model_state": {},
        "_session_id": uuid.uuid4().hex[:8],
        "conversation_manager": copy.copy(agent.conversation_manager),
        "event_loop_metrics": type(agent.event_loop_metrics)(),
        "messages": copy.deepcopy(agent.messages),
        "state": type(agent.state)(agent.state.get()),
        "tool_registry": registry,
        "trace_span": None,
    }


def _own(tool: Any) -> Any:
    """The tool. One that is itself an agent gets a twin, too."""
    if not hasattr(tool, "agent") or not hasattr(tool.agent, "tool_registry"):
        return tool
    twin = copy.copy(tool)
    twin._agent = twin_of(tool.agent)
    twin._lock = threading.Lock()
    return twin


def _model_name(model: Any) -> str:
    """Return the name that a model is configured with: answers do not say it. Empty if there is none."""
    config = model.get_config()
    name = config.get("model_id") if isinstance(config, Mapping) else None
    return name if isinstance(name, str) else ""


def _pause(twin: Any, interrupts: Iterable[Any]) -> RunPause:
    waiting = list(interrupts)
    state = {
        "snapshot": twin.take_snapshot(preset="session").to_dict(),
        "interrupts": [interrupt.id for interrupt in waiting],
    }
    encoded = importlib.import_module("strands.types.session").encode_bytes_values(state)
    return RunPause(tuple(_question(interrupt) for interrupt in waiting), json.dumps(encoded))


def _question(interrupt: Any) -> RunQuestion:
    try:
        reason = readable_json(interrupt.reason)
    except (TypeError, ValueError):
        reason = str(interrupt.reason)
    text = reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)
    shown = interrupt.name if reason is None else f"{interrupt.name}: {text}"
    return RunQuestion(shown, {"interrupt": {"name": interrupt.name, "reason": reason}})


def _turns(past: Iterable[PlainMessage]) -> list[dict[str, Any]]:
    """The messages, with neighbours of one side joined, since models expect the sides to take turns."""
    turns: list[dict[str, Any]] = []
    for words in past:
        role = "assistant" if words.agent else "user"
        content = [{"text": words.text}] if words.agent else _content(words)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(content)
        else:
            turns.append({"role": role, "content": content})
    return turns


def _content(words: PlainMessage) -> list[dict[str, Any]]:
    return [{"text": piece} if isinstance(piece, str) else _file(piece) for piece in words.pieces]


def _file(file: PlainFile) -> dict[str, Any]:
    kind = file.media_type.rpartition("/")[2]
    if file.raw is not None and file.image and kind in IMAGES:
        return {"image": {"format": kind, "source": {"bytes": file.raw}}}
    if file.raw is not None and (document := DOCUMENTS.get(file.media_type)):
        return {"document": {"format": document, "name": _plain(file.name or document), "source": {"bytes": file.raw}}}
    return {"text": file.described}


def _plain(name: str) -> str:
    """The name in the form that models accept for a document: letters, digits, spaces and hyphens."""
    return "".join(letter if letter.isalnum() or letter in " -" else "-" for letter in name)


def _of(messages: Iterable[Any], kind: str) -> list[Any]:
    return [block[kind] for message in messages for block in message["content"] if kind in block]
