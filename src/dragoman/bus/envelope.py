"""Envelope: the messages of a bus as bytes that only replicas of one store can make.

Invariant: what `open` returns was sealed with the key of this store. Strangers who can read a bus see the pages in its
messages, and may repeat them; they cannot change them or make their own.
"""

import hmac
from enum import StrEnum

import msgspec
from msgspec import Struct

KEY_PURPOSE = b"dragoman bus key 1"
CLUSTER_PURPOSE = b"dragoman bus cluster 1"

CLUSTER_BYTES = 8
"""The length of a cluster's id: enough to tell apart those that share a bus by mistake."""

TAG_BYTES = 16
"""The length of the authentication tag, an HMAC-SHA-256 cut to 128 bits (RFC 2104 §5)."""


class MessageKind(StrEnum):
    """The kinds of messages. A hint is for one replica, or for all who follow its task."""

    MOVED = "m"
    FOLLOWED_MOVED = "f"
    WORK = "w"
    SIGNAL = "s"
    ECHO = "e"


class Envelope(Struct, frozen=True, array_like=True):
    """A message from `sender`. `name` is a task's id, or a signal's name; `number` is a seq, or that of an echo.

    Replicas of two neighbouring releases send each other envelopes: new fields go to the end and have a default.
    """

    sender: str
    kind: MessageKind
    name: str = ""
    number: int = 0
    payload: bytes | None = None


class Seal:
    """The key of one store. All replicas of a store have the same `secret`, and nobody else has it."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, KEY_PURPOSE, "sha256")
        self._cluster = hmac.digest(secret, CLUSTER_PURPOSE, "sha256")[:CLUSTER_BYTES]
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Envelope)

    @property
    def cluster(self) -> str:
        """The cluster's id, which is no secret."""
        return self._cluster.hex()

    def seal(self, envelope: Envelope) -> bytes:
        """The envelope with the cluster's id and its tag."""
        body = self._cluster + self._encoder.encode(envelope)
        return hmac.digest(self._key, body, "sha256")[:TAG_BYTES] + body

    def open(self, sealed: bytes) -> Envelope | None:
        """The envelope; None if it is forged, of another cluster, or of a release that writes it otherwise."""
        tag, body = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        if body[:CLUSTER_BYTES] != self._cluster:
            return None
        if not hmac.compare_digest(tag, hmac.digest(self._key, body, "sha256")[:TAG_BYTES]):
            return None
        try:
            return self._decoder.decode(body[CLUSTER_BYTES:])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
