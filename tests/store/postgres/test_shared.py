"""Shared entries, buckets and counts do in PostgreSQL what they do everywhere."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.shared import SharedRows
from dragoman.store.shared import Spending
from tests.store.cases import test_shared
from tests.store.cases.bench import Case, cases_of

CASES = cases_of(test_shared)


class SharedBench:
    """Makes shared entries for a case, and nothing else of a store."""

    durable = True

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)

    @asynccontextmanager
    async def store(self, holder: str = "h1") -> AsyncIterator[Any]:
        pool = await open_pool(self._address)
        yield SimpleNamespace(shared=SharedRows(lambda: pool, self._address.schema))
        await pool.close()


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
async def test_shared_entries_conform(case: Case, used_postgres_url: str) -> None:
    await case(SharedBench(used_postgres_url))  # type: ignore[arg-type]


async def test_batches_of_many_replicas_in_any_order_do_not_lock_each_other_out(used_postgres_url: str) -> None:
    bench = SharedBench(used_postgres_url)
    keys = [f"k{number}" for number in range(50)]
    async with bench.store() as one, bench.store() as other:
        for key in keys:
            await one.shared.put(key, b"", 3_600_000)
        there, back = keys, keys[::-1]
        for _ in range(10):
            await asyncio.gather(
                *(
                    store.shared.spend([Spending(key, 1000) for key in order])
                    for store in (one, other)
                    for order in (there, back)
                ),
                *(store.shared.renew(order, 3_600_000) for store in (one, other) for order in (there, back)),
            )
        left = await one.shared.spend([Spending(key, 3_600_000_000) for key in keys])
        assert min(left) >= 3_600_000_000
