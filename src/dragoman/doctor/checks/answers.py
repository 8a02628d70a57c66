"""Checks of the bytes of answers: the JSON-RPC envelope, and the protocol's schema. They read what came, unrepaired.

Invariant: one kind of fault is one finding for each endpoint, however many answers have it.
"""

import re
from collections.abc import Callable, Iterator

from dragoman.doctor.answers import answer_faults
from dragoman.doctor.finding import Check, Color, Verdict
from dragoman.doctor.observation import Attempt, Endpoint, Exchange, HarmlessRequest, Observations
from dragoman.doctor.schema import FaultKind, SchemaFault

FAULTS_SHOWN = 4

_INDEX = re.compile(r"\[\d+\]")
_QUOTED = re.compile(r"'.*?'")

Asked = HarmlessRequest | Attempt


def exchanges(seen: Observations, endpoint: Endpoint) -> Iterator[tuple[Asked, Exchange]]:
    """Yield every exchange with an endpoint."""
    yield from endpoint.answers.items()
    for trial in seen.each_trial:
        if trial.tried_at is not None and trial.tried_at.name == endpoint.name:
            for attempt, came in trial.attempts.items():
                if came.exchange is not None:
                    yield attempt, came.exchange


def faults_at(seen: Observations, endpoint: Endpoint) -> list[tuple[Asked, Exchange, SchemaFault]]:
    """Return every fault of the answers of an endpoint, each with its exchange."""
    return [
        (asked, came, fault)
        for asked, came in exchanges(seen, endpoint)
        for fault in answer_faults(endpoint.interface, asked, came)
    ]


def _judge(kind: FaultKind, color: Color, right: str) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge one kind of faults at each endpoint. `right` is said where there was something to judge and no fault."""
    of_schema = kind not in (FaultKind.ENVELOPE, FaultKind.ID)

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        for endpoint in seen.endpoints:
            found = [each for each in faults_at(seen, endpoint) if each[2].kind is kind]
            if found:
                yield Verdict(color, _words(found), endpoint.name, exchange=found[0][1])
            elif _is_judged(seen, endpoint, of_schema=of_schema):
                yield Verdict(Color.GREEN, right, endpoint.name)

    return verdicts


def _is_judged(seen: Observations, endpoint: Endpoint, *, of_schema: bool) -> bool:
    if not endpoint.official or endpoint.interface.binding == "GRPC" or not endpoint.speaks:
        return False
    if not of_schema and endpoint.interface.binding != "JSONRPC":
        return False  # errors over HTTP+JSON are too few to call the form right
    asked = [asked for asked, came in exchanges(seen, endpoint) if 200 <= came.status < 300]
    return any(isinstance(each, Attempt) for each in asked) if of_schema else bool(asked)


def _words(found: list[tuple[Asked, Exchange, SchemaFault]]) -> str:
    """Name each fault once, with one of the requests whose answers have it."""
    by_fault: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], SchemaFault] = {}
    for asked, _, fault in found:
        same = (_INDEX.sub("", fault.path).rpartition(".")[2], _QUOTED.sub("", fault.told))
        by_fault.setdefault(same, []).append(asked.value.rstrip("*"))
        first.setdefault(same, fault)
    named = list(by_fault.items())
    shown = [f"{_INDEX.sub('[]', str(first[same]))}, in the answer to {_first(asked)}" for same, asked in named]
    more = f"; and {len(named) - FAULTS_SHOWN} more" if len(named) > FAULTS_SHOWN else ""
    return "; ".join(shown[:FAULTS_SHOWN]) + more


def _first(asked: list[str]) -> str:
    others = len(dict.fromkeys(asked)) - 1
    return f"“{asked[0]}”" + (f" and {others} more" if others else "")


def _row(name: str, kind: FaultKind, section: str, right: str, fix: str, *, must: bool = True) -> Check:
    color = Color.RED if must else Color.YELLOW
    return Check(name=name, section=section, fix=fix, judge=_judge(kind, color, right), must=must)


ANSWER_CHECKS = (
    _row(
        "answer-envelope",
        FaultKind.ENVELOPE,
        "JSON-RPC 2.0 §5, A2A 1.0 §9.1, §11.6",
        "answers and errors have the form of their binding",
        'over JSON-RPC answer with "jsonrpc": "2.0", the id, and a result or an error with a code and a message; '
        'over HTTP+JSON put an error under "error", with its code, status and message',
    ),
    _row(
        "answer-id",
        FaultKind.ID,
        "JSON-RPC 2.0 §5",
        "answers have the id of their request",
        "answer with the id of the request, of the same type: clients match answers to requests by it",
    ),
    _row(
        "answer-wrapper",
        FaultKind.WRAPPER,
        "A2A 1.0 §3.2.3, §3.1.1, §9.4.1",
        "tasks, messages and updates are where their version puts them",
        "put the result of SendMessage under `task` or `message`, an update of a stream under `statusUpdate` or "
        "`artifactUpdate`, and answer GetTask and CancelTask with the bare task",
    ),
    _row(
        "answer-version",
        FaultKind.OTHER_VERSION,
        "A2A 1.0 §4.1, §5.5, Appendix A.2; A2A 0.3 §6",
        "answers have the names and words of the endpoint's version",
        "answer in the version that the card declares for this endpoint: 1.0 has no `kind`, and writes "
        "TASK_STATE_COMPLETED and ROLE_AGENT where 0.3 writes completed and agent",
    ),
    _row(
        "answer-names",
        FaultKind.NAME,
        "A2A 1.0 §5.5",
        "fields are spelt as the schema has them",
        "spell the fields as the schema does, in camelCase",
    ),
    _row(
        "answer-fields",
        FaultKind.MISSING,
        "A2A 1.0 §4.1, §4.2, A2A 0.3 §6",
        "answers have every required field",
        "add the fields that the specification requires, and leave none of them empty",
    ),
    _row(
        "answer-values",
        FaultKind.VALUE,
        "A2A 1.0 §4.1, §5.6, A2A 0.3 §6",
        "values have the types of the schema",
        "send values of the schema's types: times as 2026-01-31T12:00:00.000Z, bytes as base64, enums by name",
    ),
    _row(
        "answer-unknown",
        FaultKind.UNKNOWN,
        "A2A 1.0 §4.6",
        "answers have no field that the schema lacks",
        "put what is your own under `metadata`: strict clients refuse fields that they do not know",
        must=False,
    ),
)
"""The rows, in the order of the report."""
