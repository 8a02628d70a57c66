"""The cards: the pure one of A2A 1.0, and the hybrid at the well-known paths that 0.3 and 1.0 clients both parse.

Invariant: a card names only the endpoints of the mount it describes, and a version only where that version is served.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, Profile

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where a card is, below the root and below every mount (A2A 1.0 §8.2; the second is that of 0.2)."""

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"

VERSIONS = ("1.0", "0.3")
"""The official versions, the preferred one first: @a2a-js/sdk 1.x compares with exactly `1.0`."""


def interfaces(base_url: str, mount: str, versions: Sequence[str] = VERSIONS) -> tuple[AgentInterface, ...]:
    """The endpoints of a mount (`/`, `/agents/echo`) under a public base URL, the preferred one first.

    HTTP+JSON URLs end without a slash: clients append `/message:send` in 1.0 and `/v1/message:send` in 0.3.
    """
    base = base_url.rstrip("/") + mount.rstrip("/")
    rpc = base if mount.rstrip("/") else base + "/"
    urls = ((JSONRPC, rpc), (HTTP_JSON, base))
    return tuple(
        AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
        for version in versions
        for binding, url in urls
    )


class Offer(Struct, frozen=True, kw_only=True):
    """What the server adds to what an agent says of itself.

    `extended`: GetExtendedAgentCard is offered to callers who have authenticated. `extensions` are those of the mount's
    own system. `keyed`: callers must send a key. `protocols` and `history` are KAOS's `supportedProtocols` and
    `stateTransitionHistory`.
    """

    extended: bool = False
    extensions: tuple[AgentExtension, ...] = ()
    keyed: bool = False
    protocols: tuple[str, ...] = ("jsonrpc",)
    history: bool = False


PLAIN = Offer()

API_KEY = {"apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}}
"""Where a key is sent, as A2A 1.0 §4.5.2 writes it."""


def extended_card(profile: Profile, at: Sequence[AgentInterface], offer: Offer = PLAIN) -> AgentCard:
    """The card as A2A 1.0 has it (§4.4.1), which is also the answer of GetExtendedAgentCard."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        supported_interfaces=tuple(at),
        version=profile.version,
        capabilities=AgentCapabilities(
            streaming=profile.streams,
            push_notifications=False,
            extended_agent_card=offer.extended,
            extensions=(*profile.extensions, *offer.extensions),
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
        provider=profile.provider,
        documentation_url=profile.documentation_url,
        icon_url=profile.icon_url,
        security_schemes=API_KEY if offer.keyed else None,
        security_requirements=({"schemes": {"apiKey": {"list": []}}},) if offer.keyed else (),
    )


def encode_well_known(profile: Profile, at: Sequence[AgentInterface], offer: Offer = PLAIN) -> bytes:
    """The hybrid card: all of the 1.0 card, and beside it what 0.3 has and 1.0 does not.

    It begins as KAOS's text shows it: name, version of the protocol, protocols, capabilities.

    Security schemes are in 0.3's spelling, which the 1.x resolvers translate; a 0.3 client cannot read that of 1.0.
    """
    card = extended_card(profile, at, offer)
    new: dict[str, Any] = msgspec.to_builtins(card)
    old = card_03(card) if any(each.protocol_version.startswith("0.3") for each in at) else {}
    both = {**new, **old}
    for name in ("securitySchemes", "securityRequirements"):
        if name not in old:
            both.pop(name, None)  # a 0.3 client cannot read that of 1.0; the 1.x resolvers translate 0.3's
    said = {**new["capabilities"], **old.get("capabilities", {})}
    capabilities = {name: said[name] for name in ("streaming", "pushNotifications")}
    if old:
        capabilities["stateTransitionHistory"] = offer.history
    begin: dict[str, Any] = {"name": profile.name}
    if old:
        begin |= {"protocolVersion": old["protocolVersion"], "supportedProtocols": list(offer.protocols)}
    begin["capabilities"] = {
        **capabilities,
        **{name: value for name, value in said.items() if name not in capabilities},
    }
    return msgspec.json.encode({**begin, **{name: value for name, value in both.items() if name not in begin}})
