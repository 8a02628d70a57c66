"""The egress to issuers of tokens, and to other hosts that they name.

Invariant: only a host that the operator named is dialled at any address; all others are checked.
"""

from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.net.address import Guard, Resolver
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.net.target import Target

KEYS_BYTES_MAX = 1 << 20
"""The largest key set that is read; a large issuer has some ten keys of 2 KB."""


class IssuerEgress(Struct, frozen=True):
    """Egress to token issuers. `named` dials hosts that the operator named, `guarded` the hosts that these refer to.

    `resolver` finds the addresses of the latter. It is closed with them.
    """

    named: Egress
    guarded: Egress
    resolver: Resolver

    @classmethod
    def over(cls, resolver: Resolver) -> "IssuerEgress":
        """Make both. They dial nothing before they are used."""
        return cls(
            Egress(operator_named, max_answer_bytes=KEYS_BYTES_MAX),
            Egress(Guard(), max_answer_bytes=KEYS_BYTES_MAX, resolver=resolver),
            resolver,
        )

    def to(self, url: Target, issuer: str) -> Egress:
        """The egress to a URL that the issuer named: only the issuer's own host counts as named by the operator."""
        return self.named if url.host == urlsplit(issuer).hostname else self.guarded

    async def close(self) -> None:
        """Close every connection, and end the look-ups."""
        await self.named.close()
        await self.guarded.close()
        await self.resolver.close()
