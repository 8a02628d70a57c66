"""When a failed delivery is tried again."""

import pytest

from dragoman.push.schedule import DELAYS_S, Schedule, retry_after_s

NOW_MS = 1_800_000_000_000  # Fri, 15 Jan 2027 08:00:00 GMT


def test_eight_attempts_are_made_and_the_ninth_is_not() -> None:
    assert [Schedule().delay_s(attempts, 0.5) for attempts in range(8)] == [1, 5, 30, 120, 600, 3600, 21600, None]


def test_delays_are_off_by_a_fifth_at_most_either_way() -> None:
    for attempts, delay_s in enumerate(DELAYS_S):
        assert Schedule().delay_s(attempts, 0.0) == pytest.approx(delay_s * 0.8)
        assert Schedule().delay_s(attempts, 1.0) == pytest.approx(delay_s * 1.2)


@pytest.mark.parametrize(("asked_s", "waited_s"), [(0, 5), (4, 5), (90, 90), (10**9, 21600)])
def test_what_a_receiver_asks_for_is_waited_for_up_to_six_hours(asked_s: float, waited_s: float) -> None:
    assert Schedule().delay_s(1, 0.5, asked_s) == waited_s


def test_a_receiver_that_asks_for_time_gets_no_more_attempts_than_others() -> None:
    assert Schedule().delay_s(7, 0.5, 60) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120),
        (" 7 ", 7),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("9" * 400, 999_999_999),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
        ("Fri, 15 Jan 2027 08:01:00 -0000", 60),
        ("Friday, 15-Jan-27 08:02:00 GMT", 120),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("Fri, 99 Jan 2027 07:00:00 GMT", None),
        ("Fri, 15 Jan 99999999999999999999 07:00:00 GMT", None),
        ("Fri, 15 Jan 2027 07:00:00 +99999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_or_nothing(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW_MS) == seconds
