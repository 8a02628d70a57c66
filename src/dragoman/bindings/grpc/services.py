"""The A2A services that are served over gRPC, each a value over its dialect.

Invariant: a service decides nothing: it names the procedures, the dialect of their messages, and the form of a status.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dragoman.dialects.api import Dialect
from dragoman.dialects.v1 import protobuf as v1
from dragoman.model.errors import A2AError


class RpcStatus(Struct, frozen=True):
    """The status of a call that failed. `details` is a google.rpc.Status for `grpc-status-details-bin`, or empty."""

    code: int
    message: str
    details: bytes = b""


class Service(Struct, frozen=True, kw_only=True):
    """One service. `name` is its full name in the proto file.

    `procedures` are its procedures by name; each says whether it streams. A procedure's request and response are in the
    bytes of `dialect`, of the version `version`. `check_bounds` takes the procedure, the request and `max_values`, and
    raises InvalidParams for a request with more values. `status` is the form of an error. `agent_header` is the
    metadata that names the agent if the requests have no tenant.
    """

    name: str
    version: str
    dialect: Dialect
    procedures: Mapping[str, bool]
    check_bounds: Callable[[str, bytes, int], None]
    status: Callable[[A2AError], RpcStatus]
    agent_header: bytes | None = None


def _status_1(error: A2AError) -> RpcStatus:
    return RpcStatus(v1.GRPC.error_status(error), v1.status_text(error), v1.GRPC.encode_error(error))


A2A_1 = Service(
    name=v1.SERVICE,
    version="1.0",
    dialect=v1.GRPC,
    procedures={name: name in ("SendStreamingMessage", "SubscribeToTask") for name in v1.METHODS},
    check_bounds=v1.check_bounds,
    status=_status_1,
)
"""A2A 1.0 (§10)."""

SERVICES: tuple[Service, ...] = (A2A_1,)
"""All services."""
