"""A DNS server on loopback, over UDP, that answers what a test says: other things each time, chains, or nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import cast

from msgspec import Struct

A, CNAME, AAAA = 1, 5, 28


class Record(Struct, frozen=True):
    """A record of a name: an address, or another name."""

    value: str
    ttl: int = 0

    @property
    def kind(self) -> int:
        if self.value.endswith("."):
            return CNAME
        return A if ip_address(self.value).version == 4 else AAAA

    @property
    def data(self) -> bytes:
        if self.kind == CNAME:
            return _name(self.value)
        address: IPv4Address | IPv6Address = ip_address(self.value)
        return address.packed


class Nameserver(asyncio.DatagramProtocol):
    """Names and what they have; `silent` names are never answered, `failing` ones with an error."""

    def __init__(self) -> None:
        self.address = ""
        self.names: dict[str, list[Record]] = {}
        self.silent: set[str] = set()
        self.failing: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        self._came = asyncio.Event()

    async def questions(self, count: int) -> None:
        """Wait until so many have come."""
        while len(self.asked) < count:
            self._came.clear()
            await self._came.wait()

    def has(self, name: str, *values: str, ttl: int = 0) -> None:
        """From now on the name has these: addresses, or another name with a dot at its end."""
        self.names[name] = [Record(value, ttl) for value in values]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, place = [], 12
        while size := data[place]:
            labels.append(data[place + 1 : place + 1 + size].decode("latin-1"))
            place += 1 + size
        name = ".".join(labels).lower()
        (kind,) = struct.unpack_from("!H", data, place + 1)
        self.asked.append((name, kind))
        self._came.set()
        if name in self.silent:
            return
        found = self._found(name, kind)
        code = 2 if name in self.failing else 0 if name in self.names else 3
        head = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(found), 0, 0)
        answers = b"".join(
            _name(owner) + struct.pack("!HHIH", record.kind, 1, record.ttl, len(record.data)) + record.data
            for owner, record in found
        )
        self._transport.sendto(head + data[12 : place + 5] + answers, addr)

    def _found(self, name: str, kind: int) -> Sequence[tuple[str, Record]]:
        found: list[tuple[str, Record]] = []
        for record in self.names.get(name, ()):
            if record.kind == CNAME:
                found.append((name, record))
                found.extend(self._found(record.value.removesuffix("."), kind))
            elif record.kind == kind:
                found.append((name, record))
        return found


def _name(name: str) -> bytes:
    labels = name.removesuffix(".").split(".")
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


@asynccontextmanager
async def answering() -> AsyncIterator[Nameserver]:
    """A name server on a free port."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(Nameserver, local_addr=("127.0.0.1", 0))
    server.address = f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    try:
        yield server
    finally:
        transport.close()
