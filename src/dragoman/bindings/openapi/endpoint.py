"""Answers `/openapi.json` and `/docs`.

Both are public, as the cards are: they describe the software and name the default agent, and say nothing of callers
and tasks. A client has to know how to call before it has a key.

Invariant: the answers keep their bytes, and so their ETags, as long as the application lives and is mounted at the same
path. Nothing is made before the first request.
"""

from urllib.parse import quote

import msgspec

from dragoman import __version__
from dragoman.bindings.documents import Document, answer_document, make_etag
from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import JSON, NOT_SNIFFED, HttpRequest, HttpResponse
from dragoman.bindings.openapi.operations import ServedPaths, make_server_document
from dragoman.bindings.openapi.page import SAFETY, render
from dragoman.bindings.request import PATH_SAFE, Header

ASK_AGAIN: Header = (b"cache-control", b"no-cache")


class Description:
    """The description of a server, in its two forms."""

    def __init__(self, served: ServedPaths) -> None:
        self._served = served
        self._mount = ""
        self._document: Document | None = None
        self._page: Document | None = None

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        return {"openapi": public(self.answer_document), "docs": public(self.answer_page)}

    async def answer_document(self, request: HttpRequest) -> HttpResponse:
        """The OpenAPI document."""
        self._place(request)
        if self._document is None:
            body = msgspec.json.encode(make_server_document(__version__, self._served, self._mount))
            self._document = _form(body, [JSON])
        return answer_document(request, self._document)

    async def answer_page(self, request: HttpRequest) -> HttpResponse:
        """The page that shows the same."""
        self._place(request)
        if self._page is None:
            body = render(make_server_document(__version__, self._served, self._mount)).encode()
            self._page = _form(body, [(b"content-type", b"text/html; charset=utf-8"), *SAFETY])
        return answer_document(request, self._page)

    def _place(self, request: HttpRequest) -> None:
        """Make the forms anew if the application is now mounted at another path."""
        mount = quote(request.scope.get("root_path", ""), safe=PATH_SAFE)
        if mount != self._mount:
            self._mount, self._document, self._page = mount, None, None


def _form(body: bytes, headers: list[Header]) -> Document:
    etag = make_etag(body)
    unchanged = [*headers, (b"etag", etag), ASK_AGAIN, NOT_SNIFFED]
    return Document(body, etag, [*unchanged, (b"content-length", b"%d" % len(body))], unchanged)
