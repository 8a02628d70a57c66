"""LeaseRows: the leases of workers in the database.

Invariant: the clock of the database decides what has run out. Each method is one statement, which commits by itself.
"""

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text
from dragoman.store.worker_leases import KNOWN_MS, DueLeases, HeldLease, WorkerLease, WorkerLeaseChange
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.store")

WORD, GRANTED, SILENT, SINGLE_WORD = range(4)
"""What becomes of a lease with an append: see the statement `write`."""

FORGET_S = 10.0
"""How often leases are forgotten that are not known any more. A look for silent workers comes twenty times as often."""

FORGET_MAX = 5_000
"""How many are forgotten at once: more than a replica grants in that time."""

DECODER = msgspec.json.Decoder(WorkerLease)


def decode_lease(lease: str, reports: int) -> WorkerLease | None:
    """The lease, whose worker has told so many `reports`; None if it cannot be read.

    Then its worker loses the task when its time is over.
    """
    try:
        return replace(DECODER.decode(lease), reports=reports)
    except msgspec.MsgspecError as error:
        log.error("a lease of a worker cannot be read: %s", error, extra=about("leases of workers"))
        return None


def encode_change(change: WorkerLeaseChange) -> dict[str, int | str | None]:
    """The values of the statement `write` for a lease."""
    lease = change.lease
    if change.number is not None:
        return {
            "lease_act": SINGLE_WORD,
            "lease_token": to_text(lease.token),
            "lease_version": lease.version,
            "lease_reports": change.number,
            "lease_confirmed": change.confirmed,
        }
    return {
        "lease_act": SILENT if change.silent else WORD if change.granted_ms is None else GRANTED,
        "lease_agent": to_text(lease.agent),
        "lease_token": to_text(lease.token),
        "lease_version": lease.version,
        "lease_reports": lease.reports,
        "lease_questions": lease.questions,
        "lease_over": change.over,
        "lease_ms": change.granted_ms,
        "lease_deadline_ms": None if lease.deadline_s is None else round(lease.deadline_s * 1000),
        "lease": encode_lease(lease),
    }


def encode_lease(lease: WorkerLease) -> str:
    """The lease as JSON that PostgreSQL stores."""
    return msgspec.json.encode(lease).decode()


def _bare(task_id: str, agent: str, token: str, version: int) -> WorkerLease:
    """What is left of a lease that cannot be read, which is enough to end it."""
    return WorkerLease(
        task_id=from_text(task_id),
        agent=from_text(agent),
        token=from_text(token),
        worker="",
        replays=False,
        delivery=0,
        since=0,
        version=version,
    )


class LeaseRows:
    """The WorkerLeases protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: PostgresDoor, schema: str) -> None:
        self._door = door
        self._sql = read_statements("worker_leases.sql", schema)
        self._forgotten_s = 0.0
        """When leases were last forgotten, by the monotonic clock."""

    async def get(self, task_id: str) -> HeldLease | None:
        """As the protocol says."""
        rows = await self._door().read(self._sql["get_lease"], to_text(task_id))
        if not rows:
            return None
        text, reports, left_ms, over = rows[0]
        lease = decode_lease(text, reports)
        return None if lease is None else HeldLease(lease, 0 if over else left_ms, over)

    async def renew(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        """As the protocol says."""
        ids, own = [to_text(task_id) for task_id, _ in tokens], [to_text(token) for _, token in tokens]
        rows = await self._write("renew_leases", ids, own, ttl_ms)
        found = ((token, decode_lease(lease, reports)) for token, lease, reports in rows)
        return {token: lease for token, lease in found if lease is not None}

    async def note(self, lease: WorkerLease) -> bool:
        """As the protocol says."""
        counts = lease.version, lease.questions, lease.reports
        values = to_text(lease.task_id), to_text(lease.token), *counts, encode_lease(lease)
        return bool(await self._write("note_lease", *values))

    async def of_agent(self, agent: str) -> tuple[HeldLease, ...]:
        """As the protocol says."""
        rows = await self._door().read(self._sql["leases_of_agent"], to_text(agent))
        found = ((decode_lease(lease, reports), left_ms) for lease, reports, left_ms in rows)
        return tuple(HeldLease(lease, left_ms) for lease, left_ms in found if lease is not None)

    async def running(self, tokens: Collection[tuple[str, str]]) -> frozenset[str]:
        """As the protocol says."""
        ids, own = [to_text(task_id) for task_id, _ in tokens], [to_text(token) for _, token in tokens]
        rows = await self._door().read(self._sql["running_leases"], ids, own)
        return frozenset(from_text(row[0]) for row in rows)

    async def due(self, limit: int) -> DueLeases:
        """As the protocol says."""
        if time.monotonic() - self._forgotten_s >= FORGET_S:
            self._forgotten_s = time.monotonic()
            await self._write("forget_leases", FORGET_MAX, KNOWN_MS)
        silent: list[WorkerLease] = []
        late: list[WorkerLease] = []
        for runs, text, reports, *facts in await self._door().read(self._sql["due_leases"], limit):
            lease = decode_lease(text, reports)
            if not runs:
                silent.append(lease or _bare(*facts))
            elif lease is not None:
                late.append(lease)
        return DueLeases(tuple(silent), tuple(late))

    async def _write(self, name: str, *values: object) -> list[Any]:
        """Run a statement. Raises StoreError, also if its outcome is unknown."""
        try:
            return await self._door().write(self._sql[name], *values)
        except OutcomeUnknown as unknown:
            raise StoreError(str(unknown)) from unknown
