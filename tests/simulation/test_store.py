"""The simulated store is a store: it passes the cases of `tests/store/cases` that concern the engine."""

import pytest

from dragoman.model.ids import Clock
from tests.simulation.database import Database
from tests.simulation.loop import SimulatedLoop
from tests.simulation.store import Network, Server, SimulatedStore
from tests.store.cases import (
    test_appends,
    test_calls,
    test_engines,
    test_leases,
    test_lists,
    test_quotas,
    test_reads,
    test_repeats,
    test_replicas,
    test_sleep,
    test_webhooks,
    test_worker_leases,
)
from tests.store.cases.bench import Bench, Case, cases_of

UNUSED = frozenset(
    {
        "test_one_that_fails_undoes_nothing_of_its_neighbours",
        "test_a_probe_says_that_the_store_can_write",
        "test_large_bytes_come_back_equal",
        "test_a_large_task_is_known_to_be_one_and_is_read_whole",
        "test_a_page_ends_before_it_has_too_many_bytes_but_has_a_task",
        "test_a_list_of_rows_reads_no_log",
        "test_a_list_without_artifacts_takes_a_fraction_of_the_memory",
        "test_a_list_has_its_order_on_every_page",
        "test_contexts_are_listed_by_their_newest_task",
        "test_webhooks_are_found_by_the_key_that_made_them",
        "test_a_lease_that_cannot_be_read_runs_out_and_leaves_what_ends_it",
    }
)
"""Cases of what a simulation does not use: broken text, figures, sizes, operators, keys, damaged rows."""

ALL = cases_of(
    test_appends,
    test_repeats,
    test_leases,
    test_worker_leases,
    test_replicas,
    test_sleep,
    test_calls,
    test_reads,
    test_lists,
    test_quotas,
    test_webhooks,
    test_engines,
)

CASES = [case for case in ALL if case.__name__ not in UNUSED]  # type: ignore[attr-defined]


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
