"""Findings: what a check says of an agent, in four colours.

Invariant: red is a MUST of the specification that is broken, or a danger; yellow a SHOULD, or something to improve;
green was seen to be right. A check that was not measured is grey, and never green.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from dragoman.doctor.observation import Observations


class Color(StrEnum):
    """The colours, the worst first."""

    RED = "red"
    YELLOW = "yellow"
    GREY = "grey"
    GREEN = "green"


class Verdict(Struct, frozen=True):
    """An observation of a check. `where` is the endpoint, empty for the whole agent."""

    color: Color
    observed: str
    where: str = ""


def pass_or_fail(passed: bool, observed: str) -> tuple[Color, str]:
    """Green or red, with what was observed."""
    return Color.GREEN if passed else Color.RED, observed


class Check(Struct, frozen=True, kw_only=True):
    """A row of the doctor's table. `section` is where the rule comes from; `fix` is what to change if it is broken.

    `judge` returns no verdict if the check does not apply. `must`: the specification says MUST, so that an agent that
    fails is not conformant.
    """

    name: str
    section: str
    fix: str
    judge: Callable[[Observations], Iterable[Verdict]]
    must: bool = False


class Finding(Struct, frozen=True, kw_only=True):
    """A verdict with its check's name and section; `fix` is None if nothing is to be changed."""

    check: str
    color: Color
    where: str | None
    observed: str
    section: str
    fix: str | None


def judge_all(checks: Iterable[Check], seen: Observations) -> list[Finding]:
    """Return the findings of all checks, in their order."""
    return [
        Finding(
            check=check.name,
            color=verdict.color,
            where=verdict.where or None,
            observed=verdict.observed,
            section=check.section,
            fix=check.fix if verdict.color in (Color.RED, Color.YELLOW) else None,
        )
        for check in checks
        for verdict in check.judge(seen)
    ]
