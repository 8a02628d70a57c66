"""The tool calls of a model: made one after the other, reported to the caller, answered to the model, and recorded.

Invariant: whatever the outcome of a call, the model is told. A round is noted before its first call is made, a call
before it is made, and a result before the model reads it. So a resumed run says the same to the model, asks nothing
twice, and makes a call that may have side effects at most once.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.content import readable_json
from dragoman.agents.model.completion import Called
from dragoman.agents.model.request import ChatMessage
from dragoman.agents.tools import ModelTool, ToolReport, Tools
from dragoman.engine.api import Run
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import Usage

CUT = "It is not known whether this call was carried out: the server stopped meanwhile. It was not made again."
UNREAD = "The arguments are not a JSON object: nothing was called."

YES = frozenset({"yes", "y", "ok", "okay", "true", "approve", "approved", "allow", "go ahead"})
"""The answers that approve a call; any other answer does not."""


class Round(Struct, frozen=True):
    """An answer of the model that calls tools: its text, its calls, and its cost."""

    text: str
    calls: tuple[Called, ...]
    usage: Usage | None = None


class CallOutcome(Struct, frozen=True):
    """The result of a call, as the model reads it."""

    text: str
    error: bool = False


class Transcript:
    """The rounds of a run's task, including those of earlier runs."""

    __slots__ = ("_noted", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._noted: dict[str, str] = dict(run.record.note or {})

    def round(self, number: int) -> Round | None:
        """The model's answer in that round, if there was one."""
        noted = self._noted.get(f"round-{number}")
        return None if noted is None else msgspec.json.decode(noted, type=Round)

    def keep_round(self, number: int, round_: Round) -> None:
        """Record the model's answer of a round."""
        self._note(f"round-{number}", round_)

    def outcome(self, call: str) -> CallOutcome | None:
        """The outcome of a call, if it has one."""
        noted = self._noted.get(f"result-{call}")
        return None if noted is None else msgspec.json.decode(noted, type=CallOutcome)

    def keep_outcome(self, call: str, outcome: CallOutcome) -> None:
        """Record the outcome of a call."""
        self._note(f"result-{call}", outcome)

    def begun(self, call: str) -> bool:
        """Whether a call was made, or was about to be made when the run died."""
        return f"begun-{call}" in self._noted

    async def begin(self, call: str) -> None:
        """Record that a call is about to be made. Returns when that is committed."""
        self._note(f"begun-{call}", True)
        await self._run.written()

    def asked(self, call: str) -> bool:
        """Whether the caller was asked about a call. If so, asking again finds the recorded answer."""
        return f"asked-{call}" in self._noted

    async def ask_approval(self, call: str, called: Called, arguments: dict[str, Any]) -> tuple[bool, str]:
        """Ask the caller to approve a call. Returns whether it does, and its words."""
        if not self.asked(call):
            self._note(f"asked-{call}", True)
        answer = await self._run.ask((_question(called, arguments),))
        said = _words_of(answer)
        return said.strip().strip(".!").lower() in YES, said

    def _note(self, name: str, value: object) -> None:
        text = msgspec.json.encode(value).decode()
        self._noted[name] = text
        self._run.note(**{name: text})


class Calling:
    """Makes the calls of one run."""

    __slots__ = ("_run", "_tools", "_transcript")

    def __init__(self, run: Run, tools: Tools, transcript: Transcript) -> None:
        self._run = run
        self._tools = tools
        self._transcript = transcript

    async def round(self, number: int, round_: Round, offered: tuple[ModelTool, ...]) -> list[ChatMessage]:
        """Make the calls of a round. Returns the messages for the model: its own words, and each outcome."""
        known = {tool.name: tool for tool in offered}
        messages: list[ChatMessage] = [_spoken(round_)]
        for at, called in enumerate(round_.calls):
            outcome = await self._resolve(f"{number}.{at}", called, known.get(called.name))
            text = f"Error: {outcome.text}" if outcome.error else outcome.text
            messages.append({"role": "tool", "tool_call_id": called.id, "content": text})
        return messages

    async def _resolve(self, call: str, called: Called, tool: ModelTool | None) -> CallOutcome:
        transcript = self._transcript
        arguments = _arguments(called.arguments)
        refusal: str | None = None
        needs = arguments is not None and self._tools.needs_approval(called.name)
        if transcript.asked(call) or (needs and transcript.outcome(call) is None and not transcript.begun(call)):
            approves, said = await transcript.ask_approval(call, called, arguments or {})
            if not approves:
                refusal = f"The user does not allow this call: {said}" if said else "The user does not allow this call."
        outcome = transcript.outcome(call)
        if outcome is None:
            outcome = await self._make(call, called, arguments, tool, refusal)
            transcript.keep_outcome(call, outcome)
        return outcome

    async def _make(
        self, call: str, called: Called, arguments: dict[str, Any] | None, tool: ModelTool | None, refusal: str | None
    ) -> CallOutcome:
        told = ToolReport(
            id=called.id,
            name=called.name,
            arguments=readable_json(called.arguments if arguments is None else arguments),
        )
        fault = UNREAD if arguments is None else refusal
        cut = self._transcript.begun(call)
        if fault is None and cut and not (tool is not None and tool.repeatable):
            fault = CUT
        if fault is not None or arguments is None:
            return await self._finish(told, CallOutcome(fault or UNREAD, error=True))
        if not cut:
            await told.send(self._run)
            await self._transcript.begin(call)
        result = await self._tools.call(self._run, called.name, arguments, called.id)
        if result.parts:
            parts = tuple(map(_readable, result.parts))
            artifact = Artifact(artifact_id=f"tool-{call}", parts=parts, name=called.name)
            await self._run.artifact(artifact, append=False, last_chunk=True)
        return await self._finish(told, CallOutcome(result.text, result.error))

    async def _finish(self, told: ToolReport, outcome: CallOutcome) -> CallOutcome:
        ended = ToolReport(
            id=told.id,
            name=told.name,
            arguments=told.arguments,
            result=None if outcome.error else outcome.text,
            error=outcome.text if outcome.error else None,
            done=True,
        )
        await ended.send(self._run)
        return outcome


def with_unique_ids(calls: tuple[Called, ...], number: int) -> tuple[Called, ...]:
    """Give the calls ids that are unique in the task, since some endpoints send none or repeat them."""
    taken: set[str] = set()
    found: list[Called] = []
    for at, called in enumerate(calls):
        fresh = called.id if called.id and called.id not in taken else f"call-{number}-{at}"
        taken.add(fresh)
        found.append(Called(fresh, called.name, called.arguments))
    return tuple(found)


def _arguments(text: str) -> dict[str, Any] | None:
    """Decode the arguments of a call; None if they are not an object."""
    try:
        arguments = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _spoken(round_: Round) -> ChatMessage:
    calls = [
        {
            "id": called.id,
            "type": "function",
            "function": {"name": called.name, "arguments": called.arguments or "{}"},
        }
        for called in round_.calls
    ]
    return {"role": "assistant", "content": round_.text or None, "tool_calls": calls}


def _question(called: Called, arguments: dict[str, Any]) -> Part:
    """The question for the caller. Programs find the call in the metadata."""
    shown = msgspec.json.encode(arguments).decode()
    return Part(
        text=f"May I call {called.name} with {shown}? Answer yes or no.",
        metadata={"toolCallId": called.id, "name": called.name, "args": readable_json(arguments)},
    )


def _readable(part: Part) -> Part:
    """The part of a tool's result as every caller can read it."""
    if part.data is UNSET and part.metadata is None:
        return part
    data = part.data if part.data is UNSET else readable_json(part.data)
    return replace(part, data=data, metadata=readable_json(part.metadata))


def _words_of(answer: Message) -> str:
    """The caller's answer in words. Data like `{"approved": true}` counts as an answer, too."""
    for part in answer.parts:
        if isinstance(part.data, dict) and isinstance(approved := part.data.get("approved"), bool):
            return "yes" if approved else "no"
        if isinstance(part.data, bool):
            return "yes" if part.data else "no"
    return answer.text
