"""Another agent's card, as much of it as a caller needs.

Invariant: a card is read leniently: what is missing or of another type is empty, whatever its version.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.auth.signatures import VERIFIABLE, verify_card
from dragoman.client.wire import Requester, get_object
from dragoman.model.card import AgentCard

CARD_PATH = "/.well-known/agent.json"
"""Where KAOS and clients before 0.3 look; Dragoman serves the same at `/.well-known/agent-card.json`."""


class RemoteCard(Struct, frozen=True, kw_only=True):
    """What an agent says of itself. `supported_protocols` is KAOS's list; `whole` is the card as it came.

    `streams` is false only if it says so.
    """

    name: str = ""
    description: str = ""
    url: str = ""
    protocol_version: str = ""
    supported_protocols: tuple[str, ...] = ()
    streams: bool = True
    whole: dict[str, Any]


async def fetch_card(
    egress: Requester,
    base_url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    keys: Mapping[str, Any] | None = None,
) -> RemoteCard:
    """The card of the agent at `base_url`. With `keys`, a JWK Set, it must be signed by one of them.

    Raises EgressError, HttpRefusal, InvalidAgentResponse or CardNotVerified.
    """
    url = base_url.rstrip("/") + CARD_PATH
    whole = await get_object(egress, url, timeout_s=timeout_s, headers=headers or {})
    if keys is not None:
        verify(whole, keys)
    return read_card(whole)


def verify(whole: dict[str, Any], keys: Mapping[str, Any]) -> str:
    """The id of the key of the JWK Set `keys` that signed the card, whole or as A2A 1.0 reads it.

    Raises CardNotVerified.
    """
    return verify_card(whole, _readings(whole), keys, VERIFIABLE)


def _readings(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The card as 1.0 has it, for a signer who signed that part of it; none if it is no card of 1.0."""
    try:
        card = msgspec.convert({**whole, "signatures": []}, AgentCard)
    except msgspec.ValidationError:
        return []
    return [msgspec.to_builtins(card)]


def read_card(whole: dict[str, Any]) -> RemoteCard:
    """The card in a JSON object."""
    protocols = whole.get("supportedProtocols")
    capabilities = whole.get("capabilities")
    return RemoteCard(
        name=_text(whole, "name"),
        description=_text(whole, "description"),
        url=_text(whole, "url"),
        protocol_version=_text(whole, "protocolVersion"),
        supported_protocols=tuple(item for item in protocols if isinstance(item, str))
        if isinstance(protocols, list)
        else (),
        streams=not (isinstance(capabilities, dict) and capabilities.get("streaming") is False),
        whole=whole,
    )


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
