"""The card of the MCP server, at the path that its text reserves beside `/mcp`. It is public, as agents' cards are.

Invariant: the card says nothing that the server does not say to whoever connects.
"""

import msgspec

from dragoman.auth.authenticator import Authenticator
from dragoman.bindings.documents import answer_document, make_document
from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import HttpRequest, HttpResponse
from dragoman.dialects.ai_catalog import MCP_SERVER_CARD, domain_of
from dragoman.dialects.mcp.server_card import make_server_card

MCP_PATH = "/mcp"


class ServerCardPage:
    """The endpoint `/mcp/server-card` of a program of this version."""

    def __init__(self, authenticator: Authenticator, version: str, public_url: str | None, max_age_s: int) -> None:
        self._authenticator = authenticator
        self._version = version
        self._public_url = public_url
        self._max_age_s = max_age_s
        self._domain = domain_of(public_url)

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoint."""
        return {"server_card": public(self.answer)}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /mcp/server-card`."""
        await self._authenticator.refresh()
        url = request.base_url(self._public_url) + MCP_PATH
        card = make_server_card(self._domain, url, self._version, asks=self._authenticator.required)
        cached = (b"cache-control", b"public, max-age=%d" % self._max_age_s)
        return answer_document(request, make_document(msgspec.json.encode(card), MCP_SERVER_CARD, cached))
