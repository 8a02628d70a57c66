"""API keys: makes, parses and compares keys of the form `dgm_<id>_<secret>`, whose id is public.

Invariant: pure; the caller supplies the random bytes. A secret has 256 random bits, so its digest needs neither salt
nor stretching.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable

from dragoman.store.keyring import NewKey

PREFIX = "dgm_"
"""The prefix of every key, by which scanners for leaked secrets can recognise one."""

ID_CHARS = 12
"""60 random bits in lower-case base32, which can be read out and typed."""

ID_BYTES, SECRET_BYTES = 8, 32

KEY = re.compile(rf"{PREFIX}([a-z2-7]{{{ID_CHARS}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)

Random = Callable[[int], bytes]
"""Returns so many random bytes, like `secrets.token_bytes`."""


def make_key(random: Random) -> NewKey:
    """Make a fresh key."""
    key_id = base64.b32encode(random(ID_BYTES)).decode().lower()[:ID_CHARS]
    secret = base64.urlsafe_b64encode(random(SECRET_BYTES)).decode().rstrip("=")
    text = f"{PREFIX}{key_id}_{secret}"
    return NewKey(key_id, text, digest_of(text))


def id_of(text: str) -> str | None:
    """The id in a key; None if `text` does not look like a key."""
    found = KEY.fullmatch(text)
    return None if found is None else found[1]


def digest_of(text: str) -> bytes:
    """The stored form of a key: the SHA-256 of the whole."""
    return hashlib.sha256(text.encode()).digest()


def matches(text: str, digest: bytes) -> bool:
    """Whether `digest` is that of the key. The time does not depend on where they differ."""
    return hmac.compare_digest(digest_of(text), digest)
