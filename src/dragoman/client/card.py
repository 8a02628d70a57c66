"""Another agent's card: its fields, its signature, and the endpoints and dialects that it stands for.

Invariant: pure and total. A card is read leniently: a field that is missing or has another type is empty, in every
version. Any JSON object gives the endpoints in the order to try them, possibly none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.signatures import VERIFIABLE, verify_card
from dragoman.client.grpc_address import grpc_url
from dragoman.dialects.cards import GRPC, HTTP_JSON, JSONRPC
from dragoman.dialects.client.card import CardView, absolute_url, decode_card, objects_in
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.extensions import EVENT_ID, dedupes_s
from dragoman.dialects.registry import load_systems
from dragoman.dialects.system import CardSign, System
from dragoman.model.card import AgentCard
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target, endpoint_target, target

Json = dict[str, Any]

BINDINGS = {"JSONRPC": JSONRPC, "HTTP+JSON": HTTP_JSON, "HTTPJSON": HTTP_JSON, "REST": HTTP_JSON, "GRPC": GRPC}
"""Spellings of the supported bindings, in upper case without `-` and `_`."""

INTERFACES_MAX = 32
"""Most endpoints of one card that are considered."""

LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
"""Names by which this machine reaches itself."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\..*)?", re.ASCII)


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
        new = decode_card(whole)
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


class Interface(Struct, frozen=True, kw_only=True):
    """An endpoint and its protocol. `dialect` is a name of `dialects.registry.DIALECTS`.

    Over gRPC the URL is `grpc://host:port`, or `grpcs://…` with TLS. `tenant` goes with every operation. `dedupes_s` is
    how long the agent recognises a repeated message, in seconds, as its card says. `event_ids`: EVENT_ID is declared to
    it, because its card lists that extension, or there is no card.
    """

    url: str
    binding: str
    dialect: str
    tenant: str = ""
    dedupes_s: float = 0.0
    event_ids: bool = False

    @property
    def to(self) -> Target:
        """The parsed URL. Raises BadUrl."""
        return endpoint_target(self.url)


class CardKind(Struct, frozen=True):
    """A kind of card: the predicate that recognises it, and the endpoints it stands for, the preferred one first."""

    kind: str
    when: Callable[[CardView], bool]
    then: Callable[[CardView], Sequence[Interface]]


def interfaces(
    card: Json,
    card_url: str,
    base: str,
    *,
    binding: str | None = None,
    version: str | None = None,
    as_listed: bool = False,
    grpc_tls: bool | None = None,
) -> tuple[Interface, ...]:
    """Return the endpoints of a card in the order to try them; only those of a `binding` or a `version` if given.

    The order: version 1.0 first, then those at the origin of the card, then the card's own order. A gRPC endpoint is on
    another port than the card, so the same host counts. With `as_listed` it is the card's own order. `grpc_tls` is that
    of `grpc_url`.
    """
    seen = CardView(card, card_url, base)
    found = next((row.then(seen) for row in card_kinds() if row.when(seen)), ())
    knows_s, event_ids = dedupes_s(seen.extensions), EVENT_ID in seen.uris
    named = [
        replace(each, url=grpc_url(each.url, card_url, grpc_tls)) if each.binding == GRPC else each for each in found
    ]
    valid = [
        replace(each, url=_at_home(each.url, card_url), dedupes_s=knows_s, event_ids=event_ids and each.binding == GRPC)
        for each in named
        if _valid(each.url)
    ]
    if not as_listed:
        at = target(card_url)
        valid.sort(key=lambda each: (each.dialect != "1.0", not (each.to.origin == at.origin or beside(each.to, at))))
    if binding is not None:
        valid = [each for each in valid if each.binding == binding]
    if version is not None:
        valid = [each for each in valid if each.dialect == version]
    return tuple(dict.fromkeys(valid))


def beside(endpoint: Target, known: Target) -> bool:
    """Whether a gRPC endpoint is on the host of a known URL, and called no less safely than that."""
    return (
        endpoint.scheme in ("grpc", "grpcs")
        and endpoint.host == known.host
        and (endpoint.scheme == "grpcs" or known.scheme in ("grpc", "http"))
    )


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
        url = _url(each, binding, seen)
        if binding and dialect and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect, tenant=_text(each, "tenant")))
    return found


def _of_url(seen: CardView) -> list[Interface]:
    """Read `url` with `preferredTransport`, then `additionalInterfaces`, which may repeat the first (A2A 0.3 §5.5)."""
    dialect = dialect_of(_text(seen.card, "protocolVersion")) or "0.3"
    first = {"url": seen.card.get("url"), "transport": _text(seen.card, "preferredTransport") or JSONRPC}
    found = []
    for each in (first, *objects_in(seen.card.get("additionalInterfaces"))[:INTERFACES_MAX]):
        binding = binding_of(_text(each, "transport") or JSONRPC)
        url = _url(each, binding, seen)
        if binding and url:
            found.append(Interface(url=url, binding=binding, dialect=dialect))
    return found


def _url(listed: Json, binding: str | None, seen: CardView) -> str:
    """Return the URL of a listed endpoint; an address over gRPC is no URL yet."""
    return _text(listed, "url") if binding == GRPC else absolute_url(listed.get("url"), seen.card_url)


def _kind(system: System, sign: CardSign) -> CardKind:
    """The kind of card that the sign recognises: its one endpoint is the system's."""

    def endpoint(seen: CardView) -> list[Interface]:
        url = sign.url(seen)
        return [Interface(url=url, binding=JSONRPC, dialect=system.name)] if url else []

    return CardKind(f"{system.name}, {sign.kind}", sign.when, endpoint)


@cache
def card_kinds() -> tuple[CardKind, ...]:
    """The kinds of cards; the first match counts."""
    signs = [(system, sign) for system in load_systems() for sign in system.signs]
    return (
        *(_kind(system, sign) for system, sign in signs if sign.certain),
        # An agent that lists endpoints with versions speaks those versions: protoAgent since June 2026, and Dragoman.
        CardKind("official, by the list", lambda seen: bool(seen.listed), _of_list),
        *(_kind(system, sign) for system, sign in signs if not sign.certain),
        CardKind("0.3, by its URL", lambda seen: bool(seen.at), _of_url),
    )


def _at_home(url: str, card_url: str) -> str:
    """Replace the host of a URL by the host that the card was fetched from, if both are the same port of this machine,
    or any port for gRPC.

    A server that listens on every address often names one that nobody asked for, or `0.0.0.0`.
    """
    named, reached = endpoint_target(url), target(card_url)
    if not {named.host, reached.host} <= LOCAL:
        return url
    if named.scheme in ("grpc", "grpcs"):  # on another port, for it is another server
        place = f"[{reached.host}]" if ":" in reached.host else reached.host
        return f"{named.scheme}://{place}:{named.port}"
    if (named.scheme, named.port) == (reached.scheme, reached.port):
        place = "/".join(reached.url.split("/", 3)[:3])
        return f"{place}/{named.url.split('/', 3)[3]}"
    return url


def _valid(url: str) -> bool:
    try:
        endpoint_target(url)
    except BadUrl:
        return False
    return True


def _text(values: Json, key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
