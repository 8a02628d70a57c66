"""Egress: the one door through which HTTP requests leave.

Invariant: no redirect is followed, no cookie kept, no proxy or password taken from the environment; no answer is larger
than the limit, and no address is dialled that the policy was not asked about (invariant 13).
"""

import errno
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from dragoman import __version__
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, TooLarge, Unreachable

if TYPE_CHECKING:  # aiohttp takes longer to import than a server may take to start
    import aiohttp

Policy = Callable[[str], str | None]
"""Whether an IP address, as the socket is about to dial it, may be dialled: None, or what speaks against it."""

CONNECT_TIMEOUT_S = 5.0
"""How long a connection may take to come about; one that takes longer is as good as none."""

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""As much as a request to this server may hold."""

CONNECTIONS_MAX = 100
"""Most connections of one Egress at once; further requests wait for one."""

_REFUSED = "address refused: "


def operator_named(address: str) -> str | None:
    """The policy for hosts that the operator named: every address may be dialled."""
    return None


class Reply(Struct, frozen=True):
    """What came back, of any status. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300


class _Progress(Struct):
    """How far one request has come."""

    sent: bool = False


class Egress:
    """One pool of connections, under one policy; pools of different policies share no connection.

    Belongs to the event loop of its first request, and is to be closed there.
    """

    def __init__(
        self,
        policy: Policy = operator_named,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._policy = policy
        self._connect_timeout_s = connect_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """The answer, whatever its status, read to its end. `timeout_s` is for all of it, waiting for a connection too.

        Of an idempotent method (RFC 9110 §9.2.2), and of no other, a request whose connection ends before the answer
        begins is made once more.

        Raises EgressError, whose `sent` says whether the other side may have carried the request out.
        """
        shown = checked(url)
        import aiohttp

        session, progress = self._open(), _Progress()
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(self._connect_timeout_s, timeout_s))
        try:
            async with session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                trace_request_ctx=progress,
            ) as answer:
                return Reply(
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    await self._body(answer, shown),
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translated(error, shown, progress, timeout_s) from error

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _body(self, answer: "aiohttp.ClientResponse", shown: str) -> bytes:
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Broken(shown, "the answer is compressed although the request asked for identity")
        if answer.content_length is not None and answer.content_length > self._max_answer_bytes:
            raise TooLarge(shown, self._max_answer_bytes)
        pieces: list[bytes] = []
        size = 0
        async for piece in answer.content.iter_any():
            size += len(piece)
            if size > self._max_answer_bytes:
                raise TooLarge(shown, self._max_answer_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            traced = aiohttp.TraceConfig()
            traced.on_request_headers_sent.append(_headers_sent)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections_max, socket_factory=self._socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,  # a small answer can decompress to a huge one
                headers={"User-Agent": f"dragoman/{__version__}", "Accept-Encoding": "identity"},
                trace_configs=[traced],
            )
        return self._session

    def _socket(self, address: Any) -> socket.socket:
        """A socket for an address that was resolved just now, if the policy lets it be dialled."""
        family, kind, protocol, _, place = address
        if (reason := self._policy(place[0])) is not None:
            raise PermissionError(errno.EACCES, f"{_REFUSED}{place[0]}: {reason}")
        return socket.socket(family, kind, protocol)


async def _headers_sent(session: object, context: Any, params: object) -> None:
    context.trace_request_ctx.sent = True


def checked(url: str) -> str:
    """The URL as it may be shown, without credentials and query. Raises BadUrl if it is not http or https."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadUrl(repr(url[:200]), "is not a URL: use http://host:port/path or https://…") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadUrl(repr(url[:200]), "is not a URL that can be called: use http://host:port/path or https://…")
    place = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", parts.path, "", ""))


def _translated(error: Exception, shown: str, progress: _Progress, timeout_s: float) -> EgressError:
    """What an exception of the driver means."""
    import aiohttp

    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return BadUrl(shown, "is not a URL that can be called")
    if not progress.sent:
        if isinstance(error, TimeoutError):
            return Unreachable(shown, "no connection in time: is it listening, and does a firewall let it be reached?")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Unreachable(shown, "no such host: check its name")
        if _REFUSED in str(error):
            return AddressRefused(shown, "its address may not be dialled from here")
        if isinstance(error, aiohttp.ClientSSLError):
            return Unreachable(shown, "no TLS connection: check its certificate")
        return Unreachable(shown, "no connection: is it listening there?")
    if isinstance(error, TimeoutError):
        return TimedOut(shown, timeout_s)
    return Broken(shown, "the connection broke before the answer was complete, or what came is not HTTP")
