"""Encodes results and events of A2A 1.0 as protobuf (§10).

Invariant: each value of the model has the same meaning as in 1.0's JSON. A value that protobuf cannot hold, because it
is nested too deeply, raises UnsupportedOperation.
"""

from functools import partial

import msgspec
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct

from dragoman.dialects.api import no_frames
from dragoman.dialects.extensions import PARENT, UNREADABLE, USAGE, parent_metadata, usage_metadata
from dragoman.dialects.protobuf import values
from dragoman.dialects.protobuf.fields import map_fields
from dragoman.dialects.protobuf.values import fill_struct, struct_of_numbers
from dragoman.dialects.v1.encode import (
    AuthenticationInfo,
    TaskPushNotificationConfig,
    shown_config,
    status_metadata,
    status_of,
    submitted,
)
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.dialects.v1.protobuf.objects import ARTIFACT, MESSAGE, STATUS, TASK
from dragoman.model.card import AgentCard
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Message
from dragoman.model.operations import GetTask, ListTasks, Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import Record, TaskHead, Usage

_CONFIG = map_fields(
    TaskPushNotificationConfig,
    pb.TaskPushNotificationConfig,
    forms={"authentication": map_fields(AuthenticationInfo, pb.AuthenticationInfo)},
)


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
            MESSAGE.write(answer.message, result)
            return answer.SerializeToString()
        case TaskPage():
            return _encode_page(operation, result)
        case AgentCard():
            return encode_card(result)
        case PushConfig():
            config = pb.TaskPushNotificationConfig()
            _CONFIG.write(config, shown_config(result))
            return config.SerializeToString()
        case tuple():
            listed = pb.ListTaskPushNotificationConfigsResponse()
            for each in result:
                _CONFIG.write(listed.configs.add(), shown_config(each))
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
    MESSAGE.write(frame.message, message)
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
            ARTIFACT.write(update.artifact, event.artifact)
            if event.append:
                update.append = True
            if event.last_chunk:
                update.last_chunk = True
        case StatusChanged():
            changed = frame.status_update
            changed.task_id = head.id
            changed.context_id = head.context_id
            STATUS.write(changed.status, status_of(event))
            if event.metadata is None and event.progress is None:
                if event.usage is not None or event.duration_ms is not None:
                    _fill_usage(changed.metadata, event.usage, event.duration_ms)
            elif (metadata := status_metadata(event)) is not None:
                fill_struct(changed.metadata, metadata)
        case Submitted():
            TASK.write(frame.task, submitted(head, event))
        case _:
            return no_frames(event)
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
    STATUS.write(target.status, record.status)
    if artifacts:
        for artifact in record.artifacts:
            ARTIFACT.write(target.artifacts.add(), artifact)
    history = record.history
    if history_length is not None:  # 0 leaves it out, n gives the newest n (A2A 1.0 §3.2.4)
        history = history[max(len(history) - history_length, 0) :]
    for message in history:
        MESSAGE.write(target.history.add(), message)
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
    if used.cached_tokens:
        fill_struct(target, {USAGE: usage_metadata(usage, duration_ms)})
        return
    try:
        encoded = _USED(*numbers) if duration_ms is None else _USED_IN(*numbers, duration_ms)
    except OverflowError:
        fill_struct(target, {USAGE: usage_metadata(usage, duration_ms)})
        return
    target.MergeFromString(encoded)


def encode_card(card: AgentCard) -> bytes:
    """Encode an agent card. Members that the proto file lacks are left out."""
    try:
        return ParseDict(msgspec.to_builtins(card), pb.AgentCard(), ignore_unknown_fields=True).SerializeToString()
    except ParseError:  # a card from elsewhere, with a member of a wrong type
        raise InvalidAgentResponse("the agent's card does not fit into protobuf") from None
