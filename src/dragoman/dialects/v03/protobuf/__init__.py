"""A2A 0.3 in protobuf: the service `a2a.v1.A2AService`, on both sides.

The values are shaped like those of the JSON bindings. A method is that of the service, and what is JSON there is a
message in bytes here: a result is a whole response, an event a `StreamResponse`, an error a google.rpc.Status.

Invariant: nothing outside imports this package unless gRPC is used: it needs the extra `grpc`.
"""

from msgspec.structs import replace

from dragoman.dialects import v03
from dragoman.dialects.api import Dialect, Tongue, no_error
from dragoman.dialects.protobuf.schema import streams_of
from dragoman.dialects.v03.client import TONGUE as JSON_TONGUE
from dragoman.dialects.v03.protobuf.answers import ProtoAnswers, add_event_id, encode_card
from dragoman.dialects.v03.protobuf.client import SERVICE, Reader, caller
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.protobuf.objects import BASE64, RAW
from dragoman.dialects.v03.protobuf.requests import check_bounds, decoder
from dragoman.dialects.v03.protobuf.statuses import encode_status, grpc_code, read_status, status_text

_RAW = ProtoAnswers(RAW)
_BASE64 = ProtoAnswers(BASE64)

GRPC = replace(
    v03.JSONRPC,
    key="0.3-grpc",
    content_type="application/grpc",
    decode=decoder(RAW),
    encode_result=_RAW.encode_result,
    encode_snapshot=_RAW.encode_snapshot,
    encode_message=_RAW.encode_message,
    encode_event=_RAW.encode_event,
    encode_error=encode_status,
    error_status=grpc_code,
    stream_headers=(),
    manners=replace(v03.JSONRPC.manners, webhook="configuration.push_notification"),
)
"""The service as the proto has it."""

GRPC_BASE64 = replace(
    GRPC,
    key="0.3-grpc-base64",
    decode=decoder(BASE64),
    encode_result=_BASE64.encode_result,
    encode_snapshot=_BASE64.encode_snapshot,
    encode_message=_BASE64.encode_message,
    encode_event=_BASE64.encode_event,
)
"""For the official Python clients, which put base64 into the bytes of a file and cannot read anything else."""

_READS, _READS_BASE64 = Reader(RAW), Reader(BASE64)

TONGUE = replace(
    JSON_TONGUE,
    rpc=None,
    rest=None,
    grpc=caller(RAW),
    read_answer=_READS.read_answer,
    read_update=_READS.read_update,
    read_error=no_error,
    read_status=read_status,
    lists=False,
)
"""The client's side."""

TONGUE_BASE64 = replace(
    TONGUE, grpc=caller(BASE64), read_answer=_READS_BASE64.read_answer, read_update=_READS_BASE64.read_update
)
"""For the official Python servers, which put base64 into the bytes of a file (a2a-sdk 0.3.26, 1.3.0)."""

PROCEDURES = streams_of(pb)
"""The procedures of the service; each says whether it streams."""


def dialect_for(user_agent: str) -> Dialect:
    """Return the dialect of a caller. The official Python clients use gRPC's asyncio without a name of their own."""
    return GRPC_BASE64 if user_agent.startswith("grpc-python-asyncio/") else GRPC


__all__ = [
    "GRPC",
    "GRPC_BASE64",
    "PROCEDURES",
    "SERVICE",
    "TONGUE",
    "TONGUE_BASE64",
    "Dialect",
    "Tongue",
    "add_event_id",
    "check_bounds",
    "dialect_for",
    "encode_card",
    "status_text",
]
