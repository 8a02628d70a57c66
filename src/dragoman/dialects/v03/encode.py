"""Encodes results, events and webhook bodies for 0.3: every object has its `kind`, states and roles are in lowercase.

The values of a task that 0.3 has no field for (progress, usage, duration) are in `metadata`, under the URIs of our
extensions and as in 1.0.

Invariant: the fields that the official 0.3 clients require are always present: `kind`, `contextId`, `artifactId`,
`messageId`, `final`, an object as `status.message`.
"""

from collections.abc import Callable
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told, no_frames
from dragoman.dialects.client.objects import WRAPPED
from dragoman.dialects.extensions import PROGRESS, UNREADABLE, USAGE, progress_metadata, usage_metadata
from dragoman.dialects.v03.card import card
from dragoman.model.card import AgentCard
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import GetTask, ListTasks, Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead, TaskState, TaskStatus

Json = dict[str, Any]

ROLES = {Role.USER: "user", Role.AGENT: "agent"}
STATES = {state: state.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in TaskState}


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of a JSON-RPC answer."""
    match result:
        case Record():
            return msgspec.json.encode(task(result, history_limit(operation)))
        case Message():
            return encode_message(result)
        case TaskPage():
            return msgspec.json.encode(page_of(operation, result, task))
        case PushConfig():
            return msgspec.json.encode(_push_config(result))
        case AgentCard():
            return msgspec.json.encode(card(result))
        case tuple():
            return msgspec.json.encode([_push_config(config) for config in result])
        case None:
            return b"null"
        case _:
            assert_never(result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the task, as a stream's first frame."""
    return msgspec.json.encode(task(record, history_length))


def encode_message(answer: Message) -> bytes:
    """Encode the Message of an agent that answers directly."""
    return msgspec.json.encode(message(answer))


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frame of an event; none for the caller's own messages. Submitted gives the task as it was then."""
    match event:
        case Submitted():
            return (msgspec.json.encode(task(submitted(head, event), None)),)
        case StatusChanged():
            return (msgspec.json.encode(status_update(head, event)),)
        case ArtifactChunk():
            return (msgspec.json.encode(artifact_update(head, event)),)
        case _:
            return no_frames(event)


def status_update(head: TaskHead, event: StatusChanged) -> Json:
    """Build a TaskStatusUpdateEvent (A2A 0.3 §7.2.2)."""
    return {"kind": "status-update", **status_members(head, event, status_of)}


def status_members(head: TaskHead, event: StatusChanged, encode_status: Callable[[TaskStatus], Json]) -> Json:
    """Build the members of a status update, without its kind."""
    status = TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)
    return present(
        {
            "taskId": head.id,
            "contextId": head.context_id,
            "status": encode_status(status),
            "final": final(event.state),
            "metadata": event_metadata(event),
        }
    )


def artifact_update(head: TaskHead, event: ArtifactChunk) -> Json:
    """Build a TaskArtifactUpdateEvent (A2A 0.3 §7.2.3)."""
    return {"kind": "artifact-update", **chunk_members(head, event, artifact_of(event.artifact))}


def chunk_members(head: TaskHead, event: ArtifactChunk, artifact: Json) -> Json:
    """Build the members of an artifact update, without its kind."""
    return {
        "taskId": head.id,
        "contextId": head.context_id,
        "artifact": artifact,
        "append": event.append,
        "lastChunk": event.last_chunk,
    }


def task(record: Record, history_length: int | None, artifacts: bool = True) -> Json:
    """Build a Task (A2A 0.3 §6.1); `history_length` None sets no limit."""
    head = record.head
    body: Json = {"kind": "task", "id": head.id, "contextId": head.context_id, "status": status_of(record.status)}
    if artifacts and record.artifacts:
        body["artifacts"] = [artifact_of(artifact) for artifact in record.artifacts]
    return body | past(record, history_length)


def past(record: Record, history_length: int | None) -> Json:
    """Build the last members of a Task, `history` and `metadata`, without empty ones."""
    body: Json = {}
    if history := newest(record.history, history_length):
        body["history"] = [message(each) for each in history]
    if (metadata := record_metadata(record)) is not None:
        body["metadata"] = metadata
    return body


def message(said: Message) -> Json:
    """Build a Message (A2A 0.3 §6.4)."""
    body: Json = {
        "kind": "message",
        "messageId": said.message_id,
        "role": ROLES[said.role],
        "parts": [encode_part(each) for each in said.parts],
    }
    if said.context_id is not None:
        body["contextId"] = said.context_id
    if said.task_id is not None:
        body["taskId"] = said.task_id
    if said.metadata:
        body["metadata"] = said.metadata
    if said.extensions:
        body["extensions"] = said.extensions
    if said.reference_task_ids:
        body["referenceTaskIds"] = said.reference_task_ids
    return body


def present(members: Json) -> Json:
    """Drop absent members and empty lists and objects."""
    return {name: value for name, value in members.items() if not (value is None or value in ((), [], {}))}


def final(state: TaskState) -> bool:
    """Whether the status update ends a stream: the task has ended, or waits for its caller (A2A 0.3 §7.2.2)."""
    return state in TERMINAL or state in INTERRUPTED


def newest(history: tuple[Message, ...], limit: int | None) -> tuple[Message, ...]:
    """Return the newest `limit` messages, oldest first; all of them if there is no limit."""
    return history if limit is None else history[len(history) - min(limit, len(history)) :]


def history_limit(operation: Operation) -> int | None:
    """Return how much history the caller asked for."""
    return operation.history_length if isinstance(operation, SendMessage | GetTask | ListTasks) else None


def submitted(head: TaskHead, event: Submitted) -> Record:
    """Return the task as it was when it was made."""
    status = TaskStatus(state=TaskState.SUBMITTED, timestamp=event.timestamp)
    return Record(head=head, seq=1, status=status, history=(event.message,))


def plain_data(part: Part) -> tuple[Json, Json | None]:
    """Return the data and metadata of a data part. 0.3 knows only objects, so any other value is wrapped and marked.

    A part without any content, which an earlier program or a bad disk left in the store, is an empty object.
    """
    if isinstance(part.data, dict):
        return part.data, part.metadata
    if part.data is UNSET:
        return {}, part.metadata
    return {"value": part.data}, {**(part.metadata or {}), WRAPPED: True}


def push_config(config: PushConfig, *, token: bool = True) -> Json:
    """Build a PushNotificationConfig as its owner set it, without credentials and secret, which are write-only.

    Without the token, too, in dialects whose servers send that as the credential, and so never give it back.
    """
    authentication = {"schemes": [config.scheme]} if config.scheme else None
    members = {"id": config.id, "url": config.url, "token": config.token if token else None}
    return present(members | {"authentication": authentication})


def status_of(status: TaskStatus) -> Json:
    """Build a TaskStatus (A2A 0.3 §6.2)."""
    body: Json = {"state": STATES[status.state]}
    if status.message is not None:
        body["message"] = message(status.message)
    body["timestamp"] = status.timestamp
    return body


def artifact_of(artifact: Artifact) -> Json:
    """Build an Artifact (A2A 0.3 §6.7)."""
    body: Json = {"artifactId": artifact.artifact_id}
    if artifact.name is not None:
        body["name"] = artifact.name
    if artifact.description is not None:
        body["description"] = artifact.description
    body["parts"] = [encode_part(each) for each in artifact.parts]
    if artifact.metadata:
        body["metadata"] = artifact.metadata
    if artifact.extensions:
        body["extensions"] = artifact.extensions
    return body


def encode_part(part: Part, tag: str = "kind", *, wraps: bool = True) -> Json:
    """Build a Part (A2A 0.3 §6.5), whose type is in `tag`. Without `wraps` its data may be any value."""
    metadata = part.metadata
    body: Json
    if part.text is not None:
        body = {tag: "text", "text": part.text}
    elif part.raw is not None or part.url is not None:
        content: Json = {"uri": part.url} if part.raw is None else {"bytes": part.raw}
        if part.media_type:
            content["mimeType"] = part.media_type
        if part.filename:
            content["name"] = part.filename
        body = {tag: "file", "file": content}
    elif wraps or part.data is UNSET:
        data, metadata = plain_data(part)
        body = {tag: "data", "data": data}
    else:
        body = {tag: "data", "data": part.data}
    if metadata:
        body["metadata"] = metadata
    return body


def page_of(operation: Operation, page: TaskPage, encode_task: Callable[[Record, int | None, bool], Json]) -> Json:
    """Build a page of tasks, as 1.0 has it: 0.3 has no list."""
    artifacts = isinstance(operation, ListTasks) and operation.include_artifacts
    limit = history_limit(operation)
    return {
        "tasks": [encode_task(record, limit, artifacts) for record in page.records],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def _push_config(config: PushConfig) -> Json:
    return {"taskId": config.task_id, "pushNotificationConfig": push_config(config)}


# -- metadata under our extensions -------------------------------------------------------------------------------------


def record_metadata(record: Record) -> dict[str, Any] | None:
    """Build the metadata of a Task."""
    if record.unreadable:
        return {UNREADABLE: True}
    if record.usage is None and record.duration_ms is None:
        return None
    return {USAGE: usage_metadata(record.usage, record.duration_ms)}


def event_metadata(event: StatusChanged) -> dict[str, Any] | None:
    """Build the metadata of a status update."""
    metadata = dict(event.metadata or {})
    if event.progress is not None:
        metadata[PROGRESS] = progress_metadata(event.progress)
    if event.usage is not None or event.duration_ms is not None:
        metadata[USAGE] = usage_metadata(event.usage, event.duration_ms)
    return metadata or None


# -- webhooks ----------------------------------------------------------------------------------------------------------


def encode_push(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode the current task, whatever the subject: both official servers do so, over either binding."""
    return msgspec.json.encode(task(stands(), None))


FORM = PushForm(
    content_type="application/json",
    encode=encode_push,
    authorization=push.official,
    signature=push.standard_signature,
    whole=True,
)
