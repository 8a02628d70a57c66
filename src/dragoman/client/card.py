"""Another agent's card: its fields, its signature, and the endpoints and dialects that it stands for.

Invariant: pure and total. A card is read leniently: a field that is missing or has another type is empty, in every
version. Any JSON object gives the endpoints in the order to try them, possibly none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.signatures import VERIFIABLE, verify_card
from dragoman.dialects import card_reading
from dragoman.dialects.cards import HTTP_JSON, JSONRPC
from dragoman.dialects.extensions import dedupes_s
from dragoman.dialects.heard import Unfit
from dragoman.model.card import AgentCard
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target, target


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


Json = dict[str, Any]

BINDINGS = {"JSONRPC": JSONRPC, "HTTP+JSON": HTTP_JSON, "HTTPJSON": HTTP_JSON, "REST": HTTP_JSON}
"""Spellings of the supported bindings, in upper case without `-` and `_`; gRPC is not supported."""

INTERFACES_MAX = 32
"""Most endpoints of one card that are considered."""

LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
"""Names by which this machine reaches itself."""

PROTOLABS = re.compile(r"https://(proto-labs|protolabs)\.ai/a2a/ext/")
"""The prefixes of protoAgent's extension URIs; the second was in use until May 2026."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\..*)?", re.ASCII)


class Interface(Struct, frozen=True, kw_only=True):
    """An endpoint and its protocol. `dialect` is a name of `decode.PACKAGES`; `tenant` goes with every operation.

    `dedupes_s` is how long the agent recognises a repeated message, in seconds, as its card says.
    """

    url: str
    binding: str
    dialect: str
    tenant: str = ""
    dedupes_s: float = 0.0

    @property
    def to(self) -> Target:
        """The parsed URL. Raises BadUrl."""
        return target(self.url)


class CardView(Struct, frozen=True):
    """The input of the rows: a card, its URL, and the agent's URL as the caller gave it, without a trailing slash."""

    card: Json
    card_url: str
    base: str

    @property
    def at(self) -> str:
        """The agent's URL in a card of 0.3; empty if the card names none."""
        return _absolute(self.card.get("url"), self.card_url)

    @property
    def listed(self) -> list[Json]:
        """The endpoints that a card of 1.0 lists."""
        return _objects(self.card.get("supportedInterfaces"))

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
        return _objects(capabilities.get("extensions")) if isinstance(capabilities, dict) else []

    @property
    def uris(self) -> list[str]:
        """The URIs of the declared extensions."""
        return [uri for each in self.extensions if isinstance(uri := each.get("uri"), str)]


class CardKind(Struct, frozen=True):
    """A kind of card: the predicate that recognises it, and the endpoints it stands for, the preferred one first."""

    kind: str
    when: Callable[[CardView], bool]
    then: Callable[[CardView], Sequence[Interface]]


def interfaces(
    card: Json, card_url: str, base: str, *, binding: str | None = None, version: str | None = None
) -> tuple[Interface, ...]:
    """Return the endpoints of a card in the order to try them; only those of a `binding` or a `version` if given.

    The order: version 1.0 first, then the origin of the card, then the card's own order.
    """
    seen = CardView(card, card_url, base)
    found = next((row.then(seen) for row in CARDS if row.when(seen)), ())
    knows_s = dedupes_s(seen.extensions)
    valid = [replace(each, url=_at_home(each.url, card_url), dedupes_s=knows_s) for each in found if _valid(each.url)]
    origin = target(card_url).origin
    valid.sort(key=lambda each: (each.dialect != "1.0", each.to.origin != origin))
    if binding is not None:
        valid = [each for each in valid if each.binding == binding]
    if version is not None:
        valid = [each for each in valid if each.dialect == version]
    return tuple(dict.fromkeys(valid))


def binding_of(name: str) -> str | None:
    """Return the binding that a name means, None if it is not supported."""
    return BINDINGS.get(name.upper().replace("-", "").replace("_", ""))


def dialect_of(version: str) -> str | None:
    """Return the official dialect of a version: 1.x is 1.0, and 0.x is 0.3. None for any other."""
    if not (match := _VERSION.fullmatch(version.strip().removeprefix("v"))):
        return None
    return {"0": "0.3", "1": "1.0"}.get(match[1])


def _of_list(seen: CardView) -> list[Interface]:
    """Read `supportedInterfaces` (A2A 1.0 §4.4.6).

    Lists older than 1.0 call the binding `transport`, and leave the version to the card.
    """
    said = seen.card.get("protocolVersion")
    found = []
    for each in seen.listed[:INTERFACES_MAX]:
        binding = binding_of(_text(each, "protocolBinding") or _text(each, "transport") or JSONRPC)
        dialect = dialect_of(_text(each, "protocolVersion") or (said if isinstance(said, str) else "") or "1.0")
        url = _absolute(each.get("url"), seen.card_url)
        if binding and dialect and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect, tenant=_text(each, "tenant")))
    return found


def _of_url(seen: CardView) -> list[Interface]:
    """Read `url` with `preferredTransport`, then `additionalInterfaces`, which may repeat the first (A2A 0.3 §5.5)."""
    dialect = dialect_of(_text(seen.card, "protocolVersion")) or "0.3"
    first = {"url": seen.card.get("url"), "transport": _text(seen.card, "preferredTransport") or JSONRPC}
    found = []
    for each in (first, *_objects(seen.card.get("additionalInterfaces"))[:INTERFACES_MAX]):
        binding, url = binding_of(_text(each, "transport") or JSONRPC), _absolute(each.get("url"), seen.card_url)
        if binding and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect))
    return found


def _beeos(seen: CardView) -> list[Interface]:
    named = seen.card.get("supportedInterfaces")
    url = _absolute(named.get("a2a"), seen.card_url) if isinstance(named, dict) else ""
    return _rpc(url or seen.at or seen.base, "beeos")


def _kaos(seen: CardView) -> list[Interface]:
    """Use the URL where the card was found, as KAOS's own client does: the card's `url` is the host's own view."""
    return _rpc(seen.base + "/", "kaos") if "jsonrpc" in (seen.card["supportedProtocols"] or ()) else []


def _rpc(url: str, dialect: str) -> list[Interface]:
    return [Interface(url=url, binding=JSONRPC, dialect=dialect)]


CARDS: tuple[CardKind, ...] = (
    # Its page of cards has an object, {"a2a": url, "mcp": url, "rest": url}. Its overview has an array instead, and is
    # recognised by the names of its schemes.
    CardKind("BeeOS, by the object", lambda seen: isinstance(seen.card.get("supportedInterfaces"), dict), _beeos),
    CardKind("BeeOS, by its schemes", lambda seen: {"agentApiKey", "userJwt"} <= seen.schemes.keys(), _beeos),
    # An agent that lists endpoints with versions speaks those versions: protoAgent since June 2026, and Dragoman.
    CardKind("official, by the list", lambda seen: bool(seen.listed), _of_list),
    CardKind("KAOS, by its list", lambda seen: isinstance(seen.card.get("supportedProtocols"), list), _kaos),
    CardKind(
        "protoAgent, by its extensions",
        lambda seen: any(PROTOLABS.match(uri) for uri in seen.uris),
        lambda seen: _rpc(seen.at or f"{seen.base.removesuffix('/a2a')}/a2a", "protoagent"),
    ),
    # Cards of 0.3 must name their version (§5.5); neither protoAgent's nor Evo AI's does.
    CardKind(
        "protoAgent, by its path",
        lambda seen: seen.path.rstrip("/") == "/a2a" and "protocolVersion" not in seen.card,
        lambda seen: _rpc(seen.at or seen.base, "protoagent"),
    ),
    CardKind(
        "Evo AI, by its path",
        lambda seen: re.search(r"/api/v1/a2a(-sdk)?/", seen.path) is not None and "protocolVersion" not in seen.card,
        lambda seen: _rpc(seen.at or seen.base, "evoai"),
    ),
    CardKind("0.3, by its URL", lambda seen: bool(seen.at), _of_url),
)
"""Kinds of cards; the first match counts."""


def _at_home(url: str, card_url: str) -> str:
    """Replace the host of a URL by the host that the card was fetched from, if both are the same port of this machine.
    A server that listens on every address often names one that nobody asked for, or `0.0.0.0`.
    """
    named, reached = target(url), target(card_url)
    if {named.host, reached.host} <= LOCAL and (named.scheme, named.port) == (reached.scheme, reached.port):
        place = "/".join(reached.url.split("/", 3)[:3])
        return f"{place}/{named.url.split('/', 3)[3]}"
    return url


def _valid(url: str) -> bool:
    try:
        target(url)
    except BadUrl:
        return False
    return True


def _absolute(url: object, card_url: str) -> str:
    """Resolve a URL of a card relative to the card's own URL; empty if it is not a URL."""
    if not isinstance(url, str) or not url.strip():
        return ""
    try:
        return urljoin(card_url, url.strip())
    except ValueError:
        return ""


def _objects(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(values: Json, key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
