"""The A2A services that are served over gRPC, each a value over its dialect.

Invariant: a service decides nothing: it names the procedures, the dialect of their messages, and the form of a status.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dragoman.dialects.api import Dialect, GrpcStatus
from dragoman.dialects.v03 import protobuf as v03
from dragoman.dialects.v1 import protobuf as v1
from dragoman.model.errors import A2AError


class Service(Struct, frozen=True, kw_only=True):
    """One service. `name` is its full name in the proto file.

    `procedures` are its procedures by name; each says whether it streams. A procedure's request and response are in the
    bytes of the dialect that `dialect_for` gives for the caller's user agent; `version` is its version. `check_bounds`
    takes the procedure, the request and `max_values`, and raises InvalidParams for a request with more values. `status`
    is the form of an error. `agent_header` is the metadata that names the agent if the requests have no tenant.
    `add_event_id` returns an item of a stream with its id, for callers who declare EVENT_ID.
    """

    name: str
    version: str
    dialect_for: Callable[[str], Dialect]
    procedures: Mapping[str, bool]
    check_bounds: Callable[[str, bytes, int], None]
    status: Callable[[A2AError], GrpcStatus]
    agent_header: bytes | None = None
    add_event_id: Callable[[bytes, str], bytes] | None = None


AGENT_HEADER = b"x-dragoman-agent"
"""The metadata that names the agent in 0.3, whose requests have no tenant."""


def _dialect_1(user_agent: str) -> Dialect:
    return v1.GRPC


def _status_1(error: A2AError) -> GrpcStatus:
    return GrpcStatus(v1.GRPC.error_status(error), v1.status_text(error), v1.GRPC.encode_error(error))


def _status_03(error: A2AError) -> GrpcStatus:
    return GrpcStatus(v03.GRPC.error_status(error), v03.status_text(error), v03.GRPC.encode_error(error))


A2A_1 = Service(
    name=v1.SERVICE,
    version="1.0",
    dialect_for=_dialect_1,
    procedures=v1.PROCEDURES,
    check_bounds=v1.check_bounds,
    status=_status_1,
    add_event_id=v1.add_event_id,
)
"""A2A 1.0 (§10)."""

A2A_03 = Service(
    name=v03.SERVICE,
    version="0.3",
    dialect_for=v03.dialect_for,
    procedures=v03.PROCEDURES,
    check_bounds=v03.check_bounds,
    status=_status_03,
    agent_header=AGENT_HEADER,
    add_event_id=v03.add_event_id,
)
"""A2A 0.3."""

SERVICES: tuple[Service, ...] = (A2A_1, A2A_03)
"""All services."""
