"""Checks a SendMessageRequest of A2A 1.0 as an operator types it, by the decoder of the server's own calls.

Invariant: a request without faults is one that the server itself would take. Members that A2A 1.0 does not have are
faults here, though servers ignore them: they are nearly always misspelled.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.bindings.remote.values import MessageFault, MessageFaults
from dragoman.dialects import json_bounds
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.decode import decode
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.operations import SendMessage, StreamMessage

FAULTS_MAX = 20

_NESTED: dict[type[Struct], dict[str, type[Struct]]] = {
    wire.WireSend: {"message": wire.WireMessage, "configuration": wire.WireConfiguration},
    wire.WireMessage: {"parts": wire.WirePart},
    wire.WireConfiguration: {"taskPushNotificationConfig": wire.WirePushConfig},
    wire.WirePushConfig: {"authentication": wire.WireAuthentication},
}
"""The members that hold objects of A2A again, or lists of them."""


def check_message(text: str) -> MessageFaults:
    """The faults of a request, those of unknown members last."""
    body = text.encode("utf-8", "replace")
    try:
        json_bounds.check(body)
        document = msgspec.json.decode(body)
    except A2AError as error:
        return MessageFaults((MessageFault("", error.message),))
    except msgspec.DecodeError as error:
        return MessageFaults((MessageFault("", f"is not JSON: {error}"),))
    faults: list[MessageFault] = []
    try:
        decode("SendMessage", body)
    except InvalidParams as error:
        faults += [MessageFault(field, told) for field, told in error.violations]
    except A2AError as error:
        faults.append(MessageFault("", error.message))
    if isinstance(document, dict):
        _find_unknown(document, wire.WireSend, "", faults)
    return MessageFaults(tuple(faults[:FAULTS_MAX]))


def read_send(request: dict[str, Any]) -> SendMessage:
    """The message to send. Raises A2AError, which names the field below `request`."""
    operation = _read("SendMessage", request)
    assert isinstance(operation, SendMessage)
    return operation


def read_stream(request: dict[str, Any]) -> StreamMessage:
    """The message whose task is followed. Raises A2AError, which names the field below `request`."""
    operation = _read("SendStreamingMessage", request)
    assert isinstance(operation, StreamMessage)
    return operation


def _read(method: str, request: dict[str, Any]) -> object:
    try:
        return decode(method, msgspec.json.encode(request))
    except InvalidParams as error:
        named = [(f"request.{field}" if field else "request", told) for field, told in error.violations]
        raise InvalidParams(*named[0], *named[1:]) from None


def _find_unknown(value: dict[str, Any], kind: type[Struct], path: str, faults: list[MessageFault]) -> None:
    known = kind.__struct_encode_fields__
    nested = _NESTED.get(kind, {})
    for name, member in value.items():
        below = f"{path}.{name}" if path else name
        if name not in known:
            faults.append(MessageFault(below[:200], "is no member of A2A 1.0 here, and agents would ignore it"))
            continue
        inner = nested.get(name)
        if inner is None:
            continue
        if isinstance(member, dict):
            _find_unknown(member, inner, below, faults)
        elif isinstance(member, list):
            for index, each in enumerate(member):
                if isinstance(each, dict) and len(faults) < FAULTS_MAX:
                    _find_unknown(each, inner, f"{below}[{index}]", faults)
