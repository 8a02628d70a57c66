"""Evo AI and protoAgent by vectors: what their pages show, what their clients send, and what is ours where both are
silent."""

import json
from typing import Any

import pytest

from dragoman.dialects import evoai, protoagent
from dragoman.dialects.api import Dialect
from tests.dialects.shown import further_keys, holds
from tests.dialects.vendor_vectors import answered, decoded, expected, in_order, refused, streamed, subscribed, vectors

SYSTEMS = {"evoai": (evoai.JSONRPC, "Evo AI"), "protoagent": (protoagent.JSONRPC, "protoAgent")}


def of_both(prefix: str) -> list[Any]:
    """The vectors of that kind, each with its dialect and the keys that may stand behind what is shown."""
    return [
        pytest.param(dialect, further_keys(section), *vector.values, id=f"{name}-{vector.id}")
        for name, (dialect, section) in SYSTEMS.items()
        for vector in vectors(name, prefix)
    ]


@pytest.mark.parametrize(("dialect", "further", "vector"), of_both("request"))
def test_requests_become_the_operation_they_mean(
    dialect: Dialect, further: frozenset[str], vector: dict[str, Any]
) -> None:
    for request in vector["requests"]:
        assert decoded(dialect, request) == expected(vector), request


@pytest.mark.parametrize(("dialect", "further", "vector"), of_both("answer"))
def test_results_are_written_key_by_key(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    written = answered(dialect, vector)
    assert in_order(written) == in_order(json.dumps(vector["answer"]))
    if "shown" in vector:
        assert holds(vector["shown"]["result"], json.loads(written)["result"], further)


@pytest.mark.parametrize(("dialect", "further", "vector"), of_both("error"))
def test_errors_are_written_key_by_key(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    status, written = refused(dialect, vector)
    assert status == vector["status"]
    assert in_order(written) == in_order(json.dumps(vector["answer"]))


@pytest.mark.parametrize(("dialect", "further", "vector"), of_both("frames"))
def test_a_log_becomes_these_frames(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    assert streamed(dialect, vector) == [step["frames"] for step in vector["log"]]


@pytest.mark.parametrize(("dialect", "further", "vector"), of_both("subscribe"))
def test_a_task_taken_up_again_begins_with_these_frames(
    dialect: Dialect, further: frozenset[str], vector: dict[str, Any]
) -> None:
    assert subscribed(dialect, vector) == vector["frames"]
