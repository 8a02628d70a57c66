"""The doctor recognises a server by its card and its answers."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.doctor.identity import SIGNS, identify
from dragoman.doctor.observation import Exchange, HarmlessRequest, Observations
from tests.doctor.recorded import CARD, HEALTHY, RPC, answer, rpc_error, with_answer

BARE: dict[str, Any] = {"name": "a", "description": "b", "version": "1", "capabilities": {}, "skills": []}


def carded(url: str = "https://agent.example", **card: Any) -> Observations:
    return replace(HEALTHY, place=f"{url}/.well-known/agent-card.json", card={**BARE, **card})


def declaring(*uris: str) -> dict[str, Any]:
    return {"capabilities": {"extensions": [{"uri": uri} for uri in uris]}}


JS = answer(
    {"error": {"code": -32001, "message": "Task not found: 5f0c1a52-9a54-4a55-8f0e-2b9f1c1f0a11"}},
)
JS_BROKEN = rpc_error(-32700, "Invalid JSON payload.")
OLD = replace(RPC, interface=replace(RPC.interface, dialect="0.3"))

CASES = [
    ("Dragoman", carded(**CARD | declaring("urn:dragoman:dedupe:v1"))),
    ("python-a2a", carded(capabilities={"google_a2a_compatible": True}, url="https://agent.example")),
    ("BeeOS", carded(supportedInterfaces={"a2a": "https://agent.example/x"})),
    ("KAOS", carded(supportedProtocols=["jsonrpc"])),
    ("Evo AI", carded(url="https://agent.example/api/v1/a2a/7")),
    ("protoAgent", carded(**declaring("https://proto-labs.ai/a2a/ext/cost-v1"))),
    ("Google ADK", carded(**CARD | {"skills": [{"id": "a", "name": "model", "tags": ["llm"]}]})),
    (
        "FastA2A",
        with_answer(
            HarmlessRequest.UNKNOWN_METHOD,
            Exchange(status=500, body=b"Internal Server Error"),
            card={**CARD, "defaultInputModes": ["application/json"]},
        ),
    ),
    (
        "the official Python SDK, 1.x",
        with_answer(
            HarmlessRequest.UNKNOWN_VERSION, rpc_error(-32009, "… is not supported by this handler. Expected version")
        ),
    ),
    (
        "the official JavaScript SDK, 1.x",
        replace(
            HEALTHY,
            endpoints=(
                replace(RPC, answers={HarmlessRequest.UNKNOWN_TASK: JS, HarmlessRequest.BROKEN_JSON: JS_BROKEN}),
            ),
        ),
    ),
    (
        "the official JavaScript SDK, 0.3",
        replace(
            HEALTHY,
            endpoints=(
                replace(OLD, answers={HarmlessRequest.UNKNOWN_TASK: JS, HarmlessRequest.BROKEN_JSON: JS_BROKEN}),
            ),
        ),
    ),
    (
        "the official Python SDK, 0.3",
        replace(
            HEALTHY,
            endpoints=(
                replace(
                    OLD,
                    answers={
                        HarmlessRequest.UNKNOWN_TASK: answer(
                            {"error": {"code": -32001, "message": "Task not found"}, "id": 1, "jsonrpc": "2.0"}
                        ),
                        HarmlessRequest.BROKEN_JSON: rpc_error(-32700, "Expecting value: line 1 column 2 (char 1)"),
                    },
                ),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("name", "seen"), CASES, ids=[case[0] for case in CASES])
def test_a_server_is_known_by_what_it_shows(name: str, seen: Observations) -> None:
    identity = identify(seen)
    assert identity.name == name
    assert identity.evidence


def test_every_server_is_tried_above() -> None:
    assert sorted(name for name, _ in CASES) == sorted(sign.name for sign in SIGNS)


def test_a_server_without_a_sign_is_not_given_a_name() -> None:
    identity = identify(HEALTHY)
    assert (identity.name, identity.evidence) == ("an unknown server that speaks A2A 1.0", "")
    assert identify(Observations(agent="a")).name == "unknown"
