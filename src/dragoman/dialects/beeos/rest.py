"""BeeOS outside JSON-RPC: `GET /{id}/stream?task_id=…&since=…`, and its envelope for errors.

Invariant: frames are those of its JSON-RPC streams, so both share the encoded frames.
"""

from msgspec.structs import replace

from dragoman.dialects import beeos
from dragoman.dialects.api import RestRequest
from dragoman.dialects.beeos.errors import envelope
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.operations import Operation, Subscribe

STATUSES: dict[type[A2AError], int] = {
    errors.TaskNotFound: 404,
    errors.AgentNotFound: 404,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.AgentOffline: 503,
    errors.Unavailable: 503,
    errors.TaskTimeout: 504,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooManyRequests: 429,
    errors.PayloadTooLarge: 413,
    errors.RequestTimeout: 408,
    errors.InternalError: 500,
}
"""HTTP statuses of its REST envelope; any other error is 400."""


def decode_rest(request: RestRequest) -> Operation:
    """Decode the stream request; the binding handles `since`. Raises InvalidParams without `task_id`."""
    task_id = request.query.get("task_id")
    if not task_id:
        raise InvalidParams("task_id", "is required: the id of the task to follow")
    return Subscribe(id=task_id)


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)


REST = replace(beeos.JSONRPC, decode_rest=decode_rest, encode_error=envelope, error_status=error_status)
