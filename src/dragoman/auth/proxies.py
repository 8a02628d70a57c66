"""The proxies that the operator trusts, and the address of the client that they name.

Invariant: the word of anybody else counts for nothing, so that no client chooses the address under which it is noted.
"""

import ipaddress
from collections.abc import Sequence

HOPS_MAX = 32
"""Most addresses of `X-Forwarded-For` that are read, from the last one back. Real chains have two or three."""

REMEMBERED = 1024
"""How many peers are remembered with whether they are trusted."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The networks of the operator's own proxies."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raises ValueError for a network that is none."""
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._known: dict[str, bool] = {}

    def trusts(self, peer: str) -> bool:
        """Whether the address of a socket's peer is that of a trusted proxy. A text that is no address is not."""
        known = self._known.get(peer)
        if known is None:
            address = _parse(peer)
            known = address is not None and self._trusts(address)
            if len(self._known) >= REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[peer] = known
        return known

    def client(self, forwarded: Sequence[bytes]) -> str | None:
        """Return the client's address by the values of `X-Forwarded-For`, in their order; None if they name none.

        Each proxy adds the address of its own peer at the end. So the client is the last one that is not a trusted
        proxy: everything before it is the client's own word. If all are trusted, it is the first one.
        """
        found: Address | None = None
        for hop in reversed(b",".join(forwarded).decode("latin-1").rsplit(",", HOPS_MAX)[-HOPS_MAX:]):
            address = _parse(_without_port(hop.strip()))
            if address is None or "%" in hop:  # a zone (RFC 4007 §11) means nothing here, and may be any text
                break
            found = address
            if not self._trusts(address):
                break
        return None if found is None else str(found)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped  # a dual-stack socket shows an IPv4 peer this way
    return address


def _without_port(hop: str) -> str:
    """The address of a hop. Some proxies add the port of the peer: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
