"""The servers that can carry hints."""

from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.bus.api import Bus
from dragoman.bus.carrier import Carrier
from dragoman.bus.nats import NatsCarrier
from dragoman.bus.open import make_bus
from dragoman.bus.postgres import NotifyCarrier
from tests.nats import NatsServer
from tests.postgres import PostgresServer

SECRET = b"secret"


class Place:
    """A server that carries messages, which can be stopped and started again."""

    def __init__(self, server: NatsServer | PostgresServer, bus: str, dsn: str | None) -> None:
        self.start, self.stop = server.start, server.stop
        self._bus, self._dsn = bus, dsn

    def bus(self, secret: bytes = SECRET) -> Bus:
        return make_bus(self._bus, secret, self._dsn)

    def carrier(self) -> Carrier:
        return NatsCarrier(self._bus) if self._dsn is None else NotifyCarrier(self._dsn)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The server is down in the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()
