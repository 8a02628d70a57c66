"""The driver does what the protocol says of everything but webhooks."""

import pytest

from dragoman.store.open import open_store
from dragoman.testing.store_cases import Bench, Case
from dragoman.testing.store_cases.appends import APPENDS
from dragoman.testing.store_cases.audit import AUDIT
from dragoman.testing.store_cases.calls import CALLS
from dragoman.testing.store_cases.handles import HANDLES
from dragoman.testing.store_cases.keys import KEYS
from dragoman.testing.store_cases.leases import LEASES
from dragoman.testing.store_cases.lists import LISTS
from dragoman.testing.store_cases.quotas import QUOTAS
from dragoman.testing.store_cases.reads import READS
from dragoman.testing.store_cases.repeats import REPEATS
from dragoman.testing.store_cases.replicas import REPLICAS, an_event_for_other_webhooks_than_the_task_has_is_refused
from dragoman.testing.store_cases.shared import SHARED

CASES = [
    case
    for case in APPENDS + REPEATS + LEASES + CALLS + READS + LISTS + QUOTAS + REPLICAS + KEYS + AUDIT + SHARED + HANDLES
    if case is not an_event_for_other_webhooks_than_the_task_has_is_refused
]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
async def test_the_store_conforms(case: Case, postgres_url: str) -> None:
    await case(Bench(lambda clock: open_store(postgres_url, clock), durable=True))
