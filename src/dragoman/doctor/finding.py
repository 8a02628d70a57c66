"""Findings: what a check says of an agent, in four colours.

Invariant: red is a MUST of the specification that is broken, or a danger; yellow a SHOULD, or something to improve;
green was seen to be right. A check that was not measured is grey, and never green. One cause is one finding: where a
check says that nothing can work, the checks that follow from it say nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from dragoman.client.credentials import redact
from dragoman.doctor.observation import Exchange, Observations


class Color(StrEnum):
    """The colours, the worst first."""

    RED = "red"
    YELLOW = "yellow"
    GREY = "grey"
    GREEN = "green"


class Verdict(Struct, frozen=True):
    """An observation of a check. `where` is the endpoint, empty for the whole agent.

    `fix` is what to change in this case, empty: what the check says. `exchange` is the request and the answer that show
    it, None if no single one does.
    """

    color: Color
    observed: str
    where: str = ""
    fix: str = ""
    exchange: Exchange | None = None


def pass_or_fail(passed: bool, observed: str) -> tuple[Color, str]:
    """Green or red, with what was observed."""
    return Color.GREEN if passed else Color.RED, observed


class Check(Struct, frozen=True, kw_only=True):
    """A row of the doctor's table. `section` is where the rule comes from; `fix` is what to change if it is broken.

    `judge` returns no verdict if the check does not apply. `must`: the specification says MUST, so that an agent that
    fails is not conformant. `hides` are the checks that say nothing at a place where this one is red or yellow, since
    that is the cause; `EVERYTHING`: all others there.
    """

    name: str
    section: str
    fix: str
    judge: Callable[[Observations], Iterable[Verdict]]
    must: bool = False
    hides: frozenset[str] = frozenset()


EVERYTHING = frozenset({"*"})
"""Hides every other check at the same endpoint."""


class Finding(Struct, frozen=True, kw_only=True):
    """A verdict with its check's name and section; `fix` is None if nothing is to be changed."""

    check: str
    color: Color
    where: str | None
    observed: str
    section: str
    fix: str | None


class Evidence(Struct, frozen=True):
    """A finding, and the exchange that shows it."""

    finding: Finding
    exchange: Exchange | None


Fixes = Callable[[str], str | None]
"""Returns how the agent's framework is told to do what a check wants, None if that is not known."""


def no_fixes(check: str) -> str | None:
    """Know nothing of the agent's framework."""
    return None


def judge_with_evidence(
    checks: Iterable[Check], seen: Observations, fixes: Fixes = no_fixes, secrets: Sequence[str] = ()
) -> list[Evidence]:
    """Return the findings of all checks in their order, one for each cause, each with its exchange.

    An agent may send back what it was shown, so `secrets` are taken out of all texts.
    """
    said = [(check, verdict) for check in checks for verdict in check.judge(seen)]
    causes = [(check, verdict.where) for check, verdict in said if check.hides and verdict.color in _WRONG]
    return [
        Evidence(
            Finding(
                check=check.name,
                color=verdict.color,
                where=verdict.where or None,
                observed=redact(verdict.observed, secrets),
                section=check.section,
                fix=redact(verdict.fix or fixes(check.name) or check.fix, secrets) if verdict.color in _WRONG else None,
            ),
            verdict.exchange,
        )
        for check, verdict in said
        if not any(_hides(cause, where, check, verdict) for cause, where in causes)
    ]


def judge_all(
    checks: Iterable[Check], seen: Observations, fixes: Fixes = no_fixes, secrets: Sequence[str] = ()
) -> list[Finding]:
    """Return the findings of all checks in their order, one for each cause; see `judge_with_evidence`."""
    return [each.finding for each in judge_with_evidence(checks, seen, fixes, secrets)]


_WRONG = (Color.RED, Color.YELLOW)

_APART = ("endpoint-private", "tls", "web-pages")
"""Checks of the way to an endpoint: what is said of the endpoint itself does not hide them."""


def _hides(cause: Check, where: str, check: Check, verdict: Verdict) -> bool:
    if cause is check or cause.name == check.name or (where and verdict.where != where):
        return False
    return check.name in cause.hides or (cause.hides is EVERYTHING and bool(where) and check.name not in _APART)
