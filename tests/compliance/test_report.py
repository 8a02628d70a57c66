"""The compliance report: it fails closed, and the committed one is what the checks of today would show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.compliance import run_checks
from tests.compliance.evidence import DEMO, SCRIPTED, TOOL, Check
from tests.compliance.faults import FAULTS, PACKAGE, plant
from tests.compliance.report import MARKS, evidence_of, judge, write_markdown, write_yaml
from tests.compliance.requirements import DEFAULTS, ERROR_CODES, REQUIREMENTS, REVISION

DOCS = Path(__file__).parents[2] / "docs"
YAML = DOCS / "a2a-cli-compliance.yaml"

IDS = [each.id for each in REQUIREMENTS]
PASSED = [Check(f"test_{id_}", (id_,), DEMO, "passed") for id_ in IDS] + [
    *(Check("test_default", ("A2ACLI_DEFAULT_001",), DEMO, "passed", default=row) for row in DEFAULTS),
]


FOUND = {id_: ["it is broken"] for id_ in IDS}


def judged(checks: list[Check]) -> dict[str, str]:
    """The state of each requirement."""
    return {row.requirement.id: row.status for row in judge(checks, FOUND, date="", version="", environment="").rows}


def read_requirements(text: str) -> dict[str, dict[str, Any]]:
    """Read the requirements of the YAML form, whose values are JSON."""
    body = text.partition("\nrequirements:\n")[2].partition("\n\n")[0]
    found: dict[str, dict[str, Any]] = {}
    for line in body.splitlines():
        if (key := re.fullmatch(r"  (A2ACLI_\w+):", line)) is not None:
            found[key[1]] = {}
            continue
        name, _, value = line.strip().partition(": ")
        found[next(reversed(found))][name] = json.loads(value)
    return found


def test_the_registry_has_its_66_requirements() -> None:
    assert [sum(each.tier == tier for each in REQUIREMENTS) for tier in (1, 2, 3)] == [39, 15, 12]
    assert len(set(IDS)) == 66
    assert len(ERROR_CODES) == 8


def test_a_report_without_a_failure_claims_the_third_tier() -> None:
    report = judge(PASSED, FOUND, date="2026-01-02", version="1", environment="")
    assert set(judged(PASSED).values()) == {"pass"}
    assert report.tier_claimed == 3
    assert 'tier_1: {"total": 39, "pass": 39,' in write_yaml(report)
    page = write_markdown(report)
    assert "| **Tier claimed** | Tier 3 |" in page
    for each in REQUIREMENTS:
        assert f"| `{each.id}` | {each.words} | {each.section} | {MARKS['pass']} |" in page


@pytest.mark.parametrize(
    ("outcome", "agent", "state"),
    [("failed", DEMO, "fail"), ("skipped", DEMO, "not_measured"), ("passed", SCRIPTED, "not_measured")],
)
def test_only_a_check_that_passed_on_a_live_agent_counts(outcome: str, agent: str, state: str) -> None:
    checks = [replace(PASSED[0], outcome=outcome, agent=agent), *PASSED[1:]]
    assert judged(checks)[IDS[0]] == state
    report = judge(checks, FOUND, date="", version="", environment="")
    assert report.tier_claimed == 0
    assert [report.satisfied(tier) for tier in (1, 2, 3)] == [False, False, False]
    assert set(judged([]).values()) == {"not_measured"}


def test_a_check_that_has_not_been_seen_to_fail_shows_nothing() -> None:
    report = judge(PASSED, {**FOUND, IDS[0]: []}, date="", version="", environment="")
    assert [row.requirement.id for row in report.rows if row.status == "not_measured"] == [IDS[0]]
    assert report.tier_claimed == 0


def test_each_requirement_has_a_fault_that_can_be_planted(tmp_path: Path) -> None:
    assert {id_ for fault in FAULTS for id_ in fault.requirements} == {*IDS}
    for fault in FAULTS:
        for edit in fault.edits:
            assert (PACKAGE / edit.file).read_text(encoding="utf-8").count(edit.old) == 1, fault.words
    plant(FAULTS[0], tmp_path)
    changed = (tmp_path / "dragoman" / FAULTS[0].edits[0].file).read_text(encoding="utf-8")
    assert FAULTS[0].edits[0].new in changed
    assert FAULTS[0].edits[0].old not in changed


def test_a_check_without_an_agent_counts_where_no_agent_is_needed() -> None:
    alone = judged([replace(check, agent=TOOL) for check in PASSED])
    for each in REQUIREMENTS:
        assert alone[each.id] == ("not_measured" if each.agent else "pass")


def test_one_failure_outweighs_all_that_passed() -> None:
    assert judged([*PASSED, Check("test_more", (IDS[0],), SCRIPTED, "failed")])[IDS[0]] == "fail"


def test_the_defaults_pass_only_with_all_of_their_rows() -> None:
    assert judged(PASSED[:-1])["A2ACLI_DEFAULT_001"] == "not_measured"


def test_the_committed_report_has_every_requirement() -> None:
    found = read_requirements(YAML.read_text(encoding="utf-8"))
    assert list(found) == IDS
    assert f'spec_revision: "{REVISION}"' in YAML.read_text(encoding="utf-8")
    for each in REQUIREMENTS:
        row = found[each.id]
        assert (row["tier"], row["area"], row["spec"]) == (each.tier, each.area, each.section)
        assert row["status"] in MARKS
        assert (row["note"] is None) == (row["status"] == "pass")
        planted = {fault.words for fault in FAULTS if each.id in fault.requirements}
        assert {*(row["planted_faults"] or ())} <= planted
        assert row["planted_faults"] or row["status"] != "pass"


def test_the_committed_report_rests_on_the_checks_of_today() -> None:
    checks = run_checks("--collect-only", "-q")
    for id_, row in read_requirements(YAML.read_text(encoding="utf-8")).items():
        today = evidence_of(check for check in checks if id_ in check.requirements)
        if row["status"] != "fail":
            assert tuple(row["evidence"] or ()) == today, f"{id_}: run `make compliance`"
