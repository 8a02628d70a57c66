"""The tool calls of a model: made one after the other, reported to the caller, answered to the model, and recorded.

Invariant: an answer that calls tools is a step of the task, and so is each of its calls. A step is recorded before
anything goes out that follows from it: the next call, or the next question to the model. So a later run tells the
model the same and asks nothing twice, and makes only that call again whose outcome is unknown. The terms of a call (see
`RecordedCall`) are recorded with the answer: neither a changed configuration nor a server that is away moves a step to
another place.

A call that is pending with its first answer takes further steps, each recorded before the next: so a later run goes on
with it. Questions of the tool to the caller come between them.

The last answer, which calls nothing, is no step: only the end of the task follows it, in the same write.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.acting_party import ActingParty
from dragoman.agents.content import readable_json
from dragoman.agents.model.answer import ModelAnswer
from dragoman.agents.model.caller_questions import (
    UnreadableAnswer,
    approval_question,
    approves,
    read_answer,
    tool_question,
    words_of,
)
from dragoman.agents.model.completion import Called
from dragoman.agents.model.earlier_notes import EarlierNotes
from dragoman.agents.model.request import ChatMessage
from dragoman.agents.python.step_values import TEXT_FORM, parts_of_result, result_of_parts
from dragoman.agents.tools import ToolAnswer, ToolPending, ToolQuestion, ToolReport, ToolResult, Tools
from dragoman.engine.api import Run
from dragoman.engine.words import MODEL_STEP, Step, StepDone
from dragoman.model.events import StepFailure, Stepped
from dragoman.model.message import Artifact, Part
from dragoman.model.task import Record

TOOL_FAILED = "ToolFailed"
"""The type of the failure of a call."""

CUT = "It is not known whether this call was carried out: the server stopped meanwhile. It was not made again."
UNREAD = "The arguments are not a JSON object: nothing was called."

ENDLESS = "Its server asks without end: the call was given up."

LEGS_MAX = 100
"""The most steps that one call takes: a faulty server may always ask for more."""

ASKS_MAX = 5
"""How often the caller is asked the same question of a tool, if the answers do not fit it."""

PENDING_FORM = "pending"
"""The form of a step's result that is a pending call, as the text of a ToolPending in JSON."""

NAME_CHARACTERS = 64
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


PENDING_NOTE = "pending-call"
"""The note with the handle of the call that was going on elsewhere while the caller was asked for it last."""


class RecordedCall(Struct, frozen=True):
    """A call as it is recorded, with the terms on which it is made: whether the caller `approves` it first, and whether
    it is made `at_most_once`."""

    id: str
    name: str
    arguments: str
    approves: bool = False
    at_most_once: bool = False


class Round(Struct, frozen=True):
    """An answer of the model that calls tools: its text, and its calls."""

    text: str
    calls: tuple[RecordedCall, ...]


class CallOutcome(Struct, frozen=True):
    """The outcome of a call, as the model reads it."""

    text: str
    error: bool = False


class _LastAnswer(Exception):
    """Leaves the step of an answer that calls no tool, so that it is not recorded."""

    def __init__(self, answer: ModelAnswer) -> None:
        super().__init__()
        self.answer = answer


class ToolLoop:
    """The rounds of one run: each is an answer of the model, and the calls in it.

    `acting` gets tokens for the caller, if tools are called in its name.
    """

    __slots__ = ("_acting", "_earlier", "_run", "_tools")

    def __init__(self, run: Run, tools: Tools, acting: ActingParty | None = None) -> None:
        self._run = run
        self._tools = tools
        self._acting = acting
        self._earlier = EarlierNotes(run.notes)

    async def take_answer(self, number: int, ask: Callable[[], Awaitable[ModelAnswer]]) -> Round | ModelAnswer:
        """The round of that number, if it is recorded. Otherwise `ask` the model, and record its answer if that calls
        tools; return it as it is if it calls none."""
        if (noted := self._earlier.answer(number)) is not None:
            if noted.usage is not None:
                self._run.usage(noted.usage)
            return self._round_of(number, noted.text, noted.calls)

        async def execute(key: str) -> StepDone:
            if number > 1:  # nothing came before the first, which goes out at once
                await self._run.written()
            answer = await ask()
            if not answer.calls:
                raise _LastAnswer(answer)
            round_ = self._round_of(number, answer.text, with_unique_ids(answer.calls, number))
            return StepDone(*parts_of_result(msgspec.to_builtins(round_), execute))

        try:
            stepped = await self._run.step(Step(MODEL_STEP, soon=True), execute)
        except _LastAnswer as last:
            return last.answer
        return msgspec.convert(result_of_parts(stepped.result, stepped.form, execute), Round)

    async def make_calls(self, number: int, round_: Round) -> list[ChatMessage]:
        """Make the calls of a round. Returns the messages for the model: its own words, and each outcome."""
        messages: list[ChatMessage] = [_spoken(round_)]
        for at, call in enumerate(round_.calls):
            outcome = await self._resolve(f"{number}.{at}", call)
            text = f"Error: {outcome.text}" if outcome.error else outcome.text
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        return messages

    def _round_of(self, number: int, text: str, calls: Iterable[Called]) -> Round:
        return Round(text, tuple([self._with_terms(called, f"{number}.{at}") for at, called in enumerate(calls)]))

    def _with_terms(self, called: Called, number: str) -> RecordedCall:
        """The call as it is recorded. `number` is that of its round and its own, as earlier versions noted it."""
        approves = self._tools.needs_approval(called.name) and _arguments(called.arguments) is not None
        earlier = self._earlier
        return RecordedCall(
            called.id,
            called.name,
            called.arguments,
            approves=earlier.asked(number) or (approves and not earlier.begun(number)),
            at_most_once=self._tools.at_most_once(called.name),
        )

    async def _resolve(self, number: str, call: RecordedCall) -> CallOutcome:
        refusal = await self._ask_approval(call) if call.approves else None
        earlier = self._earlier
        if (noted := earlier.outcome(number)) is not None:
            return CallOutcome(noted.text, noted.error)
        if refusal is None and earlier.begun(number):
            refusal = CUT
        return await self._make(number, call, refusal)

    async def _ask_approval(self, call: RecordedCall) -> str | None:
        """Ask the caller to approve a call. Returns why it is not made, in words for the model; None if it is."""
        answer = await self._run.ask((approval_question(call.id, call.name, _arguments(call.arguments) or {}),))
        if approves(answer):
            return None
        said = words_of(answer)
        return f"The user does not allow this call: {said}" if said else "The user does not allow this call."

    async def _make(self, number: str, call: RecordedCall, refusal: str | None) -> CallOutcome:
        """Make a call, unless that is refused. Either way its outcome is a step."""
        run, arguments = self._run, _arguments(call.arguments)
        fault = UNREAD if arguments is None else refusal
        report = ToolReport(
            id=call.id, name=call.name, arguments=readable_json(call.arguments if arguments is None else arguments)
        )
        if fault is None:
            await report.send(run)  # a run that repeats itself says nothing here if the call is recorded

        async def make(key: str) -> ToolResult | ToolPending:
            if fault is not None or arguments is None:
                return ToolResult(text=fault or UNREAD, error=True)
            await run.written()  # the answer, and the outcome of the call before, unless `at_most_once` has
            return await self._tools.call(run, call.name, arguments, key)

        await self._identify()
        came = await self._take_step(number, call, report, make, once=call.at_most_once and fault is None)
        for _ in range(LEGS_MAX):
            if isinstance(came, CallOutcome):
                return came
            came = await self._go_on(number, call, report, came)
        if isinstance(came, ToolPending):
            await self._tools.give_up(came.handle)
            came = CallOutcome(ENDLESS, error=True)
        return came

    async def _go_on(
        self, number: str, call: RecordedCall, report: ToolReport, pending: ToolPending
    ) -> CallOutcome | ToolPending:
        """Go on with a pending call, once the caller has answered what its tool asks."""
        answers: dict[str, ToolAnswer] = {}
        if pending.questions and pending.repeatable and pending_call(self._run.record) != pending.handle:
            self._run.note_soon(**{PENDING_NOTE: pending.handle})  # written with the question, for `pending_call`
        try:
            for question in pending.questions:
                answers[question.id] = await self._ask_for_tool(call, question)
            await self._run.written()  # what is pending, by which a later run goes on
        except asyncio.CancelledError:
            if self._run.canceled:  # else a later run goes on with it
                await self._tools.give_up(pending.handle)
            raise

        async def resume(key: str) -> ToolResult | ToolPending:
            return await self._tools.resume(self._run, _arguments(call.arguments) or {}, key, pending.handle, answers)

        await self._identify()
        return await self._take_step(number, call, report, resume, once=call.at_most_once and not pending.repeatable)

    async def _identify(self) -> None:
        """Have tokens for the caller, who cannot be asked within a step."""
        if self._acting is not None:
            await self._acting.ensure(self._tools.exchanges)

    async def _ask_for_tool(self, call: RecordedCall, question: ToolQuestion) -> ToolAnswer:
        """Ask the caller what a tool asks, again if the answer does not fit."""
        unfit = ""
        for _ in range(ASKS_MAX):
            answer = await self._run.ask((tool_question(call.id, call.name, question, unfit),))
            try:
                return read_answer(question, answer)
            except UnreadableAnswer as error:
                unfit = str(error)
        return ToolAnswer("cancel")

    async def _take_step(
        self,
        number: str,
        call: RecordedCall,
        report: ToolReport,
        go: Callable[[str], Awaitable[ToolResult | ToolPending]],
        *,
        once: bool,
    ) -> CallOutcome | ToolPending:
        """Take one step of a call, which `go` executes. The caller is told if the call is over with it."""
        run = self._run

        async def execute(key: str) -> StepDone:
            came = await go(key)
            if isinstance(came, ToolPending):
                return StepDone(parts_of_result(msgspec.json.encode(came).decode(), execute)[0], PENDING_FORM)
            if came.parts:
                parts = tuple(map(_readable, came.parts))
                artifact = Artifact(artifact_id=f"tool-{number}", parts=parts, name=call.name)
                await run.artifact(artifact, append=False, last_chunk=True)
            outcome = CallOutcome(came.text, came.error)
            await _closing_report(report, outcome).send(run)
            return _step_done(outcome)

        stepped = await run.step(Step(_step_name(call.name), at_most_once=once, soon=True), execute)
        if stepped.form == PENDING_FORM:
            return msgspec.json.decode(result_of_parts(stepped.result, TEXT_FORM, execute), type=ToolPending)
        outcome = _outcome_of(stepped)
        if not stepped.attempts:  # the caller has said what came of it
            await _closing_report(report, outcome).send(run)
        return outcome


def pending_call(record: Record) -> str:
    """The handle of the call that goes on elsewhere while it waits for its caller, or that is over since; or empty."""
    return (record.note or {}).get(PENDING_NOTE, "")


def with_unique_ids(calls: tuple[Called, ...], number: int) -> tuple[Called, ...]:
    """Give the calls ids that are unique in the task, since some endpoints send none or repeat them."""
    taken: set[str] = set()
    found: list[Called] = []
    for at, called in enumerate(calls):
        fresh = called.id if called.id and called.id not in taken else f"call-{number}-{at}"
        taken.add(fresh)
        found.append(Called(fresh, called.name, called.arguments))
    return tuple(found)


def _step_name(tool: str) -> str:
    """The name of the step of a call. Models invent names, of which a step may not have every one."""
    return _NO_NAME.sub("_", tool)[:NAME_CHARACTERS] or "tool"


def _step_done(outcome: CallOutcome) -> StepDone:
    if outcome.error:
        return StepDone(failure=StepFailure(TOOL_FAILED, outcome.text))
    return StepDone((Part(text=outcome.text),), TEXT_FORM)


def _outcome_of(stepped: Stepped) -> CallOutcome:
    """The outcome of a call as it is recorded; the caller's own words if the call was uncertain."""
    failure = stepped.failure
    if failure is None:
        value = result_of_parts(stepped.result, stepped.form, _outcome_of)
        return CallOutcome(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    if failure.type == TOOL_FAILED:
        return CallOutcome(failure.text, error=True)
    said = f" The user says: {failure.text}" if failure.text else ""
    return CallOutcome(f"The server stopped during this call, which counts as failed.{said}", error=True)


def _closing_report(report: ToolReport, outcome: CallOutcome) -> ToolReport:
    return ToolReport(
        id=report.id,
        name=report.name,
        arguments=report.arguments,
        result=None if outcome.error else outcome.text,
        error=outcome.text if outcome.error else None,
        done=True,
    )


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
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments or "{}"},
        }
        for call in round_.calls
    ]
    return {"role": "assistant", "content": round_.text or None, "tool_calls": calls}


def _readable(part: Part) -> Part:
    """The part of a tool's result as every caller can read it."""
    if part.data is UNSET and part.metadata is None:
        return part
    data = part.data if part.data is UNSET else readable_json(part.data)
    return replace(part, data=data, metadata=readable_json(part.metadata))
