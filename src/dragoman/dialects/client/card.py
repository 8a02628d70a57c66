"""Reads another agent's card: field by field, before its kind is known, and into the model, as one of 1.0, of 0.3, or a
hybrid of both.

Invariant: pure. A field that is missing or has another type is empty; only a value that is not an object raises Unfit.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

from msgspec import Struct

from dragoman.dialects.client.scalars import Json, flag_in, members, text_in, texts_in
from dragoman.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)


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


_SCHEMES = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
"""Maps a scheme's `type` in 0.3 to its member in 1.0 (A2A 1.0 §4.5)."""

OLDEST = "0.3"
"""The version of a card that names none. Cards before 0.3 did not name one, and those agents speak as 0.3 does."""


def decode_card(value: object) -> AgentCard:
    """Read the card in a JSON object; interfaces without a URL are left out."""
    given = members(value, "an agent card")
    found = given.get("capabilities")
    capabilities: Json = found if isinstance(found, dict) else {}
    extended = _flag(capabilities, "extendedAgentCard", "extended_agent_card")
    return AgentCard(
        name=text_in(given, "name") or "",
        description=text_in(given, "description") or "",
        supported_interfaces=tuple(_interfaces(given)),
        version=text_in(given, "version") or "",
        capabilities=AgentCapabilities(
            streaming=_flag(capabilities, "streaming"),
            push_notifications=_flag(capabilities, "pushNotifications", "push_notifications"),
            extended_agent_card=_flag(given, "supportsAuthenticatedExtendedCard") if extended is None else extended,
            extensions=tuple([_extension(each) for each in _objects(capabilities, "extensions") if each.get("uri")]),
        ),
        default_input_modes=texts_in(given, "defaultInputModes", "default_input_modes"),
        default_output_modes=texts_in(given, "defaultOutputModes", "default_output_modes"),
        skills=tuple([_skill(each) for each in _objects(given, "skills")]),
        provider=_provider(given),
        documentation_url=text_in(given, "documentationUrl", "documentation_url"),
        icon_url=text_in(given, "iconUrl", "icon_url"),
        security_schemes=_security_schemes(given) or None,
        security_requirements=tuple(_requirements(given)),
        signatures=tuple(_objects(given, "signatures")),
    )


def _interfaces(given: Json) -> Iterator[AgentInterface]:
    """Yield the interfaces of 1.0, then those that only 0.3 names, with 0.3's preferred one first."""
    seen: set[tuple[str, str, str]] = set()
    version = text_in(given, "protocolVersion", "protocol_version") or OLDEST
    preferred = text_in(given, "preferredTransport", "preferred_transport") or "JSONRPC"
    old = [{"url": given.get("url"), "transport": preferred}, *_objects(given, "additionalInterfaces")]
    version = ".".join(version.split(".")[:2])
    named = given.get("supportedInterfaces")
    if isinstance(named, dict):  # BeeOS: {"a2a": url, "mcp": url, "rest": url}
        old.insert(0, {"url": named.get("a2a"), "transport": "JSONRPC"})
    for each in (*_objects(given, "supportedInterfaces", "supported_interfaces"), *old):
        url = text_in(each, "url")
        binding = text_in(each, "protocolBinding", "protocol_binding", "transport") or preferred
        spoken = text_in(each, "protocolVersion", "protocol_version") or version
        if url is None or (url, binding, spoken) in seen:
            continue
        seen.add((url, binding, spoken))
        tenant = text_in(each, "tenant")
        yield AgentInterface(url=url, protocol_binding=binding, protocol_version=spoken, tenant=tenant)


def _skill(given: Json) -> AgentSkill:
    name = text_in(given, "name") or text_in(given, "id") or ""
    return AgentSkill(
        id=text_in(given, "id") or name,
        name=name,
        description=text_in(given, "description") or "",
        tags=texts_in(given, "tags"),
        examples=texts_in(given, "examples"),
        input_modes=texts_in(given, "inputModes", "input_modes"),
        output_modes=texts_in(given, "outputModes", "output_modes"),
    )


def _extension(given: Json) -> AgentExtension:
    params = given.get("params")
    return AgentExtension(
        uri=text_in(given, "uri") or "",
        description=text_in(given, "description"),
        required=flag_in(given, "required"),
        params=params if isinstance(params, dict) else None,
    )


def _provider(given: Json) -> AgentProvider | None:
    found = given.get("provider")
    if not isinstance(found, dict):
        return None
    return AgentProvider(url=text_in(found, "url") or "", organization=text_in(found, "organization") or "")


def _security_schemes(given: Json) -> dict[str, Any]:
    """Return each scheme in 1.0's form. A scheme with a `type` is 0.3's, unless 1.0's member is beside it."""
    found = given.get("securitySchemes", given.get("security_schemes"))
    schemes: dict[str, Any] = {}
    for name, scheme in found.items() if isinstance(found, dict) else ():
        if not isinstance(scheme, dict):
            continue
        kind = scheme.get("type")
        if isinstance(kind, str) and kind in _SCHEMES:
            if isinstance(new := scheme.get(_SCHEMES[kind]), dict):
                schemes[name] = {_SCHEMES[kind]: new}
                continue
            rest = {("location" if key == "in" else key): value for key, value in scheme.items() if key != "type"}
            schemes[name] = {_SCHEMES[kind]: rest}
        else:
            schemes[name] = scheme
    return schemes


def _requirements(given: Json) -> Iterator[dict[str, Any]]:
    """Yield the requirements of 1.0, or else 0.3's `{"key": […]}` as `{"schemes": {"key": {"list": […]}}}`."""
    new = _objects(given, "securityRequirements", "security_requirements")
    if new:
        yield from new
        return
    for each in _objects(given, "security"):
        if isinstance(each.get("schemes"), dict):
            yield each
        else:
            scopes = {name: {"list": found} if found else {} for name, found in each.items()}
            yield {"schemes": scopes}


def _flag(given: Json, *names: str) -> bool | None:
    """Return a flag; None if it is absent."""
    return next((given[name] for name in names if isinstance(given.get(name), bool)), None)


def _objects(given: Json, *names: str) -> list[Json]:
    found: list[Any] = next((given[name] for name in names if isinstance(given.get(name), list)), [])
    return [each for each in found if isinstance(each, dict)]
