"""Secrets at rest: a secret that an operator gives by the API is stored sealed, with a key that only servers have.

Invariant: a sealed secret opens only with the key that sealed it, and only for the agent and the origins that it was
given for, which are authenticated with it (AES-256-GCM, NIST SP 800-38D). No message and no representation here holds
a secret or a key.
"""

import base64
import binascii
import re
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

KEY_BYTES = 32
"""The size of a key of AES-256."""

NONCE_BYTES = 12
"""The size of a nonce that GCM takes as it is (NIST SP 800-38D §8.2.2). It is random, as few secrets are sealed."""

MAKE_KEY = "`openssl rand -base64 32` prints one"


class SealedSecret(Struct, frozen=True):
    """A secret as it is stored. `key` is the id of the key that sealed it."""

    key: str
    nonce: bytes
    sealed: bytes


class SecretUse(Struct, frozen=True):
    """The use that a secret is bound to: an agent, and the origins that the secret is sent to, such as `https://a:443`."""

    agent: str
    origins: tuple[str, ...]

    @classmethod
    def of(cls, agent: str, origins: Collection[str]) -> "SecretUse":
        """The use for these origins, in any order."""
        return cls(agent, tuple(sorted(set(origins))))

    def spell(self) -> bytes:
        """The use as the cipher authenticates it. The first element names the form, should another one follow."""
        return msgspec.json.encode(("dragoman-agent-secret-1", self.agent, self.origins))


class OtherKey(Exception):
    """A secret was sealed with a key that this server does not have: `key` is its id."""

    def __init__(self, key: str) -> None:
        super().__init__(f"sealed with the key {key}")
        self.key = key


class NotForThisUse(Exception):
    """A secret was sealed for another agent or another host, or its bytes are damaged."""


class SecretKeys:
    """The keys of a server: the first one seals, and all of them open. `draw` returns random bytes."""

    def __init__(self, keys: Sequence[bytes], draw: Callable[[int], bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._draw = draw
        self.current = next(iter(self._keys))
        """The id of the key that seals."""

    @classmethod
    def parse(cls, text: str, draw: Callable[[int], bytes]) -> "SecretKeys":
        """Read keys in base64, separated by spaces, commas or line ends.

        Raises ValueError, which completes a sentence that begins with the setting and does not show the text.
        """
        keys: list[bytes] = []
        for word in re.split(r"[\s,]+", text.strip()):
            try:
                key = base64.b64decode(word.translate(_URL_SAFE) + "=" * (-len(word) % 4), validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(key) != KEY_BYTES:
                raise ValueError(f"must be {KEY_BYTES} bytes in base64: {MAKE_KEY}")
            keys.append(key)
        return cls(keys, draw)

    def __repr__(self) -> str:
        return f"SecretKeys({', '.join(self._keys)})"

    def seal(self, secret: str, use: SecretUse) -> SealedSecret:
        """Seal a secret for a use."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = self._draw(NONCE_BYTES)
        sealed = AESGCM(self._keys[self.current]).encrypt(nonce, secret.encode(), use.spell())
        return SealedSecret(self.current, nonce, sealed)

    def open_secret(self, found: SealedSecret, use: SecretUse) -> str:
        """Open a secret for a use. Raises OtherKey or NotForThisUse."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if (key := self._keys.get(found.key)) is None:
            raise OtherKey(found.key)
        try:
            return AESGCM(key).decrypt(found.nonce, found.sealed, use.spell()).decode()
        except (InvalidTag, ValueError) as error:
            raise NotForThisUse from error


def read_secret_keys(keys: str | None, path: str | None, draw: Callable[[int], bytes]) -> SecretKeys | None:
    """The keys of the settings `secret_key` and `secret_key_file`; None without either.

    Raises ValueError, which names the setting and does not show what it holds.
    """
    if keys is not None and path is not None:
        raise ValueError("secret_key_file is set beside secret_key: leave one of them out")
    name, text = "secret_key (DRAGOMAN_SECRET_KEY)", keys
    if path is not None:
        name = f"secret_key_file {path}"
        try:
            text = Path(path).expanduser().read_text(encoding="ascii")
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}: name a file that this user may read") from error
        except UnicodeDecodeError:
            text = ""
    if text is None:
        return None
    try:
        return SecretKeys.parse(text, draw)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def key_id(key: bytes) -> str:
    """The public name of a key. It is a digest of 32 random bytes, from which nobody gets back to them."""
    return sha256(b"dragoman secret key\0" + key).hexdigest()[:12]


_URL_SAFE = str.maketrans("-_", "+/")
