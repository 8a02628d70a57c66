"""The guide for LangGraph in production, done as it says, with the real package and servers that are killed."""

import os
import re
import signal
from pathlib import Path

from tests.docs.reader import reader
from tests.docs.test_readme import ROOT

GUIDE = ROOT / "docs" / "guides" / "langgraph-in-production.md"

SERVE = "dragoman serve examples/frameworks/expenses.py:graph --store sqlite:///expenses.db"

ROWS = "seq -f 'ride %g,12.50' 20"
"""The rows of the reader's file, each of which takes a second; the test has two."""

SERVE_HERE = f"{SERVE} --port 7870"
"""The same at the port that the commands after it name, which the reader replaces by a free one."""


def test_the_guide_works_to_the_letter(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8").replace(SERVE, SERVE_HERE)
    assert ROWS in text
    text = text.replace(ROWS, ROWS.replace("20", "2"))
    before, kill, after = text.partition("While it adds")
    assert kill
    assert SERVE_HERE in before
    at = tmp_path / "work"
    at.mkdir()
    for name, part in (("first.md", before), ("second.md", f"```sh\n{SERVE_HERE}\n```\n{after}")):
        (tmp_path / name).write_text(part, encoding="utf-8")
    with reader(tmp_path, at) as reading:
        reading.follow(tmp_path / "first.md")
        assert "Adding ride 2" in reading.printed
        assert "Pay 25.00?" in reading.printed
        os.killpg(reading.processes[0].pid, signal.SIGKILL)
        reading.processes[0].wait()
        reading.follow(tmp_path / "second.md")
        assert "Saved: receipts/receipt.txt" in reading.printed
    assert (at / "receipts" / "receipt.txt").read_text(encoding="utf-8") == "paid 25.00"


def test_the_guide_shows_the_example() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown in (ROOT / "examples" / "frameworks" / "expenses.py").read_text(encoding="utf-8")
