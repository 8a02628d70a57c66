"""Encodes results and stream frames for python-a2a's clients: tasks, messages, conversations, and chunks of text.

Invariant: a task that has ended, or waits for its caller, has an artifact with a part that the client can show. Without
one the client takes the endpoint for a wrong one, and sends its message elsewhere. Every error has a status of 400 or
more: the client takes an answer with status 200 for a task.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dragoman.dialects import jsonrpc
from dragoman.dialects.api import no_frames
from dragoman.dialects.extensions import unreadable_metadata
from dragoman.dialects.python_a2a.decode import STATES
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.encode import final, newest, submitted
from dragoman.dialects.vendors import encode_part, text_of
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import GetTask, Operation, Result, SendMessage
from dragoman.model.task import Record, TaskHead, TaskState

Json = dict[str, Any]

TAG = "type"
ROLES = {Role.USER: "user", Role.AGENT: "agent"}

SAYINGS = {
    TaskState.COMPLETED: "",
    TaskState.FAILED: "The agent failed",
    TaskState.REJECTED: "The agent rejected the task",
    TaskState.CANCELED: "The task was canceled",
    TaskState.INPUT_REQUIRED: "The agent needs more input",
    TaskState.AUTH_REQUIRED: "The agent needs authentication",
}
"""The text of a task that waits or has ended, if its agent says nothing."""

LATE = "The task is not done yet, and goes on: task "
"""The text of an answer to a send that comes before the task's end, with the task's id after it. A client takes the
artifacts of any task for the whole answer, so without it half a text would look like all of it."""

_BROKEN = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED})


# -- tasks -------------------------------------------------------------------------------------------------------------


def encode_task_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of a call by JSON-RPC: a task; its methods have no other."""
    if not isinstance(result, Record):
        return v03.encode_result(operation, result)
    length = operation.history_length if isinstance(operation, GetTask) else 0
    members = task(result, length)
    if isinstance(operation, SendMessage) and (late := _late(result)) is not None:
        members["artifacts"] = [*members.get("artifacts", ()), {"parts": [late]}]
    return msgspec.json.encode(members)


def encode_task(record: Record, history_length: int | None) -> bytes:
    """Encode the task as a frame."""
    return msgspec.json.encode(task(record, 0))


def encode_task_message(answer: Message) -> bytes:
    """Encode a message without a task; the library's manners never produce one."""
    return msgspec.json.encode(_message(answer.parts, Role.AGENT))


def encode_task_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frame of an event, which is the whole task; none for the caller's own messages.

    `record` is the task folded up to the event, where the dialect asks for it. Any other status comes without
    artifacts, since the client shows each frame by itself.
    """
    match event:
        case Submitted():
            return (encode_task(submitted(head, event), None),)
        case ArtifactChunk() | StatusChanged() if record is not None:
            return (encode_task(record, None),)
        case ArtifactChunk():
            return ()
        case StatusChanged():
            status = _status(event.state, event.message, event.timestamp)
            return (msgspec.json.encode({"id": head.id, "sessionId": head.context_id, "status": status}),)
        case _:
            return no_frames(event)


def task(record: Record, history_length: int | None) -> Json:
    """Build a task; `history_length` None sets no limit."""
    artifacts: list[Json] = [
        {"artifactId": each.artifact_id, **({"name": each.name} if each.name else {}), "parts": parts_of(each.parts)}
        for each in record.artifacts
    ]
    if not record.unreadable and (said := _said(record) or _stand_in(record)) is not None:
        artifacts.append({"parts": [said]})
    status = _status(record.state, record.status.message, record.status.timestamp)
    members: Json = {"id": record.head.id, "sessionId": record.head.context_id, "status": status}
    if artifacts:
        members["artifacts"] = artifacts
    if history := newest(record.history, history_length):
        members["history"] = [{"role": ROLES[each.role], "parts": parts_of(each.parts)} for each in history]
    return members | unreadable_metadata(record)


def parts_of(parts: Sequence[Part]) -> list[Json]:
    """Encode parts. Adjacent texts are one part: the client reads only the first text of an artifact."""
    written: list[Json] = []
    for part in parts:
        body = encode_part(part, TAG)
        if written and part.text is not None and not part.metadata and written[-1].keys() == {TAG, "text"}:
            written[-1]["text"] += part.text
        else:
            written.append(body)
    return written


def _said(record: Record) -> Json | None:
    """Return the part for what the task says beside its artifacts; None if there is nothing to add."""
    state, said = record.state, text_of(record.status.message)
    if not final(state) or (state is TaskState.COMPLETED and record.artifacts):
        return None
    if state in _BROKEN:
        return {TAG: "error", "message": said or SAYINGS[state]}
    return {TAG: "text", "text": said or SAYINGS[state]}


def _stand_in(record: Record) -> Json | None:
    """Return a text for artifacts of which the client shows no part, such as data and files; None if it shows one."""
    parts = [part for artifact in record.artifacts for part in artifact.parts]
    if record.state is not TaskState.COMPLETED or not parts or any(map(_shows, parts)):
        return None
    named = [part.url or part.filename or "" for part in parts if part.data is UNSET]
    data = [msgspec.json.encode(part.data).decode() for part in parts if part.data is not UNSET]
    return {TAG: "text", "text": "\n".join([*data, *filter(None, named)])}


def _shows(part: Part) -> bool:
    """Whether the client shows a part: a text, a call, its response, or an error."""
    return part.text is not None or (isinstance(part.data, dict) and _content(part.data) is not None)


def _late(record: Record) -> Json | None:
    """Return the part for a task that goes on though its sender has waited for it; None if it has ended or asks."""
    return None if final(record.state) else {TAG: "error", "message": LATE + record.head.id}


def _status(state: TaskState, said: Message | None, timestamp: str) -> Json:
    status: Json = {"state": STATES[state], "timestamp": timestamp}
    if said is not None:
        status["message"] = _message(said.parts, said.role)
    return status


# -- messages ----------------------------------------------------------------------------------------------------------


def encode_message_result(operation: Operation, result: Result) -> bytes:
    """Encode the answer to a bare message: the agent's message."""
    return msgspec.json.encode(_answer(operation, result))


def encode_conversation_result(operation: Operation, result: Result) -> bytes:
    """Encode the answer to a bare conversation: the same conversation with the agent's message at its end."""
    answer = _answer(operation, result)
    sent = (*operation.earlier, operation.message) if isinstance(operation, SendMessage) else ()
    messages = [{**_message(each.parts, each.role), "message_id": each.message_id} for each in sent]
    return msgspec.json.encode({"conversation_id": answer.get("conversation_id", ""), "messages": [*messages, answer]})


def encode_text_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the text so far; nothing if there is none, since clients show every frame."""
    if final(record.state):
        return _last_chunk(record)
    text = "".join([part.text or "" for artifact in record.artifacts for part in artifact.parts])
    return _chunk(text, append=True) if text else b""


def encode_text_message(answer: Message) -> bytes:
    """Encode a message without a task; the library's manners never produce one."""
    return _chunk(answer.text, append=True, lastChunk=True)


def encode_text_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the chunk of an event: an agent's text as it comes, and a last chunk. Other events have none."""
    match event:
        case ArtifactChunk(artifact, append, _):
            text = "".join([part.text for part in artifact.parts if part.text is not None])
            others = [encode_part(part, TAG) for part in artifact.parts if part.text is None]
            texts = (_chunk(text, append=append),) if text else ()
            return (*texts, *((_chunk({"parts": others}, append=append),) if others else ()))
        case StatusChanged() if final(event.state):
            return (_last_chunk(record, event),)
        case Submitted() | StatusChanged():
            return ()
        case _:
            return no_frames(event)


def _last_chunk(record: Record | None, event: StatusChanged | None = None) -> bytes:
    """Encode the end of a stream: what the task says beside its artifacts, and for a failure its text as `error`."""
    if record is None:
        assert event is not None
        said = {TAG: "text", "text": text_of(event.message)}
    else:
        said = _said(record) or {TAG: "text", "text": ""}
    if said[TAG] == "error":
        return _chunk(said["message"], append=True, lastChunk=True, error=said["message"])
    return _chunk(said["text"], append=True, lastChunk=True)


def _chunk(content: Any, **members: Any) -> bytes:
    return msgspec.json.encode({"content": content, **members})


def _answer(operation: Operation, result: Result) -> Json:
    """Build the agent's message: its last saying, that it is late or, if it completed, all text of its artifacts."""
    sent = operation.message if isinstance(operation, SendMessage) else None
    context_id = None if sent is None else sent.context_id
    if isinstance(result, Record):
        context_id = result.head.context_id
        said = _late(result) or _said(result)
        if said is not None and said[TAG] == "error":
            members: Json = {"content": said, "role": "agent"}
        elif said is not None:
            members = {"content": said, "role": "agent"}
        else:
            members = _message([part for artifact in result.artifacts for part in artifact.parts], Role.AGENT)
    elif isinstance(result, Message):
        members = _message(result.parts, Role.AGENT)
    else:
        members = _message((), Role.AGENT)
    ids = {"parent_message_id": None if sent is None else sent.message_id, "conversation_id": context_id}
    return members | {name: value for name, value in ids.items() if value}


def _message(parts: Sequence[Part], role: Role) -> Json:
    """Build a message, which has one content: a call or an error if a part is one, else all text."""
    for part in parts:
        if isinstance(part.data, dict) and (content := _content(part.data)) is not None:
            return {"content": content, "role": ROLES[role]}
    text = "".join([part.text for part in parts if part.text is not None])
    if not text and (data := next((part.data for part in parts if part.data is not UNSET), UNSET)) is not UNSET:
        text = msgspec.json.encode(data).decode()
    return {"content": {TAG: "text", "text": text}, "role": ROLES[role]}


def _content(data: Json) -> Json | None:
    """Return the content that the data part of a call, its response or an error stands for; None for other data."""
    for kind in ("function_call", "function_response"):
        if isinstance(held := data.get(kind), dict):
            return {TAG: kind, **held}
    return {TAG: "error", "message": data["error"]} if isinstance(data.get("error"), str) else None


# -- errors ------------------------------------------------------------------------------------------------------------


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer by JSON-RPC."""
    data = {name: jsonrpc.clean(value) for name, value in error.metadata.items()}
    return jsonrpc.encode_error(jsonrpc.error_code(error, jsonrpc.CODES), error.message, data or None)


def encode_bare_error(error: A2AError) -> bytes:
    """Encode the answer to a bare message: a message whose content is the error, and `error`, as at `/stream`."""
    text = jsonrpc.clean(error.message)
    return msgspec.json.encode({"content": {"type": "error", "message": text}, "role": "system", "error": text})
