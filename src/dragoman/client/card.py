"""Another agent's card, as much of it as a caller needs.

Invariant: a card is read leniently: what is missing or of another type is empty, whatever its version.
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


def verify(whole: dict[str, Any], keys: Mapping[str, Any]) -> str:
    """The id of the key of the JWK Set `keys` that signed the card, whole or as A2A 1.0 reads it.

    Raises CardNotVerified.
    """
    return verify_card(whole, _readings(whole), keys, VERIFIABLE)


def _readings(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The card as 1.0 has it, for a signer who signed that part of it; none if it is no card of 1.0.

    What a card for both versions says of security is in 0.3's spelling, so that it is read in 1.0's, too.
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
