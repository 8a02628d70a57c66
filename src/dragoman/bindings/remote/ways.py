"""The ways to hosts that an operator names in the console.

Invariant: an address that is not on the public internet is dialled only for a host that the settings name, or from a
server that only this machine reaches and that asks nobody. The check looks at the address that is about to be dialled.
"""

from collections.abc import Iterable

from dragoman.auth.authenticator import Authenticator
from dragoman.net.address import Guard, Resolver
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.net.target import endpoint_target

ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Largest card, and largest answer that is no stream."""


class RemoteWays:
    """One door for hosts whose every address may be dialled, and a guarded one for all others.

    Every address may be dialled if only this machine reaches the server (`local`), as long as the `authenticator` asks
    nobody.
    """

    def __init__(self, allowed_hosts: Iterable[str], authenticator: Authenticator, *, local: bool) -> None:
        self._named = Guard(allowed_hosts)
        self._authenticator = authenticator
        self._local = local
        self._resolver = Resolver()
        self._open = Egress(operator_named, max_answer_bytes=ANSWER_BYTES_MAX)
        self._guarded = Egress(Guard(), max_answer_bytes=ANSWER_BYTES_MAX, resolver=self._resolver)

    def to(self, url: str) -> Egress:
        """The door by which a URL may be called. Raises BadUrl."""
        local = self._local and not self._authenticator.required
        return self._open if local or self._named.named(endpoint_target(url).host) else self._guarded

    async def close(self) -> None:
        """Close every connection."""
        await self._open.close()
        await self._guarded.close()
        await self._resolver.close()
