"""The keys of a local store, or of a server elsewhere, for the same commands.

Invariant: both have the same methods with the same meaning. A secret is only in what `create` and `rotate` return.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import click

from dragoman.cli.admin.server import AdminClient, InputRefusal, ServerRefusal, TaskPlace, run
from dragoman.cli.store_commands import at_store, operator

if TYPE_CHECKING:
    from dragoman.admin.keys import (
        IssuedKey,
        KeyBeginnings,
        KeyLine,
        KeyRequest,
        LimitChanges,
        RevokedKey,
        RevokeRequest,
        RotateRequest,
    )
    from dragoman.store.api import Store

PAGE = 1000

T = TypeVar("T")


class KeyRecords(Protocol):
    """Keys that can be read and changed. Every method raises A2AError, or ClickException for a server elsewhere."""

    async def all(self) -> "tuple[KeyLine, ...]": ...

    async def create(self, wanted: "KeyRequest") -> "IssuedKey": ...

    async def limit(self, key_id: str, changes: "LimitChanges") -> "KeyLine": ...

    async def rotate(self, key_id: str, wanted: "RotateRequest") -> "IssuedKey": ...

    async def revoke(self, key_id: str, wanted: "RevokeRequest") -> "RevokedKey": ...

    async def show(self, key_id: str) -> "tuple[KeyLine, KeyBeginnings]": ...


class StoredKeys:
    """The keys of a store. Every change is in its audit trail, under the name of the user who runs the command."""

    def __init__(self, store: "Store") -> None:
        import secrets
        from functools import partial

        from dragoman.auth.keys import make_key
        from dragoman.engine.admin.access import Operator
        from dragoman.engine.admin.keys import KeyChanges
        from dragoman.engine.key_stops import KeyStops

        self._store = store
        stops = KeyStops(store.shared, store.clock)
        self._changes = KeyChanges(store, store.clock, partial(make_key, secrets.token_bytes), stops)
        self._operator = Operator(operator())

    async def all(self) -> "tuple[KeyLine, ...]":
        """Every key, oldest first."""
        from dragoman.admin.keys import KeyQuery

        page = await self._changes.list(self._operator, KeyQuery(limit=PAGE))
        found = page.keys
        while page.next_cursor:
            page = await self._changes.list(self._operator, KeyQuery(limit=PAGE, cursor=page.next_cursor))
            found += page.keys
        return found

    async def create(self, wanted: "KeyRequest") -> "IssuedKey":
        """Make a key. Nobody is locked out by that who can run this command."""
        from msgspec.structs import replace

        issued = await self._changes.create(self._operator, replace(wanted, force=True))
        await self._note("keys.create", issued.key.id)
        return issued

    async def limit(self, key_id: str, changes: "LimitChanges") -> "KeyLine":
        """Change limits of a key."""
        key = await self._changes.limit(self._operator, key_id, changes)
        await self._note("keys.update", key_id)
        return key

    async def rotate(self, key_id: str, wanted: "RotateRequest") -> "IssuedKey":
        """Make a key in the place of another."""
        issued = await self._changes.rotate(self._operator, key_id, wanted)
        await self._note("keys.rotate", f"{key_id},{issued.key.id}")
        return issued

    async def revoke(self, key_id: str, wanted: "RevokeRequest") -> "RevokedKey":
        """Revoke a key, and stop what it began."""
        from dragoman.engine.admin.keys import revoke_action

        revoked = await self._changes.revoke(self._operator, key_id, wanted)
        if revoked.changed or wanted.stop:
            await self._note(revoke_action(wanted), key_id)
        return revoked

    async def show(self, key_id: str) -> "tuple[KeyLine, KeyBeginnings]":
        """A key, and what it began."""
        found = await self._changes.show(self._operator, key_id), await self._changes.began(key_id)
        await self._note("keys.show", key_id)
        return found

    async def _note(self, action: str, subject: str) -> None:
        from dragoman.store.audit import AuditEntry

        at_ms = self._store.clock.now_ms()
        entry = AuditEntry(at_ms=at_ms, principal=self._operator.principal, action=action, subject=subject)
        await self._store.audit.write([entry])


class RemoteKeys:
    """The keys of a server, by its admin API."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def all(self) -> "tuple[KeyLine, ...]":
        """Every key, oldest first."""
        from dragoman.admin.keys import KeyLines

        page = await self._client.get("/keys", {"limit": PAGE}, KeyLines)
        found = page.keys
        while page.next_cursor:
            page = await self._client.get("/keys", {"limit": PAGE, "cursor": page.next_cursor}, KeyLines)
            found += page.keys
        return found

    async def create(self, wanted: "KeyRequest") -> "IssuedKey":
        """Make a key."""
        from dragoman.admin.keys import IssuedKey

        return await self._client.post("/keys", wanted, IssuedKey)

    async def limit(self, key_id: str, changes: "LimitChanges") -> "KeyLine":
        """Change limits of a key."""
        from dragoman.admin.keys import KeyLine

        return await self._client.post(f"/keys/{quote(key_id, safe='')}:limit", changes, KeyLine)

    async def rotate(self, key_id: str, wanted: "RotateRequest") -> "IssuedKey":
        """Make a key in the place of another."""
        from dragoman.admin.keys import IssuedKey

        return await self._client.post(f"/keys/{quote(key_id, safe='')}:rotate", wanted, IssuedKey)

    async def revoke(self, key_id: str, wanted: "RevokeRequest") -> "RevokedKey":
        """Revoke a key."""
        from dragoman.admin.keys import RevokedKey

        return await self._client.post(f"/keys/{quote(key_id, safe='')}:revoke", wanted, RevokedKey)

    async def show(self, key_id: str) -> "tuple[KeyLine, KeyBeginnings]":
        """A key, and what it began."""
        from dragoman.admin.keys import KeyBeginnings, KeyLine

        place = f"/keys/{quote(key_id, safe='')}"
        return await self._client.get(place, {}, KeyLine), await self._client.get(f"{place}/begun", {}, KeyBeginnings)


def at_keys(place: TaskPlace, work: Callable[[KeyRecords], Awaitable[T]], key_id: str = "", *, make: bool = False) -> T:
    """Run `work` with the keys of the server that is named, else of the local store, and return its result.

    With `make` a missing store is created. Ends the command if that fails, with status 2 for wrong input, such as a
    `key_id` that does not exist.
    """
    from dragoman.model.errors import A2AError, NotFound
    from dragoman.store.path import hide_password

    try:
        if place.server is not None:
            return run(work(RemoteKeys(place.client())))
        return at_store(place.config, lambda store: work(StoredKeys(store)), make=make)
    except (NotFound, ServerRefusal) as error:
        if isinstance(error, ServerRefusal) and error.status != 404:
            raise InputRefusal(error.message, error.status) if error.status == 400 else error from None
        where = place.server or hide_password(place.config.store)
        command = "dragoman keys list" if place.server is None else "dragoman admin keys list"
        raise click.UsageError(f"there is no key {key_id!r} in {where}: `{command}` shows their ids") from error
    except A2AError as error:
        raise click.UsageError(error.message) from error
