"""Builds agent cards: for A2A 1.0, for 0.3, and a hybrid of both for callers who name no version.

Invariant: a card names only the endpoints of the mount that it describes, and a version only where it is served.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.v03.card import card as card_03
from dragoman.dialects.v03.card import proto_card as proto_card_03
from dragoman.dialects.v03.card import unsaid
from dragoman.model.card import VERSIONS, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, Profile

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The paths of a card, below the root and below every mount (A2A 1.0 §8.2; the second is from 0.2)."""

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"
GRPC = "GRPC"


def interfaces(base_url: str, mount: str, versions: Sequence[str] = VERSIONS) -> tuple[AgentInterface, ...]:
    """List the endpoints of a mount (`/`, `/agents/echo`) under a public base URL, the preferred one first.

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


class CardOffer(Struct, frozen=True, kw_only=True):
    """The server's additions to an agent's own profile.

    `extended`: GetExtendedAgentCard is offered to authenticated callers. `extensions` are those of the mount's own
    system. `streams`: the server streams. `pushes`: it calls webhooks. `schemes` are the security schemes by name, and
    `requirements` say which of them callers must use, both as A2A 1.0 §4.5 spells them; empty: no authentication.
    `protocols` and `history` are KAOS's `supportedProtocols` and `stateTransitionHistory`.
    """

    extended: bool = False
    extensions: tuple[AgentExtension, ...] = ()
    streams: bool = True
    pushes: bool = False
    schemes: Mapping[str, Any] = {}
    requirements: Sequence[dict[str, Any]] = ()
    protocols: tuple[str, ...] = ("jsonrpc",)
    history: bool = False


PLAIN = CardOffer()


def card(profile: Profile, at: Sequence[AgentInterface], offer: CardOffer = PLAIN) -> AgentCard:
    """Build the public card in the form of A2A 1.0 (§4.4.1)."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        supported_interfaces=tuple(at),
        version=profile.version,
        capabilities=AgentCapabilities(
            streaming=offer.streams and profile.streams,
            push_notifications=offer.pushes and profile.pushes,
            extended_agent_card=offer.extended,
            extensions=extensions(profile, offer.extensions),
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


def extensions(profile: Profile, ours: Sequence[AgentExtension]) -> tuple[AgentExtension, ...]:
    """List all extensions on an agent's card at a mount: the agent's own, then `ours`, which belong to the mount.

    An agent of another server may name one of ours; it is listed once.
    """
    known = {each.uri for each in ours}
    return (*(each for each in profile.extensions if each.uri not in known), *ours)


def extended_card(profile: Profile, at: Sequence[AgentInterface], offer: CardOffer = PLAIN) -> AgentCard:
    """Build the card for authenticated callers, with the skills that only they may see (A2A 1.0 §3.1.11)."""
    public = card(profile, at, offer)
    return replace(public, skills=(*public.skills, *profile.extended_skills))


class WellKnown(Struct, frozen=True):
    """A card as served at a well-known path: the document, and the forms that its signatures cover.

    Each official verifier rebuilds one of the `signed` forms from the document.
    """

    document: dict[str, Any]
    signed: list[dict[str, Any]]


def form_of(version: str | None) -> str:
    """Return the form of a well-known card for a caller with this `A2A-Version`: `1.0`, `0.3`, or empty for the hybrid.

    Discovery is never refused: a caller that names another version gets the form that most clients can read.
    """
    major, _, rest = (version or "").strip().partition(".")
    if major == "1" and rest:
        return "1.0"
    return "0.3" if (major, rest.partition(".")[0]) == ("0", "3") else ""


def well_known(of: AgentCard, form: str, offer: CardOffer = PLAIN) -> WellKnown:
    """Build the public card in one of the forms of `form_of`. There is no card of 0.3 if no endpoint speaks it."""
    if form == "1.0":
        new: dict[str, Any] = msgspec.to_builtins(of)
        return WellKnown(new, [new])
    if form == "0.3" and _speaks_03(of):
        old = card_03(of)
        old["capabilities"]["stateTransitionHistory"] = offer.history
        return WellKnown(old, [old, unsaid(old)])
    of = with_modes(of)
    both = hybrid(of, offer)
    return WellKnown(both, [*signed_forms(of), both])


def with_modes(of: AgentCard) -> AgentCard:
    """Return the card with the default modes in each skill that names none, which FastA2A's client requires."""
    skills = tuple(
        replace(
            skill,
            input_modes=skill.input_modes or of.default_input_modes,
            output_modes=skill.output_modes or of.default_output_modes,
        )
        for skill in of.skills
    )
    return replace(of, skills=skills)


def signed_forms(of: AgentCard) -> list[dict[str, Any]]:
    """List the forms of a card to be signed: that of 1.0, and those of 0.3 if the card has an endpoint of 0.3."""
    forms: list[dict[str, Any]] = [msgspec.to_builtins(of)]
    if _speaks_03(of):
        old = card_03(of)
        forms += [old, unsaid(old)]
    return forms


def _speaks_03(of: AgentCard) -> bool:
    return any(each.protocol_version.startswith("0.3") for each in of.supported_interfaces)


def signed_extended_forms(of: AgentCard) -> list[dict[str, Any]]:
    """List the forms of an extended card to be signed: 0.3 also answers it in its protobuf JSON (`GET /v1/card`)."""
    forms = signed_forms(of)
    return forms if len(forms) == 1 else [*forms, proto_card_03(of)]


def hybrid(of: AgentCard, offer: CardOffer = PLAIN) -> dict[str, Any]:
    """Build the hybrid card: all of the 1.0 card, and beside it the fields that only 0.3 has.

    It begins as KAOS's text shows it: name, version of the protocol, protocols, capabilities.

    Security is spelled as in each version that the card lists. A scheme has the members of 0.3 and, beside them, the
    member that wraps them in 1.0. Readers of each version ignore the other's.
    """
    new: dict[str, Any] = msgspec.to_builtins(of)
    old = card_03(of) if _speaks_03(of) else {}
    both = {**new, **old}
    if old and not any(each.protocol_version.startswith("1.") for each in of.supported_interfaces):
        both.pop("securityRequirements", None)
    elif "securitySchemes" in old:
        both["securitySchemes"] = {
            name: {**scheme, **new["securitySchemes"][name]} for name, scheme in old["securitySchemes"].items()
        }
    said = {**new["capabilities"], **old.get("capabilities", {})}
    capabilities = {name: said[name] for name in ("streaming", "pushNotifications")}
    if old:
        capabilities["stateTransitionHistory"] = offer.history
    begin: dict[str, Any] = {"name": of.name}
    if old:
        begin["protocolVersion"] = old["protocolVersion"]
    if old or offer.history:  # the KAOS profile speaks its own dialect, whatever versions there are
        begin["supportedProtocols"] = list(offer.protocols)
    begin["capabilities"] = {
        **capabilities,
        **{name: value for name, value in said.items() if name not in capabilities},
    }
    return {**begin, **{name: value for name, value in both.items() if name not in begin}}
