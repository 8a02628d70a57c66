"""Encodes results, frames and webhook bodies for Evo AI: `{id, status, final}`, parts tagged `type`.

Invariant: every frame except a stream's last stays below 10,000 bytes. The browser client drops what exceeds that
before the end of the frame has come. Envelopes have the result before the id.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.dialects import jsonrpc, push
from dragoman.dialects.api import PushForm, Stands, Told, no_frames
from dragoman.dialects.evoai import errors
from dragoman.dialects.evoai.decode import API_KEY, api_key
from dragoman.dialects.extensions import unreadable_metadata
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.card import card as card_03
from dragoman.dialects.v03.encode import ROLES, final, history_limit, newest
from dragoman.dialects.vendors import encode_artifact, encode_part
from dragoman.model.card import AgentCard
from dragoman.model.errors import AgentFailed
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    Operation,
    PushConfig,
    Result,
    SendMessage,
)
from dragoman.model.task import Progress, Record, TaskHead, TaskState

Json = dict[str, Any]

STATES = v03.STATES | {TaskState.AUTH_REQUIRED: "input-required", TaskState.REJECTED: "failed"}
"""Evo AI's name of each state; it knows neither `auth-required` nor `rejected`."""

TEXT_BYTES = 7_000
"""Most bytes of text, as JSON, in a working frame; a longer text is cut to its end, which is new."""

PROGRESS_BYTES = 10_000 - TEXT_BYTES - jsonrpc.MAX_ID_BYTES - 400
"""Most bytes of a progress message. 400 covers the rest: envelope, task id, numbers, the lines of SSE."""

NO_DETAILS = "The agent gave no details"


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer; a result other than a task, webhook or card is as in 0.3."""
    match operation, result:
        case _, Record():
            dated = not isinstance(operation, SendMessage)
            return msgspec.json.encode(task(result, history_limit(operation), dated=dated))
        case CreatePushConfig(), PushConfig():
            return msgspec.json.encode(_encode_registration(result))
        case _, PushConfig():
            return msgspec.json.encode(_encode_webhook(result))
        case _, tuple():
            return msgspec.json.encode([_encode_webhook(config) for config in result])
        case DeletePushConfig(), None:
            return msgspec.json.encode({"success": True, "taskId": operation.task_id})
        case _, AgentCard():
            return msgspec.json.encode(extended_card(result))
        case _:
            return v03.encode_result(operation, result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the frame with a task's current state and its text so far."""
    match record.state:
        case TaskState.SUBMITTED:
            return _frame(record.head, {"state": "submitted"})
        case TaskState.WORKING:
            return _working(record.head, record.progress, _text(record) or _join_text(_status_parts(record)))
        case TaskState.FAILED | TaskState.REJECTED:
            return _failure(record.head, record.status.message)
        case _:
            return _last(record.head, record.state, _answer(record, files=True))


def encode_message(answer: Message) -> bytes:
    """Encode the frame of a message without a task."""
    return _member(message(answer))


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frame of an event; none for a caller's message. A chunk gives the text so far, from `record`."""
    match event:
        case Submitted():
            return (_frame(head, {"state": "submitted"}),)
        case ArtifactChunk():
            told = _text(record) if record is not None else _join_text(event.artifact.parts)
            return (_working(head, None, told),) if told else ()
        case StatusChanged():
            return (_status_frame(head, event, record),)
        case _:
            return no_frames(event)


def task(record: Record, history_length: int | None, *, dated: bool) -> Json:
    """Build a task, with its answer both in `status.message`, as documented, and in `artifacts`, as in the source.

    `dated` adds the times when it was made and changed. `history_length` None sets no limit.
    """
    status: Json = {"state": STATES[record.state]}
    if record.progress is not None and record.state is TaskState.WORKING:
        status["progress"] = _progress(record.progress)
    told = _answer(record, files=False)
    if told is not None:
        status["message"] = told
    status["timestamp"] = record.status.timestamp
    members: Json = {"id": record.head.id, "status": status, "contextId": record.head.context_id}
    if dated:
        members |= {"createdAt": record.head.created_at, "updatedAt": record.status.timestamp}
    members |= {"artifacts": [_artifact(each) for each in record.artifacts], "kind": "task"}
    history = newest(record.history, history_length)
    if history:
        members["history"] = [message(each) for each in history]
    return members | unreadable_metadata(record)


def message(said: Message) -> Json:
    """Build a message of the history."""
    members: Json = {"role": ROLES[said.role], "parts": [encode_part(each, "type") for each in said.parts]}
    if said.message_id:
        members["messageId"] = said.message_id
    if said.task_id:
        members["taskId"] = said.task_id
    if said.context_id:
        members["contextId"] = said.context_id
    members["kind"] = "message"
    if said.metadata:
        members["metadata"] = said.metadata
    return members


def _encode_registration(config: PushConfig) -> Json:
    """Build the answer to a registration: the documented members, then those of the source."""
    events = [f"task.{each}" for each in config.events]
    shown: Json = {"configured": True, "configId": config.id, "url": config.url, "events": events}
    return shown | {"success": True, "taskId": config.task_id}


def _encode_webhook(config: PushConfig) -> Json:
    """Build a webhook as in 0.3, but without its token, which is its credential."""
    return {"taskId": config.task_id, "pushNotificationConfig": v03.push_config(config, token=False)}


def _status_frame(head: TaskHead, event: StatusChanged, record: Record | None) -> bytes:
    said = event.message
    match event.state:
        case TaskState.FAILED | TaskState.REJECTED:
            return _failure(head, said)
        case TaskState.COMPLETED if record is not None:
            return _last(head, event.state, _answer(record, files=True))
        case state if final(state):
            return _last(head, state, None if said is None else _agent(said.parts))
        case _:
            told = "" if said is None or _repeats(said, event.progress) else said.text
            return _working(head, event.progress, told)


def _working(head: TaskHead, progress: Progress | None, text: str) -> bytes:
    status: Json = {"state": "working"}
    if progress is not None:
        status["progress"] = _progress(progress) | {"message": _end(progress.message, PROGRESS_BYTES)}
    if text:
        status["message"] = _agent((Part(text=_end(text, TEXT_BYTES)),))
    return _frame(head, status)


def _frame(head: TaskHead, status: Json) -> bytes:
    return _member({"id": head.id, "status": status, "final": False})


def _last(head: TaskHead, state: TaskState, told: Json | None) -> bytes:
    """Encode a stream's last frame: the task has ended, or it waits for its caller."""
    status: Json = {"state": STATES[state]}
    if told is not None:
        status["message"] = told
    return _member({"id": head.id, "status": status, "contextId": head.context_id, "final": True})


def _failure(head: TaskHead, said: Message | None) -> bytes:
    details = said.text if said is not None else ""
    return b'"error":' + errors.encode_error(AgentFailed(head.id, details or NO_DETAILS))


def _member(result: Json) -> bytes:
    return b'"result":' + msgspec.json.encode(result)


def _answer(record: Record, *, files: bool) -> Json | None:
    """Return the task's answer, None if it has none. A completed task always has an answer, even an empty one.

    All text is in one part. After it come the other parts of its status and, with `files`, those of its artifacts.
    """
    said = _status_parts(record)
    match record.state:
        case TaskState.COMPLETED:
            held = [each for artifact in record.artifacts for each in artifact.parts] if files else []
            rest = [each for each in (*said, *held) if each.text is None]
            texts = dict.fromkeys((_text(record), _join_text(said)))
            text = "\n".join(each for each in texts if each)
            return _agent((Part(text=text), *rest) if text or not rest else rest)
        case TaskState.WORKING:
            text = _text(record) or _join_text(said)
            return _agent((Part(text=text),)) if text else None
        case _:
            return _agent(said) if said else None


def _status_parts(record: Record) -> Sequence[Part]:
    """Return the parts of the status message, unless it only repeats the progress."""
    said = record.status.message
    return () if said is None or _repeats(said, record.progress) else said.parts


def _agent(parts: Sequence[Part]) -> Json:
    return {"role": "agent", "parts": [encode_part(each, "type") for each in parts]}


def _progress(progress: Progress) -> Json:
    return {"current": progress.current, "total": progress.total, "message": progress.message}


def _repeats(said: Message, progress: Progress | None) -> bool:
    """Whether a status message only repeats its progress."""
    return progress is not None and said.text == progress.message


def _text(record: Record) -> str:
    """Return the text of all artifacts so far."""
    return _join_text([each for artifact in record.artifacts for each in artifact.parts])


def _join_text(parts: Sequence[Part]) -> str:
    return "\n".join([each.text for each in parts if each.text is not None])


def _end(text: str, max_bytes: int) -> str:
    """Return as much of the end of `text` as has at most `max_bytes` as JSON."""
    end = text[-max_bytes:]
    if len(msgspec.json.encode(end)) <= max_bytes:
        return end
    starts = range(len(end) + 1)
    return end[bisect_left(starts, -max_bytes, key=lambda start: -len(msgspec.json.encode(end[start:]))) :]


def _artifact(artifact: Artifact) -> Json:
    return {"artifactId": artifact.artifact_id} | encode_artifact(artifact, "type")


# -- the card for authenticated callers --------------------------------------------------------------------------------

_NO_FILES = ("text/", "application/json")


def extended_card(of: AgentCard) -> dict[str, Any]:
    """Build the card. `extended` has the agent's id, which is the end of its URL, and its endpoint."""
    members = card_03(of)
    members.pop("signatures", None)  # they do not cover the members that follow
    url = members["url"].rstrip("/")
    members["capabilities"] |= {
        "multiTurnConversations": True,
        "fileProcessing": any(not mode.startswith(_NO_FILES) for mode in of.default_input_modes),
    }
    members["extended"] = {
        "agent_id": url.rpartition("/")[2],
        "available_endpoints": [url, f"{url}/.well-known/agent.json"],
    }
    return members


# -- webhooks ----------------------------------------------------------------------------------------------------------


def encode_push(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode the current task, as in the answer to `message/send`."""
    return msgspec.json.encode(task(stands(), None, dated=False))


def authorization(config: PushConfig) -> push.Headers:
    """Build the headers of 1.0; an API key goes into its own header."""
    if config.scheme != API_KEY or config.credentials is None:
        return push.official(config)
    token = [] if config.token is None else [(push.TOKEN, config.token)]
    return [api_key(config.credentials), *token]


FORM = PushForm(
    content_type="application/json",
    encode=encode_push,
    authorization=authorization,
    signature=push.standard_signature,
    whole=True,
    https_only=True,
)


# -- envelopes ---------------------------------------------------------------------------------------------------------


def around_answer(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a result; the id is raw JSON."""
    return b'{"jsonrpc":"2.0","result":', b',"id":' + request_id + b"}"


def around_frame(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after the member of a frame, `"result":{…}` or `"error":{…}`."""
    return b'{"jsonrpc":"2.0",', b',"id":' + request_id + b"}"


def around_error(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after an error object."""
    return b'{"jsonrpc":"2.0","error":', b',"id":' + request_id + b"}"
