"""The compliance report: what the checks of a run show for each requirement, as Markdown and as YAML.

Invariant: fail-closed. A requirement passes only if a check has passed against a live agent, none has failed, and a
check of it has failed on a planted fault. One that no check exercised, or only a scripted agent, or whose checks have
not been seen to fail, is `not_measured`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.compliance.evidence import AGENTS, TOOL, Check
from tests.compliance.requirements import (
    DEFAULTS,
    ERROR_CODES,
    REQUIREMENTS,
    REVISION,
    SPECIFICATION,
    TIERS,
    Requirement,
)

MARKS = {
    "pass": "✅ Pass",
    "partial": "◐ Partial",
    "fail": "❌ Fail",
    "not_measured": "⊘ Not measured",
    "na": "— N/A",
}
"""The closed vocabulary of states, with the marks of the Markdown form."""

DEFAULT_001 = "A2ACLI_DEFAULT_001"


class Row(Struct, frozen=True):
    """The result of a run for one requirement. `evidence` are its checks, each with the agents that it ran against.

    `faults` are the planted faults on which a check of it has failed.
    """

    requirement: Requirement
    status: str
    note: str = ""
    evidence: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Report(Struct, frozen=True):
    """A whole report. `defaults` and `error_codes` say which of them were shown; `date` is ISO 8601."""

    date: str
    version: str
    environment: str
    rows: tuple[Row, ...]
    defaults: Mapping[str, bool]
    error_codes: Mapping[str, bool]

    @property
    def tier_claimed(self) -> int:
        """The highest tier that is satisfied with all below it; 0 for none."""
        return next((tier - 1 for tier in TIERS if not self.satisfied(tier)), max(TIERS))

    def satisfied(self, tier: int) -> bool:
        """Whether all requirements of the tier, and of those below it, are met."""
        rows = [row for row in self.rows if row.requirement.tier <= tier]
        return bool(rows) and all(row.status in ("pass", "na") for row in rows)

    def counts(self, tier: int) -> dict[str, int]:
        """How many requirements of the tier are in each state."""
        states = [row.status for row in self.rows if row.requirement.tier == tier]
        return {state: states.count(state) for state in MARKS}

    @property
    def transports(self) -> list[str]:
        """The transports that the run exercised."""
        passed = {row.requirement.id for row in self.rows if row.status == "pass"}
        shown = {"A2ACLI_TX_004": ["HTTP+JSON", "JSON-RPC"], "A2ACLI_TX_005": ["gRPC"]}
        return [name for id_, names in shown.items() if id_ in passed for name in names]


def judge(
    checks: Sequence[Check], found: Mapping[str, Sequence[str]], *, date: str, version: str, environment: str
) -> Report:
    """Judge the checks of a run. `found` has the planted faults that the checks of each requirement have found."""
    of = {each.id: [check for check in checks if each.id in check.requirements] for each in REQUIREMENTS}
    defaults = {row: _shown(check for check in checks if check.default == row) for row in DEFAULTS}
    codes = {code: _shown(check for check in checks if check.error_code == code) for code in ERROR_CODES}
    rows = tuple(_judge_one(each, of[each.id], tuple(found.get(each.id, ())), defaults) for each in REQUIREMENTS)
    return Report(date, version, environment, rows, defaults, codes)


def _judge_one(
    requirement: Requirement, checks: Sequence[Check], faults: tuple[str, ...], defaults: Mapping[str, bool]
) -> Row:
    evidence = evidence_of(checks)
    failed = sorted({check.test for check in checks if check.outcome == "failed"})
    if failed:
        return Row(requirement, "fail", f"failed: {', '.join(failed)}", evidence, faults)
    counting = {*AGENTS} if requirement.agent else {*AGENTS, TOOL}
    if not any(check.outcome == "passed" and check.agent in counting for check in checks):
        note = "no check ran against a live agent" if checks else "no check exercises it"
        return Row(requirement, "not_measured", note, evidence, faults)
    missing = [DEFAULTS[row] for row, shown in defaults.items() if not shown]
    if requirement.id == DEFAULT_001 and missing:
        return Row(requirement, "not_measured", f"not shown: {', '.join(missing)}", evidence, faults)
    if not faults:
        return Row(requirement, "not_measured", "none of its checks has failed on a planted fault", evidence)
    return Row(requirement, "pass", evidence=evidence, faults=faults)


def evidence_of(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return the names of checks in order, each with the agents against which it passed, or stood to be run."""
    agents: dict[str, set[str]] = {}
    for check in checks:
        found = agents.setdefault(check.test, set())
        if check.outcome in ("passed", "collected"):
            found.add(check.agent)
    return tuple(f"{test} ({', '.join(sorted(found))})" for test, found in sorted(agents.items()))


def _shown(checks: Iterable[Check]) -> bool:
    outcomes = {check.outcome for check in checks if check.agent in AGENTS or check.agent == TOOL}
    return "passed" in outcomes and "failed" not in outcomes


def write_yaml(report: Report) -> str:
    """Return the report as YAML, in the form of the registry's Appendix A. Every value is also JSON."""
    return "\n".join(_yaml_lines(report)) + "\n"


def _identity(report: Report) -> dict[str, Any]:
    return {
        "tool": "dragoman",
        "tool_version": report.version,
        "language": "Python",
        "repository": "this repository",
        "maintainer": "the authors of Dragoman",
        "report_date": report.date,
        "spec_version": SPECIFICATION,
        "spec_revision": REVISION,
        "a2a_versions": ["1.0", "0.3"],
        "agent_tested": "; ".join(AGENTS.values()),
        "agent_tck_conformant": "unknown",
        "transports_covered": report.transports,
        "tier_claimed": report.tier_claimed,
        "designation": "conformant",
    }


def _yaml_lines(report: Report) -> Iterator[str]:
    yield "# Written by `make compliance`."
    yield "report:"
    for key, value in _identity(report).items():
        yield f"  {key}: {_json(value)}"
    yield ""
    yield "summary:"
    for tier in TIERS:
        counts = report.counts(tier)
        summary = {"total": sum(counts.values()), **counts, "satisfied": report.satisfied(tier)}
        yield f"  tier_{tier}: {_json(summary)}"
    yield ""
    yield "requirements:"
    for row in report.rows:
        yield f"  {row.requirement.id}:"
        values = {
            "tier": row.requirement.tier,
            "area": row.requirement.area,
            "spec": row.requirement.section,
            "requirement": row.requirement.words,
            "status": row.status,
            "note": row.note or None,
            "evidence": list(row.evidence) or None,
            "planted_faults": list(row.faults) or None,
        }
        for key, value in values.items():
            yield f"    {key}: {_json(value)}"
    yield ""
    yield "default_001_breakdown:"
    for key, shown in report.defaults.items():
        yield f"  {key}: {_json({'shipped': _word(shown), 'overridable': _word(shown), 'note': None})}"
    yield ""
    yield "error_codes:"
    for code, shown in report.error_codes.items():
        yield f"  {code}: {_json({'emitted': _word(shown), 'note': None})}"
    yield ""
    yield "attestation:"
    yield f"  reported_by: {_json('`make compliance`, a run of the tests of this repository')}"
    yield f"  date: {_json(report.date)}"
    yield f"  statement: {_json('The tier claimed reflects the evidence recorded above.')}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _word(shown: bool) -> str:
    return "yes" if shown else "no"


def write_markdown(report: Report) -> str:
    """Return the report as Markdown, in the form of the specification's `COMPLIANCE.md`."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: Report) -> Iterator[str]:
    claimed = f"Tier {report.tier_claimed}" if report.tier_claimed else "none"
    yield from (
        "# Compliance with the a2a-cli specification",
        "",
        "`make compliance` writes this page, and docs/a2a-cli-compliance.yaml with the same. A requirement passes only",
        "if a check of it has passed against a live agent, none has failed, and a check of it has failed on a fault",
        "that was planted in a copy of the tool.",
        "",
        "## 1. Summary",
        "",
        "| Field | Value |",
        "| --- | --- |",
        "| Tool name | `dragoman` |",
        f"| Tool version | {report.version} |",
        "| Implementation language | Python |",
        "| Repository | this one |",
        "| Maintainer / contact | the authors of Dragoman |",
        f"| Report date | {report.date} |",
        f"| Specification version targeted | {SPECIFICATION} |",
        f"| Specification revision (Last updated) | {REVISION} |",
        f"| **Tier claimed** | {claimed} |",
        "| A2A protocol version(s) | 1.0; on request 0.3 |",
        f"| Agents exercised against | {'; '.join(AGENTS.values())} |",
        "| Are those agents TCK-conformant? | unknown |",
        f"| Transports covered | {', '.join(report.transports) or 'none'} |",
        "| Designation | `conformant` |",
        "",
        "## 2. Legend",
        "",
        "| Mark | Meaning |",
        "| --- | --- |",
        "| `✅ Pass` | implemented, and shown against a live agent |",
        "| `◐ Partial` | implemented in part |",
        "| `❌ Fail` | not implemented, or not as specified |",
        "| `⊘ Not measured` | applies, but no live agent showed it; it is no pass |",
        "| `— N/A` | does not apply to this tool |",
        "",
        "## 3. Results at a glance",
        "",
        "| Tier | Requirements | `✅` | `◐` | `❌` | `⊘` | `—` | Tier satisfied? |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for tier, name in TIERS.items():
        counts = report.counts(tier)
        cells = " | ".join(str(counts[state]) for state in MARKS)
        yield f"| Tier {tier} — {name} | {sum(counts.values())} | {cells} | {_word(report.satisfied(tier))} |"
    for number, (tier, name) in enumerate(TIERS.items(), start=4):
        yield from ("", f"## {number}. Tier {tier} — {name}", "")
        yield from ("| ID | Requirement | Spec § | Status | Notes |", "| --- | --- | --- | --- | --- |")
        for row in report.rows:
            if (each := row.requirement).tier == tier:
                yield f"| `{each.id}` | {each.words} | {each.section} | {MARKS[row.status]} | {_notes(row)} |"
        if tier == 1:
            yield from ("", "### 4a. `A2ACLI_DEFAULT_001` breakdown", "")
            yield from ("| Default (§4.5) | Shipped? | Overridable by flag? |", "| --- | --- | --- |")
            for key, words in DEFAULTS.items():
                yield f"| {words} | {_word(report.defaults[key])} | {_word(report.defaults[key])} |"
    yield from (
        "",
        "## 7. Test evidence",
        "",
        "- **How the tool was exercised:** `make compliance`. The YAML names each check with its agents.",
        f"- **Environment:** {report.environment}",
        "- **Planted faults** (`tests/compliance/faults.py`) are put into a copy of the tool, one at a time. The notes",
        "  name those on which a check of the requirement has failed. All checks pass on a copy without a fault.",
        "- **Scripted agents** show what no official server does on demand, such as a card with every kind of",
        "  credential. They count only against a requirement.",
        "",
        "## 8. Error code coverage",
        "",
        "| Code | Emitted |",
        "| --- | --- |",
    )
    for code, shown in report.error_codes.items():
        yield f"| `{code}` | {_word(shown)} |"
    yield from ("", "## 9. Attestation", "")
    yield f"Reported by `make compliance` on {report.date}. The tier claimed reflects the evidence above."


def _notes(row: Row) -> str:
    checks = len(row.evidence)
    told = row.note or f"{checks} {'check' if checks == 1 else 'checks'}"
    return f"{told}; seen to fail when {', or '.join(row.faults)}" if row.faults else told
