"""The clients by which the endpoints of an agent are reached.

Invariant: the caller's credentials and headers go only to the origin of the URL that the caller gave, to the origins
the caller names in addition, and to gRPC endpoints on the same hosts. Any other origin is dialled only at public
internet addresses.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.client.card import beside
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.errors import no_answer
from dragoman.client.http import HttpClient
from dragoman.client.retries import Timeouts
from dragoman.net.address import Guard, Resolver
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError
from dragoman.net.target import endpoint_target, is_grpc
from dragoman.net.tls import MACHINE_TLS, ClientTls

if TYPE_CHECKING:
    from dragoman.net.grpc import GrpcEgress


class Doors:
    """The doors of one connection: the caller's own, and a guarded one for hosts that only a card names."""

    def __init__(
        self,
        own: Egress,
        origins: Sequence[str],
        credentials: Credentials | None,
        timeouts: Timeouts,
        tls: ClientTls = MACHINE_TLS,
    ) -> None:
        self.known: HttpClient = own if credentials is None else Authorized(own, credentials)
        self._own = own
        named = [endpoint_target(origin) for origin in origins]
        self._named = {each.origin: each for each in named}
        self._timeouts = timeouts
        # A stranger is shown no certificate, which would say who is calling.
        self._tls = ClientTls(ca_file=tls.ca_file, verify=tls.verify)
        self._strange: Egress | None = None
        self._resolver: Resolver | None = None

    def knows(self, url: str) -> bool:
        """Whether the caller named the origin of this URL, or the host of a gRPC endpoint."""
        to = endpoint_target(url)
        return to.origin in self._named or any(beside(to, each) for each in self._named.values())

    def way(self, url: str) -> HttpClient:
        """Return the client that may call this URL."""
        return self.known if self.knows(url) else self._guarded()

    def grpc(self, url: str) -> "GrpcEgress":
        """Return the door that may call this URL over gRPC; it adds no credentials."""
        return self._egress(url).grpc

    async def reach(self, url: str) -> None:
        """Open a connection to a URL without sending a request. Raises NoAnswer."""
        egress, timeout_s = self._egress(url), self._timeouts.connect_s
        try:
            if is_grpc(url):
                await egress.grpc.reach(endpoint_target(url), timeout_s=timeout_s)
            else:
                await egress.reach(url, timeout_s=timeout_s)
        except EgressError as error:
            raise no_answer(error, "connect_s") from error

    def _egress(self, url: str) -> Egress:
        return self._own if self.knows(url) else self._guarded()

    def _guarded(self) -> Egress:
        if self._strange is None:
            self._resolver = Resolver()
            self._strange = Egress(
                Guard(), connect_timeout_s=self._timeouts.connect_s, resolver=self._resolver, tls=self._tls
            )
        return self._strange

    async def close(self) -> None:
        """Close the guarded client; the other one belongs to the caller."""
        if self._strange is not None and self._resolver is not None:
            await self._strange.close()
            await self._resolver.close()
