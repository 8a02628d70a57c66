"""The entrances of a server: how requests reach its application, and how that way opens and closes.

`running` knows one `Entrance` and the order in which to use it. `SocketEntrance` is the server's own: it listens on a
socket, and on another one for gRPC. `MountedEntrance` is that of a server whose requests another one passes on.

Invariant: an entrance lets no request in before `open`, and none is under way after `close`.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from dragoman.auth.operator_token import drop_token, kept_token
from dragoman.bindings.app import CurrentApp
from dragoman.bindings.listener import Listener
from dragoman.bindings.mount import MountedRequests
from dragoman.bindings.parent import Parent
from dragoman.config import Config
from dragoman.server.assembly import Assembly
from dragoman.server.errors import StartError
from dragoman.server.sockets import bind, replica_url, server_url

if TYPE_CHECKING:
    from dragoman.bindings.grpc import GrpcServer


class Entrance(Protocol):
    """The way by which requests reach the application of a server."""

    @property
    def parent(self) -> Parent | None:
        """The application around it; None if there is none."""
        ...

    def bind(self, config: Config, assembly: Assembly, current: CurrentApp) -> AbstractContextManager["BoundEntrance"]:
        """Take the place where requests will arrive, until the block ends. Raises StartError."""
        ...


class BoundEntrance(Protocol):
    """An entrance that has its place. `running` calls the methods in this order.

    `config` names the port that was taken, if there is one. `base` is the URL of the server, for links that no request
    asks for, such as those in webhook calls, and `address` the one under which operators find this very replica.
    """

    config: Config
    base: str
    address: str

    async def open(self) -> None:
        """Let requests in."""
        ...

    def operator_token(self) -> AbstractContextManager[None]:
        """Keep the operator's token where commands on this machine find it, on a server without authentication."""
        ...

    def retire(self, *, shared: bool) -> None:
        """The server stops. With `shared`, other replicas take new requests: refuse them here, if that is possible."""
        ...

    async def close(self, within_s: float) -> None:
        """Let in no more requests, and wait for the answers under way; those that take longer are cut off."""
        ...


class SocketEntrance:
    """The entrance of a server that listens. An `inherited` socket listens already, at the configuration's address."""

    parent = None

    def __init__(self, inherited: socket.socket | None = None) -> None:
        self._inherited = inherited

    @contextmanager
    def bind(self, config: Config, assembly: Assembly, current: CurrentApp) -> Iterator["BoundSockets"]:
        """Bind the port, and that of gRPC. Raises StartError."""
        with self._inherited or bind(config, shared=config.processes > 1) as bound:
            taken = replace(config, port=bound.getsockname()[1])
            yield BoundSockets(taken, assembly, current, bound, activated=self._inherited is not None)


class BoundSockets:
    """The bound sockets of a server, for HTTP and for gRPC."""

    def __init__(
        self, config: Config, assembly: Assembly, current: CurrentApp, bound: socket.socket, *, activated: bool
    ) -> None:
        """`activated`: systemd holds the socket, and keeps connections for the next server."""
        opened = assembly.opened
        self.config = config
        self.base = config.public_url or server_url(config)
        self.address = config.replica_address or replica_url(config)
        self._opened = opened
        self._bound = bound
        self._activated = activated
        self._listener = Listener(
            current,
            reader_pause_s=config.reader_pause_s,
            tls=None if opened.tls is None else opened.tls.identity.context,
            reader_cut=assembly.streams.cut,
            counter=assembly.connections,
        )
        self._grpc: GrpcServer | None = None
        if config.grpc_port:
            from dragoman.server.grpc import bind_grpc

            self._grpc = bind_grpc(config, current, assembly.health, opened.tls)

    async def open(self) -> None:
        """Listen for HTTP, and for gRPC. New connections over TLS take the newest certificate."""
        tls = self._opened.tls
        if tls is not None:
            tls.renewed.append(lambda identity: self._listener.renew(identity.context))
        await self._listener.open(self._bound)
        if self._grpc is not None:
            await self._grpc.open()

    def operator_token(self) -> AbstractContextManager[None]:
        """Keep the operator's token in its file, on a server without authentication when it starts."""
        config, opened = self.config, self._opened
        if not opened.authenticator.required:
            return kept_token(opened.token, config.store, config.host, config.port)
        drop_token(config.store, config.port)
        return nullcontext()

    def retire(self, *, shared: bool) -> None:
        """Close the listener at once if others take new requests, or systemd keeps them for the next server."""
        if shared or self._activated:
            self._listener.retire()

    async def close(self, within_s: float) -> None:
        """Accept no more connections, and wait for the answers under way."""
        await asyncio.gather(
            self._listener.close(within_s),
            asyncio.sleep(0) if self._grpc is None else self._grpc.close(within_s),
        )


UNSUITED = ("grpc_port", "tls_cert", "tls_key", "tls_client_ca", "tls_client_crl")
"""Settings of sockets, which a mounted server does not have."""


def check_mounted(config: Config) -> None:
    """Raises StartError for settings that only a server with sockets of its own can keep."""
    for name in UNSUITED:
        if getattr(config, name):
            raise StartError(
                f"{name} is set, and an application that is mounted in another one has no sockets of its own: leave it "
                "out, or run dragoman serve"
            )
    if config.processes > 1:
        raise StartError(
            f"processes = {config.processes}: the server that runs the application has the processes: leave it out"
        )
    if config.files is not None and config.public_url is None:
        raise StartError(
            "files is set and public_url is not, so that links in webhook calls would lead nowhere: set public_url to "
            "the URL of the mounted application"
        )


class MountedEntrance:
    """The entrance of a server that is mounted in the application `parent`, which passes on `requests`."""

    def __init__(self, requests: MountedRequests, parent: Parent) -> None:
        self.parent: Parent | None = parent
        self._requests = requests

    def bind(self, config: Config, assembly: Assembly, current: CurrentApp) -> AbstractContextManager["BoundMount"]:
        """Prepare to take requests; there is nothing to bind."""
        return nullcontext(BoundMount(config, assembly, current, self._requests))


class BoundMount:
    """A mounted server's place among the requests of another one."""

    def __init__(self, config: Config, assembly: Assembly, current: CurrentApp, requests: MountedRequests) -> None:
        self.config = config
        self.base = config.public_url or ""
        self.address = config.replica_address or config.public_url or f"http://{socket.gethostname()}"
        self._streams = assembly.streams
        self._current = current
        self._requests = requests

    async def open(self) -> None:
        """Let requests in."""
        self._requests.open(self._current, self.config.reader_pause_s, self._streams.cut)

    def operator_token(self) -> AbstractContextManager[None]:
        """Keep no token: commands find it by the port of the server, and the port is not ours."""
        return nullcontext()

    def retire(self, *, shared: bool) -> None:
        """Go on: the server that passes on the requests decides where new ones go."""

    async def close(self, within_s: float) -> None:
        """Let in no more requests, and wait for the answers under way."""
        await self._requests.close(within_s)
