"""The driver does what the protocol says."""

import pytest

from dragoman.store.open import open_store
from tests.spoil import spoil_database
from tests.store.cases import CASES, Bench, Case
from tests.store.cases.handles import HANDLES

EVERY = CASES + HANDLES


@pytest.mark.parametrize("case", EVERY, ids=[case.__name__ for case in EVERY])  # type: ignore[attr-defined]
async def test_the_store_conforms(case: Case, used_postgres_url: str) -> None:
    spoil = spoil_database(used_postgres_url)
    await case(Bench(lambda clock: open_store(used_postgres_url, clock), durable=True, shared=True, spoil=spoil))
