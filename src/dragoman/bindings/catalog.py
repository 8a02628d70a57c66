"""The catalog at `/.well-known/ai-catalog.json`: where the cards of the agents are, and that of the MCP server.

Without credentials it has every agent, as all cards are public. With credentials it has those that the caller may use.

Invariant: each URL in the catalog answers with what the entry says is there, and names the same server.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from dragoman.bindings.callers import Callers
from dragoman.bindings.cards import VARY_BY_CALLER
from dragoman.bindings.documents import answer_document, make_document
from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import HttpRequest, HttpResponse
from dragoman.dialects import ai_catalog, cards
from dragoman.dialects.ai_catalog import AiCatalogEntry
from dragoman.dialects.system import Mount
from dragoman.model.card import Described
from dragoman.model.principal import ANONYMOUS

SERVER_CARD_PATH = "/mcp/server-card"
"""Path of the card that the MCP part serves (`bindings/mcp/card.py`), if there is one."""

MCP_SERVER = "dragoman"
"""The name of the MCP server, which it also has in its card."""


class CatalogSettings(Struct, frozen=True, kw_only=True):
    """The settings of a server that its catalog depends on.

    `mount` is where agents are listed, `default` the agent of a mount that names none. `mcp`: the server has tools.
    """

    mount: Mount
    default: str
    public_url: str | None
    max_age_s: int
    mcp: bool


class Catalog:
    """The catalog of a server with these agents."""

    def __init__(
        self,
        agents: Mapping[str, Described],
        settings: CatalogSettings,
        callers: Callers,
    ) -> None:
        self._agents = agents
        self._settings = settings
        self._callers = callers
        self._domain = ai_catalog.domain_of(settings.public_url)

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoint."""
        return {"catalog": public(self.answer)}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /.well-known/ai-catalog.json`. Raises A2AError if the credentials are not valid."""
        request.principal = await self._callers.recognise(request)
        base = request.base_url(self._settings.public_url)
        catalog = ai_catalog.make_catalog(base, self._domain, self._entries(request, base))
        scope = b"public" if request.principal is ANONYMOUS else b"private"
        cached = (b"cache-control", scope + b", max-age=%d" % self._settings.max_age_s)
        body = msgspec.json.encode(catalog)
        return answer_document(request, make_document(body, ai_catalog.CONTENT_TYPE, cached, VARY_BY_CALLER))

    def _entries(self, request: HttpRequest, base: str) -> Iterator[AiCatalogEntry]:
        mount = self._settings.mount
        usable = [name for name in self._agents if self._lists(request, name)]
        for name in usable:
            at = base + mount.path.replace("{id}", name).rstrip("/")
            yield ai_catalog.agent_entry(self._agents[name].profile, at + cards.WELL_KNOWN[0], self._domain)
        if usable and self._settings.mcp:
            yield ai_catalog.mcp_entry(base + SERVER_CARD_PATH, MCP_SERVER, self._domain)

    def _lists(self, request: HttpRequest, agent: str) -> bool:
        """Whether the agent can be reached here at all, and whether a known caller may use it."""
        if not self._settings.mount.names_agents and agent != self._settings.default:
            return False
        return request.principal is ANONYMOUS or self._callers.admits(request, agent)
