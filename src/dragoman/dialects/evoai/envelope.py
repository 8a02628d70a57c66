"""Evo AI's JSON-RPC envelopes, with the result before the id.

Invariant: a stream frame may hold a result or an error, so the encoder of a frame also writes the member's name; for
answers and errors the name is written here.
"""


def around_answer(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a result; the id is raw JSON."""
    return b'{"jsonrpc":"2.0","result":', b',"id":' + request_id + b"}"


def around_frame(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after the member of a frame, `"result":{…}` or `"error":{…}`."""
    return b'{"jsonrpc":"2.0",', b',"id":' + request_id + b"}"


def around_error(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after an error object."""
    return b'{"jsonrpc":"2.0","error":', b',"id":' + request_id + b"}"
