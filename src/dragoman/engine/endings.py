"""Endings: the events that end a task, for its caller, and the log lines about failures, for the operator.

Invariant: the text of an exception never reaches a caller.
"""

import logging
from collections.abc import Sequence
from math import ceil
from typing import Any

from dragoman.model.errors import Unavailable
from dragoman.model.events import StatusChanged
from dragoman.model.ids import new_id, timestamp
from dragoman.model.lifecycle import duration_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, Usage

log = logging.getLogger("dragoman.runs")

RETRY_AFTER = "retryAfter"
"""A key in the metadata of the last status: after how many seconds a message that nobody took on may be sent again."""

Ending = tuple[TaskState, str | tuple[Part, ...], str]
"""How a run ended: the state, the text or parts for the caller, the reason for programs."""


def refusal_of(record: Record) -> Unavailable | None:
    """The error for the call that made a task, if the task failed because nobody took it on; else None."""
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
        duration_ms=duration_ms(head, now_ms),
    )


def failed(head: TaskHead, what: str, error: BaseException) -> str:
    """Log an exception under a new reference, and return the reference for the caller to quote."""
    reference = new_id()[-12:]
    log.error("agent %s %s in task %s (reference %s)", head.agent, what, head.id, reference, exc_info=error)
    return reference


def agent_error(head: TaskHead, what: str, error: BaseException) -> Ending:
    """Log a failure of the agent, and return the ending of its run. `what` describes the failure in the log."""
    return TaskState.FAILED, f"The agent failed (reference {failed(head, what, error)}).", "agent_error"
