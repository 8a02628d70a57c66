"""KAOS: a task runs to its end within the call and is answered flat, with its history. It has no streams and no push.

Invariant: an answer has every key that KAOS's text shows, in its order; our own keys follow.
"""

from dragoman.dialects.api import Dialect
from dragoman.dialects.kaos import decode, encode, errors
from dragoman.model.operations import Manners

METHODS = frozenset(decode.METHODS)
"""Every method name of KAOS, including aliases."""

JSONRPC = Dialect(
    name="kaos",
    key="kaos",
    content_type="application/json",
    decode=decode.decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=errors.encode_error,
    error_status=errors.error_status,
    manners=Manners(answers_with_message=False, cancels_ended=True),
    extensions_header=b"a2a-extensions",
)

__all__ = ["JSONRPC", "METHODS"]
