"""The checks of `dragoman doctor`, from the doctor's own table."""

from collections.abc import Iterable

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.doctor.checks import CHECKS
from dragoman.doctor.checks.behavior import BEHAVIOR_CHECKS
from dragoman.doctor.finding import Check


def make_table() -> TopicTable:
    """Each check with its rule and with what the doctor advises where an agent breaks it."""
    active = frozenset(check.name for check in BEHAVIOR_CHECKS)
    return TopicTable(
        ("Check", "Rule", "What the agent should do"),
        (
            Section("Without a message", _rows(check for check in CHECKS if check.name not in active)),
            Section("With --active", _rows(check for check in CHECKS if check.name in active)),
        ),
    )


def _rows(checks: Iterable[Check]) -> tuple[tuple[str, ...], ...]:
    return tuple((f"`{check.name}`", check.section + (", MUST" if check.must else ""), check.fix) for check in checks)
