"""Each bug that is put in on purpose is found within 2,500 seeds."""

import gc

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.test_simulation import report
from tests.simulation.world import Outcome, simulate

SEEDS = 2_500

FOUND_BY = {
    "ignore_the_epoch": 48,
    "publish_before_commit": 7,
    "take_over_a_lease_that_is_alive": 4,
    "renew_an_expired_heartbeat": 7,
    "repeat_an_unknown_write_without_its_id": 70,
    "let_a_question_overtake_an_answer": 76,
    "leave_holders_untold": 33,
    "leave_cancels_untold": 103,
    "leave_queued_work_untold": 51,
    "leave_free_slots_untold": 28,
    "leave_waiters_asleep_after_a_refresh": 277,
    "keep_offers_for_ever": 209,
    "let_children_outlive_their_parent": 95,
    "end_children_before_their_parent": 335,
    "keep_suspended_runs_that_are_gone": 945,
    "run_again_what_is_not_restartable": 26,
    "ignore_the_end_of_workers_leases": 386,
    "renew_workers_leases_that_have_run_out": 198,
    "take_a_word_again": 378,
    "forget_what_workers_know": 574,
    "take_words_of_earlier_leases": 48,
    "lose_the_last_event_before_a_take_over": 46,
    "owe_deliveries_before_the_commit": 4,
    "take_answers_of_branches_in_their_order": 23,
    "execute_recorded_steps_again": 4,
    "execute_steps_of_branches_again": 66,
    "sleep_again": 7,
    "wake_sleepers_early": 15,
    "forget_sleepers": 7,
    "go_on_before_a_step_is_recorded": 3,
    "keep_what_a_dead_run_said_after_a_step": 4,
    "ignore_changed_webhooks": 641,
    "keep_what_the_store_has_lost": 4,
    "continue_what_the_store_has_lost": 574,
    "let_streams_go_on_after_a_failover": 121,
    "sweep_what_is_open": 42,
    "write_state_under_an_old_epoch": 31,
    "read_memory_again": 61,
    "write_memory_again": 85,
    "charge_canceled_tasks_for_nothing": 2,
}
"""The first seed that found each bug when somebody last looked. It is tried first, which saves most of the time. Any
change of the engine may give it another history; then the others are tried."""


def find(name: str) -> Outcome | None:
    """The first simulation that a mutation makes go wrong."""
    for seed in (FOUND_BY[name], *range(1, SEEDS + 1)):
        outcome = simulate(seed, MUTATIONS[name])
        if outcome.wrong:
            return outcome
        if seed % 20 == 0:
            gc.collect()
    return None


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bug_that_was_put_in_is_found(name: str) -> None:
    outcome = find(name)
    gc.collect()  # what a bug leaves behind goes now
    assert outcome is not None, f"{name} was not found in {SEEDS} seeds"
    assert not any(error in outcome.wrong[0] for error in ("AttributeError", "TypeError")), "the bug itself is broken"
    shown = report(outcome)
    assert f"python -m tests.simulation {outcome.seed}" in shown
    assert outcome.wrong[0] in shown
