"""A2A 1.0, the protocol's own dialect, over JSON-RPC (§9) and HTTP+JSON (§11).

Invariant: the model encodes straight to it. Only decoding has its own structs, because it accepts more than encoding
writes.
"""

from msgspec.structs import replace

from dragoman.dialects.api import Dialect
from dragoman.dialects.system import System
from dragoman.dialects.v1 import encode, errors
from dragoman.dialects.v1.client import TONGUE
from dragoman.dialects.v1.decode import METHODS, decode
from dragoman.dialects.v1.rest import decode_rest

JSONRPC = Dialect(
    name="1.0",
    key="1.0",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=errors.encode_rpc_error,
    error_status=errors.rpc_status,
    push=encode.FORM,
    extensions_header=b"a2a-extensions",
)
"""A2A 1.0 over JSON-RPC."""

REST = replace(
    JSONRPC,
    content_type="application/a2a+json",
    decode_rest=decode_rest,
    encode_error=errors.encode_http_error,
    error_status=errors.http_status,
)
"""A2A 1.0 over HTTP+JSON. Events look as they do over JSON-RPC, so both share the encoded events."""

SYSTEM = System(name="1.0", dialect=JSONRPC, methods=frozenset(METHODS), tongue=TONGUE)

__all__ = ["JSONRPC", "REST", "SYSTEM"]
