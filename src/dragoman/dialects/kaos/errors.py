"""Encodes errors for KAOS.

Invariant: `data` is always present and always null. An error without a code in KAOS has A2A's code; the two agree.
"""

from dragoman.dialects import rpc_errors
from dragoman.model.errors import A2AError, MethodNotFound, ParseError


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer."""
    message = error.message
    if isinstance(error, MethodNotFound):
        message = f"Method not found: {error.method[:100]}"
    elif isinstance(error, ParseError):
        message = f"Parse error: {message}"
    return rpc_errors.encode(rpc_errors.code(error, rpc_errors.CODES), message, None)


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an answer: 200 for errors of a call."""
    return rpc_errors.status(error)
