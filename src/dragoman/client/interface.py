"""Which of an agent's endpoints to speak to, and in which dialect: read from its card, and from where that was.

Invariant: pure and total: any JSON object gives the endpoints in the order in which to try them, maybe none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.cards import HTTP_JSON, JSONRPC
from dragoman.dialects.extensions import dedupes_s
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target, target

Json = dict[str, Any]

BINDINGS = {"JSONRPC": JSONRPC, "HTTP+JSON": HTTP_JSON, "HTTPJSON": HTTP_JSON, "REST": HTTP_JSON}
"""Spellings of the bindings that are spoken, in upper case without `-` and `_`; gRPC is none of them."""

INTERFACES_MAX = 32
"""Endpoints of one card that are looked at."""

LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
"""Names of this machine, from within."""

PROTOLABS = re.compile(r"https://(proto-labs|protolabs)\.ai/a2a/ext/")
"""How the URIs of protoAgent's extensions begin; the second until May 2026."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\..*)?", re.ASCII)


class Interface(Struct, frozen=True, kw_only=True):
    """An endpoint and how to speak there. `dialect` is a name of `tongues`; `tenant` goes with every operation.

    `dedupes_s`: for so long the agent takes a message that is sent again for the same, as its card says.
    """

    url: str
    binding: str
    dialect: str
    tenant: str = ""
    dedupes_s: float = 0.0

    @property
    def to(self) -> Target:
        """The URL taken apart. Raises BadUrl."""
        return target(self.url)


class Seen(Struct, frozen=True):
    """What the rows look at: a card, where it was, and the URL of the agent as the caller gave it, without a slash."""

    card: Json
    card_url: str
    base: str

    @property
    def at(self) -> str:
        """The URL that the card names for the agent, as of 0.3; empty if it names none."""
        return _absolute(self.card.get("url"), self.card_url)

    @property
    def listed(self) -> list[Json]:
        """The endpoints that the card lists, as of 1.0."""
        return _objects(self.card.get("supportedInterfaces"))

    @property
    def path(self) -> str:
        """The path of the agent's URL."""
        return re.sub(r"^[a-z]+://[^/]*", "", (self.at or self.base).partition("?")[0], flags=re.IGNORECASE)

    @property
    def schemes(self) -> Mapping[str, Any]:
        """The names of the ways to say who one is."""
        schemes = self.card.get("securitySchemes")
        return schemes if isinstance(schemes, dict) else {}

    @property
    def extensions(self) -> list[Json]:
        """The extensions that the agent has."""
        capabilities = self.card.get("capabilities")
        return _objects(capabilities.get("extensions")) if isinstance(capabilities, dict) else []

    @property
    def uris(self) -> list[str]:
        """Their URIs."""
        return [uri for each in self.extensions if isinstance(uri := each.get("uri"), str)]


class Row(Struct, frozen=True):
    """A kind of card: how it is told, and the endpoints it stands for, the preferred one first."""

    kind: str
    when: Callable[[Seen], bool]
    then: Callable[[Seen], Sequence[Interface]]


def interfaces(
    card: Json, card_url: str, base: str, *, binding: str | None = None, version: str | None = None
) -> tuple[Interface, ...]:
    """The endpoints of a card in the order in which to try them; only those of a `binding` or a `version` if given.

    The order: version 1.0 before others, the origin of the card before others, then that of the card.
    """
    seen = Seen(card, card_url, base)
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
    """The binding that is meant by a name, None if it is none that is spoken."""
    return BINDINGS.get(name.upper().replace("-", "").replace("_", ""))


def dialect_of(version: str) -> str | None:
    """The official dialect of a version: 1.x is read as 1.0, what is before it as 0.3; None if it is none."""
    if not (match := _VERSION.fullmatch(version.strip().removeprefix("v"))):
        return None
    return {"0": "0.3", "1": "1.0"}.get(match[1])


def _of_list(seen: Seen) -> list[Interface]:
    """A2A 1.0 §4.4.6. Lists of before 1.0 call the binding `transport`, and leave the version to the card."""
    said = seen.card.get("protocolVersion")
    found = []
    for each in seen.listed[:INTERFACES_MAX]:
        binding = binding_of(_text(each, "protocolBinding") or _text(each, "transport") or JSONRPC)
        dialect = dialect_of(_text(each, "protocolVersion") or (said if isinstance(said, str) else "") or "1.0")
        url = _absolute(each.get("url"), seen.card_url)
        if binding and dialect and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect, tenant=_text(each, "tenant")))
    return found


def _of_url(seen: Seen) -> list[Interface]:
    """A2A 0.3 §5.5: `url` with `preferredTransport`, then `additionalInterfaces`, which may hold the same again."""
    dialect = dialect_of(_text(seen.card, "protocolVersion")) or "0.3"
    first = {"url": seen.card.get("url"), "transport": _text(seen.card, "preferredTransport") or JSONRPC}
    found = []
    for each in (first, *_objects(seen.card.get("additionalInterfaces"))[:INTERFACES_MAX]):
        binding, url = binding_of(_text(each, "transport") or JSONRPC), _absolute(each.get("url"), seen.card_url)
        if binding and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect))
    return found


def _beeos(seen: Seen) -> list[Interface]:
    named = seen.card.get("supportedInterfaces")
    url = _absolute(named.get("a2a"), seen.card_url) if isinstance(named, dict) else ""
    return _rpc(url or seen.at or seen.base, "beeos")


def _kaos(seen: Seen) -> list[Interface]:
    """KAOS's own client posts to where it found the card; the card's `url` is the host's own view of itself."""
    return _rpc(seen.base + "/", "kaos") if "jsonrpc" in (seen.card["supportedProtocols"] or ()) else []


def _rpc(url: str, dialect: str) -> list[Interface]:
    return [Interface(url=url, binding=JSONRPC, dialect=dialect)]


CARDS: tuple[Row, ...] = (
    # Its page of cards has an object, {"a2a": url, "mcp": url, "rest": url}; its overview an array, which is told by
    # the names of its schemes.
    Row("BeeOS, by the object", lambda seen: isinstance(seen.card.get("supportedInterfaces"), dict), _beeos),
    Row("BeeOS, by its schemes", lambda seen: {"agentApiKey", "userJwt"} <= seen.schemes.keys(), _beeos),
    # Whoever lists endpoints with versions speaks these: protoAgent since June 2026, Dragoman.
    Row("official, by the list", lambda seen: bool(seen.listed), _of_list),
    Row("KAOS, by its list", lambda seen: isinstance(seen.card.get("supportedProtocols"), list), _kaos),
    Row(
        "protoAgent, by its extensions",
        lambda seen: any(PROTOLABS.match(uri) for uri in seen.uris),
        lambda seen: _rpc(seen.at or f"{seen.base.removesuffix('/a2a')}/a2a", "protoagent"),
    ),
    # Cards of 0.3 must name their version (§5.5); neither protoAgent's nor Evo AI's does.
    Row(
        "protoAgent, by its path",
        lambda seen: seen.path.rstrip("/") == "/a2a" and "protocolVersion" not in seen.card,
        lambda seen: _rpc(seen.at or seen.base, "protoagent"),
    ),
    Row(
        "Evo AI, by its path",
        lambda seen: re.search(r"/api/v1/a2a(-sdk)?/", seen.path) is not None and "protocolVersion" not in seen.card,
        lambda seen: _rpc(seen.at or seen.base, "evoai"),
    ),
    Row("0.3, by its URL", lambda seen: bool(seen.at), _of_url),
)
"""Kinds of cards; the first that fits counts."""


def _at_home(url: str, card_url: str) -> str:
    """The URL as the card was reached, if both are the same port of this machine: a server that listens on every
    address often names one of them that nobody asked for, or `0.0.0.0`."""
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
    """A URL of a card; a relative one is meant from where the card was. Empty if it is none."""
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
