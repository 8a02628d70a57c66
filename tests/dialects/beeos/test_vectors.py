"""BeeOS by vectors: its text's examples and what its clients send, in both directions."""

import json

import msgspec
import pytest

from dragoman.dialects.beeos import JSONRPC, METHODS
from dragoman.model.events import Event, StatusChanged
from dragoman.model.task import Record, TaskHead
from tests.dialects.shown import (
    answered,
    compact,
    decoded,
    further_keys,
    holds,
    operation_of,
    result_of,
    vectors,
)

DECODE = vectors("beeos", "decode")
ENCODE = vectors("beeos", "encode")
EVENT = vectors("beeos", "event")
SUBSCRIPTION = vectors("beeos", "subscription")
FURTHER = further_keys("BeeOS")


@pytest.mark.parametrize("name", DECODE)
def test_requests_become_the_operation_they_mean(name: str) -> None:
    for request in DECODE[name]["requests"]:
        assert decoded(JSONRPC, request) == operation_of(DECODE[name]), request


def test_every_method_has_a_vector() -> None:
    assert {request["method"] for vector in DECODE.values() for request in vector["requests"]} == METHODS


@pytest.mark.parametrize("name", ENCODE)
def test_results_are_written_to_exactly_these_bytes(name: str) -> None:
    vector = ENCODE[name]
    written = answered(JSONRPC, vector["written"]["id"], operation_of(vector), result_of(vector))
    assert written == compact(vector["written"])
    assert "shown" not in vector or holds(vector["shown"], json.loads(written), FURTHER)


@pytest.mark.parametrize("name", EVENT)
def test_events_are_written_to_exactly_these_frames(name: str) -> None:
    vector = EVENT[name]
    event: Event = msgspec.convert(vector["event"], Event)
    record = msgspec.convert(vector["record"], Record) if "record" in vector else None
    assert (record is not None) == (type(event) in JSONRPC.folds)
    frames = JSONRPC.encode_event(msgspec.convert(vector["head"], TaskHead), event, record)
    assert frames == tuple(compact(frame) for frame in vector["frames"])
    assert "shown" not in vector or holds(vector["shown"], [json.loads(frame) for frame in frames], FURTHER)


@pytest.mark.parametrize("name", SUBSCRIPTION)
def test_a_subscription_begins_with_the_task_as_it_stands(name: str) -> None:
    vector = SUBSCRIPTION[name]
    assert JSONRPC.encode_subscription is not None
    frames = JSONRPC.encode_subscription(msgspec.convert(vector["record"], Record))
    assert frames == tuple(compact(frame) for frame in vector["frames"])


def test_the_examples_of_the_text_are_among_the_vectors() -> None:
    assert sum("verbatim" in vector["says"] for vector in [*DECODE.values(), *ENCODE.values()]) == 6
    assert sum("shown" in vector for vector in EVENT.values()) == 4
    assert JSONRPC.folds == {StatusChanged}
