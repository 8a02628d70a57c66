"""The socket on which a server listens: bound here, or passed by systemd (socket activation, sd_listen_fds(3)).

Invariant: the host and the port of the configuration are those of the socket, so that the rule for ports that are open
to the world (`callers.py`) sees where the server really listens.
"""

import errno
import os
import socket

from msgspec.structs import replace

from dragoman.bindings.listener import bound_socket
from dragoman.config import Config
from dragoman.server.errors import StartError
from dragoman.server.reloading import Loaded, ReadConfigAgain

FIRST_FD = 3
"""SD_LISTEN_FDS_START."""


def bind(config: Config, *, shared: bool) -> socket.socket:
    """Bind the port, with `shared` as one of several processes. Raises StartError if that fails."""
    try:
        return bound_socket(config.host, config.port, shared=shared)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"cannot listen on {config.host} port {config.port}: {error.strerror}; set another `port` (--port)"
            ) from error
        raise StartError(f"cannot listen on {config.host} port {config.port}: {error.strerror}") from error


def server_url(config: Config) -> str:
    """The URL on which the server listens, without a slash at the end."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{host}:{config.port}"


def replica_url(config: Config) -> str:
    """Where operators of several machines find this one: 0.0.0.0 would name every one of them."""
    everywhere = config.host in {"0.0.0.0", "::"}
    return server_url(replace(config, host=socket.gethostname()) if everywhere else config)


def inherited_socket() -> socket.socket | None:
    """Return the socket that was passed to this process; None if there is none. Raises StartError if it cannot be used.

    Variables meant for another process, such as a parent, are ignored.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS")
    if count != "1":
        raise StartError(f"systemd passes {count} sockets, and the server listens on one: keep one Listen line")
    inherited = socket.socket(fileno=FIRST_FD)
    inherited.set_inheritable(False)
    kind = inherited.type, inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if inherited.family not in (socket.AF_INET, socket.AF_INET6) or kind != (socket.SOCK_STREAM, 1):
        raise StartError("systemd passes a socket that is none of TCP: use ListenStream with a port or an address")
    return inherited


def take_address(config: Config, inherited: socket.socket) -> Config:
    """The configuration with the address of the socket. Raises StartError with several processes."""
    if config.processes > 1:
        raise StartError(
            f"processes = {config.processes}: replicas listen themselves: disable the unit dragoman.socket"
        )
    host, port = inherited.getsockname()[:2]
    return replace(config, host=host, port=port)


def read_with_address(again: ReadConfigAgain | None, inherited: socket.socket) -> ReadConfigAgain | None:
    """Reads the configuration again, as it is with the socket: the address in the file is no change."""
    if again is None:
        return None

    def read_again() -> Loaded:
        loaded = again()
        return replace(loaded, config=take_address(loaded.config, inherited))

    return read_again
