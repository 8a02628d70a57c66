"""protoAgent by vectors: what its page shows, what its clients send, and what is ours where both are silent."""

import json
from typing import Any

import pytest

from dragoman.dialects.protoagent import JSONRPC
from tests.dialects import vendor_vectors
from tests.dialects.vendor_vectors import answered, decoded, expected, in_order, refused, shows, streamed, subscribed


def vectors(prefix: str) -> list[Any]:
    return vendor_vectors.vectors("protoagent", prefix)


@pytest.mark.parametrize("vector", vectors("request"))
def test_requests_become_the_operation_they_mean(vector: dict[str, Any]) -> None:
    for request in vector["requests"]:
        assert decoded(JSONRPC, request) == expected(vector), request


@pytest.mark.parametrize("vector", vectors("answer"))
def test_results_are_written_key_by_key(vector: dict[str, Any]) -> None:
    written = answered(JSONRPC, vector)
    assert in_order(written) == in_order(json.dumps(vector["answer"]))
    if "shown" in vector:
        assert shows(vector["shown"]["result"], json.loads(written)["result"])


@pytest.mark.parametrize("vector", vectors("error"))
def test_errors_are_written_key_by_key(vector: dict[str, Any]) -> None:
    status, written = refused(JSONRPC, vector)
    assert status == vector["status"]
    assert in_order(written) == in_order(json.dumps(vector["answer"]))


@pytest.mark.parametrize("vector", vectors("frames"))
def test_a_log_becomes_these_frames(vector: dict[str, Any]) -> None:
    assert streamed(JSONRPC, vector) == [step["frames"] for step in vector["log"]]


@pytest.mark.parametrize("vector", vectors("subscribe"))
def test_a_task_taken_up_again_begins_with_these_frames(vector: dict[str, Any]) -> None:
    assert subscribed(JSONRPC, vector) == vector["frames"]
