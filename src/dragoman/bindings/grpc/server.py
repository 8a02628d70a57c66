"""The gRPC server: C-core's, on the loop of the process, with the A2A services, health and reflection.

Invariant: it is a transport. Each call is answered by the backend that the HTTP side has at that moment, so a reload
counts for both at once. A handshake sees one certificate with its key and its authorities, never parts of two.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from dragoman.bindings.app import CurrentApp
from dragoman.bindings.grpc.health import NAME as HEALTH
from dragoman.bindings.grpc.health import HealthService
from dragoman.bindings.grpc.metadata import HttpSide
from dragoman.bindings.grpc.procedures import Procedures
from dragoman.bindings.grpc.reflection import ReflectionService
from dragoman.bindings.grpc.services import SERVICES, Service
from dragoman.bindings.monitoring import Health

log = logging.getLogger(__name__)

HANDSHAKE_MS = 10_000
"""How long a connection may take until it is one of HTTP/2."""

IDLE_MS = 300_000
"""A connection without calls is closed after this time; clients open another one with the next call."""

KEEPALIVE_MS = 60_000
"""After this silence on a connection with calls the peer is pinged. One that does not answer within
`KEEPALIVE_ANSWER_MS` has gone, and its connection is closed."""

KEEPALIVE_ANSWER_MS = 20_000

PINGS_MS = 10_000
"""Clients may ping this often; one that pings more often is sent away (GOAWAY, too_many_pings)."""

STREAMS = 1_000
"""Most calls at once on one connection; clients queue further ones."""

CUT_S = 0.5
"""How long aborting the calls that are left may take; it takes milliseconds."""

METADATA_BYTES = 16 * 1024
"""Most bytes of metadata: as with HTTP, more is refused."""


class GrpcServer:
    """The server. The `current` application answers, and `health` says whether it is ready.

    `shared` means that other processes listen on the port, too.
    """

    def __init__(
        self,
        current: CurrentApp,
        health: Health,
        *,
        http: HttpSide,
        max_body_bytes: int,
        reader_pause_s: float,
        shared: bool = False,
        services: Sequence[Service] = SERVICES,
    ) -> None:
        options = {
            "grpc.so_reuseport": int(shared),
            "grpc.max_receive_message_length": max_body_bytes,
            "grpc.max_send_message_length": -1,
            "grpc.max_concurrent_streams": STREAMS,
            "grpc.max_metadata_size": METADATA_BYTES,
            "grpc.absolute_max_metadata_size": METADATA_BYTES,
            "grpc.server_handshake_timeout_ms": HANDSHAKE_MS,
            "grpc.max_connection_idle_ms": IDLE_MS,
            "grpc.keepalive_time_ms": KEEPALIVE_MS,
            "grpc.keepalive_timeout_ms": KEEPALIVE_ANSWER_MS,
            "grpc.http2.min_ping_interval_without_data_ms": PINGS_MS,
            "grpc.http2.min_recv_ping_interval_without_data_ms": PINGS_MS,
        }
        self._server = grpc.aio.server(options=tuple(options.items()))
        self._procedures = Procedures(services, current, server=http, pause_s=reader_pause_s)
        names = [service.name for service in services]
        self._health = HealthService(health, names)
        self._reflection = ReflectionService([*names, HEALTH])
        handlers = {**self._procedures.handlers(), **self._health.handlers(), **self._reflection.handlers()}
        self._server.add_generic_rpc_handlers((_Table(handlers),))

    def bind(self, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> None:
        """Bind the port without answering yet. Without credentials it has no TLS. Raises OSError if that fails."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if credentials is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, credentials)
        except RuntimeError as error:  # its text is for developers of C-core
            raise OSError(f"{address} is taken, or is no address of this machine") from error

    async def open(self) -> None:
        """Answer calls."""
        await self._server.start()

    async def close(self, within_s: float) -> None:
        """Accept no more calls, wait for those under way, and abort the rest. Returns within `within_s`, or `CUT_S`."""
        self._health.close()
        self._reflection.close()
        grace_s = max(0.0, within_s - CUT_S)
        try:
            async with asyncio.timeout(grace_s + CUT_S):
                await self._server.stop(grace_s)
                await self._procedures.finish()
        except TimeoutError:
            log.warning("stopping: gRPC did not end its calls in time and is left behind")


class _Table(grpc.GenericRpcHandler):
    """All handlers by full name. C-core's own registration would wait for the calls of each procedure separately."""

    def __init__(self, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of a call; None answers UNIMPLEMENTED."""
        return self._handlers.get(handler_call_details.method)


class RenewableCredentials:
    """A certificate chain with its key, and the authorities of clients, all as PEM. They may be replaced at any time.

    With `client_ca` a client without a certificate that these authorities have signed is refused. C-core asks for what
    is new in each handshake, on threads of its own. Connections that are open go on as they are.
    """

    def __init__(self, chain: bytes, key: bytes, client_ca: bytes | None) -> None:
        self._newest = self._taken = _configuration(chain, key, client_ca)
        self.server = grpc.dynamic_ssl_server_credentials(
            self._newest,
            self._take_new,  # type: ignore[arg-type]  # None says that nothing is new (grpcio's documentation)
            require_client_authentication=client_ca is not None,
        )
        """For `GrpcServer.bind`."""

    def renew(self, chain: bytes, key: bytes, client_ca: bytes | None) -> None:
        """Take these from the next handshake on."""
        self._newest = _configuration(chain, key, client_ca)

    def _take_new(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what has not been taken yet; None says that nothing has changed."""
        newest = self._newest
        if newest is self._taken:
            return None
        self._taken = newest
        return newest


def _configuration(chain: bytes, key: bytes, client_ca: bytes | None) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=client_ca)
