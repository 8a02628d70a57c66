"""The tool calls of a model: made one after the other, reported to the caller, and answered to the model.

Invariant: whatever the outcome of a call, the model is told. A call that may have side effects is made at most once,
even over restarts.
"""

from typing import Any

import msgspec

from dragoman.agents.model.completion import Called
from dragoman.agents.model.messages import Said
from dragoman.agents.model.transcript import Outcome, Round, Transcript
from dragoman.agents.tools import ModelTool, ToolReport, Tools
from dragoman.engine.api import Run
from dragoman.model.message import Artifact

CUT = "It is not known whether this call was carried out: the server stopped meanwhile. It was not made again."
UNREAD = "The arguments are not a JSON object: nothing was called."


class Calling:
    """Makes the calls of one run."""

    __slots__ = ("_run", "_tools", "_transcript")

    def __init__(self, run: Run, tools: Tools, transcript: Transcript) -> None:
        self._run = run
        self._tools = tools
        self._transcript = transcript

    async def round(self, number: int, round_: Round, offered: tuple[ModelTool, ...]) -> list[Said]:
        """Make the calls of a round. Returns the messages for the model: its own words, and each outcome."""
        known = {tool.name: tool for tool in offered}
        messages: list[Said] = [_spoken(round_)]
        for at, called in enumerate(round_.calls):
            outcome = await self._resolve(f"{number}.{at}", called, known.get(called.name))
            text = f"Error: {outcome.text}" if outcome.error else outcome.text
            messages.append({"role": "tool", "tool_call_id": called.id, "content": text})
        return messages

    async def _resolve(self, call: str, called: Called, tool: ModelTool | None) -> Outcome:
        transcript = self._transcript
        arguments = _arguments(called.arguments)
        refusal: str | None = None
        needs = arguments is not None and self._tools.needs_approval(called.name)
        if transcript.asked(call) or (needs and transcript.outcome(call) is None and not transcript.begun(call)):
            approves, said = await transcript.approved(call, called, arguments or {})
            if not approves:
                refusal = f"The user does not allow this call: {said}" if said else "The user does not allow this call."
        outcome = transcript.outcome(call)
        if outcome is None:
            outcome = await self._make(call, called, arguments, tool, refusal)
            transcript.keep_outcome(call, outcome)
        return outcome

    async def _make(
        self, call: str, called: Called, arguments: dict[str, Any] | None, tool: ModelTool | None, refusal: str | None
    ) -> Outcome:
        told = ToolReport(
            id=called.id, name=called.name, arguments=called.arguments if arguments is None else arguments
        )
        fault = UNREAD if arguments is None else refusal
        cut = self._transcript.begun(call)
        if fault is None and cut and not (tool is not None and tool.repeatable):
            fault = CUT
        if fault is not None or arguments is None:
            return await self._finish(told, Outcome(fault or UNREAD, error=True))
        if not cut:
            await told.send(self._run)
            await self._transcript.begin(call)
        result = await self._tools.call(self._run, called.name, arguments, called.id)
        if result.parts:
            artifact = Artifact(artifact_id=f"tool-{call}", parts=result.parts, name=called.name)
            await self._run.artifact(artifact, append=False, last_chunk=True)
        return await self._finish(told, Outcome(result.text, result.error))

    async def _finish(self, told: ToolReport, outcome: Outcome) -> Outcome:
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


def _arguments(text: str) -> dict[str, Any] | None:
    """Decode the arguments of a call; None if they are not an object."""
    try:
        arguments = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _spoken(round_: Round) -> Said:
    calls = [
        {
            "id": called.id,
            "type": "function",
            "function": {"name": called.name, "arguments": called.arguments or "{}"},
        }
        for called in round_.calls
    ]
    return {"role": "assistant", "content": round_.text or None, "tool_calls": calls}


def identified(calls: tuple[Called, ...], number: int) -> tuple[Called, ...]:
    """Give the calls ids that are unique in the task, since some endpoints send none or repeat them."""
    taken: set[str] = set()
    found: list[Called] = []
    for at, called in enumerate(calls):
        fresh = called.id if called.id and called.id not in taken else f"call-{number}-{at}"
        taken.add(fresh)
        found.append(Called(fresh, called.name, called.arguments))
    return tuple(found)
