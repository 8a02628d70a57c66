"""Checks of each endpoint: whether it answers, and whether its errors are those of its version.

Invariant: an endpoint that asks for credentials before it reads a request is judged by that alone.
"""

from collections.abc import Callable, Iterator

from dragoman.dialects.cards import GRPC, HTTP_JSON, JSONRPC
from dragoman.doctor.finding import EVERYTHING, Check, Color, Verdict, pass_or_fail
from dragoman.doctor.observation import Endpoint, Exchange, HarmlessRequest, Observations

SLOW_MS = 2_000.0
"""A read of nothing that takes longer makes every call slow."""

_PUSH_NOT_SUPPORTED, _UNSUPPORTED = -32003, -32004
_INTERNAL_ERROR = -32603
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
                yield Verdict(*judged, endpoint.name, exchange=came)

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
            yield Verdict(color, came.failure, endpoint.name, _failure_fix(came), came)
        elif refusal := _refusal(endpoint, came):
            yield Verdict(Color.RED, refusal[0], endpoint.name, refusal[1], came)
        elif endpoint.speaks:
            yield Verdict(Color.GREEN, f"answers in {came.elapsed_ms:.0f} ms", endpoint.name)
        else:
            told = f"is asked for a task, and answers {came.words_with_body}"
            yield Verdict(Color.RED, told, endpoint.name, _answer_fix(endpoint, came), came)


def _refusal(endpoint: Endpoint, came: Exchange) -> tuple[str, str] | None:
    """Return what an endpoint refuses whatever is asked, and what to change; None if it refuses nothing."""
    version = endpoint.interface.dialect
    if came.rpc_code == _VERSION_NOT_SUPPORTED or came.error == "VersionNotSupported" or _says_no_version(came):
        told = f"the card names version {version} here, and A2A-Version: {version} is refused with {came.words}"
        return told, "take every version that the card names, and compare Major.Minor alone: 1.0, not 1.0.0"
    if came.status == 406:
        told = f"a caller that takes {came.sent_headers.get('Accept', 'JSON')} is answered with {came.words}"
        return told, "answer with JSON whoever takes it; only calls that stream need text/event-stream"
    if came.status == 415:
        sends = came.sent_headers.get("Content-Type", "application/json")
        return f"a body of {sends} is refused with {came.words}", "take application/json"
    return None


def _says_no_version(came: Exchange) -> bool:
    return came.status == 400 and b"VERSION_NOT_SUPPORTED" in came.body


def _failure_fix(came: Exchange) -> str:
    if came.compressed:
        return "compress only what clients ask for: Accept-Encoding says identity (RFC 9110 §12.5.3)"
    if came.failure.startswith("no answer within"):
        return "answer within seconds that there is no such task, also while the agent works on others"
    return "start the server at this address, or name another one in the card"


def _answer_fix(endpoint: Endpoint, came: Exchange) -> str:
    """Say what to change at an endpoint that answers something else."""
    if came.leads_to_login:
        return (
            "a login for people is before the endpoint, and a program has no session there: let calls to it pass with "
            "a key or a token, and declare that as a security scheme in the card"
        )
    if 300 <= came.status < 400:
        to = came.headers.get("location", "that URL")[:120]
        return f"name {to} in the card: clients do not follow the redirect of a POST"
    if came.status == 404 and endpoint.interface.binding == HTTP_JSON and endpoint.interface.dialect == "1.0":
        return (
            "nothing is served at this path: correct the URL in the card, or the server's routes. Those of 1.0 begin "
            "right behind the URL, as /tasks/… and /message:send, without the /v1 of 0.3"
        )
    if came.status == 404:
        return "nothing is served at this path: correct the URL in the card, or the path of the server's route"
    if came.status == 405:
        return f"the path takes no {came.verb}: correct the URL in the card, or the route's method"
    if came.status in (502, 503, 504):
        return "the proxy before the agent does not reach it: start the agent, or correct the proxy's upstream"
    if came.status >= 500 and came.document is None:
        return "the server breaks on a request for a task that does not exist: look for the error in its log"
    if came.content_type == "text/html":
        return "a page for people is served at this URL: correct the URL in the card"
    return ""


def _busy(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        refused = [came for came in endpoint.answers.values() if came.status == 429]
        if refused:
            after = refused[0].headers.get("retry-after")
            asks = f"Retry-After: {after}" if after else "no Retry-After"
            told = f"answers HTTP 429 with {asks}, also after waiting: it is not measured"
            yield Verdict(Color.YELLOW, told, endpoint.name, exchange=refused[0])


def _pushes(seen: Observations) -> Iterator[Verdict]:
    """Judge whether webhooks are served, as the card says. Asking for one that does not exist registers none."""
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.WEBHOOKS)
        if came is None or not endpoint.official or came.failure or came.denied:
            continue
        refused = came.rpc_code in (_METHOD_NOT_FOUND, _PUSH_NOT_SUPPORTED, _UNSUPPORTED) or came.status in (405, 501)
        refused = refused or (endpoint.interface.binding == HTTP_JSON and _says_unsupported(came))
        told = f"the card says pushNotifications, and a request for a webhook is answered with {came.words}"
        yield Verdict(Color.RED if refused else Color.GREEN, told, endpoint.name, exchange=came)


def _says_unsupported(came: Exchange) -> bool:
    return any(word in came.body for word in (b"PUSH_NOTIFICATION_NOT_SUPPORTED", b"PushNotificationNotSupported"))


def _private(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.UNKNOWN_TASK)
        if came is None or not came.refused:
            continue
        if seen.public:
            yield Verdict(Color.RED, f"not dialled: {came.failure}, and the card's host is public", endpoint.name)
        else:
            yield Verdict(Color.YELLOW, f"not dialled: {came.failure}, and only the card names it", endpoint.name)


def _unknown_task(endpoint: Endpoint, came: Exchange) -> tuple[Color, str] | None:
    if _has_no_code(endpoint, came):
        return None
    return pass_or_fail(_is_not_found(endpoint, came), f"an unknown task is answered with {came.words}")


def _has_no_code(endpoint: Endpoint, came: Exchange) -> bool:
    """Whether an answer over JSON-RPC is an error without a code, which `answer-envelope` names."""
    document = came.document
    named = isinstance(document, dict) and document.get("error") is not None
    return endpoint.interface.binding == JSONRPC and named and came.rpc_code is None


def _unknown_cancel(endpoint: Endpoint, came: Exchange) -> tuple[Color, str] | None:
    if _has_no_code(endpoint, came):
        return None
    told = f"the cancelation of an unknown task is answered with {came.words}"
    return pass_or_fail(_is_not_found(endpoint, came), told)


def _is_not_found(endpoint: Endpoint, came: Exchange) -> bool:
    match endpoint.interface.binding:
        case "JSONRPC":
            return came.rpc_code == _TASK_NOT_FOUND
        case "GRPC":
            return came.error == "TaskNotFound"
    return came.status == 404 and isinstance(came.document, dict)


def _with_code(code: int, said: str) -> Judge:
    """Judge whether the answer is the JSON-RPC error with that code. `said` names what was sent."""

    def judge(endpoint: Endpoint, came: Exchange) -> tuple[Color, str] | None:
        if _has_no_code(endpoint, came):
            return None
        return pass_or_fail(came.rpc_code == code, f"{said} is answered with {came.words}")

    return judge


def _no_id(endpoint: Endpoint, came: Exchange) -> tuple[Color, str] | None:
    if _has_no_code(endpoint, came):
        return None
    right = came.status < 500 and came.rpc_code not in (None, _INTERNAL_ERROR)
    return pass_or_fail(right, f"a request for a task without its id is answered with {came.words}")


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
            yield Verdict(
                Color.YELLOW,
                f"the answer to {told[0]} has a stack trace",
                endpoint.name,
                exchange=endpoint.answers[told[0]],
            )
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
        fix="serve A2A at this URL, or take the endpoint out of the card",
        judge=_answers,
        must=True,
        hides=EVERYTHING,
    ),
    Check(
        name="endpoint-busy",
        section="RFC 6585 §4",
        fix="let a client send a dozen requests a minute, or say with Retry-After how many seconds it must wait",
        judge=_busy,
        hides=EVERYTHING,
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
        hides=frozenset({"missing-params", "unknown-cancel"}),
    ),
    Check(
        name="unknown-cancel",
        section="A2A 1.0 §3.1.5, A2A 0.3 §7.4",
        fix="answer TaskNotFoundError to a cancelation of a task that does not exist",
        judge=_each(HarmlessRequest.UNKNOWN_CANCEL, _unknown_cancel, *_ALL),
        must=True,
        hides=frozenset({"cancel", "cancel-ended", "left-running"}),
    ),
    Check(
        name="unknown-method",
        section="A2A 1.0 §9.5, A2A 0.3 §8.1",
        fix="answer a JSON-RPC error with the code -32601",
        judge=_each(HarmlessRequest.UNKNOWN_METHOD, _with_code(_METHOD_NOT_FOUND, "an unknown method"), JSONRPC),
        must=True,
    ),
    Check(
        name="missing-params",
        section="A2A 1.0 §3.3.2, §9.5, A2A 0.3 §8.1",
        fix="validate the params before they are used, and answer a JSON-RPC error with the code -32602",
        judge=_each(HarmlessRequest.NO_ID, _no_id, JSONRPC),
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
        name="push-served",
        section="A2A 1.0 §3.1.7, §4.4.3",
        fix="configure a store and a sender of push notifications, or take pushNotifications out of the card",
        judge=_pushes,
        must=True,
    ),
    Check(
        name="speed",
        section="measured",
        fix="look for what makes every call wait: a cold start, a name lookup, a check of credentials",
        judge=_each(HarmlessRequest.UNKNOWN_TASK, _speed, *_ALL),
    ),
)
"""The rows, in the order of the report."""
