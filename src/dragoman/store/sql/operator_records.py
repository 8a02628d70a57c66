"""RecordTable: operators' records in the store.

Invariant: a write waits for the one before it, so that revisions have no gap and are committed in their order.
"""

from typing import Any

from dragoman.model.ids import Clock
from dragoman.store.api import OutcomeUnknown, RecordChanged, StoreError
from dragoman.store.operator_records import BODY_BYTES_MAX, KEPT_VERSIONS, OperatorRecord
from dragoman.store.sql.statements import Procedure, Statements, settled


class RecordTable:
    """The OperatorRecords protocol, for both databases."""

    def __init__(self, statements: Statements, clock: Clock) -> None:
        self._statements = statements
        self._clock = clock

    async def put_record(
        self, kind: str, record_id: str, body: bytes | None, *, version: int | None = None
    ) -> OperatorRecord:
        """As the protocol says. A write whose outcome is unknown is looked for, and made if it is not there."""
        if body is not None and len(body) > BODY_BYTES_MAX:
            raise ValueError(f"the body has {len(body)} bytes: there may be {BODY_BYTES_MAX}")
        while True:
            present = await self.find_record(kind, record_id)
            found = 0 if present is None else present.version
            if version is not None and version != found:
                raise RecordChanged(found)
            written = await self._try(kind, record_id, body, found)
            if written is not None:
                return written

    async def _try(self, kind: str, record_id: str, body: bytes | None, version: int) -> OperatorRecord | None:
        """Write the version after `version`; None if somebody else has written to the table at the same moment."""
        now_ms = self._clock.now_ms()

        def write() -> Procedure[int | None]:
            rows = yield "put_record", kind, record_id, version, body, now_ms
            if not rows:
                return None
            yield "prune_records", kind, record_id, version + 1 - KEPT_VERSIONS
            revision: int = rows[0][0]
            return revision

        try:
            revision = await self._statements.carry_out(write)
        except OutcomeUnknown as error:
            for known in await self.list_versions(kind, record_id):
                if (known.version, known.body, known.changed_ms) == (version + 1, body, now_ms):
                    return known
            raise StoreError(str(error)) from error
        if revision is None:
            return None
        return _record(kind, record_id, version + 1, body, now_ms, revision)

    async def rewrite_record(self, record: OperatorRecord, body: bytes) -> bool:
        """As the protocol says."""

        def write() -> Procedure[bool]:
            rows = yield "rewrite_record", record.kind, record.id, record.version, record.body, body
            return bool(rows)

        return await settled(self._statements.carry_out(write))

    async def find_record(self, kind: str, record_id: str) -> OperatorRecord | None:
        """As the protocol says."""
        rows = await self._statements.read("record_versions", kind, record_id, 1)
        return _record(*rows[0]) if rows else None

    async def list_versions(self, kind: str, record_id: str) -> tuple[OperatorRecord, ...]:
        """As the protocol says."""
        rows = await self._statements.read("record_versions", kind, record_id, KEPT_VERSIONS)
        return tuple(_record(*row) for row in rows)

    async def read_records(self, revision: int = 0) -> tuple[OperatorRecord, ...]:
        """As the protocol says."""
        return tuple(_record(*row) for row in await self._statements.read("read_records", revision))


def _record(kind: str, record_id: str, version: int, body: Any, changed_ms: int, revision: int) -> OperatorRecord:
    """The record of a row."""
    return OperatorRecord(
        kind=kind,
        id=record_id,
        version=version,
        body=None if body is None else bytes(body),
        changed_ms=changed_ms,
        revision=revision,
    )
