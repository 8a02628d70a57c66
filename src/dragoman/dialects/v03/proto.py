"""Encodes results and events in 0.3's protobuf JSON, which both official 0.3 clients read over HTTP+JSON.

Invariant: every field is in the proto of A2A 0.3.0 (package `a2a.v1`), because the Python client refuses unknown ones.
So there is no `kind` and no `referenceTaskIds`; a message's parts are `content`; `TASK_STATE_CANCELLED` has two L.
"""

import base64
from collections.abc import Callable
from typing import assert_never

import msgspec

from dragoman.dialects.v03.card import proto_card
from dragoman.dialects.v03.encode import (
    Json,
    final,
    history_limit,
    newest,
    plain_data,
    present,
    push_config,
    submitted,
)
from dragoman.dialects.v03.extras import event_metadata, record_metadata
from dragoman.model.card import AgentCard
from dragoman.model.events import ArtifactChunk, Delegated, Event, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import ListTasks, Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus

STATES = {state: state.value for state in TaskState} | {TaskState.CANCELED: "TASK_STATE_CANCELLED"}

EncodeCard = Callable[[AgentCard], Json]
"""Encodes a card."""

FileBytes = Callable[[bytes], bytes]
"""Prepares the bytes of a file for base64."""


def once(raw: bytes) -> bytes:
    """Return the bytes themselves, as the proto says."""
    return raw


def twice(raw: bytes) -> bytes:
    """Return the bytes in base64. The official Python clients decode the result once more (a2a-sdk 0.3.26, 1.3.0)."""
    return base64.b64encode(raw)


class ProtoJson:
    """The encoders of a Dialect, for one way of writing file bytes and one of writing cards."""

    def __init__(self, file_bytes: FileBytes, card: EncodeCard = proto_card) -> None:
        self._file_bytes = file_bytes
        self._card = card

    def encode_result(self, operation: Operation, result: Result) -> bytes:
        """Encode the body of an answer: SendMessage's in an envelope, any other bare, an empty one as `{}`."""
        match result:
            case Record():
                task = self._task(result, history_limit(operation))
                return msgspec.json.encode({"task": task} if isinstance(operation, SendMessage) else task)
            case Message():
                return self.encode_message(result)
            case TaskPage():
                return msgspec.json.encode(self._page(operation, result))
            case PushConfig():
                return msgspec.json.encode(_push_config(result))
            case AgentCard():
                return msgspec.json.encode(self._card(result))
            case tuple():
                return msgspec.json.encode({"configs": [_push_config(config) for config in result]})
            case None:
                return b"{}"
            case _:
                assert_never(result)

    def encode_snapshot(self, record: Record, history_length: int | None) -> bytes:
        """Encode the task, as a stream's first frame."""
        return msgspec.json.encode({"task": self._task(record, history_length)})

    def encode_message(self, answer: Message) -> bytes:
        """Encode the Message of an agent that answers directly; the proto's `msg` has the JSON name `message`."""
        return msgspec.json.encode({"message": self.message(answer)})

    def encode_event(self, head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
        """Encode the frame of an event; none for the caller's own messages. Submitted gives the task as it was then."""
        match event:
            case Submitted():
                return (self.encode_snapshot(submitted(head, event), None),)
            case MessageReceived() | Delegated() | Noted():
                return ()
            case StatusChanged():
                status = TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)
                update = {
                    "taskId": head.id,
                    "contextId": head.context_id,
                    "status": self._status(status),
                    "final": final(event.state),
                    "metadata": event_metadata(event),
                }
                return (msgspec.json.encode({"statusUpdate": present(update)}),)
            case ArtifactChunk():
                chunk = {
                    "taskId": head.id,
                    "contextId": head.context_id,
                    "artifact": self._artifact(event.artifact),
                    "append": event.append,
                    "lastChunk": event.last_chunk,
                }
                return (msgspec.json.encode({"artifactUpdate": chunk}),)
            case _:
                assert_never(event)

    def _task(self, record: Record, history_length: int | None, artifacts: bool = True) -> Json:
        return present(
            {
                "id": record.head.id,
                "contextId": record.head.context_id,
                "status": self._status(record.status),
                "artifacts": [self._artifact(artifact) for artifact in record.artifacts] if artifacts else None,
                "history": [self.message(each) for each in newest(record.history, history_length)],
                "metadata": record_metadata(record),
            }
        )

    def _page(self, operation: Operation, page: TaskPage) -> Json:
        artifacts = isinstance(operation, ListTasks) and operation.include_artifacts
        limit = history_limit(operation)
        return {
            "tasks": [self._task(record, limit, artifacts) for record in page.records],
            "nextPageToken": page.next_page_token,
            "pageSize": page.page_size,
            "totalSize": page.total_size,
        }

    def _status(self, status: TaskStatus) -> Json:
        told = None if status.message is None else self.message(status.message)
        return present({"state": STATES[status.state], "message": told, "timestamp": status.timestamp})

    def message(self, said: Message) -> Json:
        """Build a Message, with its parts as `content`."""
        return present(
            {
                "messageId": said.message_id,
                "contextId": said.context_id,
                "taskId": said.task_id,
                "role": said.role.value,
                "content": [self._part(each) for each in said.parts],
                "metadata": said.metadata,
                "extensions": said.extensions,
            }
        )

    def _artifact(self, artifact: Artifact) -> Json:
        return present(
            {
                "artifactId": artifact.artifact_id,
                "name": artifact.name,
                "description": artifact.description,
                "parts": [self._part(each) for each in artifact.parts],
                "metadata": artifact.metadata,
                "extensions": artifact.extensions,
            }
        )

    def _part(self, part: Part) -> Json:
        metadata = part.metadata
        body: Json
        if part.text is not None:
            body = {"text": part.text}
        elif part.raw is not None or part.url is not None:
            content: Json = (
                {"fileWithUri": part.url} if part.raw is None else {"fileWithBytes": self._file_bytes(part.raw)}
            )
            if part.media_type:
                content["mimeType"] = part.media_type
            if part.filename:
                content["name"] = part.filename
            body = {"file": content}
        else:
            data, metadata = plain_data(part)
            body = {"data": {"data": data}}
        if metadata:
            body["metadata"] = metadata
        return body


def _push_config(config: PushConfig) -> Json:
    name = f"tasks/{config.task_id}/pushNotificationConfigs/{config.id}"
    return {"name": name, "pushNotificationConfig": push_config(config)}
