"""Answers `/openapi.json` and `/docs`.

Both are public, as the cards are: they describe the software and name the default agent, and say nothing of callers
and tasks. A client has to know how to call before it has a key.

Invariant: the answers keep their bytes, and so their ETags, as long as the application lives. Nothing is made before
the first request.
"""

from hashlib import sha256

import msgspec
from msgspec import Struct

from dragoman import __version__
from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import JSON, NOT_SNIFFED, HttpRequest, HttpResponse
from dragoman.bindings.openapi.operations import ServedPaths, make_server_document
from dragoman.bindings.openapi.page import SAFETY, render
from dragoman.bindings.request import Header

ASK_AGAIN: Header = (b"cache-control", b"no-cache")


class DescribedForm(Struct, frozen=True):
    """One form of the description: its bytes and headers."""

    body: bytes
    headers: list[Header]
    etag: bytes


class Description:
    """The description of a server, in its two forms."""

    def __init__(self, served: ServedPaths) -> None:
        self._served = served
        self._document: DescribedForm | None = None
        self._page: DescribedForm | None = None

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        return {"openapi": public(self.answer_document), "docs": public(self.answer_page)}

    async def answer_document(self, request: HttpRequest) -> HttpResponse:
        """The OpenAPI document."""
        if self._document is None:
            body = msgspec.json.encode(make_server_document(__version__, self._served))
            self._document = _form(body, [JSON])
        return _answer(request, self._document)

    async def answer_page(self, request: HttpRequest) -> HttpResponse:
        """The page that shows the same."""
        if self._page is None:
            body = render(make_server_document(__version__, self._served)).encode()
            self._page = _form(body, [(b"content-type", b"text/html; charset=utf-8"), *SAFETY])
        return _answer(request, self._page)


def _form(body: bytes, headers: list[Header]) -> DescribedForm:
    etag = b'"' + sha256(body).hexdigest()[:32].encode() + b'"'
    return DescribedForm(body, [*headers, (b"etag", etag), ASK_AGAIN, NOT_SNIFFED], etag)


def _answer(request: HttpRequest, form: DescribedForm) -> HttpResponse:
    known = request.headers.get(b"if-none-match", b"")
    if any(each.strip().removeprefix(b"W/") == form.etag for each in known.split(b",")):
        return HttpResponse(304, form.headers, b"")
    return HttpResponse(200, [*form.headers, (b"content-length", b"%d" % len(form.body))], form.body)
