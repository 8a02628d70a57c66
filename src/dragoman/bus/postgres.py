"""The carrier PostgreSQL: NOTIFY on one connection and LISTEN on another, both outside of the pool of the store.

Invariant: a NOTIFY is never part of a transaction that writes: it takes a lock that all such commits wait for. Its
payload is always below the limit of 8,000 bytes.
"""

import asyncio
import logging
import re
from base64 import b64decode, b64encode
from binascii import Error as Garbled
from collections import deque
from collections.abc import Collection, Sequence

import asyncpg

from dragoman.bus.carrier import CarrierDown, Dropped, Received

log = logging.getLogger("dragoman.bus")

PAYLOAD_BYTES_MAX = 7999
"""The longest payload of a NOTIFY (PostgreSQL 18, sql-notify)."""

BATCH_MAX = 200
"""How many messages one transaction sends: at most about a megabyte."""

SEND_S = 5.0
"""How long a statement may take, or a new connection."""

CLOSE_S = 0.5
"""How long a connection may take to close in good order."""

FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)
"""The errors of the driver."""


class NotifyCarrier:
    """The database at `dsns`, as asyncpg takes them, reached without a proxy that pools transactions.

    There is one for each of its hosts: the one that was used last is tried first.
    """

    gather_s = 0.003
    """A transaction costs about half a millisecond of the server, however many messages it has."""
    bytes_max = PAYLOAD_BYTES_MAX // 4 * 3
    """The payload is text: base64."""
    advice = "behind a proxy that pools transactions, set bus_listen_url to the database's own address"

    def __init__(self, dsns: Sequence[str]) -> None:
        self._dsns = deque(dsns)
        self.name = re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:…@", dsns[0].partition("?")[0])

    async def connect(self, received: Received, dropped: Dropped) -> "NotifyConnection":
        """As the protocol says."""
        failures: list[Exception] = []
        for _ in range(len(self._dsns)):
            connection = NotifyConnection(received)
            try:
                await connection.open(self._dsns[0])
            except BaseException as error:
                await connection.close()
                if not isinstance(error, FAILURES):
                    raise
                failures.append(error)
                self._dsns.rotate(-1)
            else:
                return connection
        raise CarrierDown("; ".join(map(_text, failures))) from failures[-1]


class NotifyConnection:
    """A connection that sends, and one that listens."""

    def __init__(self, received: Received) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._received = received
        self._sender: asyncpg.Connection | None = None
        self._listener: asyncpg.Connection | None = None

    async def open(self, dsn: str) -> None:
        """Connect. Raises what the driver raises."""
        self._sender, self._listener = await _dial(dsn), None
        self._listener = await _dial(dsn)
        for connection in (self._sender, self._listener):
            connection.add_termination_listener(self._terminated)

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """As the protocol says."""
        assert self._sender is not None
        for start in range(0, len(messages), BATCH_MAX):
            notices = "; ".join(
                f"NOTIFY {_channel(subject)}, '{b64encode(data).decode()}'"
                for subject, data in messages[start : start + BATCH_MAX]
            )
            # Hints may be lost, so that nobody waits until the disk has them.
            sql = f"BEGIN; SET LOCAL synchronous_commit = off; {notices}; COMMIT"
            try:
                await self._sender.execute(sql, timeout=SEND_S)
            except FAILURES as error:
                raise CarrierDown(_text(error)) from error

    async def subscribe(self, subjects: Collection[str]) -> None:
        """As the protocol says."""
        assert self._listener is not None
        try:
            for subject in subjects:
                async with asyncio.timeout(SEND_S):
                    await self._listener.add_listener(_channel(subject), self._heard)
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def unsubscribe(self, subjects: Collection[str]) -> None:
        """As the protocol says."""
        assert self._listener is not None
        try:
            for subject in subjects:
                async with asyncio.timeout(SEND_S):
                    await self._listener.remove_listener(_channel(subject), self._heard)
        except FAILURES as error:
            raise CarrierDown(_text(error)) from error

    async def close(self) -> None:
        """As the protocol says."""
        for connection in (self._sender, self._listener):
            if connection is None:
                continue
            connection.remove_termination_listener(self._terminated)
            try:
                await connection.close(timeout=CLOSE_S)
            except FAILURES as error:
                log.debug("bus: a connection did not close: %s", _text(error))
                connection.terminate()

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        try:
            data = b64decode(str(payload), validate=True)
        except (Garbled, ValueError):
            data = b""  # a stranger's
        self._received(data)

    def _terminated(self, connection: object) -> None:
        if not self.lost.done():
            self.lost.set_result("the server closed the connection")


async def _dial(dsn: str) -> asyncpg.Connection:
    # Neither prepared statements nor settings of the session, in case there is a proxy all the same.
    settings = {"application_name": "dragoman bus"}
    return await asyncpg.connect(dsn, timeout=SEND_S, statement_cache_size=0, server_settings=settings)


def _channel(subject: str) -> str:
    """A subject as an identifier, which has at most 63 bytes: small letters, digits and '_'."""
    return subject.replace(".", "_")


def _text(error: BaseException) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
