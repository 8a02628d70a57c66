"""Every vector of A2A 1.0: requests to operations and back, results and events to exact bytes."""

import json

import msgspec
import pytest

from dragoman.dialects.v1 import JSONRPC, REST
from dragoman.model.events import Event
from dragoman.model.operations import SendMessage
from dragoman.model.task import TaskHead
from tests.dialects.shown import compact, named_vectors, operation_of, result_of

VECTORS, having = named_vectors("v1")


def test_there_are_vectors_of_every_kind() -> None:
    assert len(having("params")) > 10
    assert len(having("json")) > 10
    assert len(having("frames")) > 5


@pytest.mark.parametrize("name", having("params"))
def test_a_request_is_decoded_into_its_operation(name: str) -> None:
    vector = VECTORS[name]
    assert JSONRPC.decode(vector["method"], json.dumps(vector["params"]).encode()) == operation_of(vector)


@pytest.mark.parametrize("name", having("canonical"))
def test_a_message_that_was_decoded_is_encoded_as_it_came(name: str) -> None:
    vector = VECTORS[name]
    operation = JSONRPC.decode(vector["method"], json.dumps(vector["params"]).encode())
    assert isinstance(operation, SendMessage)
    encoded = json.loads(JSONRPC.encode_message(operation.message))
    assert encoded == {"message": vector["params"]["message"]}


@pytest.mark.parametrize("name", having("json"))
def test_a_result_is_encoded_to_exactly_these_bytes(name: str) -> None:
    vector = VECTORS[name]
    for dialect in (JSONRPC, REST):
        assert dialect.encode_result(operation_of(vector), result_of(vector)) == compact(vector["json"])


@pytest.mark.parametrize("name", having("frames"))
def test_an_event_is_encoded_to_exactly_these_frames(name: str) -> None:
    vector = VECTORS[name]
    head = msgspec.convert(vector["head"], TaskHead)
    event: Event = msgspec.convert(vector["event"], Event)
    frames = JSONRPC.encode_event(head, event, None)
    assert frames == tuple(compact(frame) for frame in vector["frames"])
