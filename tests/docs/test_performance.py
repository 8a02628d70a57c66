"""The page of promises is what `make bench` wrote, and stays one page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS_MAX = 1_000


def test_the_table_on_the_page_is_that_of_the_kept_figures_and_promises() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "bench/page.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_at_most_a_thousand_words() -> None:
    """Words have letters. Of the table only the titles count, not what was measured and promised."""
    text = (ROOT / "docs/performance.md").read_text()
    page = re.sub(r"<!--.*?-->|(?<=\|)[^|\n]*\|[^|\n]*(?=\|$)", "", text, flags=re.M)
    words = re.findall(r"\S*[A-Za-z]\S*", page)
    assert len(words) <= WORDS_MAX


def test_a_row_shows_the_ratio_our_figure_what_is_missed_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from plan import Row, at_least, at_most
    from table import line, missed

    row = Row(
        "send",
        "a message: to the SDK; on SQLite; memory; wait",
        ("dragoman", "sdk", "sdk-sqlite"),
        lambda load, kind, plan: {},
        promises=(
            at_least("rate", 8, unit="/s", to="sdk"),
            at_least("rate", 35, unit="/s", to="sdk-sqlite"),
            at_most("each_kb", 25, unit="KB", beside="sdk"),
            at_most("wait_ms", 100, unit="ms"),
        ),
    )
    kinds = {
        "dragoman": {"rate": [700.0, 800.0, 900.0], "each_kb": [24.0]},
        "sdk": {"rate": [80.0], "each_kb": [95.0]},
        "sdk-sqlite": {"rate": [40.0]},
    }
    assert line(row, kinds)[1:] == (
        "10× (800/s); **20×** (800/s); 24 KB (sdk 95 KB); –",
        "≥ 8×; ≥ 35×; ≤ 25 KB; ≤ 100 ms",
    )
    assert missed([row], {"send": kinds}) == ["send: rate **20×** (800/s), ≥ 35×", "send: wait_ms –, ≤ 100 ms"]
