"""Recorded observations: an agent without faults, of which a test changes one thing."""

from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.client import Interface
from dragoman.doctor.finding import Check, Verdict
from dragoman.doctor.observation import Endpoint, Exchange, HarmlessRequest, Observations

CARD: dict[str, Any] = {
    "name": "Echo",
    "description": "Gives back",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Gives back", "tags": ["test"]}],
}
JSON = {"content-type": "application/json"}


def answer(body: Any, status: int = 200, **headers: str) -> Exchange:
    """An answer in JSON, or of bytes as they are; `_` in the name of a header is `-`."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Exchange(status=status, headers={**JSON, **named}, body=content, elapsed_ms=3.0)


def rpc_error(code: int, message: str = "No") -> Exchange:
    return answer({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})


GOOD = {
    HarmlessRequest.UNKNOWN_TASK: rpc_error(-32001),
    HarmlessRequest.NO_CREDENTIALS: rpc_error(-32001),
    HarmlessRequest.UNKNOWN_METHOD: rpc_error(-32601),
    HarmlessRequest.UNKNOWN_VERSION: rpc_error(-32009),
    HarmlessRequest.BROKEN_JSON: rpc_error(-32700),
    HarmlessRequest.PREFLIGHT: answer(b"", 405),
}
RPC = Endpoint(interface=Interface(url="https://agent.example/rpc", binding="JSONRPC", dialect="1.0"), answers=GOOD)
REST = Endpoint(
    interface=Interface(url="https://agent.example/rest", binding="HTTP+JSON", dialect="1.0"),
    answers={
        HarmlessRequest.UNKNOWN_TASK: answer({"error": {"code": 404, "message": "No"}}, 404),
        HarmlessRequest.UNKNOWN_VERSION: answer({"error": {"code": 400, "message": "No"}}, 400),
    },
)
GRPC = Endpoint(
    interface=Interface(url="grpcs://agent.example:443", binding="GRPC", dialect="1.0"),
    answers={HarmlessRequest.UNKNOWN_TASK: Exchange(error="TaskNotFound", elapsed_ms=3.0)},
)
HEALTHY = Observations(
    agent="https://agent.example",
    place="https://agent.example/.well-known/agent-card.json",
    card=CARD,
    card_exchange=answer(CARD, cache_control="max-age=60", etag='"1"'),
    signature="absent",
    public=True,
    endpoints=(RPC, REST, GRPC),
    schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}},
)


def with_answer(probe: HarmlessRequest, came: Exchange, *, endpoint: Endpoint = RPC, **more: Any) -> Observations:
    """The healthy agent with one endpoint, where one answer is another."""
    answers = {**endpoint.answers, probe: came}
    return replace(HEALTHY, endpoints=(replace(endpoint, answers=answers),), **more)


def verdicts(checks: tuple[Check, ...], name: str, seen: Observations) -> list[Verdict]:
    """The findings of the check with that name."""
    (check,) = [each for each in checks if each.name == name]
    return list(check.judge(seen))


def colors(checks: tuple[Check, ...], name: str, seen: Observations) -> list[str]:
    """The colours of what the check of that name says."""
    return [each.color.value for each in verdicts(checks, name, seen)]
