"""Encodes results for BeeOS: flat tasks, states in lowercase, time stamps in whole seconds.

Invariant: `id`, `status`, `artifacts` come first, as in BeeOS's text; `contextId`, `kind` and each artifact's
`artifactId` come after, for clients of 0.3.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.encode import ROLES, STATES
from dragoman.dialects.vendors import encode_artifact, encode_part, text_of
from dragoman.model.message import Message
from dragoman.model.operations import ListTasks, Operation, PushConfig, Result, TaskPage
from dragoman.model.task import Progress, Record, TaskState, TaskStatus

Json = dict[str, Any]

TAG = "kind"
"""The member that names a part's type."""


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer; a result other than a task, list or webhook is as in 0.3."""
    match result:
        case Record():
            return msgspec.json.encode(task(result))
        case TaskPage():
            return msgspec.json.encode(_page(operation, result))
        case PushConfig():
            return msgspec.json.encode(_webhook(result))
        case tuple():
            return msgspec.json.encode([_webhook(config) for config in result])
        case _:
            return v03.encode_result(operation, result)


def task(record: Record) -> Json:
    """Build a task."""
    return {
        "id": record.head.id,
        "status": status_of(record.status, record.progress),
        "artifacts": [encode_artifact(artifact, TAG) for artifact in record.artifacts],
        "contextId": record.head.context_id,
        "kind": "task",
    }


def status_of(status: TaskStatus, progress: Progress | None) -> Json:
    """Build a task's status."""
    written: Json = {"state": STATES[status.state], "timestamp": _to_the_second(status.timestamp)}
    if text := status_text(status.state, status.message, progress):
        written["message"] = text
    return written


def message(said: Message) -> Json:
    """Build a message."""
    written = {"role": ROLES[said.role], "parts": [encode_part(part, TAG) for part in said.parts]}
    return written | {"messageId": said.message_id, "contextId": said.context_id, "kind": "message"}


def status_text(state: TaskState, said: Message | None, progress: Progress | None) -> str:
    """Return `status.message`, a plain string; for a working task without a message, its progress."""
    text = text_of(said)
    if text or progress is None or state is not TaskState.WORKING:
        return text
    return progress.message or f"Step {progress.current} of {progress.total}"


def _to_the_second(timestamp: str) -> str:
    """Convert `2026-11-20T07:00:00.123Z` to `2026-11-20T07:00:00Z`."""
    return timestamp.partition(".")[0].removesuffix("Z") + "Z"


def _webhook(config: PushConfig) -> Json:
    """Build a webhook without token and secret; `has_secret` says whether it has one."""
    shown = v03.push_config(replace(config, token=None)) | {"has_secret": config.secret is not None}
    if config.events:
        shown["events"] = config.events
    return {"taskId": config.task_id, "pushNotificationConfig": shown}


def _page(operation: Operation, page: TaskPage) -> Json:
    """Build a page. The `limit` of a cut page is its length, so the next one begins at `offset` plus `limit`."""
    return {
        "tasks": [task(record) for record in page.records],
        "total": page.total_size,
        "limit": len(page.records) if page.cut else page.page_size,
        "offset": operation.offset if isinstance(operation, ListTasks) else 0,
    }
