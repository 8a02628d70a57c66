"""Evo AI's JSON-RPC envelopes: the result before the id.

Invariant: a frame of a stream may hold a result or an error, so whoever encodes a frame names the member too; answers
and errors are named here.
"""


def around_answer(request_id: bytes) -> tuple[bytes, bytes]:
    """What stands before and after a result; the id is raw JSON."""
    return b'{"jsonrpc":"2.0","result":', b',"id":' + request_id + b"}"


def around_frame(request_id: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the member of a frame, `"result":{…}` or `"error":{…}`."""
    return b'{"jsonrpc":"2.0",', b',"id":' + request_id + b"}"


def around_error(request_id: bytes) -> tuple[bytes, bytes]:
    """What stands before and after an error object."""
    return b'{"jsonrpc":"2.0","error":', b',"id":' + request_id + b"}"
