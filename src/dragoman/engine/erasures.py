"""Erasures: operators' requests to delete all data of a principal, as every replica has to know of them.

    none ── `begin` ──► UNDER WAY ── `end` ──► OVER ── `OVER_MS` are over ──► none
                         │  ▲ └── `KEPT_MS` without a `begin` ──► none
                         └──┘ `begin`: the deletion goes on, under the same alias

While a deletion is under way no replica admits a call of its principal, so that nothing comes anew. Every replica
forgets meanwhile, and once more when it is over, what it has in memory of principals.

Invariant: a request is an entry of the store, so it outlives the server that works on it. When the deletion is over,
the last entry has no name in it.
"""

from hashlib import blake2b
from secrets import token_hex

import msgspec
from msgspec import Struct

from dragoman.model.errors import Unavailable
from dragoman.model.ids import Clock
from dragoman.store.shared import Shared, SharedEntry, decode_entry

REQUESTS = "erasure/"

ALIAS = "erased:"
"""How the names begin that stand in the audit trail for those of deleted principals. No caller has such a name."""

KEPT_MS = 900_000
"""How long a principal is kept out after the last request to delete its data: a command that was killed is repeated, or
the principal may call again."""

OVER_MS = 30_000
"""How long replicas can read that a deletion is over."""

SETTLED_MS = 3_000
"""How long after the first request the work begins. By then every replica keeps the principal out (it reads requests
once a second), and has written what it had gathered: the audit trail once a second, usage twice."""

RETRY_S = 5


class Erasure(Struct, frozen=True, kw_only=True):
    """A request to delete the data of a `principal`, whose place in the audit trail `alias` takes."""

    principal: str
    alias: str
    asked_ms: int


class Erasures:
    """The requests in the store. Methods raise StoreError, but for `check`."""

    def __init__(self, shared: Shared, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self.under_way: frozenset[str] = frozenset()
        """The principals whose data is being deleted, as of the last `refresh`."""
        self._seen: tuple[SharedEntry, ...] = ()

    async def refresh(self) -> bool:
        """Read all requests. Returns whether what is in memory of principals has to be forgotten."""
        before, self._seen = self._seen, await self._shared.scan(REQUESTS)
        found = [decode_entry(entry, Erasure) for entry in self._seen if entry.value]
        self.under_way = frozenset(each.principal for each in found if each is not None)
        return bool(before or self._seen)

    def check(self, principal: str) -> None:
        """Raises Unavailable for a call of a principal whose data is being deleted, as of the last `refresh`."""
        if principal in self.under_way:
            raise Unavailable("the data of this caller is being deleted: call again when that is over", RETRY_S)

    async def find_request(self, principal: str) -> Erasure | None:
        """The request for a principal; None if there is none."""
        entry = await self._shared.get(_key(principal))
        return None if entry is None or not entry.value else decode_entry(entry, Erasure)

    async def begin(self, principal: str) -> Erasure:
        """Make a request, or let the one that there is go on."""
        request = await self.find_request(principal)
        if request is None:
            request = Erasure(principal=principal, alias=f"{ALIAS}{token_hex(8)}", asked_ms=self._clock.now_ms())
        await self._shared.put(_key(principal), msgspec.msgpack.encode(request), KEPT_MS)
        return request

    async def end(self, principal: str) -> None:
        """Let the principal call again."""
        await self._shared.put(_key(principal), b"", OVER_MS)


def _key(principal: str) -> str:
    return REQUESTS + blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
