"""Egress: the door through which HTTP requests leave; webhook calls have their own, Poster.

Invariant: no redirect is followed, no cookie kept, no proxy or password taken from the environment; no answer is larger
than the limit, and no address is dialled that the policy was not asked about (invariant 13).
"""

import asyncio
import errno
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from dragoman import __version__
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, TooLarge, Unreachable, Unresolved
from dragoman.net.flow import Flow
from dragoman.net.resolver import Resolver
from dragoman.net.target import Target

if TYPE_CHECKING:  # aiohttp takes longer to import than a server may take to start
    import aiohttp
    import yarl

    from dragoman.net.dialer import Dialer

Policy = Callable[[str], str | None]
"""Whether an IP address, as the socket is about to dial it, may be dialled: None, or what speaks against it."""

CONNECT_TIMEOUT_S = 5.0
"""How long a connection may take to come about; one that takes longer is as good as none."""

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""As much as a request to this server may hold."""

CONNECTIONS_MAX = 100
"""Most connections of one Egress at once; further requests wait for one."""

_REFUSED = re.compile(r"address refused: ([A-Za-z0-9() -]+)", re.ASCII)


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


class Egress:
    """One pool of connections, under one policy; pools of different policies share no connection.

    `resolver` finds the addresses of hosts, and is not closed with it; without one the machine's C library is asked, on
    threads. An answer of DNS is used for one connection. A connection that is kept was checked when it was made.

    Belongs to the event loop of its first request, and is to be closed there.
    """

    def __init__(
        self,
        policy: Policy = operator_named,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_host_max: int = 0,
        resolver: Resolver | None = None,
    ) -> None:
        self._policy = policy
        self._connect_timeout_s = connect_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._connections_max = connections_max
        self._connections_per_host_max = connections_per_host_max
        self._resolver = resolver
        self._opened: tuple[aiohttp.ClientSession, Dialer] | None = None
        self._latest_timeout: aiohttp.ClientTimeout | None = None

    async def request(
        self,
        method: str,
        url: str | Target,
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
        shown = url.shown if isinstance(url, Target) else checked(url)
        import aiohttp

        (session, dialer), task = self._open(), asyncio.current_task()
        dialer.waiting.add(task)
        try:
            async with session.request(
                method,
                _exactly(url) if isinstance(url, Target) else url,
                data=body,
                headers=headers,
                timeout=self._timeout(timeout_s),
                allow_redirects=False,
            ) as answer:
                return _reply(answer, await self._body(answer, shown))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translated(error, shown, timeout_s, sent=task not in dialer.waiting) from error
        finally:
            dialer.waiting.discard(task)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[Flow]:
        """The answer, whatever its status, as soon as its head is there; its body is read as it comes.

        `head_timeout_s` is for all up to then, `idle_timeout_s` for each wait for more of the body; the whole has no
        limit of time. Made twice as `request`. What is left unread when the block ends, ends the connection.

        Raises EgressError as `request`; so does reading.
        """
        shown = url.shown if isinstance(url, Target) else checked(url)
        import aiohttp

        failures = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
        (session, dialer), task = self._open(), asyncio.current_task()
        dialer.waiting.add(task)
        try:
            async with asyncio.timeout(head_timeout_s):
                answer = await session.request(
                    method,
                    _exactly(url) if isinstance(url, Target) else url,
                    data=body,
                    headers=headers,
                    timeout=self._endless(head_timeout_s),
                    allow_redirects=False,
                )
        except failures as error:
            raise _translated(error, shown, head_timeout_s, sent=task not in dialer.waiting) from error
        finally:
            dialer.waiting.discard(task)
        flow = Flow(
            answer,
            shown=shown,
            idle_s=idle_timeout_s,
            max_bytes=self._max_answer_bytes,
            failures=failures,
            translate=lambda error: _translated(error, shown, idle_timeout_s, sent=True),
        )
        try:
            yield flow
        finally:
            flow.close()

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].close()

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

    def _timeout(self, timeout_s: float) -> "aiohttp.ClientTimeout":
        if self._latest_timeout is None or self._latest_timeout.total != timeout_s:
            import aiohttp

            self._latest_timeout = aiohttp.ClientTimeout(
                total=timeout_s,
                sock_connect=min(self._connect_timeout_s, timeout_s),
            )
        return self._latest_timeout

    def _endless(self, timeout_s: float) -> "aiohttp.ClientTimeout":
        import aiohttp

        return aiohttp.ClientTimeout(total=None, sock_connect=min(self._connect_timeout_s, timeout_s))

    def _open(self) -> "tuple[aiohttp.ClientSession, Dialer]":
        if self._opened is None:
            import aiohttp

            from dragoman.net.dialer import Dialer

            dialer = Dialer(
                resolver=self._resolver,
                limit=self._connections_max,
                limit_per_host=self._connections_per_host_max,
                socket_factory=self._socket,
            )
            session = aiohttp.ClientSession(
                connector=dialer,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,  # a small answer can decompress to a huge one
                headers={"User-Agent": f"dragoman/{__version__}", "Accept-Encoding": "identity"},
            )
            self._opened = session, dialer
        return self._opened

    def _socket(self, address: Any) -> socket.socket:
        """A socket for an address that was resolved just now, if the policy lets it be dialled."""
        family, kind, protocol, _, place = address
        if (reason := self._policy(place[0])) is not None:
            raise PermissionError(errno.EACCES, f"address refused: {reason}")
        return socket.socket(family, kind, protocol)


def _exactly(to: Target) -> "yarl.URL":
    """The target as the driver is to dial it. Raises BadUrl if it reads it differently."""
    import yarl

    url = yarl.URL(to.url, encoded=True)
    if (url.scheme, url.raw_host, url.port, url.raw_user) != (to.scheme, to.host, to.port, None):
        raise BadUrl(to.shown, "is read differently by different programs: write it plainly")
    return url


def _reply(answer: "aiohttp.ClientResponse", body: bytes) -> Reply:
    return Reply(answer.status, {name.lower(): value for name, value in answer.headers.items()}, body)


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


def _translated(error: Exception, shown: str, timeout_s: float, *, sent: bool) -> EgressError:
    """What an exception of the driver means."""
    import aiohttp

    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return BadUrl(shown, "is not a URL that can be called")
        case ValueError():  # raised over names and headers, before anything is sent
            return BadUrl(shown, "its host, or a header of the request, holds what cannot be sent")
        case TimeoutError() if sent:
            return TimedOut(shown, timeout_s)
        case _ if sent:
            return Broken(shown, "the connection broke before the answer was complete, or what came is not HTTP")
        case TimeoutError():
            return Unreachable(shown, "no connection in time: is it listening, and does a firewall let it be reached?")
        case aiohttp.ClientConnectorDNSError(os_error=Unresolved() as cause):
            return Unreachable(shown, f"its host {cause}")
        case aiohttp.ClientConnectorDNSError():
            return Unreachable(shown, "no such host: check its name")
        case aiohttp.ClientSSLError():
            return Unreachable(shown, "no TLS connection: check its certificate")
    if (found := _REFUSED.search(str(error))) is not None:
        return AddressRefused(shown, f"its host stands for {found[1]}, which may not be called from here")
    return Unreachable(shown, "no connection: is it listening there?")
