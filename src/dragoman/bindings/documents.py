"""Documents that callers keep a copy of: cards, lists, descriptions. They are sent again only if they have changed.

Invariant: the ETag is a digest of the content, so that the same content has the same ETag on every replica.
"""

from hashlib import sha256

from msgspec import Struct

from dragoman.bindings.http import HttpRequest, HttpResponse
from dragoman.bindings.request import Header


class Document(Struct, frozen=True):
    """A body with its ETag and its headers: `headers` for a 200, `unchanged` for a 304."""

    body: bytes
    etag: bytes
    headers: list[Header]
    unchanged: list[Header]


def make_etag(content: bytes, *, weak: bool = False) -> bytes:
    """The ETag of some content; weak, if the bytes that are sent may differ while the content is the same."""
    return (b'W/"' if weak else b'"') + sha256(content).hexdigest()[:32].encode() + b'"'


def make_document(body: bytes, content_type: str, *further: Header) -> Document:
    """Make a document whose 304 has its ETag and the `further` headers."""
    etag = make_etag(body)
    unchanged = [(b"etag", etag), *further]
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *unchanged]
    return Document(body, etag, headers, unchanged)


def answer_document(request: HttpRequest, document: Document) -> HttpResponse:
    """Answer with the document, or with 304 if the caller has it."""
    known = request.headers.get(b"if-none-match")
    if known is not None and _matches(known, document.etag):
        return HttpResponse(304, document.unchanged, b"")
    return HttpResponse(200, document.headers, document.body)


def _matches(known: bytes, etag: bytes) -> bool:
    """Weak comparison, as If-None-Match asks for (RFC 9110 §13.1.2)."""
    return any(each.strip().removeprefix(b"W/") in (etag.removeprefix(b"W/"), b"*") for each in known.split(b","))
