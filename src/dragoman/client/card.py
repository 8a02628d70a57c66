"""Another agent's card, as much of it as a caller needs.

Invariant: a card is read leniently: what is missing or of another type is empty, whatever its version.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dragoman.client.wire import get_object
from dragoman.net.egress import Egress

CARD_PATH = "/.well-known/agent.json"
"""Where KAOS and clients before 0.3 look; Dragoman serves the same at `/.well-known/agent-card.json`."""


class RemoteCard(Struct, frozen=True, kw_only=True):
    """What an agent says of itself. `supported_protocols` is KAOS's list; `whole` is the card as it came."""

    name: str = ""
    description: str = ""
    url: str = ""
    protocol_version: str = ""
    supported_protocols: tuple[str, ...] = ()
    whole: dict[str, Any]


async def fetch_card(
    egress: Egress, base_url: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
) -> RemoteCard:
    """The card of the agent at `base_url`. Raises EgressError, HttpRefusal or InvalidAgentResponse."""
    url = base_url.rstrip("/") + CARD_PATH
    return read_card(await get_object(egress, url, timeout_s=timeout_s, headers=headers or {}))


def read_card(whole: dict[str, Any]) -> RemoteCard:
    """The card in a JSON object."""
    protocols = whole.get("supportedProtocols")
    return RemoteCard(
        name=_text(whole, "name"),
        description=_text(whole, "description"),
        url=_text(whole, "url"),
        protocol_version=_text(whole, "protocolVersion"),
        supported_protocols=tuple(item for item in protocols if isinstance(item, str))
        if isinstance(protocols, list)
        else (),
        whole=whole,
    )


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
