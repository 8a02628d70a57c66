"""KeyTable: the keys in the store.

Invariant: the table is not cached, so that a key made or revoked by another process counts at once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.model.principal import AccessRole, KeyLimits, Scope
from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.damage import DamageLog
from dragoman.store.keyring import SigningKey, StoredKey, read_limits, spell_limits
from dragoman.store.sql.statements import Statements, Value, repeated, settled


class KeyTable:
    """The KeyRing protocol."""

    def __init__(self, statements: Statements, damage: DamageLog) -> None:
        self._statements = statements
        self._damage = damage

    async def find(self, key_id: str) -> StoredKey | None:
        """As the protocol says."""
        try:
            row = await self._statements.point("find_key", key_id)
        except UnicodeDecodeError as error:  # SQLite takes any bytes for a text
            self._damage.name("key", key_id, error)
            return None
        return None if row is None else self._read(row)

    async def any(self) -> bool:
        """As the protocol says."""
        return bool(await self._statements.point("any_key"))

    async def add(self, key: StoredKey) -> None:
        """As the protocol says. Raises StoreError if the id exists already."""
        try:
            await self._statements.write(("add_key", *_row(key)))
        except OutcomeUnknown as error:
            if await self.find(key.id) != key:
                raise StoreError(f"{error}: look whether the key {key.id} is there") from error

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """As the protocol says."""
        try:
            return bool(await self._statements.write(("revoke_key", key_id, now_ms)))
        except OutcomeUnknown:
            pass
        key = await self.find(key_id)
        if key is not None and key.revoked_ms == now_ms:
            return True
        return bool(await settled(self._statements.write(("revoke_key", key_id, now_ms))))

    async def replace(self, key_id: str, by: StoredKey, now_ms: int, ends_ms: int) -> bool:
        """As the protocol says, in one transaction. Raises StoreError if the id of `by` exists already."""
        try:
            ending = "end_key", key_id, now_ms, ends_ms
            return bool(await self._statements.write(ending, ("add_key", *_row(by))))
        except OutcomeUnknown as error:
            if await self.find(by.id) == by:
                return True
            raise StoreError(f"{error}: look whether the key {by.id} is there") from error

    async def limit(self, key_id: str, limits: KeyLimits | None) -> bool:
        """As the protocol says. It may be repeated without harm."""
        limiting = "limit_key", key_id, spell_limits(limits)
        return bool(await repeated(lambda: self._statements.write(limiting)))

    async def all(self) -> tuple[StoredKey, ...]:
        """As the protocol says."""
        keys = map(self._read, await self._statements.read("all_keys"))
        return tuple(key for key in keys if key is not None)

    async def signing_key(self, offer: SigningKey | None = None) -> SigningKey | None:
        """As the protocol says. Replicas that offer one at once get the same."""
        row = await self._statements.point("signing_key")
        if row is None and offer is not None:
            try:
                await self._statements.write(("offer_signing_key", offer.kid, offer.jwk, offer.made_ms))
            except OutcomeUnknown:
                pass  # the table says what became of it
            row = await self._statements.point("signing_key")
            if row is None:
                raise StoreError("the key for signatures could not be stored")
        return None if row is None else SigningKey(kid=row[0], jwk=row[1], made_ms=row[2])

    def _read(self, row: Sequence[Any]) -> StoredKey | None:
        """The key of a row; None if that cannot be decoded."""
        try:
            return _key(*row)
        except (msgspec.MsgspecError, ValueError) as error:
            self._damage.name("key", str(row[0]), error)
            return None


def _row(key: StoredKey) -> tuple[Value, ...]:
    return (
        key.id,
        key.name,
        key.role.value,
        key.agents,
        None if key.scopes is None else tuple(scope.value for scope in key.scopes),
        key.digest,
        key.made_ms,
        key.expires_ms,
        key.revoked_ms,
        spell_limits(key.limits),
        key.rules,
        int(key.one_person),
        key.team,
    )


def _key(
    key_id: str,
    name: str,
    role: str,
    agents: str | tuple[str, ...] | None,
    scopes: str | tuple[str, ...] | None,
    digest: bytes,
    made_ms: int,
    expires_ms: int | None,
    revoked_ms: int | None,
    limits: str | None,
    rules: int,
    one_person: int,
    team: str,
) -> StoredKey:
    return StoredKey(
        id=key_id,
        name=name,
        role=AccessRole(role),
        agents=_texts(agents),
        scopes=None if scopes is None else tuple(map(Scope, _texts(scopes) or ())),
        digest=digest,
        made_ms=made_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
        limits=read_limits(limits),
        rules=rules,
        one_person=bool(one_person),
        team=team,
    )


def _texts(stored: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Several texts: see `Value`."""
    return msgspec.json.decode(stored, type=tuple[str, ...]) if isinstance(stored, str) else stored
