"""How the end of a task is put into events, for its caller, and into the log, for its operator.

Invariant: nothing of an exception's text reaches a caller.
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
"""In the metadata of the last status: seconds after which the message may be sent again, as nobody took it on."""

Ending = tuple[TaskState, str | tuple[Part, ...], str]
"""How a run ended: the state, what is said to the caller, the reason for programs."""


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
    """The event that ends a task; `reason` is for programs, what is `said` for people."""
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
    """Log an exception with a reference, for the caller to quote; its text stays in the log."""
    reference = new_id()[-12:]
    log.error("agent %s %s in task %s (reference %s)", head.agent, what, head.id, reference, exc_info=error)
    return reference


def agent_error(head: TaskHead, what: str, error: BaseException) -> Ending:
    """How a run ends whose agent went wrong; `what` it did is for the log."""
    return TaskState.FAILED, f"The agent failed (reference {failed(head, what, error)}).", "agent_error"
