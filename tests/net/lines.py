"""A server on loopback that keeps connections and says exactly what a test tells it to, and who vouches for it."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Line:
    """One connection of a caller's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def asked(self) -> tuple[str, bytes]:
        """The head and the body of the next request. Raises IncompleteReadError if there is none."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0] or 0)
        return head, await self.reader.readexactly(length)

    async def says(self, *pieces: bytes) -> None:
        """These bytes, each piece in a packet of its own as far as the loop can see to it."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def ended(self) -> None:
        """Until the caller has left, having said nothing more."""
        assert await self.reader.read() == b""

    def reset(self) -> None:
        """Hang up without a goodbye."""
        linger_not = struct.pack("ii", 1, 0)  # then closing resets
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        self._writer.transport.abort()

    @property
    def tls(self) -> ssl.SSLObject:
        tls: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return tls


Talk = Callable[[Line], Awaitable[None]]


class Lines:
    """`talk` is had with every connection until the caller leaves or the talk is over; `came` counts connections."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.came = 0
        self.port = 0
        self.failed: list[BaseException] = []
        self._over = asyncio.Condition()
        self._talks = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        try:
            await self.talk(Line(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except AssertionError as error:
            self.failed.append(error)
        finally:
            writer.close()
            async with self._over:
                self._talks += 1
                self._over.notify_all()

    @property
    def open(self) -> int:
        """How many connections are open, as far as the server has seen."""
        return self.came - self._talks

    async def over(self, talks: int) -> None:
        """Until so many connections have been talked with to the end."""
        async with self._over:
            await self._over.wait_for(lambda: self._talks >= talks)


@asynccontextmanager
async def speaking(
    talk: Talk, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Lines]:
    """On a free port, if on no other."""
    lines = Lines(talk)
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.get_running_loop().create_task(lines.take(reader, writer)))

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    lines.port = server.sockets[0].getsockname()[1]
    try:
        yield lines
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
    assert not lines.failed, lines.failed


async def obliging(line: Line) -> None:
    """Takes whatever comes."""
    while True:
        await line.asked()
        await line.says(NO_CONTENT)


class Authority:
    """Certifies servers, for tests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of a test")])
        self.path = directory / "authority.pem"
        certificate = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0), days=1)
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, days: int = 1) -> ssl.SSLContext:
        """The context that a server of these names and addresses needs."""
        key = ec.generate_private_key(ec.SECP256R1())
        known: list[x509.GeneralName] = [
            x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of a test")])
        certificate = self._signed(subject, key, x509.SubjectAlternativeName(known), days=days)
        path = self._directory / f"{names[0]}.pem"
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, what: x509.ExtensionType, days: int
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        authority = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(what, critical=isinstance(what, x509.BasicConstraints))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority), critical=False)
            .sign(self._key, hashes.SHA256())
        )


@contextmanager
def silent_port() -> Iterator[int]:
    """A port of 127.0.0.1 at which a connection never comes about: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        queued = [socket.socket() for _ in range(3)]
        for one in queued:
            one.setblocking(False)
            one.connect_ex(address)
        try:
            yield address[1]
        finally:
            for one in queued:
                one.close()
