"""AI Catalog 0.9: the document by which programs find a host's agents and MCP servers.

Followed is the specification of the repository Agent-Card/ai-catalog, release 0.9.0, on the conformance level
"Discoverable". A consumer takes names, descriptions and versions from the cards, so that nothing is said twice.

Invariant: pure functions. An identifier is unique in its catalog, and changes only with the server's domain.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.model.card import Profile

PATH = "/.well-known/ai-catalog.json"
"""Path of a host's catalog (Discovery, Well-Known URI)."""

CONTENT_TYPE = "application/ai-catalog+json"
RELATION = "ai-catalog"
"""The type of links to a catalog (Discovery, Link Relation Discovery)."""

SPEC_VERSION = "0.9"

AGENT_CARD = "application/a2a-agent-card+json"
MCP_SERVER_CARD = "application/mcp-server-card+json"
"""Types of entries."""

_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))+", re.ASCII)


class CatalogHost(Struct, frozen=True, omit_defaults=True, kw_only=True, rename="camel"):
    """The operator of a catalog (Host Info)."""

    display_name: str
    identifier: str = ""


class CatalogPublisher(Struct, frozen=True, kw_only=True, rename="camel"):
    """The organisation that offers an artifact (Publisher Object)."""

    identifier: str
    display_name: str
    identity_type: str = "dns"


class AiCatalogEntry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An artifact: the document at `url`, of the media type `type` (Catalog Entry)."""

    identifier: str
    type: str
    url: str
    tags: tuple[str, ...] = ()
    publisher: CatalogPublisher | None = None


class AiCatalog(Struct, frozen=True, kw_only=True, rename="camel"):
    """A catalog (Top-Level Structure)."""

    spec_version: str = SPEC_VERSION
    host: CatalogHost
    entries: list[AiCatalogEntry]


def domain_of(url: str | None) -> str | None:
    """The DNS domain of a URL; None for an address, for a name without a dot, and without a URL."""
    host = (urlsplit(url or "").hostname or "").removesuffix(".")
    try:
        ip_address(host)
    except ValueError:
        return host if _DOMAIN.fullmatch(host) else None
    return None


def make_catalog(base: str, domain: str | None, entries: Iterable[AiCatalogEntry]) -> AiCatalog:
    """Make the catalog of the server at `base`, which has the given domain."""
    host = CatalogHost(display_name=domain or urlsplit(base).netloc, identifier=domain or "")
    return AiCatalog(host=host, entries=list(entries))


def agent_entry(profile: Profile, card_url: str, domain: str | None) -> AiCatalogEntry:
    """The entry of an agent whose card is at `card_url`. Its tags are those of its public skills."""
    provider = profile.provider
    publisher = None
    if provider is not None and (home := domain_of(provider.url)) is not None:
        publisher = CatalogPublisher(identifier=home, display_name=provider.organization)
    return AiCatalogEntry(
        identifier=identify(domain, profile.id, "a2a", card_url),
        type=AGENT_CARD,
        url=card_url,
        tags=tuple(dict.fromkeys(tag for skill in profile.skills for tag in skill.tags)),
        publisher=publisher,
    )


def mcp_entry(card_url: str, name: str, domain: str | None) -> AiCatalogEntry:
    """The entry of the MCP server whose card is at `card_url`."""
    return AiCatalogEntry(identifier=identify(domain, name, "mcp", card_url), type=MCP_SERVER_CARD, url=card_url)


def identify(domain: str | None, name: str, kind: str, url: str) -> str:
    """The identifier of an artifact: `urn:air:{publisher}:{name}:{kind}`; the URL, if the publisher has no domain."""
    return url if domain is None else f"urn:air:{domain}:{name}:{kind}"
