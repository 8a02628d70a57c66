"""Fetches the bytes of a file part whose URL a stranger wrote.

Invariant: no address is dialled that the guard has not approved, redirects included (invariant 13), and no more is
read than is allowed.
"""

import asyncio
import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from dragoman.engine.api import Unreadable
from dragoman.engine.files import NO_FILE
from dragoman.model.message import Part
from dragoman.net.address import Guard, Resolver, Resolves
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress, HttpReply
from dragoman.net.errors import BadUrl, EgressError, TimedOut
from dragoman.net.target import Target, target

REDIRECTS_MAX = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})

MAX_BYTES = 32 * 1024 * 1024
TIMEOUT_S = 30.0
"""The limits in a worker process, which has no settings."""

CONNECTIONS_MAX = 20
"""The most connections at once, to all hosts together; further readers wait."""

MAX_URL = 8192
"""Longer than for other URLs: a bucket's presigned URLs hold a signature and a token."""

NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
WHITE_SPACE = b" \t\n\r\f\v"

PIECE_BYTES = 65_536
"""How much of a data URL is decoded at once: a fully escaped one, decoded whole, would take 80 times its size."""


class FileReading:
    """Fetches http, https and data URLs: see `engine.files.Reading`.

    Hosts that the operator named have connections of their own; all others are checked as they are dialled.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        timeout_s: float = TIMEOUT_S,
        resolver: Resolves | None = None,
    ) -> None:
        self._guard = Guard() if guard is None else guard
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._own_resolver = Resolver() if resolver is None else None
        self._guarded = Egress(
            self._guard,
            max_answer_bytes=max_bytes,
            connections_max=CONNECTIONS_MAX,
            resolver=self._own_resolver or resolver,
        )
        self._named = Egress(operator_named, max_answer_bytes=max_bytes, connections_max=CONNECTIONS_MAX)

    async def fetch(self, url: str) -> bytes:
        """Return all bytes behind `url`. Raises Unreadable."""
        if url[:5].lower() == "data:":
            return await asyncio.to_thread(_inline, url, self._max_bytes)  # it may take a second
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        for _ in range(REDIRECTS_MAX + 1):
            reply = await self._request(url, until_s - loop.time())
            if reply.ok:
                return reply.body
            if reply.status not in REDIRECTS or "location" not in reply.headers:
                raise Unreadable(f"{_redact(url)} answers {reply.status}: the file is not there")
            url = _redirect_target(url, reply.headers["location"])
        raise Unreadable(f"{_redact(url)}: more than {REDIRECTS_MAX} redirects")

    async def _request(self, url: str, timeout_s: float) -> HttpReply:
        """Return one answer. The host of a redirect is checked like the first one."""
        try:
            to = target(url.partition("#")[0], MAX_URL)
        except BadUrl as error:
            raise Unreadable(f"{error}: a file is read over http or https, or is a data url") from error
        if timeout_s <= 0:
            raise self._late(to)
        egress = self._named if self._guard.named(to.host) else self._guarded
        try:
            return await egress.request("GET", to, timeout_s=timeout_s)
        except TimedOut as error:
            raise self._late(to) from error
        except EgressError as error:
            raise Unreadable(str(error)) from error

    def _late(self, to: Target) -> Unreadable:
        return Unreadable(f"{to.shown}: not there within {self._timeout_s:g} s (fetch_timeout_s)")

    async def close(self) -> None:
        """Close every connection."""
        await self._guarded.close()
        await self._named.close()
        if self._own_resolver is not None:
            await self._own_resolver.close()


async def read_here(part: Part) -> bytes:
    """The bytes of a file part, in a process that is not a server. Raises Unreadable."""
    if part.raw is not None:
        return part.raw
    if part.url is None:
        raise Unreadable(NO_FILE)
    reading = FileReading()
    try:
        return await reading.fetch(part.url)
    finally:
        await reading.close()


def _redirect_target(url: str, location: str) -> str:
    """The target of a redirect. A fetch over https stays on https."""
    try:
        further = urljoin(url, location)
    except ValueError as error:
        raise Unreadable(f"{_redact(url)} redirects to something that is not a URL") from error
    if url.lower().startswith("https:") and not further.lower().startswith("https:"):
        raise Unreadable(f"{_redact(url)} leads from https to {urlsplit(further).scheme or 'nothing'}: not followed")
    return further


def _inline(url: str, max_bytes: int) -> bytes:
    """The bytes of a data URL (RFC 2397). Raises Unreadable."""
    head, comma, content = url[5:].partition(",")
    if not comma:
        raise Unreadable("a data url needs a comma before its data")
    if len(content) > max_bytes * 4:
        raise Unreadable(f"a data url of more than the {max_bytes} bytes allowed (fetch_max_bytes)")
    found = b"".join(_unescape(content.encode("utf-8", "replace")))
    if head.lower().endswith(";base64"):
        try:
            found = found.translate(None, WHITE_SPACE)
            found = b64decode(found + b"=" * (-len(found) % 4), validate=True)
        except binascii.Error as error:
            raise Unreadable("a data url declares base64 but its data is not") from error
    if len(found) > max_bytes:
        raise Unreadable(f"a data url of more than the {max_bytes} bytes allowed (fetch_max_bytes)")
    return found


def _unescape(content: bytes) -> Iterator[bytes]:
    """Percent-decoded pieces of `content`. A percent sign that encodes nothing stays (WHATWG URL §1.3).

    Quoted-printable is the same encoding with another sign, and Python decodes it in C. The speed matters, since a
    stranger may escape every other byte.
    """
    start = 0
    while start < len(content):
        stop = start + PIECE_BYTES
        if stop < len(content) and (cut := content.rfind(b"%", stop - 2, stop)) >= 0:
            stop = cut
        piece = NO_ESCAPE.sub(b"%25", content[start:stop]).replace(b"=", b"%3D").replace(b"%", b"=")
        yield binascii.a2b_qp(piece)
        start = stop


def _redact(url: str) -> str:
    """A URL as errors may show it: without its query and credentials, which may be secret."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{parts.path}"[:200]
    except ValueError:
        return "a url"
