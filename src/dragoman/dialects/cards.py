"""The cards: the pure one of A2A 1.0, and the hybrid at the well-known paths that 0.3 and 1.0 clients both parse.

Invariant: a card names only the endpoints of the mount it describes, and a version only where that version is served.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface, Profile

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


def extended_card(profile: Profile, at: Sequence[AgentInterface], *, extended: bool = False) -> AgentCard:
    """The card as A2A 1.0 has it (§4.4.1), which is also the answer of GetExtendedAgentCard.

    `extended` says whether that operation is offered to callers who have authenticated.
    """
    return AgentCard(
        name=profile.name,
        description=profile.description,
        supported_interfaces=tuple(at),
        version=profile.version,
        capabilities=AgentCapabilities(
            streaming=profile.streams,
            push_notifications=False,
            extended_agent_card=extended,
            extensions=profile.extensions,
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
        provider=profile.provider,
        documentation_url=profile.documentation_url,
        icon_url=profile.icon_url,
    )


def encode_well_known(profile: Profile, at: Sequence[AgentInterface], *, extended: bool = False) -> bytes:
    """The hybrid card: all of the 1.0 card, and beside it what 0.3 has and 1.0 does not.

    Security schemes are in 0.3's spelling, which the 1.x resolvers translate; a 0.3 client cannot read that of 1.0.
    """
    card = extended_card(profile, at, extended=extended)
    new: dict[str, Any] = msgspec.to_builtins(card)
    old = card_03(card) if any(each.protocol_version.startswith("0.3") for each in at) else {}
    capabilities = {**new["capabilities"], **old.get("capabilities", {})}
    return msgspec.json.encode({**new, **old, "capabilities": capabilities})
