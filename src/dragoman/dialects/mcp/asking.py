"""What a client of MCP says: requests, notifications, and answers to what a server asks of it.

Invariant: each message is one line of JSON, as streams over standard input and output need it.
"""

from typing import Any

import msgspec

from dragoman.dialects.mcp import names

_ENCODER = msgspec.json.Encoder()


def request(request_id: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """A request. Its answer has the same id."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A notification, which nobody answers."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def initialize(request_id: int, *, version: str) -> bytes:
    """The first request of a session. No capability is declared: servers ask for neither samples nor forms nor roots.

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
    """A page of the tools: the first, or that at `cursor`."""
    return request(request_id, names.TOOLS_LIST, {} if cursor is None else {"cursor": cursor})


def tools_call(request_id: int, name: str, arguments: dict[str, Any], traceparent: str | None = None) -> bytes:
    """A call of a tool. The server may tell of its progress: the token is the id of the request.

    `traceparent` goes where OpenTelemetry's conventions for MCP have it.
    """
    meta: dict[str, Any] = {"progressToken": request_id}
    if traceparent is not None:
        meta["traceparent"] = traceparent
    return request(request_id, names.TOOLS_CALL, {"name": name, "arguments": arguments, "_meta": meta})


def cancelled(request_id: int, reason: str) -> bytes:
    """That nobody waits any more for the answer to a request."""
    return notification(names.CANCELLED, {"requestId": request_id, "reason": reason})


def pong(request_id: bytes) -> bytes:
    """The answer to a ping; the id is the raw JSON that came."""
    return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id


def declined(request_id: bytes, method: str) -> bytes:
    """The answer to a request for anything else; the id is the raw JSON that came."""
    error = {"code": names.METHOD_NOT_FOUND, "message": f"Method not found: {method[:100]}"}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, _ENCODER.encode(error))
