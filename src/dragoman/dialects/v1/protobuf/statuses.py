"""The status of a call that fails: a google.rpc.Status with details (A2A 1.0 §10.6).

Invariant: a status fits into the trailers that clients accept, 8 KB, whatever the error says.
"""

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.v1.errors import DOMAIN, row
from dragoman.model.errors import A2AError, AgentNotFound, InvalidParams, TooManyRequests, Unavailable

MAX_TEXT = 500
"""Most characters of a text. One character may take nine bytes in the trailer `grpc-message`."""

MAX_BYTES = 2500
"""Most bytes of a status. It is sent in base64, beside the message."""

CODES: Mapping[str, int] = dict(code_pb2.Code.items())
"""gRPC's status codes by name."""


def grpc_code(error: A2AError) -> int:
    """Return the status code of an error (A2A 1.0 §5.4)."""
    return CODES[row(error).grpc_status]


def status_text(error: A2AError) -> str:
    """Return the message of an error's status."""
    return clean(error.message)[:MAX_TEXT]


def encode_status(error: A2AError) -> bytes:
    """Encode the status: its ErrorInfo, wrong fields as BadRequest, and the time to wait as RetryInfo."""
    status = Status(code=grpc_code(error), message=status_text(error))
    metadata = {clean(name): clean(value)[:MAX_TEXT] for name, value in error.metadata.items()}
    _add(status, ErrorInfo(reason=row(error).reason, domain=DOMAIN, metadata=metadata))
    match error:
        case InvalidParams():
            _add(status, _bad_request(error.violations, MAX_BYTES - status.ByteSize()))
        case AgentNotFound():
            _add(status, _bad_request([("tenant", error.message)], MAX_BYTES - status.ByteSize()))
        case Unavailable(retry_after_s=int(seconds)) | TooManyRequests(retry_after_s=int(seconds)):
            retry = RetryInfo()
            retry.retry_delay.seconds = seconds
            _add(status, retry)
    encoded: bytes = status.SerializeToString()
    return encoded


def _add(status: Status, detail: Message) -> None:
    status.details.add().Pack(detail)


def _bad_request(violations: Iterable[tuple[str, str]], room: int) -> BadRequest:
    """The violations, as many of them as fit into so many bytes."""
    request = BadRequest()
    for field, description in violations:
        violation = BadRequest.FieldViolation(field=clean(field)[:MAX_TEXT], description=clean(description)[:MAX_TEXT])
        room -= violation.ByteSize() + 4
        if room < 0:
            break
        request.field_violations.append(violation)
    return request
