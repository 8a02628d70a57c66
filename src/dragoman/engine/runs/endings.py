"""The ends of tasks, as events and as errors for callers.

Invariant: an exception's text reaches the log under a reference, and the caller gets the reference alone.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from math import ceil
from typing import Any

from msgspec import UNSET

from dragoman.engine.runs.replay import ReplayMismatch
from dragoman.engine.upstream_notes import CONVERSATION_AWAY, MEMBER_AWAY
from dragoman.engine.words import JSON_FORM, Ask, End, StepDone
from dragoman.model.errors import AgentOffline, Unavailable
from dragoman.model.events import StatusChanged, StepFailure
from dragoman.model.ids import new_id, timestamp, timestamp_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, Usage

log = logging.getLogger("dragoman.runs")

RETRY_AFTER = "retryAfter"
"""A key in the metadata of the last status: after how many seconds a message that nobody took on may be sent again."""

MISMATCH = "replay_mismatch"
"""The reason for programs of a run that cannot be replayed."""

MISMATCH_TEXT = "The agent did not repeat what it had done before the restart, so that what is recorded does not fit."

OVERDUE = "deadline_exceeded"
"""The reason for programs of a run that took longer than its agent's deadline."""


NOBODY_TO_ASK = "nobody_to_ask"
"""The reason for programs of a task that its agent's question ended, because nobody would answer."""

BUDGET_EXHAUSTED = "budget_exhausted"
"""The reason for the end of a task that its budget has stopped."""

BUDGET_TEXT = "The budget {} is used up."

TOO_MANY_STEPS = "too_many_steps"
"""The reason for programs of a task that has recorded as many steps and sleeps as it may."""

TOO_MANY_TEXT = (
    "The agent has recorded {} steps and sleeps, the most that a task may (max_steps). "
    "Do more in one step, or delegate parts of the work to tasks of their own."
)

STEPS_VERSION_ABSENT = "steps_version_absent"
"""The reason for programs of a task whose agent is no longer served with the code that the task began with."""

VERSION_ABSENT_TEXT = (
    "The task began with steps_version {} of its agent, which nobody has served for {:g} s; {} is served. "
    "Serve {} until its tasks have ended, or keep the version and let changes ask ctx.patched."
)


def version_absent_text(began: str, served: str, absent_s: float) -> str:
    """The text for a task that began with one version of its agent's code, of which another is served."""
    return VERSION_ABSENT_TEXT.format(began, absent_s, served, began)


STEP_UNCERTAIN = "step_uncertain"
"""The reason for programs of a task of which nobody knows whether it has executed a step."""

UNCERTAIN_TEXT = "The server stopped while the step “{}” was executed, and nobody knows whether it was."

WRITTEN_AROUND = " \t\n\"'“”.!"
"""The marks that people write around an answer of one word."""

UNCERTAIN_CHOICE = (
    ' Answer "again" to have it executed again, "failed" to go on as if it had failed, or with its result as data.'
)


async def ask_about_step(name: str, place: str, ask: Callable[[Ask], Awaitable[Message]]) -> StepDone | None:
    """The outcome of an uncertain step, as the caller says; None if it is to be executed again.

    The caller is asked until the answer is one of those: a slip of the pen must neither pay twice nor end the task.
    """
    for turn in count():
        answer = await ask(Ask(uncertain_question(name), place=f"{place}.{turn}" if turn else place))
        data = next((part.data for part in answer.parts if part.data is not UNSET), UNSET)
        if data is not UNSET:
            return StepDone((Part(data=data),), JSON_FORM, attempts=0)
        said = answer.text.strip(WRITTEN_AROUND).casefold()
        if said in ("again", "repeat", "retry"):
            return None
        if said in ("failed", "fail"):
            return StepDone(failure=StepFailure("StepUncertain", said), attempts=0)
    raise AssertionError("the caller is asked without end")


def budget_exhausted(budget: str) -> End:
    """The end of a task that has spent more than a budget has left."""
    return End(TaskState.FAILED, (Part(text=BUDGET_TEXT.format(budget)),), BUDGET_EXHAUSTED)


def too_many_steps(most: int) -> End:
    """The end of a task that would record more than `most` steps and sleeps."""
    return End(TaskState.FAILED, (Part(text=TOO_MANY_TEXT.format(most)),), TOO_MANY_STEPS)


def uncertain_step(name: str) -> End:
    """The end of a task of which nobody knows whether it has executed a step."""
    return End(TaskState.FAILED, (Part(text=UNCERTAIN_TEXT.format(name)),), STEP_UNCERTAIN)


def uncertain_question(name: str) -> tuple[Part, ...]:
    """The question to the caller about a step of which nobody knows whether it was executed."""
    return (Part(text=UNCERTAIN_TEXT.format(name) + UNCERTAIN_CHOICE),)


def overdue_text(deadline_s: float) -> str:
    """The text for the caller of a run that took longer than its deadline."""
    return f"The agent took longer than deadline_s = {deadline_s:g}."


def mismatched(head: TaskHead, mismatch: ReplayMismatch) -> End:
    """Log that a run cannot be replayed, and return its end. Both say where, what was recorded, and what came."""
    log.warning(
        "task %s: agent %s does not repeat itself: at %s, %s is recorded, but %s came. "
        "Let its open tasks end before its questions, delegations or steps change",
        head.id,
        head.agent,
        mismatch.place,
        mismatch.recorded,
        mismatch.came,
    )
    said = f"{MISMATCH_TEXT} At {mismatch.place}, {mismatch.recorded} is recorded, but {mismatch.came} came."
    return End(TaskState.FAILED, (Part(text=said),), MISMATCH)


def refusal_of(record: Record) -> Unavailable | AgentOffline | None:
    """The error for the call that made a task that failed because nobody took it on; else None."""
    message = record.status.message
    if record.state is not TaskState.FAILED or message is None or message.metadata is None:
        return None
    after_s = message.metadata.get(RETRY_AFTER)
    if not isinstance(after_s, int):
        return None
    if message.metadata.get("reason") == MEMBER_AWAY:
        return AgentOffline(record.head.agent, CONVERSATION_AWAY)
    return Unavailable(message.text, after_s, task_id=record.head.id)


def agent_message(head: TaskHead, parts: Sequence[Part], metadata: dict[str, Any] | None = None) -> Message:
    """A message from the agent, or from the server on its behalf, within a task."""
    return Message(
        message_id=new_id(),
        role=Role.AGENT,
        parts=tuple(parts),
        context_id=head.context_id,
        task_id=head.id,
        metadata=metadata,
    )


def closing(
    head: TaskHead,
    state: TaskState,
    now_ms: int,
    said: str | tuple[Part, ...] = "",
    reason: str = "",
    usage: Usage | None = None,
    retry_after_s: float | None = None,
) -> StatusChanged:
    """The event that ends a task. `said` is for people, `reason` for programs."""
    parts = (Part(text=said),) if isinstance(said, str) else said
    metadata: dict[str, Any] = {"reason": reason} if reason else {}
    if retry_after_s is not None:
        metadata[RETRY_AFTER] = max(1, ceil(retry_after_s))
    message = agent_message(head, parts, metadata or None) if said else None
    return StatusChanged(
        state,
        timestamp(now_ms),
        message=message,
        usage=usage,
        duration_ms=max(0, now_ms - timestamp_ms(head.created_at)),
    )


def failed(head: TaskHead, what: str, error: BaseException) -> str:
    """Log an exception under a new reference, and return the reference for the caller to quote."""
    reference = new_id()[-12:]
    log.error("agent %s %s in task %s (reference %s)", head.agent, what, head.id, reference, exc_info=error)
    return reference


def agent_error(head: TaskHead, what: str, error: BaseException) -> End:
    """Log a failure of the agent, and return the end of its run. `what` describes the failure in the log."""
    said = f"The agent failed (reference {failed(head, what, error)})."
    return End(TaskState.FAILED, (Part(text=said),), "agent_error")
