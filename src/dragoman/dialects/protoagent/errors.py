"""Encodes errors for protoAgent outside JSON-RPC: `{"detail": …}`; inside it they are those of 0.3.

Invariant: `detail` is one sentence for the caller to read.
"""

import msgspec

from dragoman.dialects.v03.errors import rest_error_status as status_03
from dragoman.model.errors import A2AError, Forbidden, InvalidParams, Unauthorized

MISSING = "Unauthorized: expected 'Authorization: Bearer <token>'"
WRONG = "Unauthorized"


def encode_rest_error(error: A2AError) -> bytes:
    """Encode the body of an error outside an envelope."""
    return msgspec.json.encode({"detail": _detail(error).encode("utf-8", "replace").decode()})


def rest_error_status(error: A2AError) -> int:
    """Return the HTTP status of such an error: 404 for a missing task, 400 for a wrong field."""
    return 400 if isinstance(error, InvalidParams) else status_03(error)


def http_error(error: A2AError) -> bytes | None:
    """Encode the whole HTTP body of an error that is answered outside JSON-RPC; None for any other."""
    return encode_rest_error(error) if isinstance(error, Unauthorized | Forbidden) else None


def _detail(error: A2AError) -> str:
    match error:
        case Unauthorized():
            return MISSING if error.missing else WRONG
        case Forbidden() if not error.message.startswith("Forbidden"):
            return f"Forbidden: {error.message}"
        case _:
            return error.message
