"""Another agent's card, with the fields that a caller needs.

Invariant: a card is read leniently. A field that is missing or has another type is empty, in every version.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.signatures import VERIFIABLE, verify_card
from dragoman.dialects import card_reading
from dragoman.dialects.heard import Unfit
from dragoman.model.card import AgentCard


class RemoteCard(Struct, frozen=True, kw_only=True):
    """An agent's description of itself. `supported_protocols` is KAOS's list; `whole` is the card as it came.

    `streams` is false only if the card says so.
    """

    name: str = ""
    description: str = ""
    url: str = ""
    protocol_version: str = ""
    supported_protocols: tuple[str, ...] = ()
    streams: bool = True
    whole: dict[str, Any]


def verify(whole: dict[str, Any], keys: Mapping[str, Any]) -> str:
    """Verify the card's signature, over the whole card or over the part that A2A 1.0 defines.

    Returns the id of the key of the JWK Set `keys` that signed it. Raises CardNotVerified.
    """
    return verify_card(whole, _readings(whole), keys, VERIFIABLE)


def _readings(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the card as 1.0 defines it, for signers who signed only that part; empty if it is not a card of 1.0.

    A card for both versions spells its security in the way of 0.3, so it is also read in the way of 1.0.
    """
    try:
        card = msgspec.convert({**whole, "signatures": []}, AgentCard)
    except msgspec.ValidationError:
        return []
    try:
        new = card_reading.card(whole)
    except Unfit:
        return [msgspec.to_builtins(card)]
    secured = replace(card, security_schemes=new.security_schemes, security_requirements=new.security_requirements)
    return [msgspec.to_builtins(each) for each in (card, secured)]


def read_card(whole: dict[str, Any]) -> RemoteCard:
    """Read a card from a JSON object."""
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
