"""Checks of the card: where it is, how it is served, and what it says."""

from collections.abc import Iterator
from typing import Any

from dragoman.dialects.cards import WELL_KNOWN
from dragoman.doctor.card_check import card_faults
from dragoman.doctor.finding import Check, Color, Verdict
from dragoman.doctor.observation import Observations

FAULTS_SHOWN = 8

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


def _found(seen: Observations) -> Iterator[Verdict]:
    if seen.certificate:
        return
    root = ", the root of the host that was named" if seen.at_root else ""
    if seen.card is None:
        places = "; ".join(f"{place}: {what}" for place, what in seen.tried[:FAULTS_SHOWN])
        yield Verdict(Color.RED, f"no card was found: {places}")
    elif seen.card_exchange is None:
        yield Verdict(Color.GREY, f"the card is a file: {seen.place}")
    elif seen.place.partition("?")[0].endswith(WELL_KNOWN[0]):
        yield Verdict(Color.GREEN, f"at {seen.place}{root}")
    elif seen.place.endswith(WELL_KNOWN[1]):
        older = Color.YELLOW if seen.modern else Color.GREEN
        yield Verdict(older, f"at {seen.place}{root}, which is its place of before 0.3")
    else:
        yield Verdict(Color.GREY, f"at {seen.place}, which no client tries by itself")


def _type(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None or seen.card_exchange is None:
        return
    kind = seen.card_exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    right = kind.endswith(("/json", "+json"))
    yield Verdict(Color.GREEN if right else Color.YELLOW, f"served as {kind or 'nothing'}")


def _fields(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    faults = card_faults(seen.card) if seen.modern else list(_faults_03(seen.card))
    if not faults:
        yield Verdict(Color.GREEN, f"every field that {'1.0' if seen.modern else '0.3'} requires is there")
        return
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    yield Verdict(Color.RED, "; ".join(faults[:FAULTS_SHOWN]) + more)


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
    count = len(skills)
    yield Verdict(Color.GREEN if count else Color.YELLOW, f"lists {count} skill{'s' if count != 1 else ''}")


def _version(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None or not seen.modern:
        return
    named = [
        each["protocolVersion"]
        for each in seen.card["supportedInterfaces"]
        if isinstance(each, dict) and isinstance(each.get("protocolVersion"), str)
    ]
    for version in dict.fromkeys(named):
        plain = version.count(".") == 1 and version.replace(".", "").isdigit()
        yield Verdict(Color.GREEN if plain else Color.YELLOW, f"names version {version}")


def _endpoints(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if not seen.endpoints:
        yield Verdict(Color.RED, "the card names no endpoint that a client of A2A can call")
    for each in seen.unspoken:
        yield Verdict(Color.GREY, f"not tried: {each}, which this tool does not speak")
    if seen.untried:
        yield Verdict(Color.GREY, f"not tried: {seen.untried} more endpoints of a card that names very many")


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
        yield Verdict(Color.YELLOW, f"no {' and no '.join(missing)}")


CARD_CHECKS = (
    Check(
        name="card-found",
        section="A2A 1.0 §8.2",
        fix=f"serve the card at {WELL_KNOWN[0]}",
        judge=_found,
        must=True,
    ),
    Check(name="card-type", section="A2A 1.0 §8.2", fix="serve the card as application/json", judge=_type),
    Check(
        name="card-fields",
        section="A2A 1.0 §4.4.1, A2A 0.3 §5.5",
        fix="correct these fields of the card",
        judge=_fields,
        must=True,
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
    ),
    Check(
        name="card-endpoints",
        section="A2A 1.0 §8.3.1",
        fix="list an endpoint with its URL, protocolBinding and protocolVersion in supportedInterfaces",
        judge=_endpoints,
        must=True,
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
