"""Key stops: operators' requests to end what a leaked key began, and the streams that the keys of callers have open.

    ASKED ── `claim`, by one replica ──► CLAIMED ── nothing was found, and `SETTLED_MS` are over ──► DONE ──► expired
      ▲                                    │ │ │
      ├── something was found, or too early┘ │ └── the claimant is dead, or `CLAIM_MS` are over ──► ASKED
      └── after `RETRY_MS`: tasks are left ──┘     any ── requested anew ──► ASKED

An attempt is not covered (`server.key_stops`).

Invariant: a request is an entry of the store that every replica reads, so it outlives the command that made it and the
server that works on it. One replica at a time works on a request. Every replica ends its own streams.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.errors import Unauthorized
from dragoman.model.ids import Clock
from dragoman.model.principal import key_owner
from dragoman.store.shared import Shared, SharedEntry, decode_entry

REVOKED = "the key was revoked"

REQUESTS = "key-stop/"
STREAMS = "key-streams/"

ASKED_KEPT_MS = 366 * 86_400_000
"""How long a request waits for a server to carry it out."""

DONE_KEPT_MS = 86_400_000
"""How long a request is kept when it has been carried out, for replicas that could not read it earlier."""

SETTLED_MS = 5_000
"""How long after the request a server looks for what the key began: a call that was admitted just before the key was
revoked may still be under way. A revoked key counts for another second."""

CLAIM_MS = 30_000
"""How long a replica may work on a request before another one does, too."""

RETRY_MS = 5_000
"""How long after an attempt that left tasks the next one comes."""

OTHERS_FIRST_MS = 5_000
"""How much longer a replica waits after a failure of its own: another one may serve the agents whose tasks are left."""

STREAMS_MS = 60_000
"""How long the streams of a replica count that says nothing more."""


class StopRequest(Struct, frozen=True, kw_only=True):
    """A request to end the streams and webhooks that the key `key` of `name` began, and with `tasks` its open tasks.

    `team` is the team of the key; empty for none.

    `by` is the principal of the operator. `done_ms` is when everything had ended; 0 until then. `left` counts the tasks
    that could not be canceled at the last attempt. `claimant` is the replica that works on it until `claimed_ms`.
    """

    key: str
    name: str
    by: str
    asked_ms: int
    tasks: bool
    done_ms: int = 0
    left: int = 0
    claimant: str = ""
    claimed_ms: int = 0
    team: str = ""

    @property
    def owner(self) -> str:
        """The id of the principal whose key it is."""
        return key_owner(self.name, self.team)


class KeyStops:
    """The requests and the streams in the store. Methods raise StoreError."""

    def __init__(self, shared: Shared, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self.stopped: frozenset[str] = frozenset()
        """The ids of the keys for which there is a request, as of the last `refresh`."""

    async def refresh(self) -> tuple[StopRequest, ...]:
        """Read all requests."""
        entries = await self._shared.scan(REQUESTS)
        self.stopped = frozenset(entry.key.removeprefix(REQUESTS) for entry in entries)
        return tuple(request for request in map(_request, entries) if request is not None)

    def check(self, key_id: str) -> None:
        """Raises Unauthorized if the key was stopped, as of the last `refresh`: a call of it was under way."""
        if key_id in self.stopped:
            raise Unauthorized(REVOKED)

    async def find(self, key_id: str) -> StopRequest | None:
        """The request for a key; None if there is none."""
        entry = await self._shared.get(REQUESTS + key_id)
        return None if entry is None else _request(entry)

    async def request(self, key_id: str, name: str, by: str, *, tasks: bool, team: str = "") -> StopRequest:
        """Make a request, or make an earlier one for the key anew. One that takes in the tasks stays so."""
        while True:
            entry = await self._shared.get(REQUESTS + key_id)
            earlier = None if entry is None else _request(entry)
            tasks = tasks or (earlier is not None and earlier.tasks)
            now_ms = self._clock.now_ms()
            request = StopRequest(key=key_id, name=name, by=by, asked_ms=now_ms, tasks=tasks, team=team)
            if await self._put(request, ASKED_KEPT_MS, 0 if entry is None else entry.version) is not None:
                return request

    async def claim(
        self, key_id: str, replica: str, alive: Callable[[str], Awaitable[bool]]
    ) -> tuple[StopRequest, int] | None:
        """Take on a request. Returns it with its version; None if it is done, or if another replica works on it.

        The claim of one that is not `alive` counts for nothing.
        """
        entry = await self._shared.get(REQUESTS + key_id)
        request, now_ms = None if entry is None else _request(entry), self._clock.now_ms()
        if entry is None or request is None:
            return None
        again_ms = request.claimed_ms + (OTHERS_FIRST_MS if request.left and request.claimant == replica else 0)
        if request.done_ms:
            return None
        if again_ms > now_ms and (request.claimant in ("", replica) or await alive(request.claimant)):
            return None
        claimed = replace(request, claimant=replica, claimed_ms=now_ms + CLAIM_MS)
        version = await self._put(claimed, ASKED_KEPT_MS, entry.version)
        return None if version is None else (claimed, version)

    async def settle(self, request: StopRequest, version: int, *, found: bool, left: int) -> None:
        """Note the outcome of an attempt, unless there is a newer request.

        The request is done after an attempt that `found` nothing to end. `left` tasks could not be canceled.
        """
        now_ms = self._clock.now_ms()
        if left:
            await self._put(replace(request, left=left, claimed_ms=now_ms + RETRY_MS), ASKED_KEPT_MS, version)
        elif found or now_ms < request.asked_ms + SETTLED_MS:
            await self._put(replace(request, left=0, claimed_ms=0), ASKED_KEPT_MS, version)
        else:
            await self._put(replace(request, left=0, done_ms=now_ms), DONE_KEPT_MS, version)

    async def forget(self, principal: str, alias: str) -> None:
        """Delete the requests for the keys of a principal, and let an alias stand for it in those that it made."""
        for entry in await self._shared.scan(REQUESTS):
            request = _request(entry)
            if request is not None and request.owner == principal:
                await self._shared.delete(entry.key)
            elif request is not None and request.by == principal:
                await self._put(replace(request, by=alias), entry.left_ms, entry.version)

    async def tell_streams(self, replica: str, counts: Mapping[str, int]) -> None:
        """Set how many streams each key has open on a replica."""
        if counts:
            await self._shared.put(STREAMS + replica, msgspec.msgpack.encode(counts), STREAMS_MS)
        else:
            await self._shared.delete(STREAMS + replica)

    async def streams(self, key_id: str) -> Mapping[str, int]:
        """How many streams a key has open, by replica, as they last said."""
        found: dict[str, int] = {}
        for entry in await self._shared.scan(STREAMS):
            counts = decode_entry(entry, dict[str, int])
            if counts is not None and (count := counts.get(key_id, 0)):
                found[entry.key.removeprefix(STREAMS)] = count
        return found

    async def _put(self, request: StopRequest, kept_ms: int, version: int) -> int | None:
        return await self._shared.put(REQUESTS + request.key, msgspec.msgpack.encode(request), kept_ms, version=version)


def _request(entry: SharedEntry) -> StopRequest | None:
    return decode_entry(entry, StopRequest)
