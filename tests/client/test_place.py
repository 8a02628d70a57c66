"""Events that come twice are told once; those that only look alike are told."""

import pytest

from dragoman.client.place import KNOWN_MAX, Place
from dragoman.dialects.sse import ServerSentEvent


def told(*events: tuple[str, str]) -> list[str]:
    place = Place()
    return [data for event_id, data in events if not place.repeats(ServerSentEvent(data, id=event_id))]


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
    place = Place()
    for number in range(2 * KNOWN_MAX):
        assert not place.repeats(ServerSentEvent("x", id=str(number)))
    assert place.repeats(ServerSentEvent("x", id=str(2 * KNOWN_MAX - 1)))
    assert not place.repeats(ServerSentEvent("x", id="0"))
