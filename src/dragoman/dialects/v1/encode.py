"""Encodes results, events and webhook bodies as A2A 1.0 JSON. A webhook gets a StreamResponse (A2A 1.0 §4.3.3).

Invariant: nothing is written that is not in the 1.0 proto, because the official clients refuse unknown fields.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told, no_frames
from dragoman.dialects.extensions import (
    PARENT,
    PROGRESS,
    UNREADABLE,
    USAGE,
    parent_metadata,
    progress_metadata,
    usage_metadata,
)
from dragoman.model.card import AgentCard
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import (
    GetTask,
    ListTasks,
    Operation,
    PushConfig,
    Result,
    SendMessage,
    TaskPage,
)
from dragoman.model.task import Record, Task, TaskHead, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update

_ENCODER = msgspec.json.Encoder()


class _TaskAnswer(Struct, frozen=True):
    task: Task


class _MessageAnswer(Struct, frozen=True):
    message: Message


class ListTasksResponse(Struct, frozen=True, rename="camel"):
    """ListTasksResponse. All four fields are required, so none is left out (A2A 1.0 §3.1.4)."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class TaskStatusUpdateEvent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A change of a task's state, or of its progress (A2A 1.0 §4.2.1)."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: dict[str, Any] | None = None


class _StatusFrame(Struct, frozen=True, rename="camel"):
    status_update: TaskStatusUpdateEvent


class TaskArtifactUpdateEvent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A new artifact, or more of one: with `append` its parts follow those that came before (A2A 1.0 §4.2.2)."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


class _ArtifactFrame(Struct, frozen=True, rename="camel"):
    artifact_update: TaskArtifactUpdateEvent


class AuthenticationInfo(Struct, frozen=True):
    """How calls to a webhook authenticate (A2A 1.0 §4.3.2); credentials are write-only."""

    scheme: str


class TaskPushNotificationConfig(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """TaskPushNotificationConfig as its owner set it (A2A 1.0 §3.1.8), without credentials, which are write-only."""

    id: str
    task_id: str
    url: str
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class ListTaskPushNotificationConfigsResponse(Struct, frozen=True):
    """The webhooks of a task (A2A 1.0 §3.1.9)."""

    configs: tuple[TaskPushNotificationConfig, ...]


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of a unary call, or the body of an HTTP answer (A2A 1.0 §9.4, §11.3)."""
    match result:
        case Record():
            if isinstance(operation, SendMessage):
                return _ENCODER.encode(_TaskAnswer(_task(result, operation.history_length)))
            length = operation.history_length if isinstance(operation, GetTask) else None
            return _ENCODER.encode(_task(result, length))
        case Message():
            return encode_message(result)
        case TaskPage():
            return _task_list(operation, result)
        case AgentCard():
            return _ENCODER.encode(result)
        case PushConfig():
            return _ENCODER.encode(shown_config(result))
        case tuple():
            return _ENCODER.encode(
                ListTaskPushNotificationConfigsResponse(tuple(shown_config(config) for config in result))
            )
        case None:
            return b"{}"  # google.protobuf.Empty


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode `{"task": …}`, the answer to SendMessage and the beginning of a stream."""
    return _ENCODER.encode(_TaskAnswer(_task(record, history_length)))


def encode_message(message: Message) -> bytes:
    """Encode `{"message": …}`, the answer of an agent that makes no task."""
    return _ENCODER.encode(_MessageAnswer(message))


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frames of an event: one, or none for a caller's own further message.

    Streams begin with a snapshot. So only a stream that is resumed from before the event that made the task contains
    that event; it is written as the task at that time.
    """
    match event:
        case ArtifactChunk():
            chunk = TaskArtifactUpdateEvent(head.id, head.context_id, event.artifact, event.append, event.last_chunk)
            return (_ENCODER.encode(_ArtifactFrame(chunk)),)
        case StatusChanged():
            update = TaskStatusUpdateEvent(head.id, head.context_id, status_of(event), status_metadata(event))
            return (_ENCODER.encode(_StatusFrame(update)),)
        case Submitted():
            return (_ENCODER.encode(_TaskAnswer(submitted(head, event))),)
        case _:
            return no_frames(event)


def status_of(event: StatusChanged) -> TaskStatus:
    """Return the status that the event brought."""
    return TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)


def submitted(head: TaskHead, event: Submitted) -> Task:
    """Return the task as it was when it was made."""
    status = TaskStatus(state=TaskState.SUBMITTED, timestamp=event.timestamp)
    return Task(id=head.id, context_id=head.context_id, status=status, history=(event.message,))


def _task(record: Record, history_length: int | None, artifacts: bool = True) -> Task:
    history = record.history
    if history_length is not None:  # 0 leaves it out, n gives the newest n (A2A 1.0 §3.2.4)
        history = history[max(len(history) - history_length, 0) :]
    metadata: dict[str, Any] = {}
    if record.unreadable:
        metadata[UNREADABLE] = True
    else:
        if record.usage is not None or record.duration_ms is not None:
            metadata[USAGE] = usage_metadata(record.usage, record.duration_ms)
        if record.head.parent is not None:
            metadata[PARENT] = parent_metadata(record.head)
    return Task(
        id=record.head.id,
        context_id=record.head.context_id,
        status=record.status,
        artifacts=record.artifacts if artifacts else (),
        history=history,
        metadata=metadata or None,
    )


def _task_list(operation: Operation, page: TaskPage) -> bytes:
    length, artifacts = None, False
    if isinstance(operation, ListTasks):
        length, artifacts = operation.history_length, operation.include_artifacts
    tasks = tuple([_task(record, length, artifacts) for record in page.records])
    return _ENCODER.encode(ListTasksResponse(tasks, page.next_page_token, page.page_size, page.total_size))


def status_metadata(event: StatusChanged) -> dict[str, Any] | None:
    """Return the metadata of a status update, with progress and usage under their extensions' URIs."""
    if event.progress is None and event.usage is None and event.duration_ms is None:
        return event.metadata
    metadata = dict(event.metadata or {})
    if event.progress is not None:
        metadata[PROGRESS] = progress_metadata(event.progress)
    if event.usage is not None or event.duration_ms is not None:
        metadata[USAGE] = usage_metadata(event.usage, event.duration_ms)
    return metadata


def shown_config(config: PushConfig) -> TaskPushNotificationConfig:
    """Return a webhook as its owner set it (A2A 1.0 §3.1.8), without what is write-only."""
    authentication = AuthenticationInfo(config.scheme) if config.scheme else None
    return TaskPushNotificationConfig(config.id, config.task_id, config.url, config.token, authentication)


# -- what a client prints ----------------------------------------------------------------------------------------------


def encode_update(update: Update) -> bytes:
    """Encode an item of a stream as a StreamResponse (A2A 1.0 §3.2.3); a task or a message is a SendMessageResponse."""
    match update:
        case Task():
            return _ENCODER.encode(_TaskAnswer(update))
        case Message():
            return encode_message(update)
        case StatusUpdate():
            metadata = dict(update.metadata or {})
            if update.progress is not None:
                metadata[PROGRESS] = progress_metadata(update.progress)
            if update.usage is not None:
                metadata[USAGE] = usage_metadata(update.usage, None)
            status = TaskStatusUpdateEvent(update.task_id, update.context_id, update.status, metadata or None)
            return _ENCODER.encode(_StatusFrame(status))
        case ArtifactUpdate():
            chunk = TaskArtifactUpdateEvent(
                update.task_id, update.context_id, update.artifact, update.append, update.last_chunk
            )
            return _ENCODER.encode(_ArtifactFrame(chunk))


def encode_task_list(page: TaskList, page_size: int) -> bytes:
    """Encode a page as a ListTasksResponse. A total that the agent does not tell counts the page."""
    total = len(page.tasks) if page.total_size is None else page.total_size
    return _ENCODER.encode(ListTasksResponse(page.tasks, page.next_page_token, page_size, total))


def encode_push_configs(configs: PushConfig | tuple[PushConfig, ...]) -> bytes:
    """Encode one webhook, or a list of them (A2A 1.0 §3.1.7 to §3.1.10)."""
    if isinstance(configs, PushConfig):
        return _ENCODER.encode(shown_config(configs))
    return _ENCODER.encode(ListTaskPushNotificationConfigsResponse(tuple(shown_config(config) for config in configs)))


# -- webhooks ----------------------------------------------------------------------------------------------------------


def push_frames(
    encode_event: Callable[[TaskHead, Event, Record | None], tuple[bytes, ...]],
    encode_snapshot: Callable[[Record, int | None], bytes],
) -> Callable[[TaskHead, Told, Stands], bytes]:
    """Return the encoder of webhook bodies that are frames of a stream: `task` for the current task and its beginning,
    `statusUpdate`, or `artifactUpdate` with the whole artifact.
    """

    def encode_push(head: TaskHead, told: Told, stands: Stands) -> bytes:
        match told:
            case StatusChanged():
                (body,) = encode_event(head, told, None)
            case Artifact():
                (body,) = encode_event(head, ArtifactChunk(told, append=False, last_chunk=True), None)
            case _:
                body = encode_snapshot(stands(), None)
        return body

    return encode_push


FORM = PushForm(
    content_type="application/a2a+json",
    encode=push_frames(encode_event, encode_snapshot),
    authorization=push.official,
    signature=push.standard_signature,
)
