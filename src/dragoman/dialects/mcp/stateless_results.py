"""The server's side of MCP 2026-07-28, what is sent: results that say their type, and tasks (SEP-2663).

    task in the log                       as a task of MCP
    submitted, working                    working
    input-required                        input_required, if the client shows forms and the user has not dismissed them
    failed because the server ended it    failed, with the error that a call would have got
    canceled                              cancelled
    everything else                       completed, with the result that a call would have got

Invariant: `tasks/get` of a task says what the call would have been answered, had it waited. Every
result follows from the task's record alone.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.mcp import answers, names
from dragoman.dialects.mcp.answers import INSTRUCTIONS
from dragoman.dialects.mcp.questions import QuestionForm
from dragoman.model.ids import timestamp_ms
from dragoman.model.task import Record, TaskState

POLL_MS = 1000
"""How often a client should ask how a task stands."""

FAULTS = frozenset({"interrupted", "deadline_exceeded", "replay_mismatch", "steps_version_absent"})
"""Reasons for programs of a task that the server ended. An agent that raises has failed, which is a result."""

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "logging": {},
    "extensions": {names.TASKS: {}},
}

_ENCODER = msgspec.json.Encoder()


class ResultEncoder:
    """Encodes results in the name of this program. `version` is the program's.

    `fresh_s` is how long a client may keep what it was told of the tools. A task that has ended is kept for
    `retention`, one that waits for its caller for `waiting_retention`; None: forever.
    """

    def __init__(
        self, version: str, *, fresh_s: int, retention: timedelta | None, waiting_retention: timedelta | None
    ) -> None:
        self._server = {"name": "dragoman", "title": "Dragoman", "version": version}
        self._ends = {kind: self._end_of(kind) for kind in (names.COMPLETE, names.INPUT_REQUIRED, names.TASK)}
        self._fresh_ms = fresh_s * 1000
        self._retention = retention
        self._waiting_retention = waiting_retention

    def encode(self, told: Mapping[str, Any], kind: str = names.COMPLETE) -> bytes:
        """Encode a result of that type."""
        if "_meta" in told:
            meta = {**told["_meta"], names.META_SERVER: self._server}
            return _ENCODER.encode({**told, "resultType": kind, "_meta": meta})
        encoded = _ENCODER.encode(told)
        return (encoded[:-1] + b"," if told else b"{") + self._ends[kind]

    def _end_of(self, kind: str) -> bytes:
        """The members that every result of that type ends with, and the brace that closes it."""
        return _ENCODER.encode({"resultType": kind, "_meta": {names.META_SERVER: self._server}})[1:]

    def encode_discovery(self) -> bytes:
        """Encode the result of `server/discover`."""
        return self.encode(
            {
                "supportedVersions": names.SPOKEN,
                "capabilities": CAPABILITIES,
                "instructions": INSTRUCTIONS,
                "ttlMs": self._fresh_ms,
                "cacheScope": "public",
            }
        )

    def encode_page(self, page: Mapping[str, Any]) -> bytes:
        """Encode the result of `tools/list`. It depends on the caller."""
        return self.encode({**page, "ttlMs": self._fresh_ms, "cacheScope": "private"})

    def encode_forms(self, forms: Mapping[str, QuestionForm], state: str) -> bytes:
        """Encode the result of a call that cannot go on before forms are filled in, by their keys."""
        return self.encode({"inputRequests": _requests(forms), "requestState": state}, names.INPUT_REQUIRED)

    def encode_handle(self, record: Record, task_id: str) -> bytes:
        """Encode the result of a call that has become a task, under the id that its client is told."""
        status = "working" if not record.terminal else self._status(record, waits=False)
        return self.encode(self._describe(record, task_id, status), names.TASK)

    def encode_task(self, record: Record, task_id: str, forms: Mapping[str, QuestionForm] | None) -> bytes:
        """Encode the result of `tasks/get`. `forms` are those that are still to be filled in, by their keys.

        With None the task is told as if it did not wait: its call has ended with the question.
        """
        status = self._status(record, waits=forms is not None)
        told = self._describe(record, task_id, status)
        match status:
            case "input_required":
                told["inputRequests"] = _requests(forms or {})
            case "completed":
                told["result"] = {**answers.build_result(record, names.STATELESS), "resultType": names.COMPLETE}
            case "failed":
                told["error"] = build_fault(record)
            case _:
                pass
        return self.encode(told)

    def _status(self, record: Record, *, waits: bool) -> str:
        match record.state:
            case TaskState.SUBMITTED | TaskState.WORKING:
                return "working"
            case TaskState.INPUT_REQUIRED if waits:
                return "input_required"
            case TaskState.CANCELED:
                return "cancelled"
            case _:
                return "failed" if is_fault(record) else "completed"

    def _describe(self, record: Record, task_id: str, status: str) -> dict[str, Any]:
        told = {
            "taskId": task_id,
            "status": status,
            "createdAt": record.head.created_at,
            "lastUpdatedAt": record.status.timestamp,
            "ttlMs": self._ttl_ms(record),
            "pollIntervalMs": POLL_MS,
        }
        if said := _status_words(record):
            told["statusMessage"] = said
        return told

    def _ttl_ms(self, record: Record) -> int | None:
        """How long the task is kept, counted from when it was made; None: forever. A task at work is kept longer."""
        kept = self._waiting_retention if record.state is TaskState.INPUT_REQUIRED else self._retention
        if kept is None:
            return None
        aged_ms = timestamp_ms(record.status.timestamp) - timestamp_ms(record.head.created_at)
        return max(1, aged_ms + int(kept / timedelta(milliseconds=1)))


def is_fault(record: Record) -> bool:
    """Whether the task failed because the server ended it, which is an error and not a result."""
    message = record.status.message
    if record.state is not TaskState.FAILED or message is None:
        return False
    return (message.metadata or {}).get("reason") in FAULTS


def build_fault(record: Record) -> dict[str, Any]:
    """Build the error of a call whose task the server ended."""
    said = "" if record.status.message is None else answers.text_of(record.status.message.parts)
    return {
        "code": names.INTERNAL_ERROR,
        "message": clean(said) or "The server ended the task",
        "data": {"task_id": record.head.id, "context_id": record.head.context_id},
    }


def _requests(forms: Mapping[str, QuestionForm]) -> dict[str, Any]:
    return {key: form.request for key, form in forms.items()}


def _status_words(record: Record) -> str:
    if record.progress is not None and record.progress.message and not record.terminal:
        return clean(record.progress.message)
    message = record.status.message
    if message is None or record.state is TaskState.COMPLETED:
        return ""
    return clean(message.text)
