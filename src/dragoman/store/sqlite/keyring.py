"""KeyTable: the keys in the file.

Invariant: the table is not cached, so that a key made or revoked by another process counts at once.
"""

from typing import Any

import apsw
import msgspec

from dragoman.model.principal import AccessRole, KeyLimits, Scope
from dragoman.store.damage import DamageLog
from dragoman.store.keyring import SigningKey, StoredKey, read_limits, readable, spell_limits
from dragoman.store.sqlite.connection import fetch, translated
from dragoman.store.sqlite.pool import Door
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act


class KeyTable:
    """The KeyRing protocol on the store's connections."""

    def __init__(self, door: Door, damage: DamageLog) -> None:
        self._door = door
        self._damage = damage

    async def find(self, key_id: str) -> StoredKey | None:
        """As the protocol says."""
        try:
            row = self._point("find_key", key_id)
        except UnicodeDecodeError as error:
            self._damage.name("key", key_id, error)
            return None
        return None if row is None else readable(_api_key, row, self._damage)

    async def any(self) -> bool:
        """As the protocol says."""
        return bool(self._point("any_key"))

    async def add(self, key: StoredKey) -> None:
        """As the protocol says. Raises StoreError if the id exists already."""
        row = _row(key)

        def run(tables: Tables, _: int) -> None:
            tables.cursor.execute(tables.sql["add_key"], row)

        await self._door().writer.submit(Act(run))

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """As the protocol says."""

        def run(tables: Tables, _: int) -> bool:
            tables.cursor.execute(tables.sql["revoke_key"], (key_id, now_ms))
            return tables.connection.changes() > 0

        return bool(await self._door().writer.submit(Act(run)))

    async def replace(self, key_id: str, by: StoredKey, now_ms: int, ends_ms: int) -> bool:
        """As the protocol says, in one transaction. Raises StoreError if the id of `by` exists already."""
        row = _row(by)

        def run(tables: Tables, _: int) -> bool:
            tables.cursor.execute(tables.sql["end_key"], (key_id, now_ms, ends_ms))
            if not tables.connection.changes():
                return False
            tables.cursor.execute(tables.sql["add_key"], row)
            return True

        return bool(await self._door().writer.submit(Act(run)))

    async def limit(self, key_id: str, limits: KeyLimits | None) -> bool:
        """As the protocol says."""

        def run(tables: Tables, _: int) -> bool:
            tables.cursor.execute(tables.sql["limit_key"], (key_id, spell_limits(limits)))
            return tables.connection.changes() > 0

        return bool(await self._door().writer.submit(Act(run)))

    async def all(self) -> tuple[StoredKey, ...]:
        """As the protocol says."""
        keys = [readable(_api_key, row, self._damage) for row in await self._door().readers.run(_all)]
        return tuple(key for key in keys if key is not None)

    async def signing_key(self, offer: SigningKey | None = None) -> SigningKey | None:
        """As the protocol says."""
        row = self._point("signing_key")
        if row is None and offer is not None:
            mine = (offer.kid, offer.jwk, offer.made_ms)

            def run(tables: Tables, _: int) -> Any:
                tables.cursor.execute(tables.sql["offer_signing_key"], mine)
                return tables.cursor.execute(tables.sql["signing_key"]).get

            row = await self._door().writer.submit(Act(run))
        return None if row is None else SigningKey(kid=row[0], jwk=row[1], made_ms=row[2])

    def _point(self, name: str, *values: str) -> Any:
        opened = self._door()
        try:
            return opened.reads.point(name, values)
        except apsw.Error as error:
            raise translated(error, opened.location) from error


def _all(reads: Reads) -> list[Any]:
    with reads.moment():
        return fetch(reads.cursor, reads.sql["all_keys"])


def _api_key(
    key_id: str,
    name: str,
    role: str,
    agents: str | None,
    scopes: str | None,
    digest: bytes,
    made_ms: int,
    expires_ms: int | None,
    revoked_ms: int | None,
    limits: str | None,
    rules: int,
) -> StoredKey:
    return StoredKey(
        id=key_id,
        name=name,
        role=AccessRole(role),
        agents=None if agents is None else msgspec.json.decode(agents, type=tuple[str, ...]),
        scopes=None if scopes is None else msgspec.json.decode(scopes, type=tuple[Scope, ...]),
        digest=digest,
        made_ms=made_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
        limits=read_limits(limits),
        rules=rules,
    )


def _row(key: StoredKey) -> tuple[object, ...]:
    return (
        key.id,
        key.name,
        key.role.value,
        _listed(key.agents),
        _listed(key.scopes),
        key.digest,
        key.made_ms,
        key.expires_ms,
        key.revoked_ms,
        spell_limits(key.limits),
        key.rules,
    )


def _listed(words: tuple[str, ...] | None) -> str | None:
    return None if words is None else msgspec.json.encode(words).decode()
