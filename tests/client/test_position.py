"""Events that come twice are told once; those that only look alike are told."""

import pytest

from dragoman.client.transport import KNOWN_MAX, StreamPosition, succeeds


def told(*events: tuple[str, str]) -> list[str]:
    place = StreamPosition()
    return [data for event_id, data in events if not place.repeats(event_id, data)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("1", "a"), ("2", "b"), ("2", "b"), ("1", "a"), ("3", "c")], "abc"),
        ([("", "a"), ("", "a")], "aa"),  # without numbers nobody can tell
        ([("7", "a"), ("7", "a")], "aa"),  # one id for all events is no number
        ([("1", "a"), ("2", "b"), ("1", "c"), ("2", "d")], "abcd"),  # numbered from 1 again
    ],
)
def test_only_what_has_the_number_and_the_data_of_another_repeats_it(
    events: list[tuple[str, str]], expected: str
) -> None:
    assert "".join(told(*events)) == expected


def test_what_is_remembered_is_bounded() -> None:
    place = StreamPosition()
    for number in range(2 * KNOWN_MAX):
        assert not place.repeats(str(number), "x")
    assert place.repeats(str(2 * KNOWN_MAX - 1), "x")
    assert not place.repeats("0", "x")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("7", "8", True),
        ("7", "8.1", True),
        ("8.1", "8.2", True),
        ("8.2", "8", True),
        ("7", "9", False),
        ("7", "7", False),
        ("7", "8.2", False),
        ("8.1", "8.3", False),
        ("8.1", "9", False),
        ("7", "1", False),
        ("", "1", False),
        ("7", "", False),
        ("a", "b", False),
        ("1766000000000", "1766000000001", False),  # times, as the JavaScript SDK numbers
    ],
)
def test_only_the_next_number_shows_that_nothing_is_missing(before: str, after: str, expected: bool) -> None:
    assert succeeds(after, before) is expected
