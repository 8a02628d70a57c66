"""The vendors by vectors: what their pages show, what their clients send, and what is ours where both are silent.

BeeOS and KAOS are in `test_shown_vectors.py`.
"""

import json
from typing import Any

import pytest

from dragoman.dialects import evoai, fasta2a, protoagent, python_a2a
from dragoman.dialects.api import Dialect
from dragoman.dialects.python_a2a.decode import bare
from tests.dialects.shown import further_keys, holds
from tests.dialects.vendor_vectors import answered, decoded, expected, in_order, refused, streamed, subscribed, vectors

SYSTEMS = {
    "evoai": (evoai.JSONRPC, "Evo AI"),
    "protoagent": (protoagent.JSONRPC, "protoAgent"),
    "fasta2a": (fasta2a.JSONRPC, "FastA2A"),
    "python_a2a": (python_a2a.JSONRPC, "python-a2a"),
    "python_a2a_text": (python_a2a.MESSAGES, "python-a2a"),
    "python_a2a_conversation": (python_a2a.CONVERSATIONS, "python-a2a"),
}


def of_all(prefix: str) -> list[Any]:
    """The vectors of that kind, each with its dialect and the keys that may stand behind what is shown."""
    return [
        pytest.param(dialect, further_keys(section), *vector.values, id=f"{name}-{vector.id}")
        for name, (dialect, section) in SYSTEMS.items()
        for vector in vectors(name, prefix)
    ]


def test_each_kind_has_vectors() -> None:
    for name in ("evoai", "protoagent", "fasta2a", "python_a2a"):
        for prefix in ("request", "answer", "error", "frames", "subscribe"):
            assert vectors(name, prefix), f"no vectors {name}/{prefix}-*.json"
    assert vectors("python_a2a", "bare")


@pytest.mark.parametrize("vector", vectors("python_a2a", "bare"))
def test_bodies_without_an_envelope_become_the_operation_they_mean(vector: dict[str, Any]) -> None:
    for body in vector["requests"]:
        raw = json.dumps(body).encode()
        assert python_a2a.JSONRPC.decode(vector["method"], raw) == expected(vector), body
        assert "stream" in vector["method"] or bare(raw) == vector["method"], body


@pytest.mark.parametrize(("dialect", "further", "vector"), of_all("request"))
def test_requests_become_the_operation_they_mean(
    dialect: Dialect, further: frozenset[str], vector: dict[str, Any]
) -> None:
    for request in vector["requests"]:
        assert decoded(dialect, request) == expected(vector), request


@pytest.mark.parametrize(("dialect", "further", "vector"), of_all("answer"))
def test_results_are_written_key_by_key(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    written = answered(dialect, vector)
    assert in_order(written) == in_order(json.dumps(vector["answer"]))
    if "shown" in vector:
        assert holds(vector["shown"]["result"], json.loads(written)["result"], further)


@pytest.mark.parametrize(("dialect", "further", "vector"), of_all("error"))
def test_errors_are_written_key_by_key(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    status, written = refused(dialect, vector)
    assert status == vector["status"]
    assert in_order(written) == in_order(json.dumps(vector["answer"]))


@pytest.mark.parametrize(("dialect", "further", "vector"), of_all("frames"))
def test_a_log_becomes_these_frames(dialect: Dialect, further: frozenset[str], vector: dict[str, Any]) -> None:
    assert streamed(dialect, vector) == [step["frames"] for step in vector["log"]]


@pytest.mark.parametrize(("dialect", "further", "vector"), of_all("subscribe"))
def test_a_task_taken_up_again_begins_with_these_frames(
    dialect: Dialect, further: frozenset[str], vector: dict[str, Any]
) -> None:
    assert subscribed(dialect, vector) == vector["frames"]
