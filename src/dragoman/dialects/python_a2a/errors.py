"""Encodes errors for python-a2a's clients, which go by the HTTP status alone.

Invariant: every error has a status of 400 or more: the client takes an answer with status 200 for a task.
"""

import msgspec

from dragoman.dialects import rpc_errors
from dragoman.dialects.v03.errors import rest_error_status
from dragoman.model.errors import A2AError


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer by JSON-RPC."""
    data = {name: rpc_errors.clean(value) for name, value in error.metadata.items()}
    return rpc_errors.encode(rpc_errors.code(error, rpc_errors.CODES), error.message, data or None)


def encode_bare_error(error: A2AError) -> bytes:
    """Encode the answer to a bare message: a message whose content is the error, and `error`, as at `/stream`."""
    text = rpc_errors.clean(error.message)
    return msgspec.json.encode({"content": {"type": "error", "message": text}, "role": "system", "error": text})


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an error, over JSON-RPC too."""
    return rest_error_status(error)
