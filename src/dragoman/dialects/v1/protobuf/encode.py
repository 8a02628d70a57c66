"""Encodes results and events of A2A 1.0 as protobuf (§10).

Invariant: each value of the model has the same meaning as in 1.0's JSON. A value that protobuf cannot hold, because it
is nested too deeply, raises UnsupportedOperation.
"""

from functools import partial
from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct
from msgspec import UNSET

from dragoman.dialects.extensions import PARENT, UNREADABLE, USAGE, parent_metadata, usage_metadata
from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.protobuf import values
from dragoman.dialects.protobuf.values import fill_struct, fill_timestamp, fill_value, struct_of_numbers
from dragoman.dialects.v1.encode import status_metadata
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.model.card import AgentCard
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    MessageReceived,
    Noted,
    StatusChanged,
    Submitted,
)
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import GetTask, ListTasks, Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus, Usage

ROLES: dict[Role, Any] = {role: pb.Role.Value(role) for role in Role}
STATES: dict[TaskState, Any] = {state: pb.TaskState.Value(state) for state in TaskState}


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the response of a unary call (A2A 1.0 §10.3)."""
    match result:
        case Record():
            if isinstance(operation, SendMessage):
                answer = pb.SendMessageResponse()
                _fill_task(answer.task, result, operation.history_length)
                return answer.SerializeToString()
            task = pb.Task()
            _fill_task(task, result, operation.history_length if isinstance(operation, GetTask) else None)
            return task.SerializeToString()
        case Message():
            answer = pb.SendMessageResponse()
            fill_message(answer.message, result)
            return answer.SerializeToString()
        case TaskPage():
            return _encode_page(operation, result)
        case AgentCard():
            return encode_card(result)
        case PushConfig():
            config = pb.TaskPushNotificationConfig()
            _fill_push_config(config, result)
            return config.SerializeToString()
        case tuple():
            listed = pb.ListTaskPushNotificationConfigsResponse()
            for each in result:
                _fill_push_config(listed.configs.add(), each)
            return listed.SerializeToString()
        case None:
            return b""  # google.protobuf.Empty


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the task at the beginning of a stream, a StreamResponse."""
    frame = pb.StreamResponse()
    _fill_task(frame.task, record, history_length)
    return frame.SerializeToString()


def encode_message(message: Message) -> bytes:
    """Encode the only item of a direct agent's stream, a StreamResponse."""
    frame = pb.StreamResponse()
    fill_message(frame.message, message)
    return frame.SerializeToString()


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the StreamResponse of an event: one, or none for a caller's own further message.

    As over JSON-RPC, the event that made the task is written as the task at that time.
    """
    frame = pb.StreamResponse()
    match event:
        case ArtifactChunk():
            update = frame.artifact_update
            update.task_id = head.id
            update.context_id = head.context_id
            _fill_artifact(update.artifact, event.artifact)
            if event.append:
                update.append = True
            if event.last_chunk:
                update.last_chunk = True
        case StatusChanged():
            changed = frame.status_update
            changed.task_id = head.id
            changed.context_id = head.context_id
            changed.status.state = STATES[event.state]
            if event.message is not None:
                fill_message(changed.status.message, event.message)
            fill_timestamp(changed.status.timestamp, event.timestamp)
            if event.metadata is None and event.progress is None:
                if event.usage is not None or event.duration_ms is not None:
                    _fill_usage(changed.metadata, event.usage, event.duration_ms)
            elif (metadata := status_metadata(event)) is not None:
                fill_struct(changed.metadata, metadata)
        case MessageReceived() | Delegated() | Noted() | Intervened():
            return ()
        case Submitted():
            frame.task.id = head.id
            frame.task.context_id = head.context_id
            frame.task.status.state = pb.TASK_STATE_SUBMITTED
            fill_timestamp(frame.task.status.timestamp, event.timestamp)
            fill_message(frame.task.history.add(), event.message)
    return (frame.SerializeToString(),)


add_event_id = partial(values.add_event_id, pb.StreamResponse)
"""Returns an item of a stream with its id (EVENT_ID)."""


def _encode_page(operation: Operation, page: TaskPage) -> bytes:
    length, artifacts = None, False
    if isinstance(operation, ListTasks):
        length, artifacts = operation.history_length, operation.include_artifacts
    listed = pb.ListTasksResponse(
        next_page_token=page.next_page_token, page_size=page.page_size, total_size=page.total_size
    )
    for record in page.records:
        _fill_task(listed.tasks.add(), record, length, artifacts=artifacts)
    return listed.SerializeToString()


def _fill_task(target: pb.Task, record: Record, history_length: int | None, *, artifacts: bool = True) -> None:
    head = record.head
    target.id = head.id
    target.context_id = head.context_id
    _fill_status(target.status, record.status)
    if artifacts:
        for artifact in record.artifacts:
            _fill_artifact(target.artifacts.add(), artifact)
    history = record.history
    if history_length is not None:  # 0 leaves it out, n gives the newest n (A2A 1.0 §3.2.4)
        history = history[max(len(history) - history_length, 0) :]
    for message in history:
        fill_message(target.history.add(), message)
    if record.unreadable:
        fill_struct(target.metadata, {UNREADABLE: True})
        return
    if record.usage is not None or record.duration_ms is not None:
        _fill_usage(target.metadata, record.usage, record.duration_ms)
    if head.parent is not None:
        fill_struct(target.metadata, {PARENT: parent_metadata(head)})


_USED = struct_of_numbers(USAGE, tuple(usage_metadata(None, None)))
_USED_IN = struct_of_numbers(USAGE, tuple(usage_metadata(None, 0)))


def _fill_usage(target: Struct, usage: Usage | None, duration_ms: int | None) -> None:
    """Write what almost every task has, a third of its bytes, and without this a third of the time of a GetTask."""
    used = usage or Usage()
    numbers = used.input_tokens, used.output_tokens, used.total_tokens
    try:
        encoded = _USED(*numbers) if duration_ms is None else _USED_IN(*numbers, duration_ms)
    except OverflowError:
        fill_struct(target, {USAGE: usage_metadata(usage, duration_ms)})
        return
    target.MergeFromString(encoded)


def _fill_status(target: pb.TaskStatus, status: TaskStatus) -> None:
    target.state = STATES[status.state]
    if status.message is not None:
        fill_message(target.message, status.message)
    fill_timestamp(target.timestamp, status.timestamp)


def fill_message(target: pb.Message, message: Message) -> None:
    """Write a message. Raises UnsupportedOperation for data that is nested too deeply."""
    target.message_id = message.message_id
    target.role = ROLES[message.role]
    for part in message.parts:
        _fill_part(target.parts.add(), part)
    if message.context_id is not None:
        target.context_id = message.context_id
    if message.task_id is not None:
        target.task_id = message.task_id
    if message.metadata is not None:
        fill_struct(target.metadata, message.metadata)
    if message.extensions:
        target.extensions.extend(message.extensions)
    if message.reference_task_ids:
        target.reference_task_ids.extend(message.reference_task_ids)


def _fill_artifact(target: pb.Artifact, artifact: Artifact) -> None:
    target.artifact_id = artifact.artifact_id
    for part in artifact.parts:
        _fill_part(target.parts.add(), part)
    if artifact.name is not None:
        target.name = artifact.name
    if artifact.description is not None:
        target.description = artifact.description
    if artifact.metadata is not None:
        fill_struct(target.metadata, artifact.metadata)
    if artifact.extensions:
        target.extensions.extend(artifact.extensions)


def _fill_part(target: pb.Part, part: Part) -> None:
    if part.text is not None:
        target.text = part.text if part.text.isascii() else clean(part.text)
    elif part.raw is not None:
        target.raw = part.raw
    elif part.url is not None:
        target.url = part.url
    elif part.data is not UNSET:
        fill_value(target.data, part.data)
    if part.filename is not None:
        target.filename = part.filename
    if part.media_type is not None:
        target.media_type = part.media_type
    if part.metadata is not None:
        fill_struct(target.metadata, part.metadata)


def _fill_push_config(target: pb.TaskPushNotificationConfig, config: PushConfig) -> None:
    """Write a webhook as its owner set it (A2A 1.0 §3.1.8), without credentials, which are write-only."""
    target.id = config.id
    target.task_id = config.task_id
    target.url = config.url
    if config.token is not None:
        target.token = config.token
    if config.scheme:
        target.authentication.scheme = config.scheme


def encode_card(card: AgentCard) -> bytes:
    """Encode an agent card. Members that the proto file lacks are left out."""
    try:
        return ParseDict(msgspec.to_builtins(card), pb.AgentCard(), ignore_unknown_fields=True).SerializeToString()
    except ParseError:  # a card from elsewhere, with a member of a wrong type
        raise InvalidAgentResponse("the agent's card does not fit into protobuf") from None
