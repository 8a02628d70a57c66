"""Each check of the doctor, by recorded observations: what is right, and what is wrong in each way."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client import Interface
from dragoman.doctor.checks import CHECKS
from dragoman.doctor.checks.behavior import BEHAVIOR_CHECKS
from dragoman.doctor.finding import Color, judge_all
from dragoman.doctor.observation import NO_ERROR, Exchange, HarmlessRequest, Observations
from dragoman.net.tls import TlsSession
from tests.doctor.catalogue import FAULTS
from tests.doctor.recorded import (
    CARD,
    GRPC,
    HEALTHY,
    REST,
    RPC,
    answer,
    colors,
    rpc_error,
    verdicts,
    with_answer,
)

DAY_S = 86_400.0
REQUIRED = ({"schemes": {"key": {}}},)
UNREACHED = Exchange(failure="no connection: is it listening there?")
PRIVATE = Exchange(failure="its host stands for a private address", refused=True)
DENIED = answer({"error": {"code": -32000}}, 401, www_authenticate='Bearer realm="a"')


def card(**changes: Any) -> Observations:
    changed = {name: value for name, value in {**CARD, **changes}.items() if value is not None}
    return replace(HEALTHY, card=changed)


def exchanged(**headers: str) -> Observations:
    return replace(HEALTHY, card_exchange=answer(CARD, **headers))


def tls(days: float | None) -> Observations:
    expires_s = None if days is None else days * DAY_S + 1
    return replace(HEALTHY, tls=TlsSession(version="TLSv1.3", cipher="AES", expires_s=expires_s))


def secured(header: str) -> Observations:
    return replace(tls(60), card_exchange=answer(CARD, strict_transport_security=header))


def placed(place: str) -> Observations:
    return replace(HEALTHY, place=place)


def redirected(url: str, to: str) -> Observations:
    """An agent without a card, whose URL leads to another one."""
    return Observations(agent="a", card_exchange=Exchange(url=url, status=307, headers={"location": to}))


def test_an_agent_without_faults_has_no_red_and_no_yellow_finding() -> None:
    findings = judge_all(CHECKS, tls_at_noon := tls(60))
    assert tls_at_noon.public
    assert [each for each in findings if each.color in (Color.RED, Color.YELLOW)] == []
    assert all(each.fix is None for each in findings)


CASES = [
    ("extended-card", HEALTHY, []),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, answer({"result": CARD})), ["red"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, answer(CARD), endpoint=REST), ["red"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, Exchange(error=NO_ERROR), endpoint=GRPC), ["red"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, Exchange(error="Unauthorized")), ["green"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, answer({"result": CARD}), schemes={}), ["yellow"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, DENIED), ["green"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, rpc_error(-32007)), ["grey"]),
    ("extended-card", with_answer(HarmlessRequest.EXTENDED_CARD, UNREACHED), []),
    ("transport-security", HEALTHY, []),
    ("transport-security", tls(60), ["grey"]),
    ("transport-security", secured("max-age=31536000; includeSubDomains"), ["green"]),
    ("transport-security", secured("includeSubDomains; MAX-AGE=86400"), ["green"]),
    ("transport-security", secured("max-age=0"), ["yellow"]),
    ("transport-security", secured("always"), ["yellow"]),
    ("transport-security", exchanged(strict_transport_security="max-age=86400"), ["yellow"]),
    ("card-found", HEALTHY, ["green"]),
    ("card-found", placed("https://agent.example/.well-known/agent.json"), ["yellow"]),
    ("card-found", placed("https://agent.example/cards/1.json"), ["grey"]),
    ("card-found", Observations(agent="a", tried=(("https://a/", "HTTP status 404"),)), ["red"]),
    ("card-found", redirected("https://a/b", "https://a/b/"), ["red"]),
    ("card-redirect", redirected("https://a/b", "/b/"), []),
    ("card-redirect", redirected("https://a/agent.json", "/agent.json/"), ["red"]),
    ("card-type", HEALTHY, ["green"]),
    ("card-type", exchanged(content_type="text/html"), ["yellow"]),
    ("card-type", exchanged(content_type="application/a2a+json; charset=utf-8"), ["green"]),
    ("card-fields", HEALTHY, ["green"]),
    ("card-fields", card(description=None), ["red"]),
    ("card-fields", card(supportedInterfaces=None), ["red"]),
    ("card-skills", card(skills=[]), ["yellow"]),
    ("card-version", HEALTHY, ["green"]),
    (
        "card-version",
        card(supportedInterfaces=[{"url": "https://a/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0.0"}]),
        ["yellow"],
    ),
    ("card-endpoints", HEALTHY, []),
    ("card-endpoints", replace(HEALTHY, endpoints=()), ["red"]),
    ("card-endpoints", replace(HEALTHY, unspoken=("SLIMRPC 1.0 slim://a",)), ["grey"]),
    ("card-endpoints", replace(HEALTHY, untried=4), ["grey"]),
    ("card-signature", HEALTHY, ["grey"]),
    ("card-signature", replace(HEALTHY, signature="verified (key k)"), ["green"]),
    ("card-signature", replace(HEALTHY, signature="unverifiable (no key is known: give --card-keys)"), ["grey"]),
    ("card-signature", replace(HEALTHY, signature="unverifiable (no key fits)"), ["red"]),
    ("card-caching", HEALTHY, ["green"]),
    ("card-caching", exchanged(etag='"1"'), ["yellow"]),
    ("endpoint-answers", HEALTHY, ["green", "green", "green"]),
    ("endpoint-answers", with_answer(HarmlessRequest.UNKNOWN_TASK, UNREACHED), ["red"]),
    ("endpoint-answers", with_answer(HarmlessRequest.UNKNOWN_TASK, answer(b"Not Found", 404)), ["red"]),
    ("endpoint-answers", with_answer(HarmlessRequest.UNKNOWN_TASK, answer({"detail": "no"}, 500)), ["red"]),
    ("endpoint-answers", with_answer(HarmlessRequest.UNKNOWN_TASK, DENIED), ["green"]),
    (
        "endpoint-answers",
        with_answer(HarmlessRequest.UNKNOWN_TASK, Exchange(failure="x", error="NotInstalled")),
        ["grey"],
    ),
    ("endpoint-answers", replace(HEALTHY, endpoints=(replace(RPC, answers={}),)), ["grey"]),
    ("endpoint-private", HEALTHY, []),
    ("endpoint-private", with_answer(HarmlessRequest.UNKNOWN_TASK, PRIVATE), ["red"]),
    ("endpoint-private", with_answer(HarmlessRequest.UNKNOWN_TASK, PRIVATE, public=False), ["yellow"]),
    ("endpoint-answers", with_answer(HarmlessRequest.UNKNOWN_TASK, PRIVATE), []),
    ("unknown-task", HEALTHY, ["green", "green", "green"]),
    ("unknown-task", with_answer(HarmlessRequest.UNKNOWN_TASK, rpc_error(-32603)), ["red"]),
    ("unknown-task", with_answer(HarmlessRequest.UNKNOWN_TASK, answer({"id": 1, "result": None})), ["red"]),
    ("unknown-task", with_answer(HarmlessRequest.UNKNOWN_TASK, answer(b"Not Found", 404), endpoint=REST), ["red"]),
    (
        "unknown-task",
        with_answer(HarmlessRequest.UNKNOWN_TASK, Exchange(error="InternalError"), endpoint=GRPC),
        ["red"],
    ),
    ("unknown-task", with_answer(HarmlessRequest.UNKNOWN_TASK, DENIED), ["grey"]),
    ("unknown-task", with_answer(HarmlessRequest.UNKNOWN_TASK, UNREACHED), []),
    ("unknown-method", HEALTHY, ["green"]),
    ("unknown-method", with_answer(HarmlessRequest.UNKNOWN_METHOD, answer(b"Internal Server Error", 500)), ["red"]),
    ("broken-json", HEALTHY, ["green"]),
    ("broken-json", with_answer(HarmlessRequest.BROKEN_JSON, rpc_error(-32603)), ["red"]),
    ("unknown-version", HEALTHY, ["green", "green"]),
    ("unknown-version", with_answer(HarmlessRequest.UNKNOWN_VERSION, rpc_error(-32001)), ["red"]),
    (
        "unknown-version",
        with_answer(HarmlessRequest.UNKNOWN_VERSION, answer({"error": 1}, 404), endpoint=REST),
        ["red"],
    ),
    ("answer-type", HEALTHY, ["green"]),
    (
        "answer-type",
        with_answer(HarmlessRequest.UNKNOWN_TASK, answer({"error": {}}, content_type="text/plain")),
        ["red"],
    ),
    ("error-internals", HEALTHY, ["green", "green"]),
    (
        "error-internals",
        with_answer(HarmlessRequest.BROKEN_JSON, answer({"e": "Traceback (most recent call last):"})),
        ["yellow"],
    ),
    ("speed", with_answer(HarmlessRequest.UNKNOWN_TASK, replace(rpc_error(-32001), elapsed_ms=3_000.0)), ["yellow"]),
    ("tls", tls(60), ["green"]),
    ("tls", tls(3), ["yellow"]),
    ("tls", tls(None), ["grey"]),
    ("tls", Observations(agent="a", certificate="certificate has expired"), ["red"]),
    ("tls", placed("http://agent.example/.well-known/agent-card.json"), ["red"]),
    ("tls", replace(placed("http://10.1.2.3/card.json"), public=False), ["grey"]),
    ("authentication-declared", HEALTHY, ["green"]),
    ("authentication-declared", replace(HEALTHY, requirements=REQUIRED), ["green"]),
    ("authentication-declared", replace(HEALTHY, schemes={}), ["yellow"]),
    ("authentication-declared", replace(HEALTHY, schemes={}, public=False), ["grey"]),
    ("authentication-enforced", HEALTHY, []),
    ("authentication-enforced", replace(HEALTHY, endpoints=(RPC,), requirements=REQUIRED), ["red"]),
    ("authentication-enforced", with_answer(HarmlessRequest.NO_CREDENTIALS, DENIED, requirements=REQUIRED), ["green"]),
    ("authentication-enforced", with_answer(HarmlessRequest.NO_CREDENTIALS, DENIED, schemes={}), ["red"]),
    (
        "authentication-enforced",
        with_answer(HarmlessRequest.NO_CREDENTIALS, rpc_error(-32099), requirements=REQUIRED),
        ["grey"],
    ),
    ("authentication-challenge", with_answer(HarmlessRequest.NO_CREDENTIALS, DENIED), ["green"]),
    ("authentication-challenge", with_answer(HarmlessRequest.NO_CREDENTIALS, answer({}, 401)), ["yellow"]),
    ("web-pages", HEALTHY, ["green"]),
    (
        "web-pages",
        with_answer(
            HarmlessRequest.PREFLIGHT,
            answer(
                b"",
                access_control_allow_origin="https://doctor.invalid",
                access_control_allow_credentials="true",
            ),
        ),
        ["red"],
    ),
    ("web-pages", with_answer(HarmlessRequest.PREFLIGHT, answer(b"", access_control_allow_origin="*")), ["green"]),
    (
        "web-pages",
        with_answer(HarmlessRequest.PREFLIGHT, answer(b"", access_control_allow_origin="*"), public=False),
        ["yellow"],
    ),
]


@pytest.mark.parametrize(("name", "seen", "expected"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_a_check_says_what_it_saw(name: str, seen: Observations, expected: list[str]) -> None:
    assert colors(CHECKS, name, seen) == expected


def test_every_check_is_tried_above_in_two_ways() -> None:
    """A check that is always green, or never, would not be noticed."""
    said: dict[str, set[str]] = {}
    for name, _, expected in CASES:
        said.setdefault(name, set()).update(expected or ("nothing",))
    planted = {each.check for each in FAULTS}
    assert set(said) | planted >= {check.name for check in CHECKS} - {check.name for check in BEHAVIOR_CHECKS}
    assert all(len(colors) > 1 for name, colors in said.items() if name not in ("card-skills", "speed"))


def test_an_endpoint_without_tls_is_red_only_on_a_public_host() -> None:
    plain = replace(RPC, interface=Interface(url="http://agent.example/rpc", binding="JSONRPC", dialect="1.0"))
    seen = replace(tls(60), endpoints=(plain,))
    assert [each.where for each in verdicts(CHECKS, "tls", seen) if each.color is Color.RED] == [plain.name]
    assert colors(CHECKS, "tls", replace(seen, public=False)) == ["green"]


def test_a_card_of_0_3_is_measured_by_0_3() -> None:
    old = {name: value for name, value in CARD.items() if name != "supportedInterfaces"}
    complete = replace(HEALTHY, card={**old, "url": "https://agent.example/", "protocolVersion": "0.3.0"})
    assert colors(CHECKS, "card-fields", complete) == ["green"]
    assert colors(CHECKS, "card-caching", complete) == []
    (lacking,) = verdicts(CHECKS, "card-fields", replace(HEALTHY, card=old))
    assert lacking.observed == "url: is missing; protocolVersion: is missing"


def test_a_vendors_dialect_is_not_measured_by_the_official_errors() -> None:
    vendors = replace(RPC, interface=Interface(url="https://a/", binding="JSONRPC", dialect="kaos"))
    seen = with_answer(HarmlessRequest.UNKNOWN_METHOD, rpc_error(-1), endpoint=vendors)
    assert colors(CHECKS, "unknown-method", seen) == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"\xff", b"[" * 5_000, b'{"error": 5}', b'{"error": {"code": "x"}}', b"5"]
)
@pytest.mark.parametrize("probe", list(HarmlessRequest))
def test_any_answer_gives_findings(probe: HarmlessRequest, body: bytes) -> None:
    seen = with_answer(probe, answer(body, content_type=""))
    assert {each.check for each in judge_all(CHECKS, seen)} >= {
        "card-found",
        "endpoint-answers",
        "authentication-declared",
    }
