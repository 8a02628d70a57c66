"""Checks an agent card against A2A 1.0 §4.4, and names every fault.

Invariant: pure and total: any JSON object gives a list of faults, which is empty for a valid card.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from dragoman.doctor.schema import SHOWN, meant_name

_TEXT, _LIST, _TEXTS, _OBJECT, _FLAG = "a text", "a list", "a list of texts", "an object", "true or false"

_KINDS: dict[str, Any] = {_TEXT: str, _LIST: list, _TEXTS: list, _OBJECT: dict, _FLAG: bool}

_CARD = (
    ("name", _TEXT, True),
    ("description", _TEXT, True),
    ("supportedInterfaces", _LIST, True),
    ("version", _TEXT, True),
    ("capabilities", _OBJECT, True),
    ("defaultInputModes", _TEXTS, True),
    ("defaultOutputModes", _TEXTS, True),
    ("skills", _LIST, True),
    ("provider", _OBJECT, False),
    ("documentationUrl", _TEXT, False),
    ("iconUrl", _TEXT, False),
    ("securitySchemes", _OBJECT, False),
    ("securityRequirements", _LIST, False),
    ("signatures", _LIST, False),
)
"""Fields of an AgentCard: the name, the kind, and whether A2A 1.0 §4.4.1 requires it."""

_INTERFACE = (
    ("url", _TEXT, True),
    ("protocolBinding", _TEXT, True),
    ("protocolVersion", _TEXT, True),
    ("tenant", _TEXT, False),
)
_SKILL = (
    ("id", _TEXT, True),
    ("name", _TEXT, True),
    ("description", _TEXT, True),
    ("tags", _TEXTS, True),
    ("examples", _TEXTS, False),
    ("inputModes", _TEXTS, False),
    ("outputModes", _TEXTS, False),
    ("securityRequirements", _LIST, False),
)
_PROVIDER = (("url", _TEXT, True), ("organization", _TEXT, True))
_CAPABILITIES = (
    ("streaming", _FLAG, False),
    ("pushNotifications", _FLAG, False),
    ("extendedAgentCard", _FLAG, False),
    ("extensions", _LIST, False),
)
_EXTENSION = (
    ("uri", _TEXT, True),
    ("description", _TEXT, False),
    ("required", _FLAG, False),
    ("params", _OBJECT, False),
)
_SIGNATURE = (("protected", _TEXT, True), ("signature", _TEXT, True), ("header", _OBJECT, False))

Fields = tuple[tuple[str, str, bool], ...]

SCHEMES: dict[str, Fields] = {
    "apiKeySecurityScheme": (("location", _TEXT, True), ("name", _TEXT, True), ("description", _TEXT, False)),
    "httpAuthSecurityScheme": (
        ("scheme", _TEXT, True),
        ("bearerFormat", _TEXT, False),
        ("description", _TEXT, False),
    ),
    "oauth2SecurityScheme": (
        ("flows", _OBJECT, True),
        ("oauth2MetadataUrl", _TEXT, False),
        ("description", _TEXT, False),
    ),
    "openIdConnectSecurityScheme": (("openIdConnectUrl", _TEXT, True), ("description", _TEXT, False)),
    "mtlsSecurityScheme": (("description", _TEXT, False),),
}
"""The kinds of security schemes, of which a scheme has exactly one (A2A 1.0 §4.5.1), with the fields of each."""

_LOCATIONS = ("query", "header", "cookie")
"""Where an API key may be (A2A 1.0 §4.5.2)."""

_FLOWS: dict[str, Fields] = {
    "authorizationCode": (("authorizationUrl", _TEXT, True), ("tokenUrl", _TEXT, True), ("scopes", _OBJECT, False)),
    "clientCredentials": (("tokenUrl", _TEXT, True), ("scopes", _OBJECT, False)),
    "deviceCode": (("deviceAuthorizationUrl", _TEXT, True), ("tokenUrl", _TEXT, True), ("scopes", _OBJECT, False)),
}
"""The flows of OAuth 2 that are not deprecated (A2A 1.0 §4.5.7 to §4.5.10), with their required fields."""


def card_faults(card: dict[str, Any]) -> list[str]:
    """Return the faults of a card, each with the path of its field."""
    return list(_faults(card))


def _faults(card: dict[str, Any]) -> Iterator[str]:
    yield from _check(card, _CARD, "")
    yield from _entry_faults(card)
    listed = card.get("supportedInterfaces")
    if isinstance(listed, list):
        if not listed:
            yield "supportedInterfaces: is empty, but an agent needs an endpoint"
        for path, each in _objects(listed, "supportedInterfaces"):
            yield from _check(each, _INTERFACE, path)
            yield from _check_url(each, path)
    for path, each in _objects(card.get("skills"), "skills"):
        yield from _check(each, _SKILL, path)
    for name, fields in (("provider", _PROVIDER), ("capabilities", _CAPABILITIES)):
        if isinstance(inner := card.get(name), dict):
            yield from _check(inner, fields, f"{name}.")
    capabilities = card.get("capabilities")
    if isinstance(capabilities, dict):
        for path, each in _objects(capabilities.get("extensions"), "capabilities.extensions"):
            yield from _check(each, _EXTENSION, path)
    for path, each in _objects(card.get("signatures"), "signatures"):
        yield from _check(each, _SIGNATURE, path)
    yield from _scheme_faults(card)


def _entry_faults(card: dict[str, Any]) -> Iterator[str]:
    """Name the entries of lists of objects that are no objects."""
    capabilities = card.get("capabilities")
    lists = {name: card.get(name) for name in ("supportedInterfaces", "skills", "signatures", "securityRequirements")}
    lists["capabilities.extensions"] = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    for name, values in lists.items():
        for index, each in enumerate(values if isinstance(values, list) else ()):
            if not isinstance(each, dict):
                yield f"{name}[{index}]: is {type(each).__name__}, not an object"


def _check(given: dict[str, Any], fields: Fields, path: str) -> Iterator[str]:
    for name, kind, required in fields:
        value = given.get(name)
        if value is None:
            if required:
                yield f"{path}{name}: is missing" + _instead(given, name, fields)
        elif not isinstance(value, _KINDS[kind]):
            yield f"{path}{name}: is {type(value).__name__}, not {kind}"
        elif required and value == "":
            yield f"{path}{name}: is empty"
        elif kind is _TEXTS and not all(isinstance(each, str) for each in value):
            yield f"{path}{name}: is a list with entries that are no texts"
        elif name.endswith("Modes") and (wrong := [each for each in value if "/" not in each]):
            yield f"{path}{name}: has {wrong[0]!r}, which is no media type like text/plain"


def _instead(given: dict[str, Any], name: str, fields: Fields) -> str:
    """Say under which other name a missing field is there: that of 0.3, or a misspelt one."""
    known = {field for field, _, _ in fields}
    for said in given:
        if said not in known and (said == _OLD_NAMES.get(name) or meant_name(said, [name])):
            return f"; it has `{said[:SHOWN]}`"
    return ""


_OLD_NAMES = {"protocolBinding": "transport", "supportedInterfaces": "additionalInterfaces", "location": "in"}
"""What 0.3 calls the required fields of 1.0."""


def _check_url(interface: dict[str, Any], path: str) -> Iterator[str]:
    url, binding = interface.get("url"), interface.get("protocolBinding")
    if not isinstance(url, str) or not url or binding == "GRPC":  # gRPC names a host and a port
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        yield f"{path}url: is no absolute http or https URL"


def _scheme_faults(card: dict[str, Any]) -> Iterator[str]:
    schemes = card.get("securitySchemes")
    schemes = schemes if isinstance(schemes, dict) else {}
    for name, scheme in schemes.items():
        kinds = [kind for kind in SCHEMES if isinstance(scheme, dict) and kind in scheme]
        if len(kinds) != 1:
            yield f"securitySchemes.{name}: has {len(kinds)} of {', '.join(SCHEMES)}, not one"
            continue
        kind, path = kinds[0], f"securitySchemes.{name}.{kinds[0]}"
        if not isinstance(inner := scheme[kind], dict):
            yield f"{path}: is {type(inner).__name__}, not an object"
            continue
        yield from _check(inner, SCHEMES[kind], f"{path}.")
        if kind == "apiKeySecurityScheme" and inner.get("location") not in (*_LOCATIONS, None):
            yield f"{path}.location: is {inner['location']!r}, not one of {', '.join(_LOCATIONS)}"
        flows = inner.get("flows")
        for flow, fields in _FLOWS.items():
            if isinstance(flows, dict) and isinstance(given := flows.get(flow), dict):
                yield from _check(given, fields, f"{path}.flows.{flow}.")
    for path, requirement in _objects(card.get("securityRequirements"), "securityRequirements"):
        named = requirement.get("schemes", requirement)
        for name in named if isinstance(named, dict) else ():
            if name not in schemes:
                yield f"{path}schemes.{name}: is not in securitySchemes"


def _objects(value: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list, each with its path; `_entry_faults` names other entries."""
    for index, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, dict):
            yield f"{name}[{index}].", each
