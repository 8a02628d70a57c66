"""A smoke check of conformance: the doctor's checks of what the specification says with MUST, rule by rule.

Invariant: a rule passes only if it was seen to hold at every endpoint that was asked; what was not measured is said so,
and never counted as passed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dragoman.cli.a2a.text import field
from dragoman.doctor.finding import Check, Color, Finding, judge_all
from dragoman.doctor.identity import ServerIdentity
from dragoman.doctor.observation import Observations

Result = Literal["pass", "fail", "not measured"]


class RuleResult(Struct, frozen=True, kw_only=True):
    """A rule with its result; `observed` says what broke it, or why it was not measured."""

    id: str
    section: str
    result: Result
    observed: str | None = None


def judge_rules(checks: Iterable[Check], seen: Observations, secrets: Sequence[str] = ()) -> list[RuleResult]:
    """Return the result of every rule with MUST, in the order of the checks.

    A rule that only follows from another broken one is not measured.
    """
    rules = [check for check in checks if check.must]
    findings = judge_all(checks, seen, secrets=secrets)
    return [_judge(rule, [each for each in findings if each.check == rule.name]) for rule in rules]


def _judge(check: Check, found: Sequence[Finding]) -> RuleResult:
    broken = [each for each in found if each.color is Color.RED]
    held = [each for each in found if each.color in (Color.GREEN, Color.YELLOW)]
    result: Result = "fail" if broken else "pass" if held else "not measured"
    said = [f"{each.where}: {each.observed}" if each.where else each.observed for each in broken or found]
    observed = None if result == "pass" else "; ".join(said) or "nothing that was asked shows it"
    return RuleResult(id=check.name, section=check.section, result=result, observed=observed)


def conformance_value(seen: Observations, identity: ServerIdentity, rules: Sequence[RuleResult]) -> dict[str, Any]:
    """Return the summary as one JSON object."""
    return {
        "agent": seen.agent,
        "server": identity.name,
        "conformant": not any(rule.result == "fail" for rule in rules),
        "counts": dict(_counts(rules)),
        "rules": [msgspec.to_builtins(rule) for rule in rules],
    }


def conformance_lines(seen: Observations, identity: ServerIdentity, rules: Sequence[RuleResult]) -> Iterator[str]:
    """Yield the summary as text, the broken rules first."""
    yield field("Agent", seen.agent)
    yield field("Server", identity.name)
    yield field("Result", ", ".join(f"{count} {result}" for result, count in _counts(rules)))
    for result, _ in _counts(rules):
        for rule in rules:
            if rule.result == result:
                observed = f": {rule.observed}" if rule.observed else ""
                yield field(result.capitalize(), f"{rule.id}{observed} ({rule.section})")


def _counts(rules: Iterable[RuleResult]) -> list[tuple[Result, int]]:
    results = [rule.result for rule in rules]
    order: tuple[Result, ...] = ("fail", "not measured", "pass")
    return [(result, results.count(result)) for result in order]
