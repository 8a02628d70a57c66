"""Checks of each endpoint: whether it answers, and whether its errors are those of its version.

Invariant: an endpoint that asks for credentials before it reads a request is judged by that alone.
"""

from collections.abc import Callable, Iterator

from dragoman.dialects.cards import GRPC, HTTP_JSON, JSONRPC
from dragoman.doctor.finding import Check, Color, Verdict, pass_or_fail
from dragoman.doctor.observation import Endpoint, Exchange, HarmlessRequest, Observations

SLOW_MS = 2_000.0
"""A read of nothing that takes longer makes every call slow."""

_TASK_NOT_FOUND, _METHOD_NOT_FOUND, _PARSE_ERROR, _VERSION_NOT_SUPPORTED = -32001, -32601, -32700, -32009
"""Codes of JSON-RPC errors (A2A 1.0 §5.4, §9.5)."""

_INTERNALS = (
    b"Traceback (most recent call last)",
    b"site-packages/",
    b"node_modules/",
    b"\\n    at ",
    b"\n    at ",
)
"""Parts of stack traces of Python and JavaScript."""

Judge = Callable[[Endpoint, Exchange], tuple[Color, str] | None]


def _each(probe: HarmlessRequest, judge: Judge, *bindings: str) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge the answer to a probe at every endpoint of the official versions that has answered it."""

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        for endpoint in seen.endpoints:
            came = endpoint.answers.get(probe)
            if came is None or endpoint.interface.binding not in bindings or not endpoint.official:
                continue
            if came.refused or _unreached(endpoint):
                continue
            if came.denied:
                yield Verdict(Color.GREY, "not measured: the endpoint asks for credentials first", endpoint.name)
            elif (judged := judge(endpoint, came)) is not None:
                yield Verdict(*judged, endpoint.name)

    return verdicts


def _unreached(endpoint: Endpoint) -> bool:
    first = endpoint.answers.get(HarmlessRequest.UNKNOWN_TASK)
    return first is None or bool(first.failure)


def _answers(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.UNKNOWN_TASK)
        if came is None:
            yield Verdict(Color.GREY, "not tried in time", endpoint.name)
        elif came.refused:
            continue
        elif came.failure:
            color = Color.GREY if came.error == "NotInstalled" else Color.RED
            yield Verdict(color, came.failure, endpoint.name)
        elif _speaks(endpoint, came):
            yield Verdict(Color.GREEN, f"answers in {came.elapsed_ms:.0f} ms", endpoint.name)
        else:
            yield Verdict(Color.RED, f"is asked for a task, and answers {came.words}", endpoint.name)


def _speaks(endpoint: Endpoint, came: Exchange) -> bool:
    """Whether an answer is one of the endpoint's binding, or at least of something that guards it."""
    if endpoint.interface.binding == GRPC or came.denied:
        return True
    match came.document:
        case {"error": _} | {"result": _}:
            return True
        case dict():
            return endpoint.interface.binding == HTTP_JSON
    return False


def _private(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.UNKNOWN_TASK)
        if came is None or not came.refused:
            continue
        if seen.public:
            yield Verdict(Color.RED, f"not dialled: {came.failure}, and the card's host is public", endpoint.name)
        else:
            yield Verdict(Color.YELLOW, f"not dialled: {came.failure}, and only the card names it", endpoint.name)


def _unknown_task(endpoint: Endpoint, came: Exchange) -> tuple[Color, str]:
    match endpoint.interface.binding:
        case "JSONRPC":
            right = came.rpc_code == _TASK_NOT_FOUND
        case "GRPC":
            right = came.error == "TaskNotFound"
        case _:
            right = came.status == 404 and isinstance(came.document, dict)
    return pass_or_fail(right, f"an unknown task is answered with {came.words}")


def _with_code(code: int, said: str) -> Judge:
    """Judge whether the answer is the JSON-RPC error with that code. `said` names what was sent."""

    def judge(endpoint: Endpoint, came: Exchange) -> tuple[Color, str]:
        return pass_or_fail(came.rpc_code == code, f"{said} is answered with {came.words}")

    return judge


def _unknown_version(endpoint: Endpoint, came: Exchange) -> tuple[Color, str] | None:
    if endpoint.interface.dialect != "1.0":  # 0.3 has no rule for versions
        return None
    if endpoint.interface.binding == JSONRPC:
        right = came.rpc_code == _VERSION_NOT_SUPPORTED
    else:
        right = came.status == 400 and isinstance(came.document, dict)
    return pass_or_fail(right, f"A2A-Version: 99.0 is answered with {came.words}")


def _rpc_type(endpoint: Endpoint, came: Exchange) -> tuple[Color, str]:
    kind = came.headers.get("content-type", "").partition(";")[0].strip().lower()
    return pass_or_fail(kind == "application/json", f"answers are {kind or 'of no type'}")


def _internals(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        if _unreached(endpoint) or endpoint.interface.binding == GRPC:  # its errors are decoded already
            continue
        told = [
            probe
            for probe, came in endpoint.answers.items()
            if came.status and any(part in came.body for part in _INTERNALS)
        ]
        if told:
            yield Verdict(Color.YELLOW, f"the answer to {told[0]} has a stack trace", endpoint.name)
        else:
            yield Verdict(Color.GREEN, "no error has a stack trace", endpoint.name)


def _speed(endpoint: Endpoint, came: Exchange) -> tuple[Color, str]:
    slow = came.elapsed_ms > SLOW_MS
    return (Color.YELLOW if slow else Color.GREEN, f"a read of nothing takes {came.elapsed_ms:.0f} ms")


_ALL = (JSONRPC, HTTP_JSON, GRPC)

ENDPOINT_CHECKS = (
    Check(
        name="endpoint-answers",
        section="A2A 1.0 §8.3.1",
        fix="serve this endpoint, or take it out of the card",
        judge=_answers,
        must=True,
    ),
    Check(
        name="endpoint-private",
        section="A2A 1.0 §8.3.1",
        fix="name a host that callers can reach; if you trust this one, name it with --trust-origin",
        judge=_private,
    ),
    Check(
        name="unknown-task",
        section="A2A 1.0 §5.4, A2A 0.3 §8.2",
        fix="answer TaskNotFoundError: -32001 over JSON-RPC, 404 with an error over HTTP+JSON, NOT_FOUND over gRPC",
        judge=_each(HarmlessRequest.UNKNOWN_TASK, _unknown_task, *_ALL),
        must=True,
    ),
    Check(
        name="unknown-method",
        section="A2A 1.0 §9.5, A2A 0.3 §8.1",
        fix="answer a JSON-RPC error with the code -32601",
        judge=_each(HarmlessRequest.UNKNOWN_METHOD, _with_code(_METHOD_NOT_FOUND, "an unknown method"), JSONRPC),
        must=True,
    ),
    Check(
        name="broken-json",
        section="A2A 1.0 §9.5, A2A 0.3 §8.1",
        fix="answer a JSON-RPC error with the code -32700",
        judge=_each(HarmlessRequest.BROKEN_JSON, _with_code(_PARSE_ERROR, "a body that is not JSON"), JSONRPC),
        must=True,
    ),
    Check(
        name="unknown-version",
        section="A2A 1.0 §3.6.2",
        fix="answer VersionNotSupportedError: -32009 over JSON-RPC, 400 over HTTP+JSON",
        judge=_each(HarmlessRequest.UNKNOWN_VERSION, _unknown_version, JSONRPC, HTTP_JSON),
        must=True,
    ),
    Check(
        name="answer-type",
        section="A2A 1.0 §9.1",
        fix="send answers over JSON-RPC as application/json",
        judge=_each(HarmlessRequest.UNKNOWN_TASK, _rpc_type, JSONRPC),
        must=True,
    ),
    Check(
        name="error-internals",
        section="A2A 1.0 §3.3.2",
        fix="keep stack traces in the server's log",
        judge=_internals,
    ),
    Check(
        name="speed",
        section="measured",
        fix="look for what makes every call wait: a cold start, a name lookup, a check of credentials",
        judge=_each(HarmlessRequest.UNKNOWN_TASK, _speed, *_ALL),
    ),
)
"""The rows, in the order of the report."""
