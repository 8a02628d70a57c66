"""Receipts: the webhook deliveries that arrived, kept for a while so that operators can see who was told what and when.

Invariant: a receipt is written in the transaction that takes its delivery out of the outbox. It holds no body and no
secret.
"""

from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

RECEIPTS_MAX = 100
"""Most receipts of a task: its newest ones. A task may report its progress for days."""


def digest_of_body(body: bytes) -> bytes:
    """The digest of a delivery's body, by which a body that is rendered again is known to be the same."""
    return blake2b(body, digest_size=16).digest()


class Receipt(Struct, frozen=True, kw_only=True):
    """A delivery that arrived. `number`, `id`, `seq`, `part` and `dialect` are those that it had in the outbox.

    `config_id` is its configuration, which may have been removed since. `url` is without what may be secret in it.
    `attempts` counts the failed attempts before it arrived, and `reason` is why the last of them failed. `made_ms` is
    when it was written, and thereby due. `arrived_ms` is when its call was answered, `status` with which HTTP status
    and `took_ms` after how many milliseconds. `size_bytes` and `digest` (see `digest_of_body`) are those of the body.
    """

    number: int
    id: str
    task_id: str
    agent: str
    config_id: str
    url: str
    seq: int
    part: int
    dialect: str
    attempts: int
    made_ms: int
    arrived_ms: int
    status: int
    took_ms: int
    size_bytes: int
    reason: str
    digest: bytes


class Receipts(Protocol):
    """The receipts of all tasks. A deleted task leaves none."""

    async def page(
        self, *, limit: int = 100, before: int | None = None, task_id: str | None = None
    ) -> tuple[Receipt, ...]:
        """Receipts with numbers below `before`, those with the highest numbers first. With `task_id` only of a task.

        The cost grows with `limit`, and not with the number of receipts.
        """
        ...

    async def find(self, wanted: int | str) -> Receipt | None:
        """The receipt with this number, or the newest one with this id; None if there is none. By id it is slow."""
        ...

    async def sweep(self, before_ms: int) -> int:
        """Delete a batch of receipts of deliveries that arrived before a time. Returns how many; 0: none is left."""
        ...
