"""KeyTable: the keys in the database, the same for every replica.

Invariant: the table is not cached, so that a key made or revoked by another process counts at once.
"""

from dragoman.model.principal import AccessRole, KeyLimits, Scope
from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.damage import DamageLog
from dragoman.store.keyring import SigningKey, StoredKey, read_limits, readable, spell_limits
from dragoman.store.postgres.database.opening import Door
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text


class KeyTable:
    """The KeyRing protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: Door, schema: str, damage: DamageLog) -> None:
        self._door = door
        self._damage = damage
        self._sql = read_statements("keys.sql", schema)

    async def find(self, key_id: str) -> StoredKey | None:
        """As the protocol says."""
        rows = await self._door().read(self._sql["find_key"], to_text(key_id))
        return readable(_api_key, rows[0], self._damage) if rows else None

    async def any(self) -> bool:
        """As the protocol says."""
        return bool(await self._door().read(self._sql["any_key"]))

    async def add(self, key: StoredKey) -> None:
        """As the protocol says. Raises StoreError if the id exists already."""
        try:
            await self._door().write(self._sql["add_key"], *_row(key))
        except OutcomeUnknown as error:
            if await self.find(key.id) != key:
                raise StoreError(f"{error}: look whether the key {key.id} is there") from error

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """As the protocol says."""
        try:
            return bool(await self._door().write(self._sql["revoke_key"], to_text(key_id), now_ms))
        except OutcomeUnknown:
            pass
        key = await self.find(key_id)
        if key is not None and key.revoked_ms == now_ms:
            return True
        try:
            return bool(await self._door().write(self._sql["revoke_key"], to_text(key_id), now_ms))
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error

    async def replace(self, key_id: str, by: StoredKey, now_ms: int, ends_ms: int) -> bool:
        """As the protocol says, in one statement. Raises StoreError if the id of `by` exists already."""
        values = to_text(key_id), now_ms, ends_ms, *_row(by)
        try:
            return bool(await self._door().write(self._sql["replace_key"], *values))
        except OutcomeUnknown as error:
            if await self.find(by.id) == by:
                return True
            raise StoreError(f"{error}: look whether the key {by.id} is there") from error

    async def limit(self, key_id: str, limits: KeyLimits | None) -> bool:
        """As the protocol says. It may be repeated without harm."""
        values = to_text(key_id), spell_limits(limits)
        try:
            return bool(await self._door().write(self._sql["limit_key"], *values))
        except OutcomeUnknown:
            pass
        try:
            return bool(await self._door().write(self._sql["limit_key"], *values))
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error

    async def all(self) -> tuple[StoredKey, ...]:
        """As the protocol says."""
        rows = await self._door().read(self._sql["all_keys"])
        keys = [readable(_api_key, row, self._damage) for row in rows]
        return tuple(key for key in keys if key is not None)

    async def signing_key(self, offer: SigningKey | None = None) -> SigningKey | None:
        """As the protocol says. Replicas that offer one at once get the same."""
        rows = await self._door().read(self._sql["signing_key"])
        if not rows and offer is not None:
            try:
                await self._door().write(self._sql["offer_signing_key"], to_text(offer.kid), offer.jwk, offer.made_ms)
            except OutcomeUnknown:
                pass  # the table says what became of it
            rows = await self._door().read(self._sql["signing_key"])
            if not rows:
                raise StoreError("the key for signatures could not be stored")
        if not rows:
            return None
        kid, jwk, made_ms = rows[0]
        return SigningKey(kid=from_text(kid), jwk=jwk, made_ms=made_ms)


def _row(key: StoredKey) -> tuple[object, ...]:
    return (
        to_text(key.id),
        to_text(key.name),
        key.role.value,
        None if key.agents is None else [to_text(agent) for agent in key.agents],
        None if key.scopes is None else [scope.value for scope in key.scopes],
        key.digest,
        key.made_ms,
        key.expires_ms,
        key.revoked_ms,
        spell_limits(key.limits),
        key.rules,
    )


def _api_key(
    key_id: str,
    name: str,
    role: str,
    agents: list[str] | None,
    scopes: list[str] | None,
    digest: bytes,
    made_ms: int,
    expires_ms: int | None,
    revoked_ms: int | None,
    limits: str | None,
    rules: int,
) -> StoredKey:
    return StoredKey(
        id=from_text(key_id),
        name=from_text(name),
        role=AccessRole(role),
        agents=None if agents is None else tuple(map(from_text, agents)),
        scopes=None if scopes is None else tuple(map(Scope, scopes)),
        digest=digest,
        made_ms=made_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
        limits=read_limits(limits),
        rules=rules,
    )
