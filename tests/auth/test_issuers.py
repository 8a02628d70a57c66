"""The egress to issuers of tokens: what it opens, it closes."""

import pytest

from dragoman.auth.issuers import IssuerEgress
from dragoman.net.address import Resolver
from dragoman.net.errors import AddressRefused


class CountedResolver(Resolver):
    """Counts how often it is closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1
        await super().close()


async def test_look_ups_of_hosts_that_an_issuer_names_end_with_the_server() -> None:
    """Each resolver has a thread and four files of its own."""
    resolver = CountedResolver()
    issuers = IssuerEgress.over(resolver)
    with pytest.raises(AddressRefused):
        await issuers.guarded.request("GET", "http://localhost:9/keys", timeout_s=60)
    await issuers.close()
    assert resolver.closed == 1
