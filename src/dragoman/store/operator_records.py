"""Operators' records: what operators set while servers run, such as the switches of agents.

Invariant: revisions grow in the order of the commits, over all kinds. A reader that asks for what is behind the last
revision that it has read misses nothing.
"""

from typing import Protocol

from msgspec import Struct

KEPT_VERSIONS = 10
"""How many versions of a record are kept, the present one included."""

BODY_BYTES_MAX = 1 << 20
"""Most bytes of a body. Every replica reads all of them when it starts."""


class OperatorRecord(Struct, frozen=True, kw_only=True):
    """A version of the record `id` of a kind. Versions are 1, 2, 3 …, and no version is written twice.

    The `body` means what the owner of the kind says; None: the record was removed by this version, and a later one
    makes it anew. It was written at `changed_ms`. The `revision` is the store's: each write has the next one.
    """

    kind: str
    id: str
    version: int
    body: bytes | None
    changed_ms: int
    revision: int


class OperatorRecords(Protocol):
    """The records in the store. Every method raises StoreError if the store cannot do it now."""

    async def put_record(
        self, kind: str, record_id: str, body: bytes | None, *, version: int | None = None
    ) -> OperatorRecord:
        """Write the next version of a record, and return it; with a body of None the record is removed.

        With `version` it is written only if the present one has that version, with 0 only if there was none ever. None:
        whatever there is. Raises `store.api.RecordChanged`, or ValueError if the body is larger than `BODY_BYTES_MAX`.
        """
        ...

    async def rewrite_record(self, record: OperatorRecord, body: bytes) -> bool:
        """Replace the body of one version, which says the same in another way, as a secret sealed by another key does.

        Its version and its revision stay, so that readers who have read it are not told. Returns False if the version
        is gone, or has another body by now.
        """
        ...

    async def find_record(self, kind: str, record_id: str) -> OperatorRecord | None:
        """The present version of a record, also if it was removed; None if there was none ever."""
        ...

    async def list_versions(self, kind: str, record_id: str) -> tuple[OperatorRecord, ...]:
        """The kept versions of a record, the newest first."""
        ...

    async def read_records(self, revision: int = 0) -> tuple[OperatorRecord, ...]:
        """All versions from a revision on, that one included, of all kinds in the order of revisions.

        A reader who gets another first one than it knows has to read all anew: the store has lost writes, or it keeps
        that version no longer.
        """
        ...
