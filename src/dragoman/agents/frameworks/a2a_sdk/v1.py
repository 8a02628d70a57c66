"""The official SDK 1.x, whose types are the protobuf messages of A2A 1.0.

Invariant: a value is converted as over gRPC, so that the executor sees exactly what the SDK's own server would show it.
"""

import importlib
from typing import Any

from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace

from dragoman.agents.frameworks.a2a_sdk.caller import make_call_context
from dragoman.agents.frameworks.a2a_sdk.turn import Turn
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


class SdkV1:
    """Satisfies `Sdk`."""

    replaces_tasks = False
    """A Task after the first one is ignored (ActiveTask, a2a-sdk 1.3.0)."""

    def __init__(self) -> None:
        self._types = importlib.import_module("a2a.types")

    def make_context(self, turn: Turn) -> Any:
        """Make the RequestContext of a call."""
        contexts = importlib.import_module("a2a.server.agent_execution")
        return contexts.RequestContext(
            make_call_context(turn),
            request=None if turn.message is None else self._request(turn, turn.message),
            task_id=turn.task_id,
            context_id=turn.context_id,
            task=None if turn.task is None else self._task(turn.task),
            related_tasks=[self._task(record) for record in turn.related],
        )

    def read_event(self, event: Any) -> Update:
        """Read an event from the queue. Raises TypeError if it is none."""
        member = MEMBERS.get(type(event).__name__)
        frame = self._types.StreamResponse()
        if member is None or not isinstance(event, getattr(self._types, type(event).__name__)):
            raise TypeError(f"{type(event).__name__} is no event: enqueue a Task, a Message or an update of a task")
        getattr(frame, member).CopyFrom(event)
        (update,) = read_update(frame.SerializeToString())
        return update

    def is_card(self, value: object) -> bool:
        """Whether the object is an AgentCard."""
        return isinstance(value, self._types.AgentCard)

    def card_members(self, card: Any) -> dict[str, Any]:
        """Return the members of an AgentCard by their names in JSON."""
        members: dict[str, Any] = MessageToDict(card)
        return members

    def stored_record(self, before: Record, question: Message | None, answer: Message) -> Record:
        """Return the task with the question in its status; neither it nor the answer is in the history yet."""
        return replace(before, status=replace(before.status, message=question))

    def _request(self, turn: Turn, message: Message) -> Any:
        request = self._types.SendMessageRequest()
        MESSAGE.write(request.message, message)
        request.configuration.accepted_output_modes.extend(turn.accepted_output_modes)
        if turn.metadata is not None:
            fill_struct(request.metadata, turn.metadata)
        return request

    def _task(self, record: Record) -> Any:
        return self._types.StreamResponse.FromString(encode_snapshot(record, None)).task


SDK = SdkV1()
