"""A2A 0.3 by vectors: requests to operations, results and events to bytes, over JSON-RPC and over HTTP+JSON."""

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects import v03
from dragoman.dialects.api import Dialect, RestRequest
from dragoman.model.errors import InvalidParams
from dragoman.model.events import Event
from dragoman.model.operations import Operation
from dragoman.model.task import TaskHead
from tests.dialects.shown import RESULTS
from tests.dialects.vendor_vectors import expected, some_vectors

DIALECTS = {"rpc": v03.JSONRPC, "rest": v03.REST, "rest_twice": v03.REST_TWICE}


def rest(dialect: Dialect, request: dict[str, Any]) -> Operation:
    assert dialect.decode_rest is not None
    body = b"" if request["body"] is None else json.dumps(request["body"]).encode()
    return dialect.decode_rest(RestRequest(request["route"], request["path"], request["query"], body))


@pytest.mark.parametrize("vector", some_vectors("v03", "decode"))
def test_requests_become_the_operation_they_mean(vector: dict[str, Any]) -> None:
    for call in vector.get("rpc", []):
        params = b"" if call["params"] is None else json.dumps(call["params"]).encode()
        assert v03.JSONRPC.decode(call["method"], params) == expected(vector), call
    for request in vector.get("rest", []):
        assert rest(v03.REST, request) == expected(vector), request
    for request in vector.get("rest_twice", vector.get("rest", [])):
        assert rest(v03.REST_TWICE, request) == expected(vector), request


@pytest.mark.parametrize("vector", some_vectors("v03", "refuse"))
def test_a_wrong_parameter_is_named(vector: dict[str, Any]) -> None:
    for case in vector["cases"]:
        with pytest.raises(InvalidParams) as refused:
            v03.JSONRPC.decode(case["method"], json.dumps(case["params"]).encode())
        assert refused.value.violations[0][0] == case["field"], case


@pytest.mark.parametrize("vector", some_vectors("v03", "encode"))
@pytest.mark.parametrize("lane", DIALECTS)
def test_results_are_written_as_0_3_has_them(lane: str, vector: dict[str, Any]) -> None:
    result = msgspec.convert(vector["value"], RESULTS[vector["result"]])
    assert json.loads(DIALECTS[lane].encode_result(expected(vector), result)) == vector[lane]


@pytest.mark.parametrize("vector", some_vectors("v03", "event"))
@pytest.mark.parametrize("lane", DIALECTS)
def test_events_are_written_as_0_3_has_them(lane: str, vector: dict[str, Any]) -> None:
    event: Event = msgspec.convert(vector["event"], Event)  # type: ignore[arg-type]
    frames = DIALECTS[lane].encode_event(msgspec.convert(vector["head"], TaskHead), event, None)
    assert [json.loads(frame) for frame in frames] == vector[lane]
    assert not any(b"\n" in frame for frame in frames)
