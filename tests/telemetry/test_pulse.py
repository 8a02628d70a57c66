"""Recent figures, from samples of the counts."""

import pytest

from dragoman.telemetry.counts import Counts, RequestCounts
from dragoman.telemetry.histogram import COMMIT_BOUNDS_S, Histogram
from dragoman.telemetry.pulse import MINUTES, STEPS_A_MINUTE, Pulse, Quantiles, quantiles

NONE = Histogram(COMMIT_BOUNDS_S)


def pass_minutes(pulse: Pulse, minutes: int = 1) -> None:
    for _ in range(minutes * STEPS_A_MINUTE):
        pulse.sample()


def test_each_full_minute_has_its_tasks_and_requests() -> None:
    counts = Counts()
    pulse = Pulse(counts, NONE)
    assert (pulse.tasks_a_minute(), pulse.requests_a_minute()) == ({}, ())
    requests = counts.requests["SendMessage", "http"] = RequestCounts()
    for ends in (1, 0, 3):
        for _ in range(ends):
            counts.submitted("echo")
            counts.ended("echo", "completed", 40)
            requests.answered(0.2, "ok")
        pass_minutes(pulse)
    counts.ended("echo", "failed", 5)
    assert pulse.tasks_a_minute() == {"completed": (1, 0, 3), "submitted": (1, 0, 3)}
    assert pulse.requests_a_minute() == (1, 0, 3)


def test_operators_requests_are_left_out() -> None:
    counts = Counts()
    pulse = Pulse(counts, NONE)
    counts.requests["admin", "admin"] = requests = RequestCounts()
    requests.answered(0.2, "ok")
    requests.first_events.add(0.003)
    pass_minutes(pulse)
    assert (pulse.requests_a_minute(), pulse.first_events()) == ((0,), None)


def test_an_hour_is_kept() -> None:
    counts = Counts()
    pulse = Pulse(counts, NONE)
    for _ in range(MINUTES + 30):
        counts.submitted("echo")
        pass_minutes(pulse)
    assert pulse.tasks_a_minute() == {"submitted": (1,) * MINUTES}


def test_times_are_those_of_the_last_five_minutes() -> None:
    counts = Counts()
    pulse = Pulse(counts, NONE)
    assert pulse.completions() is None
    for took_ms in [40] * 90 + [9_000] * 10:
        counts.ended("echo", "completed", took_ms)
    assert pulse.completions() == Quantiles(0.05, 10.0), "also before the next sample"
    pass_minutes(pulse, 6)
    assert pulse.completions() is None
    counts.requests["SendStreamingMessage", "http"] = requests = RequestCounts()
    requests.first_events.add(0.003)
    assert pulse.first_events() == Quantiles(0.005, 0.005)


def test_commits_are_those_of_five_minutes_and_webhook_calls_of_an_hour() -> None:
    counts, commits = Counts(), Histogram(COMMIT_BOUNDS_S)
    counts.pushed("dead")
    pulse = Pulse(counts, commits)
    assert (pulse.commits(), pulse.webhook_calls()) == (None, {"dead": 0})
    commits.add(0.002)
    counts.pushed("delivered")
    counts.pushed("delivered")
    assert (pulse.commits(), pulse.webhook_calls()) == (Quantiles(0.0025, 0.0025), {"dead": 0, "delivered": 2})
    pass_minutes(pulse, 6)
    assert (pulse.commits(), pulse.webhook_calls()) == (None, {"dead": 0, "delivered": 2})
    pass_minutes(pulse, MINUTES)
    assert pulse.webhook_calls() == {"dead": 0, "delivered": 0}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([0, 0, 0], None),
        ([1, 0, 0], Quantiles(1.0, 1.0)),
        ([50, 50, 0], Quantiles(1.0, 2.0)),
        ([0, 0, 4], Quantiles(2.0, 2.0)),
    ],
)
def test_quantiles_are_upper_bounds_of_buckets(counts: list[int], expected: Quantiles | None) -> None:
    assert quantiles((1.0, 2.0), counts) == expected
