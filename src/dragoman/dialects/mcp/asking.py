"""Encodes the messages of an MCP client: requests, notifications, and answers to a server's requests.

Invariant: each message is one line of JSON, as required over standard input and output.
"""

from typing import Any

import msgspec

from dragoman.dialects.mcp import names

_ENCODER = msgspec.json.Encoder()


def request(request_id: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a request. Its answer has the same id."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a notification, which gets no answer."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def initialize(request_id: int, *, version: str) -> bytes:
    """Encode the first request of a session. It declares no capability: servers may not ask for samples, forms or
    roots.

    `version` is that of this program.
    """
    return request(
        request_id,
        names.INITIALIZE,
        {
            "protocolVersion": names.LATEST,
            "capabilities": {},
            "clientInfo": {"name": "dragoman", "title": "Dragoman", "version": version},
        },
    )


def tools_list(request_id: int, cursor: str | None) -> bytes:
    """Encode a request for a page of the tools: the first one, or the one at `cursor`."""
    return request(request_id, names.TOOLS_LIST, {} if cursor is None else {"cursor": cursor})


def tools_call(request_id: int, name: str, arguments: dict[str, Any], traceparent: str | None = None) -> bytes:
    """Encode a tool call. The server may report its progress: the token is the id of the request.

    `traceparent` goes where OpenTelemetry's conventions for MCP put it.
    """
    meta: dict[str, Any] = {"progressToken": request_id}
    if traceparent is not None:
        meta["traceparent"] = traceparent
    return request(request_id, names.TOOLS_CALL, {"name": name, "arguments": arguments, "_meta": meta})


def cancelled(request_id: int, reason: str) -> bytes:
    """Encode the notification that a request's answer is no longer awaited."""
    return notification(names.CANCELLED, {"requestId": request_id, "reason": reason})


def pong(request_id: bytes) -> bytes:
    """Encode the answer to a ping; the id is the raw JSON that came."""
    return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id


def declined(request_id: bytes, method: str) -> bytes:
    """Encode the refusal of any other request; the id is the raw JSON that came."""
    error = {"code": names.METHOD_NOT_FOUND, "message": f"Method not found: {method[:100]}"}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, _ENCODER.encode(error))
