"""The checker of sends finds what it says that it finds."""

from pathlib import Path

import pytest

from dragoman.model.task import TaskState
from tests.drills.sends import Execution, Outcome, read_ledgers, strays, wrong_sends

DONE = Outcome("pay", TaskState.COMPLETED)
FAILED = TaskState.FAILED


@pytest.mark.parametrize(
    ("outcome", "at"),
    [
        (DONE, ["a"]),
        (Outcome("pay", FAILED, "upstream_uncertain"), []),
        (Outcome("pay", FAILED, "upstream_timeout"), ["a"]),
        (Outcome("pay", FAILED, "upstream_failed"), ["a"]),
        (Outcome("pay", FAILED, "upstream_unreachable"), []),
        (Outcome("pay", refused="Unavailable"), []),
    ],
)
def test_what_is_told_as_it_is_is_right(outcome: Outcome, at: list[str]) -> None:
    assert list(wrong_sends([outcome], [Execution(name, "pay") for name in at])) == []


@pytest.mark.parametrize(
    ("outcome", "at", "said"),
    [
        (DONE, [], "executed at no upstream"),
        (DONE, ["a", "b"], "executed at a, b"),
        (Outcome("pay", FAILED, "upstream_uncertain"), ["a", "a"], "executed at a, a"),
        (Outcome("pay", FAILED, "upstream_unreachable"), ["b"], "ended as upstream_unreachable and was executed at b"),
        (Outcome("pay", refused="Unavailable"), ["a"], "ended as Unavailable and was executed at a"),
        (Outcome("pay", TaskState.WORKING), [], "has no end"),
        (Outcome("pay"), [], "has no outcome"),
        (Outcome("other", refused="Unavailable"), ["a"], "nobody sent it"),
    ],
)
def test_what_is_told_otherwise_is_found(outcome: Outcome, at: list[str], said: str) -> None:
    (found,) = wrong_sends([outcome], [Execution(name, "pay") for name in at])
    assert said in found


def test_a_conversation_at_two_upstreams_is_found() -> None:
    here = [Execution("a", "talk 1 0"), Execution("a", "talk 1 1"), Execution("b", "talk 2 0")]
    assert list(strays(here)) == []
    assert list(strays([*here, Execution("b", "talk 1 2")])) == ["talk 1 was had at a, b"]


def test_a_ledger_is_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"text": "one"}\n{"text": "two"}\n')
    found = read_ledgers({"a": tmp_path / "a", "b": tmp_path / "none"})
    assert found == [Execution("a", "one"), Execution("a", "two")]
