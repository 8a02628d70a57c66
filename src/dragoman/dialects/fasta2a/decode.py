"""Decodes FastA2A's parameters to operations with the decoders of 0.3, which take parts without a tag.

Invariant: a send is answered at once unless its client asks to wait, as FastA2A's server does: the client gives up on
an answer after five seconds, and asks for the task again.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import decode_call, send
from dragoman.dialects.v03.fields import Fields
from dragoman.model.operations import Operation, SendMessage


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if FastA2A's client has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return decode_call(method, params, _METHODS, {}, fills=False)


def _send(fields: Fields) -> SendMessage:
    configuration = fields.object("configuration")
    waits = configuration is not None and configuration.flag("blocking") is True
    return replace(send(fields, SendMessage), return_immediately=not waits)


_METHODS: dict[str, Callable[[Fields], Operation]] = {
    "message/send": _send,
    **{name: METHODS_03[name] for name in ("message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe")},
}

METHODS = frozenset(_METHODS)
"""The methods that its client sends; its task's other methods are those of 0.3."""
