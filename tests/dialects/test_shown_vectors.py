"""BeeOS and KAOS by vectors: the examples of their texts and what their clients send, in both directions."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dragoman.dialects import beeos, kaos
from dragoman.dialects.api import Dialect
from dragoman.model.events import Event, StatusChanged
from dragoman.model.task import Record, TaskHead
from tests.dialects.shown import answered, compact, decoded, further_keys, holds, operation_of, result_of, vectors


class Shown(Struct, frozen=True):
    """A dialect whose text has examples: the folder of its vectors, its section in docs/dialects.md, its methods.

    `verbatim` of its requests and answers stand in its text as they are, and the text shows `events` of its events.
    """

    folder: str
    section: str
    dialect: Dialect
    methods: frozenset[str]
    verbatim: int
    events: int = 0
    folds: frozenset[type[Event]] = frozenset()


SHOWN = (
    Shown(
        "beeos", "BeeOS", beeos.JSONRPC, beeos.SYSTEM.methods, verbatim=6, events=4, folds=frozenset({StatusChanged})
    ),
    Shown("kaos", "KAOS", kaos.JSONRPC, kaos.SYSTEM.methods, verbatim=4),
)

each = pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.folder)


def of_all(prefix: str) -> list[Any]:
    """The vectors of that kind, each with its dialect."""
    return [
        pytest.param(shown, vector, id=f"{shown.folder}-{name}")
        for shown in SHOWN
        if prefix in ("decode", "encode") or shown.events
        for name, vector in vectors(shown.folder, prefix).items()
    ]


@pytest.mark.parametrize(("shown", "vector"), of_all("decode"))
def test_requests_become_the_operation_they_mean(shown: Shown, vector: dict[str, Any]) -> None:
    for request in vector["requests"]:
        assert decoded(shown.dialect, request) == operation_of(vector), request


@each
def test_every_method_has_a_vector(shown: Shown) -> None:
    requests = [request for vector in vectors(shown.folder, "decode").values() for request in vector["requests"]]
    assert {request["method"] for request in requests} == shown.methods


@pytest.mark.parametrize(("shown", "vector"), of_all("encode"))
def test_results_are_written_to_exactly_these_bytes(shown: Shown, vector: dict[str, Any]) -> None:
    written = answered(shown.dialect, vector["written"]["id"], operation_of(vector), result_of(vector))
    assert written == compact(vector["written"])
    assert "shown" not in vector or holds(vector["shown"], json.loads(written), further_keys(shown.section))


@pytest.mark.parametrize(("shown", "vector"), of_all("event"))
def test_events_are_written_to_exactly_these_frames(shown: Shown, vector: dict[str, Any]) -> None:
    event: Event = msgspec.convert(vector["event"], Event)
    record = msgspec.convert(vector["record"], Record) if "record" in vector else None
    assert (record is not None) == (type(event) in shown.dialect.folds)
    frames = shown.dialect.encode_event(msgspec.convert(vector["head"], TaskHead), event, record)
    assert frames == tuple(compact(frame) for frame in vector["frames"])
    written = [json.loads(frame) for frame in frames]
    assert "shown" not in vector or holds(vector["shown"], written, further_keys(shown.section))


@pytest.mark.parametrize(("shown", "vector"), of_all("subscription"))
def test_a_subscription_begins_with_the_task_as_it_stands(shown: Shown, vector: dict[str, Any]) -> None:
    assert shown.dialect.encode_subscription is not None
    frames = shown.dialect.encode_subscription(msgspec.convert(vector["record"], Record))
    assert frames == tuple(compact(frame) for frame in vector["frames"])


@each
def test_the_examples_of_the_text_are_among_the_vectors(shown: Shown) -> None:
    both = [*vectors(shown.folder, "decode").values(), *vectors(shown.folder, "encode").values()]
    assert sum("verbatim" in vector["says"] for vector in both) == shown.verbatim
    if shown.events:
        assert sum("shown" in vector for vector in vectors(shown.folder, "event").values()) == shown.events
    assert shown.dialect.folds == shown.folds
