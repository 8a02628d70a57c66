"""Says which server an agent runs on, by what it shows and does.

Invariant: a name is given only with its evidence. Without evidence the answer is only which protocol is spoken.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from dragoman.client.card import card_kinds
from dragoman.dialects.cards import JSONRPC
from dragoman.dialects.client.card import CardView
from dragoman.dialects.registry import SYSTEMS
from dragoman.doctor.observation import Endpoint, HarmlessRequest, Observations


class ServerIdentity(Struct, frozen=True, kw_only=True):
    """The kind of a server. `evidence` is what it was recognised by; empty: only the protocol is known."""

    name: str
    evidence: str = ""


class Sign(Struct, frozen=True):
    """A way to recognise a server: it returns the evidence, empty if there is none."""

    name: str
    evidence: Callable[[Observations], str]


def identify(seen: Observations) -> ServerIdentity:
    """Return what the server is. The first sign that is there counts."""
    for sign in SIGNS:
        if evidence := sign.evidence(seen):
            return ServerIdentity(name=sign.name, evidence=evidence)
    spoken = dict.fromkeys(endpoint.interface.dialect for endpoint in seen.endpoints)
    versions = " and ".join(spoken)
    return ServerIdentity(name=f"an unknown server that speaks A2A {versions}" if versions else "unknown")


def _rpc(seen: Observations, version: str) -> Endpoint | None:
    return next(
        (
            each
            for each in seen.endpoints
            if each.interface.binding == JSONRPC and each.interface.dialect == version and each.answers
        ),
        None,
    )


def _body(endpoint: Endpoint | None, probe: HarmlessRequest) -> bytes:
    came = None if endpoint is None else endpoint.answers.get(probe)
    return b"" if came is None else came.body


def _dragoman(seen: Observations) -> str:
    if any(uri.startswith("urn:dragoman:") for uri in _view(seen).uris):
        return "its card declares an extension of Dragoman"
    return ""


def _vendor(name: str) -> Callable[[Observations], str]:
    """Recognise a system by the signs of its card."""

    def evidence(seen: Observations) -> str:
        if seen.card is None:
            return ""
        view = _view(seen)
        kind = next((row.kind for row in card_kinds() if row.when(view)), "")
        system, _, sign = kind.partition(", ")
        return f"its card, {sign}" if system == name else ""

    return evidence


def _adk(seen: Observations) -> str:
    if any("adk" in str(uri).lower() and "google" in str(uri).lower() for uri in _view(seen).uris):
        return "its card declares an extension of the ADK"
    skills = (seen.card or {}).get("skills")
    for skill in skills if isinstance(skills, list) else ():
        if isinstance(skill, dict) and skill.get("name") == "model" and "llm" in (skill.get("tags") or ()):
            return "its card has the skill `model` with the tag `llm`, which the ADK writes"
    return ""


def _python_a2a(seen: Observations) -> str:
    capabilities = (seen.card or {}).get("capabilities")
    if isinstance(capabilities, dict) and "google_a2a_compatible" in capabilities:
        return "its card has the capability `google_a2a_compatible`"
    return ""


def _fasta2a(seen: Observations) -> str:
    unknown = _rpc(seen, "1.0")
    came = None if unknown is None else unknown.answers.get(HarmlessRequest.UNKNOWN_METHOD)
    modes = (seen.card or {}).get("defaultInputModes")
    if (
        came is not None
        and came.status == 500
        and came.body == b"Internal Server Error"
        and modes == ["application/json"]
    ):
        return "an unknown method breaks it, and its card takes application/json alone"
    return ""


def _official_python_1(seen: Observations) -> str:
    body = _body(_rpc(seen, "1.0"), HarmlessRequest.UNKNOWN_VERSION)
    if b"is not supported by this handler. Expected version" in body:
        return "its words for a version that it does not know"
    return ""


def _official_js(version: str) -> Callable[[Observations], str]:
    def evidence(seen: Observations) -> str:
        endpoint = _rpc(seen, version)
        told = re.search(rb'"message":"Task not found: [0-9a-f-]{36}"', _body(endpoint, HarmlessRequest.UNKNOWN_TASK))
        if told and b'"Invalid JSON payload."' in _body(endpoint, HarmlessRequest.BROKEN_JSON):
            return "its words for an unknown task and for a body that is not JSON"
        return ""

    return evidence


def _official_python_03(seen: Observations) -> str:
    endpoint = _rpc(seen, "0.3")
    in_order = re.match(
        rb'\{"error":\{"code":-32001,"message":"Task not found"\}', _body(endpoint, HarmlessRequest.UNKNOWN_TASK)
    )
    if in_order and b"line 1 column" in _body(endpoint, HarmlessRequest.BROKEN_JSON):
        return "the shape of its errors, and its words for a body that is not JSON"
    return ""


def _view(seen: Observations) -> CardView:
    return CardView(seen.card or {}, seen.place, seen.place.partition("/.well-known")[0].rstrip("/"))


_VENDORS = {"beeos": "BeeOS", "kaos": "KAOS", "evoai": "Evo AI", "protoagent": "protoAgent"}

SIGNS = (
    Sign("Dragoman", _dragoman),
    Sign("python-a2a", _python_a2a),
    *(Sign(_VENDORS[name], _vendor(name)) for name in SYSTEMS if name in _VENDORS),
    Sign("Google ADK", _adk),
    Sign("FastA2A", _fasta2a),
    Sign("the official Python SDK, 1.x", _official_python_1),
    Sign("the official JavaScript SDK, 1.x", _official_js("1.0")),
    Sign("the official Python SDK, 0.3", _official_python_03),
    Sign("the official JavaScript SDK, 0.3", _official_js("0.3")),
)
"""The signs; frameworks that are built on an official SDK come before that."""
