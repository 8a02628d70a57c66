"""The table of checks, which docs/doctor.md names, has the checks of the code."""

import re

from dragoman.cli.topics import load_table
from dragoman.doctor.checks import CHECKS
from tests.docs.test_readme import ROOT


def test_the_table_has_every_check_in_the_order_of_the_report() -> None:
    sections = load_table("doctor-checks").sections
    assert [row[0].strip("`") for section in sections for row in section.rows] == [check.name for check in CHECKS]


def test_the_page_says_what_is_sent_with_active_and_names_a_check_of_each_table() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:Red|Yellow|Grey|Fail|Not measured): ([a-z-]+):", page, re.MULTILINE))
    assert named <= {check.name for check in CHECKS}
    assert named
