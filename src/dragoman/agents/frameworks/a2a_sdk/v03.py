"""The official SDK 0.3, whose types are models of Pydantic.

Invariant: a value is converted by the JSON of A2A 0.3, so that the executor sees exactly what the SDK's own server
would show it.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.agents.frameworks.a2a_sdk.sdk import Sdk
from dragoman.agents.frameworks.a2a_sdk.turn import ExecutorTurn
from dragoman.dialects.v03 import encode
from dragoman.dialects.v03.client import read_update
from dragoman.model.message import Message
from dragoman.model.task import Record
from dragoman.model.updates import Update


class SdkV03(Sdk):
    """See `Sdk`."""

    replaces_tasks = True

    def __init__(self) -> None:
        super().__init__()
        self._events = (
            self._types.Task,
            self._types.Message,
            self._types.TaskStatusUpdateEvent,
            self._types.TaskArtifactUpdateEvent,
        )

    def _update(self, event: Any) -> Update | None:
        if not isinstance(event, self._events):
            return None
        (update,) = read_update(event.model_dump_json(by_alias=True, exclude_none=True).encode())
        return update

    def card_members(self, card: Any) -> dict[str, Any]:
        """Return the members of an AgentCard by their names in JSON."""
        members: dict[str, Any] = card.model_dump(mode="json", by_alias=True, exclude_none=True)
        return members

    def stored_record(self, before: Record, question: Message | None, answer: Message) -> Record:
        """Return the task with the question and the answer at the end of its history."""
        said = (answer,) if question is None else (question, answer)
        return replace(before, history=(*before.history, *said))

    def _request(self, turn: ExecutorTurn, message: Message) -> Any:
        modes = list(turn.accepted_output_modes)
        return self._types.MessageSendParams(
            message=self._types.Message.model_validate_json(msgspec.json.encode(encode.message(message))),
            configuration=self._types.MessageSendConfiguration(accepted_output_modes=modes) if modes else None,
            metadata=turn.metadata,
        )

    def _task(self, record: Record) -> Any:
        return self._types.Task.model_validate_json(msgspec.json.encode(encode.task(record, None)))


SDK = SdkV03()
