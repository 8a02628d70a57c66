"""Converts a card of 1.0 to the AgentCard of 0.3 (A2A 0.3 §5.5).

Invariant: every field that 0.3 requires is present: `url`, `protocolVersion`, `capabilities`, modes, skills with
`tags`.
"""

from typing import Any

import msgspec

from dragoman.model.card import AgentCard

PROTOCOL_VERSION = "0.3.0"

_SCHEME_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}

_DEFAULTS = {"protocolVersion": PROTOCOL_VERSION, "preferredTransport": "JSONRPC"}


def card(of: AgentCard) -> dict[str, Any]:
    """Build the 0.3 card. Its interfaces are those that speak 0.3, the first of them the preferred one.

    If there are none, it names the card's first interface, so that it stays valid.
    """
    interfaces = [each for each in of.supported_interfaces if each.protocol_version.startswith("0.3")]
    interfaces = interfaces or list(of.supported_interfaces[:1])
    capabilities = of.capabilities
    members = {
        "protocolVersion": PROTOCOL_VERSION,
        "name": of.name,
        "description": of.description,
        "url": interfaces[0].url,
        "preferredTransport": interfaces[0].protocol_binding,
        "additionalInterfaces": [{"url": each.url, "transport": each.protocol_binding} for each in interfaces],
        "version": of.version,
        "capabilities": {
            "streaming": bool(capabilities.streaming),
            "pushNotifications": bool(capabilities.push_notifications),
            "stateTransitionHistory": False,
        },
        "defaultInputModes": of.default_input_modes,
        "defaultOutputModes": of.default_output_modes,
        "skills": msgspec.to_builtins(of.skills),
        "provider": msgspec.to_builtins(of.provider),
        "documentationUrl": of.documentation_url,
        "iconUrl": of.icon_url,
        "supportsAuthenticatedExtendedCard": bool(capabilities.extended_agent_card),
    }
    if capabilities.extensions:
        members["capabilities"]["extensions"] = msgspec.to_builtins(capabilities.extensions)
    if of.security_schemes:
        members["securitySchemes"] = {name: _scheme(scheme) for name, scheme in of.security_schemes.items()}
    if of.security_requirements:
        members["security"] = [_requirement(each) for each in of.security_requirements]
    if of.signatures:
        members["signatures"] = list(of.signatures)
    return {name: value for name, value in members.items() if value is not None}


def proto_card(of: AgentCard) -> dict[str, Any]:
    """Build the card in 0.3's protobuf JSON, which spells security as in 1.0 and has no `stateTransitionHistory`."""
    members = card(of)
    del members["capabilities"]["stateTransitionHistory"]
    if of.security_schemes:
        members["securitySchemes"] = of.security_schemes
    if of.security_requirements:
        members["security"] = list(of.security_requirements)
    return members


def unsaid(of: dict[str, Any]) -> dict[str, Any]:
    """Drop what the types of a 0.3 card imply, as defaults: the official SDK of 0.3 reads, and so signs, the rest."""
    left = {name: value for name, value in of.items() if _DEFAULTS.get(name) != value}
    if schemes := of.get("securitySchemes"):
        left["securitySchemes"] = {
            name: {key: value for key, value in scheme.items() if key != "type"} for name, scheme in schemes.items()
        }
    return left


def _scheme(scheme: dict[str, Any]) -> dict[str, Any]:
    """Convert `{"apiKeySecurityScheme": {"location": …}}` to `{"type": "apiKey", "in": …}`."""
    (name, members), *_ = scheme.items()
    rest = {("in" if key == "location" else key): value for key, value in members.items()}
    return {"type": _SCHEME_TYPES.get(name, name), **rest}


def _requirement(requirement: dict[str, Any]) -> dict[str, Any]:
    """Convert `{"schemes": {"key": {"list": […]}}}` to `{"key": […]}`."""
    schemes: dict[str, Any] = requirement.get("schemes", {})
    return {name: scopes.get("list", []) for name, scopes in schemes.items()}
