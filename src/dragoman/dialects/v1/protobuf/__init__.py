"""A2A 1.0 over gRPC (§10): the dialect of the server's side, and the client's side.

Message types are made from a table (`messages`), which tests compare with the official SDK. Imported only where gRPC is
used, because it needs an extra.
"""

from msgspec.structs import replace

from dragoman.dialects.protobuf.schema import streams_of
from dragoman.dialects.v1 import JSONRPC
from dragoman.dialects.v1.protobuf.client import SERVICE, TONGUE, read_status
from dragoman.dialects.v1.protobuf.decode import check_bounds, decode
from dragoman.dialects.v1.protobuf.encode import (
    add_event_id,
    encode_event,
    encode_message,
    encode_result,
    encode_snapshot,
)
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.dialects.v1.protobuf.statuses import encode_status, grpc_code, status_text

GRPC = replace(
    JSONRPC,
    key="1.0-grpc",
    content_type="application/grpc",
    decode=decode,
    encode_result=encode_result,
    encode_snapshot=encode_snapshot,
    encode_message=encode_message,
    encode_event=encode_event,
    encode_error=encode_status,
    error_status=grpc_code,
    stream_headers=(),
)
"""A2A 1.0 over gRPC: everything it encodes is a serialized message, an error a google.rpc.Status."""

PROCEDURES = streams_of(pb)
"""The procedures of the service; each says whether it streams."""

__all__ = ["GRPC", "PROCEDURES", "SERVICE", "TONGUE", "add_event_id", "check_bounds", "read_status", "status_text"]
