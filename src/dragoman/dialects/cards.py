"""The cards: the pure one of A2A 1.0, and the hybrid at the well-known paths that 0.3 and 1.0 clients both parse.

Invariant: a card names only the endpoints of the mount it describes, and a version only where that version is served.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.v03.card import card as card_03
from dragoman.dialects.v03.card import unsaid
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
    own system. `pushes`: there are webhooks. `schemes` are the ways to say who one is, by name, `requirements` which
    of them callers must use, both as A2A 1.0 §4.5 spells them; none: nobody is asked. `protocols` and `history` are
    KAOS's `supportedProtocols` and `stateTransitionHistory`.
    """

    extended: bool = False
    extensions: tuple[AgentExtension, ...] = ()
    pushes: bool = False
    schemes: Mapping[str, Any] = {}
    requirements: Sequence[dict[str, Any]] = ()
    protocols: tuple[str, ...] = ("jsonrpc",)
    history: bool = False


PLAIN = Offer()


def card(profile: Profile, at: Sequence[AgentInterface], offer: Offer = PLAIN) -> AgentCard:
    """The card that anybody may see, as A2A 1.0 has it (§4.4.1)."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        supported_interfaces=tuple(at),
        version=profile.version,
        capabilities=AgentCapabilities(
            streaming=profile.streams,
            push_notifications=offer.pushes,
            extended_agent_card=offer.extended,
            extensions=(*_further(profile, offer), *offer.extensions),
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
        provider=profile.provider,
        documentation_url=profile.documentation_url,
        icon_url=profile.icon_url,
        security_schemes=dict(offer.schemes) or None,
        security_requirements=tuple(offer.requirements),
    )


def _further(profile: Profile, offer: Offer) -> list[AgentExtension]:
    """What the agent names beside what the server does: an agent of another server may name the same."""
    ours = {each.uri for each in offer.extensions}
    return [each for each in profile.extensions if each.uri not in ours]


def extended_card(profile: Profile, at: Sequence[AgentInterface], offer: Offer = PLAIN) -> AgentCard:
    """The card for callers who have authenticated, with the skills that only they are told of (A2A 1.0 §3.1.11)."""
    public = card(profile, at, offer)
    return replace(public, skills=(*public.skills, *profile.extended_skills))


def encode_well_known(profile: Profile, at: Sequence[AgentInterface], offer: Offer = PLAIN) -> bytes:
    """The hybrid of the public card."""
    return msgspec.json.encode(hybrid(card(profile, at, offer), offer))


def signed_forms(of: AgentCard) -> list[dict[str, Any]]:
    """The forms of a card to be signed: as 1.0 has it, and, if it has an endpoint of 0.3, as that has it."""
    forms: list[dict[str, Any]] = [msgspec.to_builtins(of)]
    if any(each.protocol_version.startswith("0.3") for each in of.supported_interfaces):
        old = card_03(of)
        forms += [old, unsaid(old)]
    return forms


def hybrid(of: AgentCard, offer: Offer = PLAIN) -> dict[str, Any]:
    """The hybrid card: all of the 1.0 card, and beside it what 0.3 has and 1.0 does not.

    It begins as KAOS's text shows it: name, version of the protocol, protocols, capabilities.

    Security schemes are in 0.3's spelling, which the 1.x resolvers translate; a 0.3 client cannot read that of 1.0.
    """
    new: dict[str, Any] = msgspec.to_builtins(of)
    old = card_03(of) if any(each.protocol_version.startswith("0.3") for each in of.supported_interfaces) else {}
    both = {**new, **old}
    for name in ("securitySchemes", "securityRequirements"):
        if name not in old:
            both.pop(name, None)  # a 0.3 client cannot read that of 1.0; the 1.x resolvers translate 0.3's
    said = {**new["capabilities"], **old.get("capabilities", {})}
    capabilities = {name: said[name] for name in ("streaming", "pushNotifications")}
    if old:
        capabilities["stateTransitionHistory"] = offer.history
    begin: dict[str, Any] = {"name": of.name}
    if old:
        begin |= {"protocolVersion": old["protocolVersion"], "supportedProtocols": list(offer.protocols)}
    begin["capabilities"] = {
        **capabilities,
        **{name: value for name, value in said.items() if name not in capabilities},
    }
    return {**begin, **{name: value for name, value in both.items() if name not in begin}}
