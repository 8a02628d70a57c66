"""Encodes results, events and messages for `a2a.v1.A2AService`.

Invariant: an event or record gives bytes that any parser of 0.3's proto reads. `SendMessageResponse` and
`StreamResponse` have the same numbers for a task and a message, so that one encoding serves both.
"""

from functools import partial
from typing import assert_never

import msgspec
from google.protobuf import json_format

from dragoman.dialects.api import no_frames
from dragoman.dialects.protobuf import values
from dragoman.dialects.v03.card import proto_card
from dragoman.dialects.v03.encode import (
    event_metadata,
    final,
    history_limit,
    newest,
    record_metadata,
    submitted,
)
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.protobuf.objects import CONFIG, ObjectForms
from dragoman.model.card import AgentCard
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Message
from dragoman.model.operations import Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import Record, Task, TaskHead, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate

add_event_id = partial(values.add_event_id, pb.StreamResponse)
"""Returns an item of a stream with its id (EVENT_ID)."""


class ProtoAnswers:
    """The encoders of a Dialect, for one way of writing the bytes of a file."""

    def __init__(self, forms: ObjectForms) -> None:
        self._forms = forms

    def encode_result(self, operation: Operation, result: Result) -> bytes:
        """Encode the message that answers a unary call. Raises ValueError for a list of tasks, which 0.3 lacks."""
        match result:
            case Record():
                if isinstance(operation, SendMessage):
                    return self.encode_snapshot(result, history_limit(operation))
                task = pb.Task()
                self._forms.task.write(task, _task(result, history_limit(operation)))
                return task.SerializeToString()
            case Message():
                return self.encode_message(result)
            case PushConfig():
                return _push_config(pb.TaskPushNotificationConfig(), result).SerializeToString()
            case AgentCard():
                return encode_card(result)
            case tuple():
                listed = pb.ListTaskPushNotificationConfigResponse()
                for config in result:
                    _push_config(listed.configs.add(), config)
                return listed.SerializeToString()
            case None:
                return b""
            case TaskPage():
                raise ValueError("0.3 over gRPC has no list of tasks")
            case _:
                assert_never(result)

    def encode_snapshot(self, record: Record, history_length: int | None) -> bytes:
        """Encode the task, as a stream's first message."""
        frame = pb.StreamResponse()
        self._forms.task.write(frame.task, _task(record, history_length))
        return frame.SerializeToString()

    def encode_message(self, answer: Message) -> bytes:
        """Encode the Message of an agent that answers directly."""
        frame = pb.StreamResponse()
        self._forms.message.write(frame.msg, answer)
        return frame.SerializeToString()

    def encode_event(self, head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
        """Encode the message of an event; none for the caller's own. Submitted gives the task as it was then."""
        match event:
            case Submitted():
                return (self.encode_snapshot(submitted(head, event), None),)
            case StatusChanged():
                frame = pb.StreamResponse()
                status = TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)
                update = StatusUpdate(
                    task_id=head.id, context_id=head.context_id, status=status, metadata=event_metadata(event)
                )
                self._forms.status_update.write(frame.status_update, update)
                frame.status_update.final = final(event.state)
                return (frame.SerializeToString(),)
            case ArtifactChunk():
                frame = pb.StreamResponse()
                chunk = ArtifactUpdate(
                    task_id=head.id,
                    context_id=head.context_id,
                    artifact=event.artifact,
                    append=event.append,
                    last_chunk=event.last_chunk,
                )
                self._forms.artifact_update.write(frame.artifact_update, chunk)
                return (frame.SerializeToString(),)
            case _:
                return no_frames(event)


def _task(record: Record, history_length: int | None) -> Task:
    return Task(
        id=record.head.id,
        context_id=record.head.context_id,
        status=record.status,
        artifacts=record.artifacts,
        history=newest(record.history, history_length),
        metadata=record_metadata(record),
    )


_FLOWS = ("authorizationCode", "clientCredentials", "implicit", "password")
"""The OAuth flows of 0.3's proto, which has room for one of them."""


def encode_card(card: AgentCard) -> bytes:
    """Encode the card. Only the first of several OAuth flows that 0.3's proto has is left."""
    members = msgspec.json.decode(msgspec.json.encode(proto_card(card)))
    for scheme in members.get("securitySchemes", {}).values():
        oauth = scheme.get("oauth2SecurityScheme", {})
        known = [name for name in _FLOWS if name in oauth.get("flows", {})]
        if known:
            oauth["flows"] = {known[0]: oauth["flows"][known[0]]}
    return json_format.ParseDict(members, pb.AgentCard(), ignore_unknown_fields=True).SerializeToString()


def _push_config(into: pb.TaskPushNotificationConfig, config: PushConfig) -> pb.TaskPushNotificationConfig:
    """Write a configuration as its owner set it, without credentials and secret."""
    into.name = f"tasks/{config.task_id}/pushNotificationConfigs/{config.id}"
    CONFIG.write(into.push_notification_config, config)
    if config.scheme:
        into.push_notification_config.authentication.schemes.append(config.scheme)
    return into
