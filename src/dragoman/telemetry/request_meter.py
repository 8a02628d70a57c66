"""RequestMeter: the port through which the bindings report requests to OpenTelemetry.

Invariant: every value of a MeteredRequest comes from a closed set, so that no caller chooses the name of a series.
"""

from typing import Protocol

from msgspec import Struct


class MeteredRequest(Struct, frozen=True):
    """A kind of request: the operation and binding of `/metrics`, and what OpenTelemetry's conventions ask for.

    `method` is the method of HTTP, or a procedure's full name over gRPC.
    """

    operation: str
    binding: str
    method: str
    scheme: str


class RequestMeter(Protocol):
    """Measures requests."""

    def answered(self, request: MeteredRequest, status: int | None, error: str, took_s: float) -> None:
        """A request was answered, or its stream has ended.

        `status` is the number of HTTP's or gRPC's status, None if none was sent. `error` is the kind of error, empty
        for none.
        """
        ...

    def begun(self, request: MeteredRequest, took_s: float) -> None:
        """The first event of a stream was sent."""
        ...
