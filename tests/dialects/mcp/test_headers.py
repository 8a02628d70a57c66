"""Values of headers that repeat fields of a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dragoman.dialects.mcp.headers import decode_value, encode_value


@given(some.text(some.characters(exclude_categories=["Cs"])))
def test_a_value_arrives_as_it_was(value: str) -> None:
    encoded = encode_value(value)
    assert encoded.isascii()
    assert encoded.strip() == encoded
    assert decode_value(encoded) == value


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_examples_of_the_specification(value: str, header: str) -> None:
    assert encode_value(value) == header


@pytest.mark.parametrize("header", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", " x", "a\x00b"])
def test_what_no_client_may_send(header: str) -> None:
    assert decode_value(header) is None


@pytest.mark.parametrize("header", ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", "=?base64?="])
def test_without_both_marks_a_value_is_literal(header: str) -> None:
    assert decode_value(header) == header
