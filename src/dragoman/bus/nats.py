"""The carrier NATS: core publish and subscribe, which keeps nothing and promises nothing.

Invariant: the library never reconnects. The user of a lost connection makes another, and knows which subjects it needs
by then.
"""

import asyncio
import logging
import re
from collections.abc import Collection, Sequence

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error, NoServersError, SlowConsumerError

from dragoman.bus.carrier import CarrierDown, Dropped, Received

log = logging.getLogger("dragoman.bus")

PENDING_MESSAGES = 4096
PENDING_BYTES = 8 << 20
"""How many messages and bytes of a subject may wait for a busy loop. The library drops the rest."""

TRY_S = 1.0
"""How long it may take to connect to one server of several."""

FLUSH_S = 5.0
"""How long the server may take to read what was sent to it."""

PING_S = 5
"""The time between two pings of the library. Two without an answer end the connection."""

CLOSE_S = 0.5
"""How long a connection may take to close in good order."""

FAILURES = (OSError, Error, TimeoutError, EOFError, ValueError)
"""The errors of the library: its own, those of the socket, and those of a greeting that is not NATS's."""


class NatsCarrier:
    """One or several servers of one NATS, as `nats://host:4222`, `tls://…`, or several with commas between them."""

    gather_s = 0.0
    bytes_max = 512 << 10
    advice = "the user of NATS may need permission to publish and subscribe to dragoman.>"

    def __init__(self, urls: str) -> None:
        logging.getLogger("nats.aio.client").addFilter(_is_no_late_pong)
        self._urls = [url.strip() for url in urls.split(",")]
        self.name = ",".join(re.sub(r"(?<=://)[^@/]*@", "", url) for url in self._urls)

    async def connect(self, received: Received, dropped: Dropped) -> "NatsConnection":
        """As the protocol says."""
        connection = NatsConnection(received, dropped)
        try:
            await connection.open(self._urls)
        except BaseException:
            await connection.close()
            raise
        return connection


class NatsConnection:
    """One connection to one server."""

    def __init__(self, received: Received, dropped: Dropped) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._received = received
        self._dropped = dropped
        self._client = Client()
        self._subscriptions: dict[str, Subscription] = {}
        self._why = "the server closed the connection"

    async def open(self, urls: Sequence[str]) -> None:
        """Connect to the first server that answers. Raises CarrierDown."""
        try:
            await self._client.connect(
                list(urls),
                name="dragoman",
                error_cb=self._failed,
                closed_cb=self._closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=TRY_S,  # type: ignore[arg-type]  # a number of seconds
                ping_interval=PING_S,
                max_outstanding_pings=2,
                flush_timeout=FLUSH_S,
            )
        except NoServersError:
            raise CarrierDown(self._why) from None
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """As the protocol says."""
        try:
            for subject, data in messages:
                await self._client.publish(subject, data)
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def subscribe(self, subjects: Collection[str]) -> None:
        """As the protocol says. The round trip shows that the server has the subscriptions."""
        try:
            for subject in subjects:
                self._subscriptions[subject] = await self._client.subscribe(
                    subject, cb=self._heard, pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES
                )
            await self._client.flush(FLUSH_S)  # type: ignore[arg-type]  # a number of seconds
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def unsubscribe(self, subjects: Collection[str]) -> None:
        """As the protocol says."""
        try:
            for subject in subjects:
                await self._subscriptions.pop(subject).unsubscribe()
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def close(self) -> None:
        """As the protocol says."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except FAILURES as error:
            log.debug("bus: a connection did not close: %s", _text(error))
        # nats-py 2.16 waits until a peer that reads nothing has read all, and leaves the socket open if it is canceled.
        writer = getattr(self._client._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _heard(self, message: Msg) -> None:
        self._received(message.data)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            self._dropped()
            return
        self._why = _text(error)
        log.debug("bus: %s", self._why, exc_info=error)

    async def _closed(self) -> None:
        if not self.lost.done():
            self.lost.set_result(self._why)


def _is_no_late_pong(record: logging.LogRecord) -> bool:
    """Filter out answers to pings that nobody waits for any more: nats-py (2.16) logs each with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.InvalidStateError))


def _text(error: BaseException) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
