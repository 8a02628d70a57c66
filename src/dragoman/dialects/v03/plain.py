"""Decodes sends of plain text, which most are, straight into structs, at a fifth of the cost of walking `Fields`.

Invariant: the result is the operation that the walk would return, or None, and then the walk must decode the params or
report what is wrong.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from dragoman.dialects.v03.fields import MAX_ID, Fields, read
from dragoman.model.errors import MethodNotFound
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Operation, SendMessage

S = TypeVar("S", bound=SendMessage)


class _Part(Struct, forbid_unknown_fields=True):
    text: str
    kind: Literal["text"] | None = None
    type: Literal["text"] | None = None
    metadata: dict[str, Any] | None = None


class _Message(Struct, forbid_unknown_fields=True, rename="camel"):
    role: Literal["user"]
    parts: list[_Part]
    message_id: str = ""
    kind: Any = None
    context_id: str | None = None
    task_id: str | None = None


class _Configuration(Struct, forbid_unknown_fields=True, rename="camel"):
    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class _Params(Struct, forbid_unknown_fields=True, rename="camel"):
    message: _Message
    context_id: str | None = None
    configuration: _Configuration | None = None
    metadata: dict[str, Any] | None = None


_PARAMS = msgspec.json.Decoder(_Params)
_PLAIN = _Configuration()


def decode(
    method: str,
    params: bytes,
    methods: Mapping[str, Callable[[Fields], Operation]],
    sends: Mapping[str, type[SendMessage]],
    *,
    fills: bool,
) -> Operation:
    """Decode a call by a dialect's table of `methods`; those in `sends` may be plain. `fills` is as in `send`.

    Raises MethodNotFound for a method that is not in the table, and whatever its decoder raises.
    """
    kind = sends.get(method)
    if kind is not None and (sent := send(params, kind, fills=fills)) is not None:
        return sent
    operation = methods.get(method)
    if operation is None:
        raise MethodNotFound(method)
    return operation(read(params))


def send(params: bytes, kind: type[S], *, fills: bool) -> S | None:
    """Decode the params if they are a plain send, else return None. With `fills` a missing message id is made up."""
    try:
        given = _PARAMS.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    said, configuration, metadata = given.message, given.configuration or _PLAIN, given.metadata
    message_id, context_id = said.message_id, said.context_id or given.context_id
    if not message_id and fills:
        message_id = fresh_id()
    if not (message_id and said.parts and _short(message_id) and _short(context_id) and _short(given.context_id)):
        return None
    if metadata is not None and not metadata:
        return None  # each dialect decides whether that means absent or an empty object
    skill = None if metadata is None else metadata.get("skill")
    return kind(
        message=Message(
            message_id=message_id,
            role=Role.USER,
            parts=tuple([Part(text=part.text, metadata=part.metadata) for part in said.parts]),
            context_id=context_id or None,
            task_id=said.task_id or None,
        ),
        return_immediately=configuration.blocking is False,
        accepted_output_modes=configuration.accepted_output_modes,
        metadata=metadata,
        skill=skill if isinstance(skill, str) and skill else None,
        skills=configuration.skills,
    )


def fresh_id() -> str:
    """Return an id for a message that has none.

    It is not a UUID, so that nothing takes it for a promise that a repeated call has the same one.
    """
    return f"msg-{new_id()}"


def _short(chosen: str | None) -> bool:
    return chosen is None or (len(chosen) <= MAX_ID and "\0" not in chosen)
