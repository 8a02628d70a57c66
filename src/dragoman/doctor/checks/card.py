"""Checks of the card: where it is, how it is served, and what it says."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from dragoman.client.card import dialect_of
from dragoman.dialects.cards import GRPC, HTTP_JSON, JSONRPC, WELL_KNOWN
from dragoman.doctor.card_check import card_faults
from dragoman.doctor.finding import Check, Color, Verdict
from dragoman.doctor.observation import BODY_SHOWN, CUT, Exchange, Observations, json_fault

FAULTS_SHOWN = 8
LOCATION_SHOWN = 120

SLOW_MS = 2_000.0
"""A card that takes longer delays the first call of every client."""

_REQUIRED_03 = (
    ("name", str),
    ("description", str),
    ("url", str),
    ("version", str),
    ("protocolVersion", str),
    ("capabilities", dict),
    ("defaultInputModes", list),
    ("defaultOutputModes", list),
    ("skills", list),
)
"""The fields that a card of A2A 0.3 must have (A2A 0.3 §5.5), with the type of each."""


class _Instead(Struct, frozen=True):
    """What came in the place of a card: the check that names it, what was observed, and what to change."""

    check: str
    observed: str
    fix: str


def _instead(seen: Observations) -> _Instead | None:
    """Return what came in the place of a card; None if there is one, or nobody knows."""
    if seen.card is not None or seen.certificate:
        return None
    came = seen.card_exchange
    if came is not None and came.compressed:
        told, fix = (
            "the card is compressed although Accept-Encoding says identity",
            "compress only what clients ask for",
        )
        return _Instead("card-readable", told, fix)
    if came is None or came.failure:
        return _not_found(seen)
    if 300 <= came.status < 400:
        to = came.headers.get("location", "nowhere")[:LOCATION_SHOWN]
        if _only_adds_slash(came.url, to):
            return _not_found(seen)
        fix = "serve the card itself at that path: clients need not follow redirects of it"
        if came.leads_to_login:
            fix = "let anybody read the card, without a session of a browser: except its path from the login"
        return _Instead("card-redirect", f"{came.url} is answered with HTTP {came.status}, a redirect to {to}", fix)
    if came.status in (401, 403):
        fix = "let anybody read the card: it says how to authenticate. What is secret belongs into the extended card"
        return _Instead(
            "card-public", f"{came.url} is answered with HTTP {came.status} to callers without credentials", fix
        )
    if came.status == 429:
        return _Instead("card-found", f"{came.url} is answered with HTTP 429", "wait, and examine it again")
    if came.status >= 500:
        fix = f"the server breaks when its card is read: look for GET {urlsplit(came.url).path} in its log"
        return _Instead("card-found", f"{came.url} is answered with {came.words_with_body}", fix)
    if came.status != 200:
        return _not_found(seen)
    told, fix = _unreadable(came)
    return _Instead("card-readable", f"{came.url}: {told}", fix)


def _only_adds_slash(url: str, to: str) -> bool:
    """Whether a redirect is one of a router that looks for a folder, and tells nothing of a card."""
    asked, path = urlsplit(url).path, urlsplit(urljoin(url, to)).path
    return path == asked + "/" and not asked.endswith(".json")


def _not_found(seen: Observations) -> _Instead:
    places = "; ".join(f"{place}: {what}" for place, what in seen.tried[:FAULTS_SHOWN])
    return _Instead("card-found", f"no card was found: {places}", "")


def _unreadable(came: Exchange) -> tuple[str, str]:
    """Say why a body is no card, and what to change."""
    body, begins = came.body, " ".join(came.text.split())[:BODY_SHOWN]
    if body.startswith(b"\xef\xbb\xbf"):
        return "the card begins with a byte order mark", "save the card as UTF-8 without a BOM (RFC 8259 §8.1)"
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the card is in UTF-16", "serve the card in UTF-8 (RFC 8259 §8.1)"
    if not body.strip():
        return "the card is empty", "serve the card as a JSON object"
    try:
        body.decode()
    except UnicodeDecodeError as error:
        if json_fault(body).startswith(CUT):
            return f"the card is cut off: {json_fault(body)}", _CUT_FIX
        return f"byte {error.start} is no UTF-8", "serve the card in UTF-8 (RFC 8259 §8.1)"
    if body.lstrip().startswith(b"<"):
        return f"it is a page for people: {begins}", "serve the card at this path, before the rule that serves the page"
    document = came.document
    if document is None:
        fault = json_fault(body)
        cut = fault.startswith(CUT)
        fix = _CUT_FIX if cut else "correct the JSON; a tool like `jq . card.json` shows the place"
        return f"the card is {'cut off' if cut else 'no JSON'}: {fault}", fix
    if not isinstance(document, dict):
        return f"the card is a {type(document).__name__}, not an object", "serve the card itself, as one JSON object"
    named = ", ".join(list(document)[:FAULTS_SHOWN]) or "nothing"
    return f"the document is no agent card, it has {named}", "serve an AgentCard: name, supportedInterfaces, skills …"


_CUT_FIX = "send the whole card: a Content-Length must count its bytes, of which an ü or a 好 has more than one"


def _is_instead(name: str) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge whether that is what came in the place of a card."""

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        if (instead := _instead(seen)) is not None and instead.check == name:
            yield Verdict(Color.RED, instead.observed, fix=instead.fix, exchange=seen.card_exchange)

    return verdicts


def _found(seen: Observations) -> Iterator[Verdict]:
    if seen.certificate:
        return
    root = ", the root of the host that was named" if seen.at_root else ""
    if seen.card is None:
        yield from _is_instead("card-found")(seen)
    elif seen.card_exchange is None:
        yield Verdict(Color.GREY, f"the card is a file: {seen.place}")
    elif seen.place.partition("?")[0].endswith(WELL_KNOWN[0]):
        yield Verdict(Color.GREEN, f"at {seen.place}{root}")
    elif seen.place.endswith(WELL_KNOWN[1]):
        older = Color.YELLOW if seen.modern else Color.GREEN
        yield Verdict(older, f"at {seen.place}{root}, which is its place of before 0.3")
    else:
        yield Verdict(Color.GREY, f"at {seen.place}, which no client tries by itself")


def _speed(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None or seen.card_exchange is None or seen.card_exchange.failure:
        return
    took_ms = seen.card_exchange.elapsed_ms
    color = Color.YELLOW if took_ms > SLOW_MS else Color.GREEN
    yield Verdict(color, f"the card comes after {took_ms:.0f} ms", exchange=seen.card_exchange)


def _type(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None or seen.card_exchange is None:
        return
    kind = seen.card_exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    right = kind.endswith(("/json", "+json"))
    yield Verdict(Color.GREEN if right else Color.YELLOW, f"served as {kind or 'nothing'}", exchange=seen.card_exchange)


def _fields(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if seen.endpoints and not any(endpoint.official for endpoint in seen.endpoints):
        yield Verdict(Color.GREY, f"not measured: the card is one of {seen.endpoints[0].interface.dialect}")
        return
    faults = card_faults(seen.card) if seen.modern else list(_faults_03(seen.card))
    if not faults:
        yield Verdict(Color.GREEN, f"every field that {'1.0' if seen.modern else '0.3'} requires is there")
        return
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    yield Verdict(Color.RED, "; ".join(faults[:FAULTS_SHOWN]) + more, exchange=seen.card_exchange)


def _faults_03(card: dict[str, Any]) -> Iterator[str]:
    for name, kind in _REQUIRED_03:
        value = card.get(name)
        if value is None:
            yield f"{name}: is missing"
        elif not isinstance(value, kind):
            yield f"{name}: is {type(value).__name__}, not {kind.__name__}"


def _skills(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None or not isinstance(skills := seen.card.get("skills"), list):
        return
    ids = [each["id"] for each in skills if isinstance(each, dict) and isinstance(each.get("id"), str)]
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        fix = "give each skill an id of its own: callers tell skills apart by it"
        yield Verdict(Color.YELLOW, f"several skills have the id {twice[0]!r}", fix=fix)
        return
    count = len(skills)
    yield Verdict(Color.GREEN if count else Color.YELLOW, f"lists {count} skill{'s' if count != 1 else ''}")


def _version(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if not seen.modern:
        said = seen.card.get("protocolVersion")
        if isinstance(said, str) and dialect_of(said) == "1.0" and "supportedInterfaces" not in seen.card:
            told = f"says that it is A2A {said}, and has the shape of 0.3: `url` instead of `supportedInterfaces`"
            fix = "list the endpoints in supportedInterfaces, each with its protocolVersion, or say 0.3.0"
            yield Verdict(Color.RED, told, fix=fix)
        return
    named = [
        each["protocolVersion"]
        for each in seen.card["supportedInterfaces"]
        if isinstance(each, dict) and isinstance(each.get("protocolVersion"), str)
    ]
    for version in dict.fromkeys(named):
        plain = version.count(".") == 1 and version.replace(".", "").isdigit()
        yield Verdict(Color.GREEN if plain else Color.YELLOW, f"names version {version}")


def _bindings(seen: Observations) -> Iterator[Verdict]:
    """Judge the spelling of bindings; the name of a binding that is not one of the three is free (A2A 1.0 §4.4.6)."""
    if seen.card is None:
        return
    listed = seen.card.get("supportedInterfaces" if seen.modern else "additionalInterfaces")
    field = "protocolBinding" if seen.modern else "transport"
    said = [each.get(field) for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)]
    said += [] if seen.modern else [seen.card.get("preferredTransport")]
    named = [each for each in said if isinstance(each, str) and each]
    for name in dict.fromkeys(named):
        if meant := _meant_binding(name):
            told = f"the {field} {name!r} is no name of a binding; clients look for {meant!r}"
            yield Verdict(Color.RED, told, fix=f"write {meant}")
    if named and not any(map(_meant_binding, named)):
        yield Verdict(Color.GREEN, f"names {', '.join(dict.fromkeys(named))}")


def _meant_binding(name: str) -> str:
    """Return the binding that a name misspells, empty if it is spelt right or means something else."""
    if name in BINDINGS:
        return ""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((right for right, wrong in _MISSPELT.items() if plain in wrong), "")


_MISSPELT = {
    JSONRPC: {"jsonrpc", "jsonrpc2", "jsonrpc20", "jsonrpchttp", "rpc", "josnrpc", "jsnorpc", "jsonrcp"},
    HTTP_JSON: {"httpjson", "httpsjson", "rest", "http", "https", "restful", "jsonhttp", "httprest"},
    GRPC: {"grpc", "grcp", "gprc"},
}
BINDINGS = tuple(_MISSPELT)


def _endpoints(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if not seen.endpoints:
        named = f": it names {'; '.join(seen.unspoken[:FAULTS_SHOWN])}" if seen.unspoken else ""
        yield Verdict(Color.RED, f"the card names no endpoint that a client of A2A 1.0 or 0.3 can call{named}")
        return
    if wrong := [url for url in _urls(seen.card) if _LISTENED_AT.match(url)]:
        told = f"the card names {wrong[0][:LOCATION_SHOWN]}, an address to listen at, and none to call"
        fix = "write the agent's public URL into the card, not the address that the server is bound to"
        yield Verdict(Color.RED, told, fix=fix, exchange=seen.card_exchange)
    for each in seen.unspoken:
        yield Verdict(Color.GREY, f"not tried: {each}, which this tool does not speak")
    if seen.untried:
        yield Verdict(Color.GREY, f"not tried: {seen.untried} more endpoints of a card that names very many")


def _urls(card: dict[str, Any]) -> list[str]:
    """Return the URLs of a card's endpoints, as the card has them."""
    lists = [card.get("supportedInterfaces"), card.get("additionalInterfaces"), [card]]
    listed = [each for some in lists if isinstance(some, list) for each in some if isinstance(each, dict)]
    return [url for each in listed if isinstance(url := each.get("url"), str)]


_LISTENED_AT = re.compile(r"(?i)(?:[a-z]+://)?(?:0\.0\.0\.0|\[::\])(?:[:/?]|$)")
"""URLs of the addresses that stand for all of a machine's own (RFC 1122 §3.2.1.3, RFC 4291 §2.5.2)."""


def _signature(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if seen.signature.startswith("verified"):
        yield Verdict(Color.GREEN, seen.signature)
    elif seen.signature == "absent":
        yield Verdict(Color.GREY, "the card is not signed, which is no fault")
    elif "no key is known" in seen.signature:
        yield Verdict(Color.GREY, seen.signature)
    else:
        yield Verdict(Color.RED, seen.signature)


def _caching(seen: Observations) -> Iterator[Verdict]:
    if not seen.modern or seen.card_exchange is None:
        return
    headers = seen.card_exchange.headers
    said = [name for name in ("cache-control", "etag") if headers.get(name)]
    if len(said) == 2:
        yield Verdict(Color.GREEN, "Cache-Control and ETag")
    else:
        missing = [name for name in ("Cache-Control", "ETag") if name.lower() not in said]
        yield Verdict(Color.YELLOW, f"no {' and no '.join(missing)}", exchange=seen.card_exchange)


CARD_CHECKS = (
    Check(
        name="card-found",
        section="A2A 1.0 §8.2",
        fix=f"serve the card at {WELL_KNOWN[0]}",
        judge=_found,
        must=True,
    ),
    Check(
        name="card-redirect",
        section="A2A 1.0 §8.2, RFC 8615 §3",
        fix="serve the card itself at the well-known path",
        judge=_is_instead("card-redirect"),
        must=True,
    ),
    Check(
        name="card-public",
        section="A2A 1.0 §8.2, §13.3",
        fix="let anybody read the card",
        judge=_is_instead("card-public"),
        must=True,
    ),
    Check(
        name="card-readable",
        section="A2A 1.0 §8.2, RFC 8259 §8.1, RFC 9110 §12.5.3",
        fix="serve the card as plain JSON in UTF-8",
        judge=_is_instead("card-readable"),
        must=True,
    ),
    Check(
        name="card-speed",
        section="measured",
        fix="make the card once, and serve it from memory: each client reads it before its first call",
        judge=_speed,
    ),
    Check(name="card-type", section="A2A 1.0 §8.2", fix="serve the card as application/json", judge=_type),
    Check(
        name="card-fields",
        section="A2A 1.0 §4.4.1, A2A 0.3 §5.5",
        fix="correct these fields of the card",
        judge=_fields,
        must=True,
        hides=frozenset({"card-endpoints"}),
    ),
    Check(
        name="card-skills",
        section="A2A 1.0 §4.4.1, §5.7",
        fix="describe at least one skill: other agents choose by skills",
        judge=_skills,
    ),
    Check(
        name="card-version",
        section="A2A 1.0 §3.6",
        fix="name versions as Major.Minor, such as 1.0",
        judge=_version,
        hides=frozenset({"card-fields"}),
    ),
    Check(
        name="card-binding",
        section="A2A 1.0 §4.4.6, §5.8",
        fix="name bindings JSONRPC, HTTP+JSON or GRPC",
        judge=_bindings,
        must=True,
        hides=frozenset({"card-endpoints"}),
    ),
    Check(
        name="card-endpoints",
        section="A2A 1.0 §8.3.1",
        fix="list an endpoint with its URL, protocolBinding and protocolVersion in supportedInterfaces",
        judge=_endpoints,
        must=True,
        hides=frozenset({"endpoint-private"}),
    ),
    Check(
        name="card-signature",
        section="A2A 1.0 §8.4.3",
        fix="sign the card again after its last change, with a key that is published",
        judge=_signature,
    ),
    Check(
        name="card-caching",
        section="A2A 1.0 §8.6.1",
        fix="send Cache-Control with max-age, and an ETag, so that clients need not fetch the card for every call",
        judge=_caching,
    ),
)
"""The rows, in the order of the report."""
