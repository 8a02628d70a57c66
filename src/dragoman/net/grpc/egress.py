"""The door for gRPC: GrpcEgress makes calls and opens streams, in bytes.

Invariant: as for HTTP, no answer is larger than the limit, messages of a stream come in order, and it ends without an
error only if the other side ended it. A slow reader slows down the sender. `CancelledError` is always raised again.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from dragoman.net.address import Resolves
from dragoman.net.dialer import Exempts, Policy, exempts_nobody
from dragoman.net.errors import BadUrl, EgressError, TimedOut
from dragoman.net.grpc.dialer import HEALTH, GrpcChannel, GrpcDialer
from dragoman.net.grpc.status import GrpcReply, broken, read_status, texts, was_not_sent
from dragoman.net.target import Target
from dragoman.net.tls import MACHINE_TLS, ClientTls

PROBE_S = 20.0
"""How long a connection may take to show that it is alive, as for gRPC's own keep-alive."""

_NAME = re.compile(r"[0-9a-z_.-]+", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_OURS = re.compile(r"grpc-.*|.*-bin|accept|accept-encoding|connection|content-.*|host|te|transfer-encoding|user-agent")
"""Metadata that is left out: gRPC sets it, or it says something about HTTP/1.1."""


class GrpcFlow:
    """A stream that has begun; its reader closes it. `metadata` is the answer's initial metadata, with names in lower
    case.

    A quiet stream may wait for a long task, or for a peer that is gone. After `idle_s` without a message the
    connection is asked for a sign of life, and again after each further `idle_s`.
    """

    def __init__(
        self,
        call: Any,
        channel: GrpcChannel,
        release: Callable[[], None],
        probes: set[asyncio.Task[None]],
        *,
        shown: str,
        idle_s: float,
        max_bytes: int,
    ) -> None:
        """`release` gives the channel back; `probes` are the calls for a sign of life that are under way."""
        self.metadata: Mapping[str, str] = {}
        self._call = call
        self._channel = channel
        self._release = release
        self._probes = probes
        self._shown = shown
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._late = False
        self._closed = False
        self._probing: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(idle_s, self._look)

    async def begin(self, until_s: float) -> None:
        """Wait for the initial metadata. Raises TimeoutError at `until_s`, a time of the loop; Broken."""
        try:
            async with asyncio.timeout_at(until_s):
                self.metadata = texts(await self._call.initial_metadata())
        except asyncio.CancelledError:
            raise_if_closed(self._channel, self._shown)
            raise

    async def read(self) -> bytes | GrpcReply:
        """Return the next message, or the status after the last one.

        Raises TimedOut if the peer gives no sign of life, Broken if the connection ends before the stream does, and
        TooLarge.
        """
        import grpc

        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            return read_status(error, self._shown, max_bytes=self._max_bytes, timeout_s=self._idle_s, late=False)
        except asyncio.CancelledError:
            if self._late:
                raise TimedOut(self._shown, self._idle_s) from None
            raise_if_closed(self._channel, self._shown)
            raise
        self._heard_s = self._loop.time()
        if message is grpc.aio.EOF:
            return GrpcReply()
        if not isinstance(message, bytes):
            raise broken(self._shown)
        return message

    def close(self) -> None:
        """End the stream; nothing more will be read. It does not wait, so that it may run while a loop ends."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._call.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._release()

    def _look(self) -> None:
        """Ask for a sign of life if nothing came for a while. One timer serves all waits."""
        late_s = self._heard_s + self._idle_s
        if self._loop.time() < late_s:
            self._timer = self._loop.call_at(late_s, self._look)
        else:
            self._probing = self._loop.create_task(self._probe(), name="probe a stream")
            self._probes.add(self._probing)
            self._probing.add_done_callback(self._probes.discard)

    async def _probe(self) -> None:
        """Make a call on the same connection. Any answer shows that it lives."""
        import grpc

        try:
            await self._channel.channel.unary_unary(HEALTH)(b"", timeout=min(PROBE_S, self._idle_s))
        except grpc.aio.AioRpcError as error:
            try:
                read_status(error, self._shown, max_bytes=self._max_bytes, timeout_s=self._idle_s, late=True)
            except EgressError:
                self._late = True
                self._call.cancel()
                return
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(self._idle_s, self._look)


class GrpcEgress:
    """Channels under one policy, like an Egress, which makes it. Belongs to the event loop of its first call."""

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves | None,
        *,
        connect_timeout_s: float,
        max_answer_bytes: int,
        tls: ClientTls = MACHINE_TLS,
        exempts: Exempts = exempts_nobody,
    ) -> None:
        self._max_bytes = max_answer_bytes
        self._probes: set[asyncio.Task[None]] = set()
        self._dialer = GrpcDialer(
            policy,
            resolver,
            connect_timeout_s=connect_timeout_s,
            max_message_bytes=max_answer_bytes,
            tls=tls,
            exempts=exempts,
        )

    async def call(
        self, to: Target, method: str, message: bytes, *, timeout_s: float, metadata: Mapping[str, str]
    ) -> GrpcReply:
        """Make a call, and return its answer, whatever its status. `timeout_s` covers everything, and is the deadline
        that the other side reads.

        Raises EgressError, whose `sent` says whether the other side may have carried the call out.
        """
        sent = _encode(to, metadata)
        until_s = asyncio.get_running_loop().time() + timeout_s
        reply = None
        while reply is None:
            channel = await self._dialer.take(to, until_s)
            reply = await self._call_on(channel, to, method, message, until_s, timeout_s, sent)
        return reply

    async def _call_on(
        self,
        channel: GrpcChannel,
        to: Target,
        method: str,
        message: bytes,
        until_s: float,
        timeout_s: float,
        sent: tuple[tuple[str, str], ...],
    ) -> GrpcReply | None:
        """Make a call on a channel, and give the channel back. Returns None if the call was not sent because the
        connection, which earlier calls had used, was lost; the channel is retired then."""
        import grpc

        loop = asyncio.get_running_loop()
        try:
            call = channel.channel.unary_unary(method)(message, timeout=until_s - loop.time(), metadata=sent)
            body = await call
            return GrpcReply(metadata=texts(await call.initial_metadata()), body=body)
        except grpc.aio.AioRpcError as error:
            if channel.used and was_not_sent(error.code(), error.details()):
                self._dialer.retire(channel)
                return None
            late = loop.time() >= until_s - 0.001
            return read_status(error, to.shown, max_bytes=self._max_bytes, timeout_s=timeout_s, late=late)
        except asyncio.CancelledError:
            raise_if_closed(channel, to.shown)
            raise
        finally:
            self._dialer.release(channel)

    async def stream(
        self,
        to: Target,
        method: str,
        message: bytes,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        metadata: Mapping[str, str],
    ) -> GrpcFlow:
        """Open a stream, and return it once its initial metadata has come, which a status brings, too.

        `head_timeout_s` covers everything up to then; `idle_timeout_s` is said in GrpcFlow. The stream has no deadline.
        If it is closed before its end, it is canceled. Raises EgressError as `call` does.
        """
        sent = _encode(to, metadata)
        until_s = asyncio.get_running_loop().time() + head_timeout_s
        flow = None
        while flow is None:
            channel = await self._dialer.take(to, until_s)
            flow = await self._open_on(channel, to, method, message, until_s, head_timeout_s, idle_timeout_s, sent)
        return flow

    async def _open_on(
        self,
        channel: GrpcChannel,
        to: Target,
        method: str,
        message: bytes,
        until_s: float,
        head_timeout_s: float,
        idle_timeout_s: float,
        sent: tuple[tuple[str, str], ...],
    ) -> GrpcFlow | None:
        """Open a stream on a channel, as `_call_on` makes a call. A stream that is returned gives the channel back."""
        used = channel.used
        try:
            call = channel.channel.unary_stream(method)(message, metadata=sent)
        except BaseException:
            self._dialer.release(channel)
            raise
        flow = GrpcFlow(
            call,
            channel,
            lambda: self._dialer.release(channel),
            self._probes,
            shown=to.shown,
            idle_s=idle_timeout_s,
            max_bytes=self._max_bytes,
        )
        try:
            await flow.begin(until_s)
            lost = used and call.done() and was_not_sent(await call.code(), await call.details())
        except TimeoutError as error:
            flow.close()
            raise TimedOut(to.shown, head_timeout_s) from error
        except BaseException:
            flow.close()
            raise
        if not lost:
            return flow
        self._dialer.retire(channel)
        flow.close()
        return None

    async def reach(self, to: Target, *, timeout_s: float) -> None:
        """Connect as for a call, under the same policy, without making one. Raises EgressError."""
        self._dialer.release(await self._dialer.take(to, asyncio.get_running_loop().time() + timeout_s))

    async def close(self) -> None:
        """Close every channel, which ends the calls on them. A later call opens new ones."""
        await self._dialer.close()
        if self._probes:
            await asyncio.wait(self._probes)


def raise_if_closed(channel: GrpcChannel, shown: str) -> None:
    """Raise Broken if a call ended because its channel was closed, and not because its task is being canceled."""
    task = asyncio.current_task()
    if channel.closed and not (task is not None and task.cancelling()):
        raise broken(shown) from None


def _encode(to: Target, metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata as it is sent. Raises BadUrl for a name or a value that cannot be sent."""
    sent = tuple((name.lower(), value.strip()) for name, value in metadata.items() if not _OURS.fullmatch(name.lower()))
    for name, value in sent:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadUrl(to.shown, f"the metadata {name[:40]!r} holds characters that cannot be sent over gRPC")
    return sent
