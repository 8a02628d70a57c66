"""The official SDK 1.x, whose types are the protobuf messages of A2A 1.0.

Invariant: a value is converted as over gRPC, so that the executor sees exactly what the SDK's own server would show it.
"""

from typing import Any

from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace

from dragoman.agents.frameworks.a2a_sdk.sdk import Sdk
from dragoman.agents.frameworks.a2a_sdk.turn import ExecutorTurn
from dragoman.dialects.protobuf.values import fill_struct
from dragoman.dialects.v1.protobuf.client import read_update
from dragoman.dialects.v1.protobuf.encode import encode_snapshot
from dragoman.dialects.v1.protobuf.objects import MESSAGE
from dragoman.model.message import Message
from dragoman.model.task import Record
from dragoman.model.updates import Update

MEMBERS = {
    "Task": "task",
    "Message": "message",
    "TaskStatusUpdateEvent": "status_update",
    "TaskArtifactUpdateEvent": "artifact_update",
}
"""The member of a StreamResponse for each type of event."""


class SdkV1(Sdk):
    """See `Sdk`."""

    replaces_tasks = False
    """A Task after the first one is ignored (ActiveTask, a2a-sdk 1.3.0)."""

    def _update(self, event: Any) -> Update | None:
        member = MEMBERS.get(type(event).__name__)
        frame = self._types.StreamResponse()
        if member is None or not isinstance(event, getattr(self._types, type(event).__name__)):
            return None
        getattr(frame, member).CopyFrom(event)
        (update,) = read_update(frame.SerializeToString())
        return update

    def card_members(self, card: Any) -> dict[str, Any]:
        """Return the members of an AgentCard by their names in JSON."""
        members: dict[str, Any] = MessageToDict(card)
        return members

    def stored_record(self, before: Record, question: Message | None, answer: Message) -> Record:
        """Return the task with the question in its status; neither it nor the answer is in the history yet."""
        return replace(before, status=replace(before.status, message=question))

    def _request(self, turn: ExecutorTurn, message: Message) -> Any:
        request = self._types.SendMessageRequest()
        MESSAGE.write(request.message, message)
        request.configuration.accepted_output_modes.extend(turn.accepted_output_modes)
        if turn.metadata is not None:
            fill_struct(request.metadata, turn.metadata)
        return request

    def _task(self, record: Record) -> Any:
        return self._types.StreamResponse.FromString(encode_snapshot(record, None)).task


SDK = SdkV1()
