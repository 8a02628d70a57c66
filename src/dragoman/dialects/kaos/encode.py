"""Encodes results and errors for KAOS: flat tasks, a string as the state's message, the answer in the history.

Invariant: `id`, `sessionId`, `status`, `history` come first, as in KAOS's text; `contextId`, `output` and `artifacts`
come after. Every part is tagged `type`. An error's `data` is always present and always null; its code is A2A's, as in
KAOS's text.
"""

from typing import Any

import msgspec

from dragoman.dialects import jsonrpc
from dragoman.dialects.extensions import unreadable_metadata
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.encode import ROLES, STATES, history_limit
from dragoman.dialects.vendors import encode_artifact, encode_part, text_of
from dragoman.model.errors import A2AError, MethodNotFound, ParseError
from dragoman.model.events import Event
from dragoman.model.message import Message, Part
from dragoman.model.operations import Operation, Result, TaskPage
from dragoman.model.task import Record, TaskHead, TaskState

Json = dict[str, Any]

TAG = "type"
"""The member that names a part's type."""

SAYINGS = {
    TaskState.WORKING: "Processing",
    TaskState.COMPLETED: "Done",
    TaskState.CANCELED: "Canceled by request",
    TaskState.FAILED: "Failed",
    TaskState.REJECTED: "Rejected",
}
"""The `status.message` of a state if the agent sends no message; a completed task always says "Done"."""


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer; a result without a KAOS shape is as in 0.3."""
    match result:
        case Record():
            return msgspec.json.encode(task(result, history_limit(operation)))
        case TaskPage():
            return msgspec.json.encode(
                {"tasks": [task(record, None) for record in result.records], "count": result.total_size}
            )
        case _:
            return v03.encode_result(operation, result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the task; KAOS has no stream to show it in."""
    return msgspec.json.encode(task(record, history_length))


def encode_message(answer: Message) -> bytes:
    """Encode a message without a task; KAOS's manners never produce one."""
    return msgspec.json.encode(_message(answer))


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Return no frames: KAOS has no streams."""
    return ()


def task(record: Record, history_length: int | None) -> Json:
    """Build a task; `history_length` None sets no limit."""
    answer = _answer(record)
    history = [_message(each) for each in record.history]
    if answer and record.state not in (TaskState.SUBMITTED, TaskState.WORKING):
        history.append({"role": "agent", "parts": [encode_part(part, TAG) for part in answer]})
    if history_length is not None:
        history = history[max(0, len(history) - history_length) :]
    return {
        "id": record.head.id,
        "sessionId": record.head.context_id,
        "status": _status(record),
        "history": history,
        "contextId": record.head.context_id,
        "output": "\n".join(part.text for part in answer if part.text is not None),
        "artifacts": [encode_artifact(artifact, TAG) for artifact in record.artifacts],
        **unreadable_metadata(record),
    }


def _answer(record: Record) -> tuple[Part, ...]:
    """Return the agent's answer: the parts of its artifacts or, if it completed without any, of its status message."""
    parts = tuple(part for artifact in record.artifacts for part in artifact.parts)
    if not parts and record.state is TaskState.COMPLETED and record.status.message is not None:
        return record.status.message.parts
    return parts


def _status(record: Record) -> Json:
    status = record.status
    written: Json = {"state": STATES[status.state]}
    if saying := _saying(record):
        written["message"] = saying
    written["timestamp"] = _in_microseconds(status.timestamp)
    return written


def _saying(record: Record) -> str:
    state, said = record.state, text_of(record.status.message)
    if state is TaskState.COMPLETED:
        return SAYINGS[state]
    if state is TaskState.WORKING and not said and record.progress is not None:
        said = record.progress.message
    return said or SAYINGS.get(state, "")


def _in_microseconds(timestamp: str) -> str:
    """Convert `2026-11-20T07:00:00.123Z` to `2026-11-20T07:00:00.123000+00:00`, Python's spelling."""
    second, _, fraction = timestamp.removesuffix("Z").partition(".")
    return f"{second}.{fraction.ljust(6, '0')}+00:00"


def _message(said: Message) -> Json:
    return {"role": ROLES[said.role], "parts": [encode_part(part, TAG) for part in said.parts]}


# -- errors ------------------------------------------------------------------------------------------------------------


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer."""
    message = error.message
    if isinstance(error, MethodNotFound):
        message = f"Method not found: {error.method[:100]}"
    elif isinstance(error, ParseError):
        message = f"Parse error: {message}"
    return jsonrpc.encode_error(jsonrpc.error_code(error, jsonrpc.CODES), message, None)
