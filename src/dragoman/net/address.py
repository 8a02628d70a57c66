"""Finds the addresses of hosts, and decides whether an address may be dialled. Everything that is not on the public
internet is refused, also IPv4 in IPv6.

Invariant: a verdict depends on the address alone. The tables are Dragoman's own, because `ipaddress` of Python 3.11
calls some of these global (192.0.0.8, 192.88.99.1, ::127.0.0.1, 64:ff9b::10.0.0.1). A lookup is answered or given up in
time. No DNS answer is kept longer than its time to live, and the answer that a host has no address no longer than
KEPT_S. /etc/hosts, search domains and the servers of /etc/resolv.conf count as they do for the rest of the machine.
"""

import asyncio
import importlib
import re
import socket
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from dragoman.net.errors import AddressRefused, Unresolved
from dragoman.net.target import Target

if TYPE_CHECKING:  # it loads a shared library, which a server without webhooks does not need
    import aiodns

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PARSED_MAX = 1024
"""How many parsed addresses are remembered, names that are not addresses, and verdicts of a guard. Verdicts are kept by
the spelling of an address, since the hash of an `IPv4Address` takes 2 µs."""

_KINDS4 = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        # IANA IPv4 Special-Purpose Address Registry, "Globally Reachable" other than True; multicast RFC 5771
        ("0.0.0.0/32", "the unspecified address"),
        ("0.0.0.0/8", "an address of this network"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared (carrier-grade NAT) address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a 6to4 relay address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        # In no registry: the address at which every virtual machine of Azure reaches its host
        ("168.63.129.16/32", "an address of the cloud's platform"),
    )
)

_KINDS6 = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        # IANA IPv6 Special-Purpose Address Registry; the first that fits counts
        ("::/128", "the unspecified address"),
        ("::1/128", "a loopback address"),
        ("::/96", "an IPv4-compatible address"),  # RFC 4291 §2.5.5.1
        ("64:ff9b:1::/48", "a NAT64 address of local use"),  # RFC 8215
        ("100::/64", "a discard-only address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
)

_UNICAST = IPv6Network("2000::/3")
"""The range that IANA assigns for global use; addresses beyond it are reserved."""

_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The third 32 bits of an address that tunnels to the IPv4 address in the fourth (RFC 5214 §6.1)."""

TIMEOUT_S = 5.0
"""The time that the C library's resolver waits for one server."""

ADDRESSES_MAX = 16
"""Most addresses used per host: a DNS answer may hold thousands, and each may be tried."""

KEPT_S = 10.0
"""The longest time that an answer is kept. c-ares 1.34 keeps for an hour that a name has no address of one kind."""

_TRIES = 2


@lru_cache(PARSED_MAX)
def parse_address(address: str) -> Address | None:
    """Parse an address literal, None if it is not one. One with a zone (`%eth0`) is refused too: it names an interface.

    The spelling must be plain: four decimal numbers without leading zeros, or hexadecimal groups, in ASCII.
    """
    if not re.fullmatch(r"[0-9A-Fa-f:.]+", address):
        return None
    try:
        return IPv6Address(address) if ":" in address else IPv4Address(address)
    except ValueError:
        return None


def fault(address: str) -> str | None:
    """Return why an address may not be dialled (`a private address`); None if it is on the public internet."""
    return Guard()(address)


class Resolves(Protocol):
    """Resolves host names."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Return all addresses of the host, at least one. Raises Unresolved."""
        ...


class Guard:
    """The policy for addresses that others name: the public internet, and what the operator allows in addition.

    `allowed_cidrs` allow their addresses, including those embedded in an IPv6 address. `allowed_hosts` are for an
    Egress without a guard: their addresses are not checked. Called with an address, a Guard is a policy of Egress.
    """

    def __init__(self, allowed_hosts: Iterable[str] = (), allowed_cidrs: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_plain(host) for host in allowed_hosts)
        self._networks: Collection[Network] = tuple(ip_network(cidr) for cidr in allowed_cidrs)
        self._known = lru_cache(PARSED_MAX)(self._judge)

    def __call__(self, address: str) -> str | None:
        """Return why the address may not be dialled, in words that do not contain it; None if it may."""
        return self._known(address)

    def named(self, host: str) -> bool:
        """Whether the operator named exactly this host: then neither DNS nor addresses are checked."""
        return bool(self._hosts) and _plain(host) in self._hosts

    async def check(self, target: Target, resolver: Resolves) -> None:
        """Check all addresses of a target before it is stored. They are checked again when it is dialled.

        Raises AddressRefused if an address may not be dialled, or if there is none. It names the host and the kind of
        address, but not the address itself.
        """
        if self.named(target.host):
            return
        if parse_address(target.host) is not None:
            if (reason := self(target.host)) is not None:
                raise AddressRefused(target.shown, f"its host is {reason}, which may not be called from here")
            return
        try:
            addresses = await resolver.addresses(target.host)
        except Unresolved as error:
            raise AddressRefused(target.shown, f"its host {target.host} {error}") from error
        for address in addresses:
            if (reason := self(address)) is not None:
                raise AddressRefused(
                    target.shown, f"its host {target.host} resolves to {reason}, which may not be called from here"
                )

    def _judge(self, address: str) -> str | None:
        parsed = parse_address(address)
        return "not a plain IP address" if parsed is None else self._find_fault(parsed)

    def _find_fault(self, address: Address) -> str | None:
        allowed = any(address in network for network in self._networks)
        if isinstance(address, IPv4Address):
            return None if allowed else next((kind for network, kind in _KINDS4 if address in network), None)
        for inner in (embedded := _embedded(address)):  # checked even if allowed: `::/0` is not meant to allow 10.0.0.1
            if (reason := self._find_fault(inner)) is not None:
                return f"{reason} inside an IPv6 address"
        if allowed or (embedded and address not in _UNICAST):
            return None
        return _kind6(address)


def _kind6(address: IPv6Address) -> str | None:
    if address in _TEREDO:
        return None
    for network, kind in _KINDS6:
        if address in network:
            return kind
    return None if address in _UNICAST else "a reserved address"


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that packets to an IPv6 address may end up at."""
    bits = int(address)
    low = IPv4Address(bits & 0xFFFFFFFF)
    if address in _MAPPED or address in _NAT64:
        return (low,)
    if address in _6TO4:  # RFC 3056 §2
        return (IPv4Address(bits >> 80 & 0xFFFFFFFF),)
    if address in _TEREDO:  # RFC 4380 §4: the server, and the client with its bits inverted
        return IPv4Address(bits >> 64 & 0xFFFFFFFF), IPv4Address(~bits & 0xFFFFFFFF)
    if address in _UNICAST and bits >> 32 & 0xFFFFFFFF in _ISATAP:
        return (low,)
    return ()


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


class _Channel(Struct, eq=False):
    """A driver with its cache of answers, and the number of lookups that it is working on."""

    driver: "aiodns.DNSResolver"
    opened_s: float
    asking: int = 0

    def begin(self) -> None:
        """Count a lookup as under way."""
        self.asking += 1

    def end(self) -> None:
        """Undo one `begin`: the lookup is over."""
        self.asking -= 1


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
            channel.end()
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
        newest.begin()
        for channel in idle:
            await channel.driver.close()
        return newest
