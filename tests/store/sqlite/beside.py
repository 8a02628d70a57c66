"""A process that opens a store beside its server, and changes keys there.

usage: beside.py URL COUNT
"""

import asyncio
import sys

from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from dragoman.store.audit import AuditEntry
from dragoman.store.keyring import StoredKey
from dragoman.store.open import open_store


async def main(url: str, count: int) -> None:
    store = open_store(url, SystemClock())
    for number in range(count):  # as many commands, one after the other
        await store.open(None)
        key_id = f"key{number:09}"
        key = StoredKey(
            id=key_id, name="n", role=AccessRole.CALLER, agents=None, scopes=None, digest=b"d" * 32, made_ms=number
        )
        await store.keys.add(key)
        assert await store.keys.revoke(key_id, number + 1)
        await store.audit.write([AuditEntry(at_ms=number, principal="operator:test", action="keys.create")])
        await store.close()
        sys.stdout.write(f"{key_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
