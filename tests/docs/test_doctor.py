"""The table of docs/doctor.md has the checks of the code."""

import re
from pathlib import Path

from dragoman.doctor.checks import CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_the_table_has_every_check_in_the_order_of_the_report() -> None:
    table = PAGE.partition("## What it checks")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == [check.name for check in CHECKS]
