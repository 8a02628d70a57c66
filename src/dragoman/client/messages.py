"""Builds a message from what the caller passes.

Invariant: every message has an id, a fresh UUID unless the caller passes one, so that a repeat can be recognised.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role

Content = str | Part | Sequence[str | Part] | Message
"""A text, a part, several of them, or a whole message."""


def message_of(
    content: Content,
    *,
    context_id: str | None = None,
    task_id: str | None = None,
    reference_task_ids: Sequence[str] = (),
    metadata: dict[str, Any] | None = None,
    message_id: str | None = None,
) -> Message:
    """Build the message for `content`. The other arguments override the fields of a whole message.

    Raises TypeError if `content` is not of that type.
    """
    if isinstance(content, Message):
        return replace(
            content,
            message_id=message_id or content.message_id or new_id(),
            context_id=context_id or content.context_id,
            task_id=task_id or content.task_id,
            reference_task_ids=tuple(reference_task_ids) or content.reference_task_ids,
            metadata=content.metadata if metadata is None else metadata,
        )
    several = content if isinstance(content, Sequence) and not isinstance(content, str | bytes) else (content,)
    return Message(
        message_id=message_id or new_id(),
        role=Role.USER,
        parts=tuple(_part(each) for each in several),
        context_id=context_id,
        task_id=task_id,
        reference_task_ids=tuple(reference_task_ids),
        metadata=metadata,
    )


def _part(said: object) -> Part:
    match said:
        case str():
            return Part(text=said)
        case Part():
            return said
        case _:
            raise TypeError(
                f"content is a str, a Part, several of them, or a Message, not {type(said).__name__}: "
                "use Part(data=…) for JSON, Part(raw=…) for bytes"
            )
