"""The measure itself: what is not as shown does not hold."""

import pytest

from tests.dialects.shown import holds

SHOWN = {"id": 1, "status": {"state": "completed", "at": "..."}, "parts": [{"kind": "text"}]}
MORE = frozenset({"more"})


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        ({"id": 1, "status": {"state": "completed", "at": "x"}, "parts": [{"kind": "text"}]}, True),
        (
            {"id": 1, "status": {"state": "completed", "at": "x", "more": 1}, "parts": [{"kind": "text"}], "more": 2},
            True,
        ),
        ({"id": 1, "status": {"state": "completed", "at": "x"}, "parts": [{"kind": "text"}], "other": 2}, False),
        ({"status": {"state": "completed", "at": "x"}, "id": 1, "parts": [{"kind": "text"}]}, False),
        ({"more": 2, "id": 1, "status": {"state": "completed", "at": "x"}, "parts": [{"kind": "text"}]}, False),
        ({"id": 1, "status": {"state": "completed", "at": 7}, "parts": [{"kind": "text"}]}, False),
        ({"id": 1, "status": {"state": "failed", "at": "x"}, "parts": [{"kind": "text"}]}, False),
        ({"id": 1, "status": {"state": "completed", "at": "x"}, "parts": []}, False),
        ({"id": 1, "status": {"state": "completed", "at": "x"}}, False),
        ([], False),
    ],
)
def test_keys_order_and_values_are_compared(written: object, verdict: bool) -> None:
    assert holds(SHOWN, written, MORE) is verdict


def test_a_list_of_which_nothing_is_shown_may_hold_anything() -> None:
    assert holds({"artifacts": ["..."]}, {"artifacts": [{"any": 1}, 2]}, MORE)
    assert not holds({"artifacts": ["..."]}, {"artifacts": "no list"}, MORE)
