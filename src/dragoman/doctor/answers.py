"""Judges the raw bytes of answers by the letter: the JSON-RPC envelope, then the schema of what is in it.

Invariant: pure and total. An answer that is no JSON object, a refusal before the request was read, and a body that was
cut are not judged here; the checks of the endpoint and of the attempts name those.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.client import Interface
from dragoman.dialects import sse
from dragoman.dialects.cards import JSONRPC
from dragoman.doctor.observation import Attempt, Exchange, HarmlessRequest
from dragoman.doctor.protocol import SCHEMAS, V03_EVENTS
from dragoman.doctor.schema import FaultKind, SchemaFault
from dragoman.model.errors import InvalidAgentResponse

_SHAPES = {
    Attempt.SEND: "SendMessageResponse",
    Attempt.REPEAT: "SendMessageResponse",
    Attempt.SEND_TO_UNKNOWN: "SendMessageResponse",
    Attempt.BEGIN: "SendMessageResponse",
    Attempt.STREAM: "StreamResponse",
    Attempt.RESUME: "StreamResponse",
    Attempt.SUBSCRIBE: "StreamResponse",
    Attempt.SUBSCRIBE_ENDED: "StreamResponse",
    Attempt.SEND_TO_ENDED: "SendMessageResponse",
    Attempt.GET: "Task",
    Attempt.READ_AGAIN: "Task",
    Attempt.CANCEL: "Task",
    Attempt.CANCEL_ENDED: "Task",
    Attempt.AFTER_CANCEL: "Task",
    Attempt.LIST: "ListTasksResponse",
    Attempt.PAGE: "ListTasksResponse",
    Attempt.NEXT_PAGE: "ListTasksResponse",
    Attempt.WEBHOOK: "TaskPushNotificationConfig",
}
"""The shape of the result of each attempt."""

_ANY_ID = (HarmlessRequest.BROKEN_JSON, HarmlessRequest.UNKNOWN_VERSION)
"""Requests that may be refused before their id is read (JSON-RPC 2.0 §5)."""

_NAMES = frozenset({"task", "message", "statusUpdate", "artifactUpdate"})


def answer_faults(interface: Interface, asked: HarmlessRequest | Attempt, came: Exchange) -> Iterator[SchemaFault]:
    """Yield the faults of the answer to a request, or of each frame of a stream."""
    schema = SCHEMAS.get((interface.dialect, interface.binding))
    if schema is None or asked is HarmlessRequest.PREFLIGHT:
        return
    rpc = interface.binding == JSONRPC
    if not 200 <= came.status < 300:
        if interface.dialect == "1.0" and not rpc:
            yield from _status_faults(came)
        return
    for document in frames(came) if came.is_stream else [came.document]:
        if not isinstance(document, dict):
            continue
        result: Any = document
        if rpc:
            if not document.keys() & {"result", "error"}:
                if isinstance(asked, Attempt):
                    yield SchemaFault(FaultKind.ENVELOPE, "the answer", "has neither result nor error")
                continue
            yield from _envelope_faults(document, asked, came)
            result = document.get("result")
        if isinstance(asked, Attempt) and (shape := _SHAPES.get(asked)) and result is not None:
            if interface.dialect == "0.3" and rpc:
                yield from _result_faults_03(shape, result)
            elif not (interface.dialect == "0.3" and shape == "ListTasksResponse") and not _is_error(document, rpc=rpc):
                yield from schema.faults(shape, result, "result" if rpc else "body")


def _status_faults(came: Exchange) -> Iterator[SchemaFault]:
    """Yield the faults of an error over HTTP+JSON, which is a google.rpc.Status (A2A 1.0 §11.6)."""
    document = came.document
    if not isinstance(document, dict) or came.denied or came.status in (405, 429) or came.status >= 500:
        return
    error = document.get("error")
    if not isinstance(error, dict):
        yield SchemaFault(
            FaultKind.ENVELOPE, "the answer", f"has no `error`, but {', '.join(list(document)[:4]) or 'nothing'}"
        )
    elif not isinstance(error.get("code"), int):
        yield SchemaFault(FaultKind.ENVELOPE, "error.code", "is no whole number")
    elif not isinstance(error.get("message"), str):
        yield SchemaFault(FaultKind.ENVELOPE, "error.message", "is no text")


def _is_error(document: dict[str, Any], *, rpc: bool) -> bool:
    return not rpc and isinstance(document.get("error"), dict)


def _result_faults_03(shape: str, result: Any) -> Iterator[SchemaFault]:
    """Yield the faults of a result of 0.3 over JSON-RPC, where a value says its kind itself (A2A 0.3 §6, §7)."""
    schema = SCHEMAS["0.3", JSONRPC]
    if shape in ("SendMessageResponse", "StreamResponse"):
        if not isinstance(result, dict):
            yield SchemaFault(FaultKind.VALUE, "result", "is not an object")
        elif "kind" not in result and len(result) == 1 and result.keys() & _NAMES:
            yield SchemaFault(FaultKind.OTHER_VERSION, "result", f"is wrapped in `{next(iter(result))}`, as in 1.0")
        else:
            kind = result.get("kind", result.get("type"))
            likely = "Task" if "status" in result and "id" in result else "Message"
            yield from schema.faults(
                V03_EVENTS.get(kind, likely) if isinstance(kind, str) else likely, result, "result"
            )
    elif shape != "ListTasksResponse":
        yield from schema.faults(shape, result, "result")


def _envelope_faults(
    document: dict[str, Any], asked: HarmlessRequest | Attempt, came: Exchange
) -> Iterator[SchemaFault]:
    """Yield the faults of a JSON-RPC response (JSON-RPC 2.0 §5)."""
    version = document.get("jsonrpc")
    if version != "2.0":
        told = "has no `jsonrpc`" if version is None else f"has the `jsonrpc` {version!r}"
        yield SchemaFault(FaultKind.ENVELOPE, "the answer", f'{told}, not "2.0"')
    if document.get("result") is not None and document.get("error") is not None:
        yield SchemaFault(FaultKind.ENVELOPE, "the answer", "has both result and error")
    error = document.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        if not isinstance(code, int) or isinstance(code, bool):
            yield SchemaFault(FaultKind.ENVELOPE, "error.code", "is no whole number")
        elif not isinstance(error.get("message"), str):
            yield SchemaFault(FaultKind.ENVELOPE, "error.message", "is no text")
    given = came.request_id
    said = document.get("id")
    if given is None or (said is None and asked in _ANY_ID):
        return
    if said != given or type(said) is not type(given):
        told = f"is {said!r}, and that of the request is {given!r}" if "id" in document else "is missing"
        yield SchemaFault(FaultKind.ID, "id", told)


def frames(came: Exchange) -> list[Any]:
    """Return the documents of a stream's events; None for one that is no JSON."""
    parser, found = sse.Parser(), []
    try:
        for event in parser.feed(came.body):
            if event.data:
                found.append(_decoded(event.data))
    except InvalidAgentResponse:
        pass
    return found


_FIELDS = frozenset({"data", "event", "id", "retry", ""})


def stray_line(came: Exchange) -> str:
    """Return the first line of a stream that belongs to no field of an event (HTML standard §9.2.6); empty if none."""
    lines = came.text.removeprefix("\ufeff").splitlines()
    return next((line.strip() for line in lines if line and line.partition(":")[0] not in _FIELDS), "")


def stream_results(interface: Interface, came: Exchange) -> list[dict[str, Any]]:
    """Return what the events of a stream hold, without envelope and wrapper."""
    found = []
    for document in frames(came):
        inner = document.get("result") if isinstance(document, dict) and interface.binding == JSONRPC else document
        if isinstance(inner, dict):
            name = next(
                (name for name in ("task", "message", "msg", "statusUpdate", "artifactUpdate") if name in inner), ""
            )
            found.append(inner[name] if name and isinstance(inner[name], dict) else inner)
    return found


def _decoded(data: str | bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
