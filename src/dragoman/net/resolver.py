"""Resolves hosts with c-ares: a silent DNS server delays only the lookups that need it.

Invariant: a lookup is answered or given up in time. No answer is kept longer than its time to live, and the answer that
a host has no address no longer than KEPT_S. /etc/hosts, search domains and the servers of /etc/resolv.conf count as
they do for the rest of the machine.
"""

import asyncio
import importlib
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.net.errors import Unresolved

if TYPE_CHECKING:  # it loads a shared library, which a server without webhooks does not need
    import aiodns

TIMEOUT_S = 5.0
"""The time that the C library's resolver waits for one server."""

ADDRESSES_MAX = 16
"""Most addresses used per host: a DNS answer may hold thousands, and each may be tried."""

KEPT_S = 10.0
"""The longest time that an answer is kept. c-ares 1.34 keeps for an hour that a name has no address of one kind."""

_TRIES = 2


class _Channel(Struct, eq=False):
    """A driver with its cache of answers, and the number of lookups that it is working on."""

    driver: "aiodns.DNSResolver"
    opened_s: float
    asking: int = 0


class Resolver:
    """Looks up hosts. Belongs to the event loop of its first lookup; close it there.

    Used by `Guard.check`, an Egress and a Poster. `servers` are `address` or `address:port`; empty means the machine's
    own.
    """

    def __init__(self, *, timeout_s: float = TIMEOUT_S, servers: Sequence[str] = (), kept_s: float = KEPT_S) -> None:
        self._timeout_s = timeout_s
        self._servers = tuple(servers)
        self._kept_s = kept_s
        self._channels: list[_Channel] = []

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a host in the order to try them. Raises Unresolved."""
        if "aiodns" not in sys.modules:  # loading takes a while, and must not block the loop
            await asyncio.to_thread(importlib.import_module, "aiodns")
        channel = await self._open()
        import aiodns
        import pycares

        try:
            async with asyncio.timeout(self._timeout_s):
                found = await channel.driver.getaddrinfo(host, socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise Unresolved(f"could not be looked up: no answer from DNS within {self._timeout_s:g} s") from error
        except aiodns.error.DNSError as error:
            if error.args[0] in (pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME):
                raise Unresolved("does not exist, or has no address: check its name") from error
            raise Unresolved("could not be looked up: DNS does not answer, or fails") from error
        finally:
            channel.asking -= 1
        nodes = {str(node.addr[0], "ascii"): None for node in found.nodes}
        if not nodes:
            raise Unresolved("does not exist, or has no address: check its name")
        return list(nodes)[:ADDRESSES_MAX]

    async def close(self) -> None:
        """End all running lookups. A later lookup starts anew."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.driver.close()

    async def _open(self) -> _Channel:
        """Return the newest channel, or a new one if that is too old, and count a lookup on it.

        Old channels close once they are idle.
        """
        now, idle = asyncio.get_running_loop().time(), []
        if not self._channels or now - self._channels[-1].opened_s >= self._kept_s:
            import aiodns

            idle = [channel for channel in self._channels if not channel.asking]
            self._channels = [channel for channel in self._channels if channel.asking]
            # The second try waits twice as long as the first. Together they take as long as a lookup may.
            driver = aiodns.DNSResolver(
                nameservers=self._servers or None,
                loop=asyncio.get_running_loop(),
                timeout=self._timeout_s / 3,
                tries=_TRIES,
            )
            self._channels.append(_Channel(driver, now))
        newest = self._channels[-1]
        newest.asking += 1
        for channel in idle:
            await channel.driver.close()
        return newest
