"""KAOS by vectors: its text's examples and what its clients send, in both directions."""

import json

import pytest

from dragoman.dialects.kaos import JSONRPC, METHODS
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

DECODE = vectors("kaos", "decode")
ENCODE = vectors("kaos", "encode")
FURTHER = further_keys("KAOS")


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


def test_the_examples_of_the_text_are_among_the_vectors() -> None:
    assert sum("verbatim" in vector["says"] for vector in [*DECODE.values(), *ENCODE.values()]) == 4
