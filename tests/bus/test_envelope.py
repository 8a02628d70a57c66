"""Only those who have the store's key can open what a bus carries."""

import hmac
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bus.envelope import KEY_PURPOSE, TAG_BYTES, Envelope, MessageKind, Seal

OURS, THEIRS = Seal(b"ours"), Seal(b"theirs")

texts = st.text(string.printable + "äλ…", max_size=40)
envelopes = st.builds(
    Envelope,
    sender=texts,
    kind=st.sampled_from(MessageKind),
    name=texts,
    number=st.integers(0, 1 << 62),
    payload=st.none() | st.binary(max_size=200),
)


@given(envelopes)
def test_an_envelope_survives_the_journey(envelope: Envelope) -> None:
    assert Seal(b"ours").open(OURS.seal(envelope)) == envelope


@given(envelopes, st.data())
def test_a_changed_message_is_not_opened(envelope: Envelope, data: Any) -> None:
    sealed = bytearray(OURS.seal(envelope))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    assert OURS.open(bytes(sealed)) is None
    assert OURS.open(bytes(sealed[:place])) is None


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_are_not_opened(noise: bytes) -> None:
    assert OURS.open(noise) is None
    assert OURS.open(OURS.seal(Envelope("me", MessageKind.WORK))[:24] + noise) is None


def test_another_cluster_is_another() -> None:
    assert THEIRS.open(OURS.seal(Envelope("me", MessageKind.WORK))) is None
    assert OURS.cluster != THEIRS.cluster


@pytest.mark.parametrize("body", [b"\xc1", b"\x91\x01", b"\x92\xa1a\xa1z", b"\x81\xa1a\x01"])
def test_what_another_release_says_in_another_way_is_ignored(body: bytes) -> None:
    assert OURS.open(sealed(body)) is None
    envelope = Envelope("me", MessageKind.WORK)
    assert OURS.open(sealed(msgspec.msgpack.encode(envelope))) == envelope


def sealed(content: bytes) -> bytes:
    """The content, sealed with the key of our cluster."""
    body = bytes.fromhex(OURS.cluster) + content
    return hmac.digest(hmac.digest(b"ours", KEY_PURPOSE, "sha256"), body, "sha256")[:TAG_BYTES] + body
