"""The simulated store is a store: it passes the cases of `tests/store/cases` that concern the engine."""

import pytest

from dragoman.model.ids import Clock
from tests.simulation.database import Database
from tests.simulation.loop import SimulatedLoop
from tests.simulation.store import Network, Server, SimulatedStore
from tests.store.cases import Bench, Case
from tests.store.cases.appends import APPENDS
from tests.store.cases.calls import CALLS
from tests.store.cases.engines import ENGINES
from tests.store.cases.leases import LEASES
from tests.store.cases.lists import LISTS
from tests.store.cases.quotas import QUOTAS
from tests.store.cases.reads import READS
from tests.store.cases.repeats import REPEATS
from tests.store.cases.replicas import REPLICAS
from tests.store.cases.webhooks import WEBHOOKS
from tests.store.cases.worker_leases import WORKER_LEASES

UNUSED = frozenset(
    {
        "one_that_fails_undoes_nothing_of_its_neighbours",
        "a_probe_says_that_the_store_can_write",
        "large_bytes_come_back_equal",
        "a_large_task_is_known_to_be_one_and_is_read_whole",
        "a_page_ends_before_it_has_too_many_bytes_but_has_a_task",
        "a_list_of_rows_reads_no_log",
        "a_list_without_artifacts_takes_a_fraction_of_the_memory",
        "a_list_has_its_order_on_every_page",
        "contexts_are_listed_by_their_newest_task",
        "webhooks_are_found_by_the_key_that_made_them",
    }
)
"""Cases of what a simulation does not use: text that cannot be encoded, figures, sizes, operators, keys."""

ALL = (*APPENDS, *REPEATS, *LEASES, *WORKER_LEASES, *REPLICAS, *CALLS, *READS, *LISTS, *QUOTAS, *WEBHOOKS, *ENGINES)

CASES = tuple(case for case in ALL if case.__name__ not in UNUSED)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
def test_the_simulated_store_conforms(case: Case) -> None:
    loop = SimulatedLoop()

    def make(clock: Clock) -> SimulatedStore:
        server = Server(loop, Database(loop.time, clock.now_ms))
        return SimulatedStore(server, loop.main, Network(), clock)

    try:
        loop.run_until_complete(case(Bench(make, durable=False)))
    finally:
        loop.close()
