"""The gRPC side of the server: made from the configuration, and only imported if it is on.

Invariant: nothing of gRPC is imported by a server that does not serve it.
"""

from typing import TYPE_CHECKING

from dragoman.bindings.app import CurrentApp
from dragoman.bindings.monitoring import Health
from dragoman.config import Config
from dragoman.model.extras import install_command
from dragoman.server.errors import StartError

if TYPE_CHECKING:
    from dragoman.bindings.grpc import GrpcServer
    from dragoman.server.tls import ServerTls

PACKAGES = ("grpc", "grpc_health", "grpc_reflection", "google")
"""The modules of the extra."""


def bind_grpc(
    config: Config,
    current: CurrentApp,
    health: Health,
    tls: "ServerTls | None" = None,
) -> "GrpcServer":
    """Make the gRPC server and bind its port. With `tls` it shows that certificate.

    `config.port` is the port of the HTTP side, whose application of the moment answers. Raises StartError.
    """
    if config.profile is not None:
        raise StartError(f"grpc_port: a server that poses as {config.profile} has no gRPC: leave out one of the two")
    try:
        from dragoman.bindings.grpc import GrpcServer, HttpSide, RenewableCredentials
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise StartError(
            f"grpc_port is set, but gRPC is not installed: run {install_command('grpc')}; or leave grpc_port out"
        ) from error
    server = GrpcServer(
        current,
        health,
        http=HttpSide(config.scheme, config.host, config.port),
        max_body_bytes=config.max_body_bytes,
        reader_pause_s=config.reader_pause_s,
        shared=config.processes > 1,
    )
    try:
        if tls is None:
            server.bind(config.host, config.grpc_port)
        else:
            shown = tls.identity
            credentials = RenewableCredentials(shown.chain, shown.key, shown.client_ca)
            tls.renewed.append(lambda anew: credentials.renew(anew.chain, anew.key, anew.client_ca))
            server.bind(config.host, config.grpc_port, credentials.server)
    except OSError as error:
        raise StartError(f"cannot listen for gRPC: {error}; set another `grpc_port`") from error
    return server
