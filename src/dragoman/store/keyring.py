"""KeyRing: the keys in the store: those of callers, hashed, and those with which the server signs.

Invariant: a caller's key itself is never written anywhere. The stored digest can only confirm a key.
"""

from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from dragoman.model.principal import AccessRole, KeyLimits, Scope, key_owner

ADMIN_IS_NO_WORKER = 1
"""The first rules of keys by which the role `admin` gives no rights of a worker."""

KEY_RULES = ADMIN_IS_NO_WORKER
"""The rules by which this program makes keys."""


class StoredKey(Struct, frozen=True, kw_only=True):
    """A key as it is stored. `id` is the public part of the key, `digest` the SHA-256 of the whole key.

    Keys of one `name` in one team, or without one, are one principal: they own the same tasks. `agents` and `scopes`
    None: all. `limits` None: those of the settings. `rules` number the rules in force when the first of its line was
    made: a key that replaces another keeps that one's. `one_person`: one person alone uses the key. `team` is the team
    of its caller; empty for none.
    """

    id: str
    name: str
    role: AccessRole
    agents: tuple[str, ...] | None
    scopes: tuple[Scope, ...] | None
    digest: bytes
    made_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    limits: KeyLimits | None = None
    rules: int = KEY_RULES
    one_person: bool = False
    team: str = ""

    @property
    def owner(self) -> str:
        """The id of the principal whose key it is."""
        return key_owner(self.name, self.team)

    @property
    def works_as_admin(self) -> bool:
        """Whether this is a key of the role `admin` from the time when these were workers, too."""
        return self.role is AccessRole.ADMIN and self.rules < ADMIN_IS_NO_WORKER


class NewKey(Struct, frozen=True):
    """A key that was just made. `text` is the key itself, to be shown once and stored nowhere."""

    id: str
    text: str
    digest: bytes


class SigningKey(Struct, frozen=True, kw_only=True):
    """A private key of the server: `jwk` is JSON (RFC 7517)."""

    kid: str
    jwk: bytes
    made_ms: int


class KeyRing(Protocol):
    """The stored keys. Another process may add and revoke keys meanwhile: every read sees what is committed.

    A key whose row cannot be decoded is logged once, and admits nobody: no read returns it. `any` counts it, and
    `revoke` takes its id.
    """

    async def find(self, key_id: str) -> StoredKey | None:
        """The key with this id, even if it is revoked or expired."""
        ...

    async def any(self) -> bool:
        """Whether a key was ever made. A point read."""
        ...

    async def add(self, key: StoredKey) -> None:
        """Store a key."""
        ...

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """Mark a key as revoked. Returns False if it does not exist or was revoked before."""
        ...

    async def replace(self, key_id: str, by: StoredKey, now_ms: int, ends_ms: int) -> bool:
        """Store the key `by`, and let an active key end: now, which revokes it, or at `ends_ms` at the latest.

        Both or neither. Returns False if the key does not exist or is not active.
        """
        ...

    async def limit(self, key_id: str, limits: KeyLimits | None) -> bool:
        """Replace the limits of a key. Returns False if it does not exist or was revoked."""
        ...

    async def all(self) -> tuple[StoredKey, ...]:
        """Every key, oldest first."""
        ...

    async def signing_key(self, offer: SigningKey | None = None) -> SigningKey | None:
        """The server's key for signatures. If there is none yet, `offer` is stored and returned: the first one wins."""
        ...


def key_state(key: StoredKey, now_ms: int) -> Literal["active", "expired", "revoked"]:
    """Whether a key counts at `now_ms`."""
    if key.revoked_ms is not None:
        return "revoked"
    return "expired" if key.expires_ms is not None and key.expires_ms <= now_ms else "active"


def spell_limits(limits: KeyLimits | None) -> str | None:
    """The limits as they are stored."""
    return None if limits is None or limits == KeyLimits() else msgspec.json.encode(limits).decode()


def read_limits(spelled: str | None) -> KeyLimits | None:
    """The limits that are stored."""
    return None if spelled is None else msgspec.json.decode(spelled, type=KeyLimits)
