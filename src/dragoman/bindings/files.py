"""Large files by their links: `GET /files/{task}/{digest}?…&expires=…&signature=…`.

Invariant: nothing is looked up before the signature is verified, and no file runs under the server's origin: browsers
treat it as a download without an origin.
"""

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import Gone, HttpRequest, HttpResponse, StreamingResponse
from dragoman.bindings.request import Header
from dragoman.engine.files import LinkClaim, Links
from dragoman.model.errors import NotFound, Unavailable
from dragoman.store.api import StoreError
from dragoman.store.blobs.api import BlobMissing, BlobStore

log = logging.getLogger(__name__)

MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,100}(; ?[\w.-]{1,40}=[\w.:+-]{1,80}){0,4}", re.ASCII)
ANY_TYPE = "application/octet-stream"

RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
"""One range. A request for several ranges gets the whole file, which RFC 9110 §14.2 allows."""

REDIRECT_S = 60.0
"""How long the bucket's own URL is valid; the reader follows the redirect at once."""

SAFE: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)


class FileDoor:
    """Serves the files behind links. `redirects`: send readers to the blob store itself, if it has URLs."""

    def __init__(self, blobs: BlobStore, links: Links, *, redirects: bool) -> None:
        self._blobs = blobs
        self._links = links
        self._redirects = redirects

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoint: a link says by itself who may read."""
        return {"files": public(self.answer)}

    async def answer(self, request: HttpRequest) -> HttpResponse | StreamingResponse:
        """Answer GET or HEAD. Raises A2AError."""
        ids = request.route.ids
        claim = self._links.claim(ids["task_id"], ids["digest"], request.query_fields())
        try:
            if (
                self._redirects
                and request.method == "GET"
                and (url := await self._blobs.elsewhere(claim.place, REDIRECT_S)) is not None
            ):
                headers: list[Header] = [(b"location", url.encode()), (b"cache-control", b"no-store"), *SAFE]
                return HttpResponse(307, [*headers, (b"content-length", b"0")], b"")
            size = await self._blobs.size(claim.place)
        except BlobMissing as error:
            raise NotFound("the file is gone: it is kept as long as its task") from error
        except StoreError as error:
            raise Unavailable("the files cannot be read now: try again", 5) from error
        return self._respond(request, claim, size)

    def _respond(self, request: HttpRequest, claim: LinkClaim, size: int) -> HttpResponse | StreamingResponse:
        etag = b'"%b"' % claim.place.digest.encode()
        headers: list[Header] = [
            (b"etag", etag),
            (b"cache-control", b"private, immutable, max-age=%d" % self._links.left_s(claim)),
            (b"accept-ranges", b"bytes"),
            *SAFE,
        ]
        if _matches(request.headers.get(b"if-none-match"), etag):
            return HttpResponse(304, headers, b"")
        start, stop, status = 0, size, 200
        if (found := _requested_range(request, etag, size)) is not None:
            start, stop = found
            if start >= stop:
                refused: list[Header] = [(b"content-range", b"bytes */%d" % size), (b"content-length", b"0")]
                return HttpResponse(416, [*refused, (b"cache-control", b"no-store"), *SAFE], b"")
            status = 206
            headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, size)))
        headers += [
            (b"content-type", _media_type(claim.media_type)),
            (b"content-length", b"%d" % (stop - start)),
            (b"content-disposition", _disposition(claim.name)),
        ]
        if request.method == "HEAD" or not size:
            return HttpResponse(status, headers, b"")
        return StreamingResponse(status, headers, self._read(claim, start, stop))

    async def _read(self, claim: LinkClaim, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """Read the bytes. If that fails midway, the answer breaks off; Content-Length tells the reader."""
        async with aclosing(self._blobs.pieces(claim.place, start, stop)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except StoreError as error:
                log.warning("a download broke off: %s", error)
                raise Gone from error


def _requested_range(request: HttpRequest, etag: bytes, size: int) -> tuple[int, int] | None:
    """The range that the reader asks for, as start and stop (RFC 9110 §14.1.2). None: the whole file.

    A range outside of the file has a start that is not below its stop.
    """
    said = request.text(b"range")
    if said is None or request.method != "GET" or request.headers.get(b"if-range", etag) != etag:
        return None
    found = RANGE.fullmatch(said.replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        return max(0, size - int(found[2])), size
    first = int(found[1])
    if not found[2]:
        return first, size
    last = int(found[2])
    return (first, min(size, last + 1)) if first <= last else None


def _matches(known: bytes | None, etag: bytes) -> bool:
    """Whether If-None-Match contains the ETag (RFC 9110 §13.1.2)."""
    return known is not None and any(each.strip().removeprefix(b"W/") in (etag, b"*") for each in known.split(b","))


def _media_type(said: str) -> bytes:
    return (said if MEDIA_TYPE.fullmatch(said) else ANY_TYPE).encode()


def _disposition(name: str) -> bytes:
    """`attachment` with the file's name (RFC 6266 §4; RFC 8187): ASCII for old clients, complete for the others."""
    name = "".join(character for character in name.replace("\\", "/").rpartition("/")[2] if character.isprintable())
    if not name.strip(". "):
        return b"attachment"
    plain = re.sub(r"[^A-Za-z0-9!#$&+.^_`|~ -]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}".encode()
