"""Token buckets: how often a principal is let through, and what is remembered of how many."""

import pytest

from dragoman.engine.handlers.usage import Rates

NOW_MS = 1_800_000_000_000


def let_through(rates: Rates, principal: str, now_ms: int, tries: int) -> int:
    return sum(rates.take(principal, now_ms) == 0 for _ in range(tries))


@pytest.mark.parametrize("per_s", [1, 3, 10, 1000])
def test_a_bucket_holds_what_is_allowed_in_one_second(per_s: int) -> None:
    rates = Rates(per_s)
    assert let_through(rates, "anna", NOW_MS, per_s + 5) == per_s
    assert let_through(rates, "ben", NOW_MS, 1) == 1


def test_a_principal_may_have_a_rate_of_its_own() -> None:
    for usual in (0, 5):
        rates = Rates(usual)
        assert sum(rates.take("anna", NOW_MS, 2) == 0 for _ in range(9)) == 2
        assert rates.take("anna", NOW_MS + 499, 2) == 1
        assert rates.take("anna", NOW_MS + 500, 2) == 0
        assert let_through(rates, "ben", NOW_MS, 9) == (usual or 9)


@pytest.mark.parametrize("per_s", [1, 3, 10, 1000])
def test_over_a_long_time_it_is_the_rate(per_s: int) -> None:
    rates = Rates(per_s)
    passed = sum(let_through(rates, "anna", NOW_MS + ms, 3) for ms in range(0, 10_000, 1))
    assert passed in (11 * per_s - 1, 11 * per_s)


def test_who_is_refused_is_told_after_how_many_whole_seconds_to_come_back() -> None:
    slow, fast = Rates(1), Rates(100)
    assert let_through(slow, "anna", NOW_MS, 1) == 1
    assert let_through(fast, "anna", NOW_MS, 100) == 100
    assert slow.take("anna", NOW_MS) == 1
    assert fast.take("anna", NOW_MS) == 1
    assert slow.take("anna", NOW_MS + 999) == 1
    assert slow.take("anna", NOW_MS + 1000) == 0


def test_a_refusal_takes_no_token() -> None:
    rates = Rates(1)
    assert rates.take("anna", NOW_MS) == 0
    assert let_through(rates, "anna", NOW_MS + 500, 100) == 0
    assert rates.take("anna", NOW_MS + 1000) == 0


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    rates = Rates(2)
    assert let_through(rates, "anna", NOW_MS, 2) == 2
    earlier_ms = NOW_MS - 3_600_000
    assert rates.take("anna", earlier_ms) == 1
    assert rates.take("anna", earlier_ms + 500) == 0


def test_of_too_many_principals_those_are_forgotten_that_called_longest_ago() -> None:
    rates = Rates(1, kept=2)
    for ms, principal in enumerate(("anna", "ben", "carl")):
        assert rates.take(principal, NOW_MS + ms) == 0
    assert rates.take("ben", NOW_MS + 3) == 1
    assert rates.take("carl", NOW_MS + 3) == 1
    assert rates.take("anna", NOW_MS + 3) == 0
