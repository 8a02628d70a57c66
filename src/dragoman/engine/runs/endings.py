"""The ends of tasks, as events and as errors for callers.

Invariant: an exception's text reaches the log under a reference, and the caller gets the reference alone.
"""

import logging
from collections.abc import Sequence
from math import ceil
from typing import Any

from dragoman.engine.runs.replay import ReplayMismatch
from dragoman.engine.words import End
from dragoman.model.errors import Unavailable
from dragoman.model.events import StatusChanged
from dragoman.model.ids import new_id, timestamp, timestamp_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, Usage

log = logging.getLogger("dragoman.runs")

RETRY_AFTER = "retryAfter"
"""A key in the metadata of the last status: after how many seconds a message that nobody took on may be sent again."""

MISMATCH = "replay_mismatch"
"""The reason for programs of a run that cannot be replayed."""

MISMATCH_TEXT = "The agent asked a different question than before the restart, so its recorded answers do not fit."

OVERDUE = "deadline_exceeded"
"""The reason for programs of a run that took longer than its agent's deadline."""


def overdue_text(deadline_s: float) -> str:
    """The text for the caller of a run that took longer than its deadline."""
    return f"The agent took longer than deadline_s = {deadline_s:g}."


def mismatched(head: TaskHead, mismatch: ReplayMismatch) -> End:
    """Log that a run cannot be replayed, and return its end. Both say where, what was recorded, and what came."""
    log.warning(
        "task %s: agent %s does not repeat itself: at %s, %s is recorded, but %s came. "
        "Let its open tasks end before its questions or delegations change",
        head.id,
        head.agent,
        mismatch.place,
        mismatch.recorded,
        mismatch.came,
    )
    said = f"{MISMATCH_TEXT} At {mismatch.place}, {mismatch.recorded} is recorded, but {mismatch.came} came."
    return End(TaskState.FAILED, (Part(text=said),), MISMATCH)


def refusal_of(record: Record) -> Unavailable | None:
    """The error for the call that made a task that failed because nobody took it on; else None."""
    message = record.status.message
    if record.state is not TaskState.FAILED or message is None or message.metadata is None:
        return None
    after_s = message.metadata.get(RETRY_AFTER)
    return Unavailable(message.text, after_s, task_id=record.head.id) if isinstance(after_s, int) else None


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
