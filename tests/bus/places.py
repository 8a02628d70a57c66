"""The servers that can carry hints."""

from collections.abc import Iterator, Sequence
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

    def __init__(self, server: NatsServer | PostgresServer, bus: str, dsns: Sequence[str]) -> None:
        self.start, self.stop = server.start, server.stop
        self._bus, self._dsns = bus, dsns

    def bus(self, secret: bytes = SECRET) -> Bus:
        return make_bus(self._bus, secret, self._dsns)

    def carrier(self) -> Carrier:
        return NotifyCarrier(self._dsns) if self._dsns else NatsCarrier(self._bus)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The server is down in the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()
