"""Bounds of a protobuf message: counted before anything is built."""

from contextlib import suppress
from time import process_time
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.v1.protobuf import check_bounds
from dragoman.model.errors import InvalidParams


def request_of(message: dict[str, Any], metadata: dict[str, Any] | None = None) -> bytes:
    return ParseDict({"message": message, "metadata": metadata or {}}, pb.SendMessageRequest()).SerializeToString()


@pytest.mark.parametrize(
    "body",
    [
        request_of({"parts": [{}] * 3000}),
        request_of({"parts": [{"data": [1] * 3000}]}),
        request_of({"parts": [{"data": {str(n): n for n in range(1000)}}]}),
        request_of({"metadata": {"a": {"b": [None] * 3000}}}),
        request_of({}, {"a": [[]] * 3000}),
        request_of({"extensions": [""] * 3000}),
        b"\x08\x01" * 3000,
        b"\x0b\x0c" * 3000,
    ],
    ids=["parts", "numbers", "members", "metadata", "arrays", "texts", "unknown", "groups"],
)
def test_a_message_of_many_values_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidParams, match="max_values"):
        check_bounds("SendMessage", body, 1000)
    check_bounds("SendMessage", body, 100_000)


def test_a_large_file_is_one_value() -> None:
    body = pb.SendMessageRequest(message=pb.Message(parts=[pb.Part(raw=bytes(1 << 20))])).SerializeToString()
    check_bounds("SendMessage", body, 10)


def test_thirty_megabytes_of_empty_parts_are_refused_at_once() -> None:
    parts = b"\x2a\x00" * (15 << 20)
    body = b"\x12\x80\x80\x80\x0f" + parts
    assert len(parts) == 15 << 21
    began = process_time()
    with pytest.raises(InvalidParams, match="max_values"):
        check_bounds("SendMessage", body, 200_000)
    assert process_time() - began < 5


@given(st.binary(min_size=21, max_size=200), st.sampled_from(["SendMessage", "CancelTask", "GetTask"]))
def test_any_bytes_are_counted_or_left_to_the_decoder(body: bytes, method: str) -> None:
    with suppress(InvalidParams):
        check_bounds(method, body, 10)
