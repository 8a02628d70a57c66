"""Base64 in requests: every spelling is read, and a long file in pieces, so that it holds up nobody for long."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dragoman.dialects import json_fields
from dragoman.dialects.json_fields import PIECE, raw_bytes, raw_bytes_in

LONG = bytes(range(256)) * (PIECE // 128)
"""Its base64 has two pieces and a part of a third."""


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_fields, "PIECE", 8)


def read_both(encoded: str) -> bytes | None:
    """The value that both readers make of it; they agree."""
    raw = raw_bytes(encoded)
    assert raw_bytes_in(Raw(b'"%s"' % encoded.encode())) == raw
    return raw


@pytest.mark.usefixtures("short_pieces")
@given(st.binary(max_size=40), st.booleans(), st.booleans())
def test_a_file_in_pieces_is_the_file(content: bytes, url_safe: bool, padded: bool) -> None:
    encoded = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(content).decode()
    assert read_both(encoded if padded else encoded.rstrip("=")) == content


@pytest.mark.usefixtures("short_pieces")
@given(st.text(alphabet="AQ=+/-_ \u00e9.", max_size=30).filter(lambda text: "=" in text.rstrip("=") or "." in text))
def test_a_file_in_pieces_that_is_no_base64_is_refused(encoded: str) -> None:
    assert read_both(encoded) is None


@pytest.mark.parametrize("ending", [b"", b"1", b"12"])
def test_a_long_file_is_read(ending: bytes) -> None:
    assert read_both(base64.b64encode(LONG + ending).decode()) == LONG + ending


def test_a_long_file_with_escapes_is_read() -> None:
    """Some encoders write `/` as `\\/`."""
    encoded = base64.b64encode(LONG).replace(b"/", rb"\/")
    assert raw_bytes_in(Raw(b'"%s"' % encoded)) == LONG
    assert raw_bytes_in(Raw(b'["%s"]' % base64.b64encode(LONG))) is None
