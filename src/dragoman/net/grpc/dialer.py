"""Makes, keeps and renews the channels of a GrpcEgress.

C-core would look names up itself and dial whatever it is told, so it is never given a name. A channel is to one
address that the policy has just allowed. `:authority` and the name in the certificate are those of the host.

Invariant: no address is dialled unless the policy allowed it (invariant 13). No proxy is used, and no service
configuration comes from DNS. A channel is used for a new call only while it is connected.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dragoman import __version__
from dragoman.net.address import Resolves
from dragoman.net.connection import Destination
from dragoman.net.dialer import (
    ADDRESS_S,
    IDLE_S,
    Exempts,
    Policy,
    address_refused,
    connect_timeout,
    exempts_nobody,
    find_addresses,
)
from dragoman.net.errors import BadUrl, EgressError, Unreachable, Unresolved
from dragoman.net.grpc.status import not_connected
from dragoman.net.target import Target
from dragoman.net.tls import ClientTls, make_tls_context

CALLS_MAX = 90
"""Most calls on one connection: Envoy and others allow 100, and further ones would wait behind streams."""

LOOKUP_S = 30.0
"""How long a connected address is used until its host is looked up again."""

METADATA_BYTES_MAX = 64 * 1024
"""Most bytes of metadata in an answer; details of errors are metadata."""

HEALTH = "/grpc.health.v1.Health/Check"
"""A method that does nothing, whether the other side has it or not; its empty message asks for the whole server."""

REASON_S = 1.0
"""How long C-core may take to say why it is not connected, which it knows already."""


class GrpcChannel:
    """A channel to one address of a destination. `calls` are under way; when a retired one has none left, it is closed.

    It is `used` once a call on it has ended.
    """

    __slots__ = ("address", "calls", "channel", "closed", "destination", "looked_up_s", "retired", "used")

    def __init__(self, channel: Any, destination: Destination, address: str, looked_up_s: float) -> None:
        self.channel = channel
        self.destination = destination
        self.address = address
        self.looked_up_s = looked_up_s
        self.calls = 0
        self.retired = False
        self.closed = False
        self.used = False

    @property
    def connected(self) -> bool:
        """Whether a call would go out at once, without a new connection."""
        return not self.closed and self.channel.get_state().name == "READY"

    def begin_call(self) -> None:
        """Count one more call."""
        self.calls += 1

    def end_call(self) -> None:
        """Count one call less."""
        self.calls -= 1
        self.used = True

    def retire(self) -> None:
        """Take no more calls."""
        self.retired = True

    def close(self) -> Coroutine[Any, Any, None]:
        """Count as closed from now on. Returns what closes it."""
        self.closed = True
        closing: Coroutine[Any, Any, None] = self.channel.close()
        return closing

    def note_lookup(self, now_s: float) -> None:
        """Note that the host was looked up, at a time of the loop."""
        self.looked_up_s = now_s


class GrpcDialer:
    """Channels under one policy, but to the hosts that it `exempts`.

    Without a `resolver` the C library resolves names, on threads. Belongs to the event loop of its first call; close it
    there.
    """

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves | None,
        *,
        connect_timeout_s: float,
        max_message_bytes: int,
        tls: ClientTls,
        exempts: Exempts = exempts_nobody,
    ) -> None:
        self._policy = policy
        self._exempts = exempts
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._max_message_bytes = max_message_bytes
        self._tls = tls
        self._tls_credentials: Any = None
        self._channels: dict[Destination, list[GrpcChannel]] = {}
        self._retired: set[GrpcChannel] = set()
        self._connecting: dict[Destination, asyncio.Task[GrpcChannel]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, to: Target, until_s: float) -> GrpcChannel:
        """Return a connected channel, with one more call on it. Give it back with `release`. Raises EgressError."""
        destination = (to.scheme, to.host, to.port)
        channel = self._connected(destination)
        if channel is not None and asyncio.get_running_loop().time() - channel.looked_up_s >= LOOKUP_S:
            channel = await self._renew(to, channel)
        if channel is None:
            channel = await self._connect_once(to, destination, until_s)
        channel.begin_call()
        return channel

    def release(self, channel: GrpcChannel) -> None:
        """End a call on a channel."""
        channel.end_call()
        if channel.retired and not channel.calls:
            self._retired.discard(channel)
            self._close(channel)

    def retire(self, channel: GrpcChannel) -> None:
        """Use a channel for no further call, and close it after the last one."""
        channels = self._channels.get(channel.destination, [])
        if channel not in channels:
            return  # it is retired already
        channels.remove(channel)
        if not channels:
            del self._channels[channel.destination]
        channel.retire()
        if channel.calls:
            self._retired.add(channel)
        else:
            self._close(channel)

    async def close(self) -> None:
        """Close every channel, which ends the calls on them. A later call opens new ones."""
        connecting, self._connecting = list(self._connecting.values()), {}
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        channels = [*self._retired, *(each for channels in self._channels.values() for each in channels)]
        self._channels, self._retired = {}, set()
        for channel in channels:
            self._close(channel)
        if self._closing:
            await asyncio.wait(self._closing)

    def _connected(self, destination: Destination) -> GrpcChannel | None:
        """Return the newest connected channel with room for a call. Those that are not connected are retired."""
        channels = self._channels.get(destination, [])
        for channel in [each for each in channels if not each.connected]:
            self.retire(channel)
        return next((each for each in reversed(channels) if each.calls < CALLS_MAX), None)

    async def _renew(self, to: Target, channel: GrpcChannel) -> GrpcChannel | None:
        """Look the host up again. Returns None if the channel's address is no longer one of its own.

        A host that cannot be looked up at present keeps its channel.
        """
        channel.note_lookup(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                addresses = await find_addresses(to.host, self._resolver)
        except (Unresolved, TimeoutError):
            return channel if channel.connected else None
        if channel.address in addresses and self._refusal(to, channel.address) is None:
            return channel if channel.connected else None
        self.retire(channel)
        return None

    def _refusal(self, to: Target, address: str) -> str | None:
        """Why an address of a host may not be dialled; None if it may."""
        return None if self._exempts(to.host) else self._policy(address)

    async def _connect_once(self, to: Target, destination: Destination, until_s: float) -> GrpcChannel:
        """Connect, together with the others who want the same. Raises EgressError."""
        while True:
            if (task := self._connecting.get(destination)) is None:
                task = asyncio.get_running_loop().create_task(self._connect(to), name=f"connect {to.shown}")
                self._connecting[destination] = task
                task.add_done_callback(lambda done: self._connected_now(destination, done))
            try:
                async with asyncio.timeout_at(until_s):
                    channel = await asyncio.shield(task)
            except TimeoutError as error:
                raise connect_timeout(to.shown) from error
            except asyncio.CancelledError:
                if task.cancelled() and not _canceled():
                    raise Unreachable(to.shown, "the connection was closed while it was made") from None
                raise
            if channel.calls < CALLS_MAX and not channel.closed:
                return channel
            if (other := self._connected(destination)) is not None:
                return other

    def _connected_now(self, destination: Destination, task: "asyncio.Task[GrpcChannel]") -> None:
        """Keep a new channel for whoever comes next."""
        if self._connecting.get(destination) is task:
            del self._connecting[destination]
        if not task.cancelled() and task.exception() is None:
            self._channels.setdefault(destination, []).append(task.result())

    async def _connect(self, to: Target) -> GrpcChannel:
        """Connect to the first address that takes it. Raises EgressError; AddressRefused if one was refused."""
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(import_module, "grpc.aio")
        if to.scheme == "grpcs" and self._tls_credentials is None:
            if not self._tls.verify:
                fault = "gRPC takes no certificate unverified: name its authority in `ca_file` (--ca-cert)"
                raise Unreachable(to.shown, fault)
            self._tls_credentials = await asyncio.to_thread(_make_credentials, self._tls)
        try:
            async with asyncio.timeout(self._connect_timeout_s) as connecting:
                addresses = await find_addresses(to.host, self._resolver)
        except TimeoutError as error:
            raise connect_timeout(to.shown) from error
        except Unresolved as error:
            raise Unreachable(to.shown, f"its host {error}") from error
        except UnicodeError as error:  # the name cannot be written in DNS
            raise BadUrl(to.shown, "its host is not a name that can be called") from error
        until_s = connecting.when()
        assert until_s is not None
        refused: str | None = None
        failed: EgressError = not_connected(to.shown)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            if (reason := self._refusal(to, address)) is not None:
                refused = refused or reason
                continue
            now_s = loop.time()
            channel = GrpcChannel(self._open(to, address), (to.scheme, to.host, to.port), address, now_s)
            ready = loop.create_task(_ready(channel.channel), name=f"connect {address}")
            connected = False
            try:
                end_s = min(until_s, now_s + max(ADDRESS_S, (until_s - now_s) / left))
                await asyncio.wait([ready], timeout=end_s - now_s)
                if connected := ready.done() and ready.result():
                    return channel
                if ready.done():
                    failed = not_connected(to.shown, await _reason(channel.channel))
                else:
                    failed = connect_timeout(to.shown)
            finally:
                if not connected:
                    await channel.channel.close()
                    await asyncio.wait([ready])  # the close ends it; canceled, C-core would still report to its loop
        raise failed if refused is None else address_refused(to.shown, refused)

    def _open(self, to: Target, address: str) -> Any:
        """Return a channel to an address that was allowed; it is not connected yet."""
        import grpc

        host = to.host.removesuffix(".")  # RFC 6066 §3
        options: list[tuple[str, int | str]] = [
            ("grpc.default_authority", f"{_place(host)}:{to.port}"),
            ("grpc.primary_user_agent", f"dragoman/{__version__}"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.address_http_proxy_enabled_addresses", ""),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),  # channels of another policy share no connection with these
            ("grpc.client_idle_timeout_ms", int(IDLE_S * 1000)),
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # identity: a small answer could expand to a huge one
        ]
        kind = "ipv6" if ":" in address else "ipv4"
        place = f"{kind}:{quote(_place(address), safe='[]:.')}:{to.port}"
        if to.scheme != "grpcs":
            return grpc.aio.insecure_channel(place, options=options)
        options.append(("grpc.ssl_target_name_override", host))
        return grpc.aio.secure_channel(place, self._tls_credentials, options=options)

    def _close(self, channel: GrpcChannel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(), name="close a channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _ready(channel: Any) -> bool:
    """Wait until a channel is connected. False if it fails, after which C-core would wait before it tries again."""
    while (state := channel.get_state(try_to_connect=True)).name != "READY":
        if state.name in ("TRANSIENT_FAILURE", "SHUTDOWN"):
            return False
        await channel.wait_for_state_change(state)
    return True


async def _reason(channel: Any) -> str:
    """Return why a channel is not connected, in C-core's words. A call fails at once, and its status says so."""
    import grpc

    try:
        await channel.unary_unary(HEALTH)(b"", timeout=REASON_S)
    except grpc.aio.AioRpcError as error:
        return error.details() or ""
    return ""


def _place(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _make_credentials(tls: ClientTls) -> Any:
    """Load the certificates that are trusted and shown, as for HTTP. Raises BadTls."""
    import grpc

    context = make_tls_context(tls)  # it says what is wrong with a file
    certificate = key = None
    if tls.certificate_file:
        certificate = Path(tls.certificate_file).read_bytes()
        key = Path(tls.key_file or tls.certificate_file).read_bytes()
    return grpc.ssl_channel_credentials(_roots(tls, context), key, certificate)


def _roots(tls: ClientTls, context: ssl.SSLContext) -> bytes | None:
    """Return the authorities in PEM; None if the machine has none: then C-core's own are trusted."""
    if tls.ca_file:
        return Path(tls.ca_file).read_bytes()
    if loaded := context.get_ca_certs(binary_form=True):
        return "".join(map(ssl.DER_cert_to_PEM_cert, loaded)).encode()
    folder = ssl.get_default_verify_paths().capath  # OpenSSL reads these one by one, when it needs them
    pieces = sorted(Path(folder).glob("*.[0-9]")) if folder else []
    return b"\n".join([piece.read_bytes() for piece in pieces]) or None


def _canceled() -> bool:
    """Whether the current task is being canceled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
