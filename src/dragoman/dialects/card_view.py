"""A client's view of another agent's card before it knows the card's kind.

Invariant: pure and total. A field that is missing or has another type is empty.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from msgspec import Struct

Json = dict[str, Any]


class CardView(Struct, frozen=True):
    """A card, its URL, and the agent's URL as the caller gave it, without a trailing slash."""

    card: Json
    card_url: str
    base: str

    @property
    def at(self) -> str:
        """The agent's URL in a card of 0.3; empty if the card names none."""
        return absolute_url(self.card.get("url"), self.card_url)

    @property
    def listed(self) -> list[Json]:
        """The endpoints that a card of 1.0 lists."""
        return objects_in(self.card.get("supportedInterfaces"))

    @property
    def path(self) -> str:
        """The path of the agent's URL."""
        return re.sub(r"^[a-z]+://[^/]*", "", (self.at or self.base).partition("?")[0], flags=re.IGNORECASE)

    @property
    def schemes(self) -> Mapping[str, Any]:
        """The card's security schemes by name."""
        schemes = self.card.get("securitySchemes")
        return schemes if isinstance(schemes, dict) else {}

    @property
    def extensions(self) -> list[Json]:
        """The extensions that the card declares."""
        capabilities = self.card.get("capabilities")
        return objects_in(capabilities.get("extensions")) if isinstance(capabilities, dict) else []

    @property
    def uris(self) -> list[str]:
        """The URIs of the declared extensions."""
        return [uri for each in self.extensions if isinstance(uri := each.get("uri"), str)]


def absolute_url(url: object, card_url: str) -> str:
    """Resolve a URL of a card relative to the card's own URL; empty if it is not a URL."""
    if not isinstance(url, str) or not url.strip():
        return ""
    try:
        return urljoin(card_url, url.strip())
    except ValueError:
        return ""


def objects_in(value: object) -> list[Json]:
    """Return the objects of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
