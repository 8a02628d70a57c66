"""The scalars of other people's answers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.client.scalars import SHOWN, USUAL_TIME, Unfit, decode_answer, state, timestamp
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.task import TaskState


@pytest.mark.parametrize("known", TaskState)
def test_a_state_is_known_in_any_spelling(known: TaskState) -> None:
    short = known.removeprefix("TASK_STATE_")
    for spelled in (known.value, short, short.lower(), short.lower().replace("_", "-"), known.value.lower()):
        assert state(spelled) is known


@pytest.mark.parametrize("other", ["", "asleep", 9, -1, True, None, {}, 1.0])
def test_what_is_no_state_is_refused(other: object) -> None:
    with pytest.raises(Unfit):
        state(other)


def test_both_spellings_of_canceled_are_known() -> None:
    assert state("cancelled") is state("TASK_STATE_CANCELLED") is state(5) is TaskState.CANCELED


@pytest.mark.parametrize(
    ("given_", "ours"),
    [
        ("2026-11-20T07:00:00.000Z", "2026-11-20T07:00:00.000Z"),
        ("2026-11-20T07:00:00Z", "2026-11-20T07:00:00Z"),
        ("2026-11-20T07:00:00.123456789Z", "2026-11-20T07:00:00.123456789Z"),
        ("2026-11-20T07:00:00.123456+00:00", "2026-11-20T07:00:00.123456Z"),
        ("2026-11-20t07:00:00.1z", "2026-11-20T07:00:00.100Z"),
        ("2026-11-20T09:00:00+02:00", "2026-11-20T07:00:00.000Z"),
        ("2026-11-20T07:00:00", "2026-11-20T07:00:00.000Z"),
        ("2026-11-20 07:00:00.5", "2026-11-20T07:00:00.500Z"),
        ("0001-01-01T00:00:00Z", ""),
        ("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.9999Z"),
        ("9999-12-31T23:59:59-01:00", ""),
        ("1969-12-31T23:59:59Z", ""),
        ("2026-13-20T07:00:00.000Z", ""),
        ("yesterday", ""),
        (None, ""),
        (1763622000, ""),
    ],
)
def test_time_stamps_are_in_utc_with_all_their_digits(given_: object, ours: str) -> None:
    assert timestamp(given_) == ours


@given(st.datetimes().map(lambda moment: moment.isoformat()) | st.text(max_size=30))
def test_a_time_stamp_is_a_time_in_utc_or_none(text: str) -> None:
    found = timestamp(text)
    assert found == "" or (found.endswith("Z") and datetime.fromisoformat(found).tzinfo is UTC)
    assert timestamp(found) == found


def test_what_came_instead_is_shown_but_not_all_of_it() -> None:
    with pytest.raises(InvalidAgentResponse) as refused:
        decode_answer(b'"' + b"x" * 5000 + b'"', state)
    assert refused.value.message.startswith("expected the state of a task")
    assert len(refused.value.message) < SHOWN + 100


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000, b"[" * 300 + b"]" * 300, b"1e999"])
def test_what_is_not_json_raises_one_thing(body: bytes) -> None:
    with pytest.raises(InvalidAgentResponse):
        decode_answer(body, lambda value: value)


@pytest.mark.parametrize("year", [1969, 1970, 2023, 2024, 2099, 2100])
def test_the_usual_form_matches_nothing_but_times(year: int) -> None:
    days = [f"{year}-{month:02}-{day:02}T23:59:59.999Z" for month in range(14) for day in range(33)]
    hours = [
        f"{year}-02-03T{hour}:{minute}:{second}.000Z" for hour in (23, 24) for minute in (59, 60) for second in (59, 60)
    ]
    matched = [each for each in (*days, *hours) if USUAL_TIME.fullmatch(each)]
    assert all(timestamp(each) == each for each in matched)
    assert bool(matched) is (1970 <= year < 2100)
