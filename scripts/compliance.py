"""Runs the checks of the a2a-cli requirements against live agents, and writes docs/a2a-cli-compliance.md and .yaml.

Exits 1 if a check failed; the report is written all the same. Other arguments go to pytest.
"""

import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dragoman import __version__
from tests.compliance.evidence import Check
from tests.compliance.report import judge, write_markdown, write_yaml

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("tests/compliance", "tests/cli/a2a")
"""Where checks are."""


def run_checks(*words: str) -> list[Check]:
    """Run all checks, or with `--collect-only` find them, and return what they showed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.json"
        plugin = ("-p", "tests.compliance.evidence", "--evidence", str(path))
        command = [sys.executable, "-m", "pytest", "-q", "-m", "requirement", *plugin, *words, *PLACES]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        return msgspec.json.decode(path.read_bytes(), type=list[Check])


def main() -> int:
    """The exit code."""
    environment = f"{platform.system()}, Python {platform.python_version()}"
    date = datetime.now(UTC).date().isoformat()
    report = judge(run_checks(*sys.argv[1:]), date=date, version=__version__, environment=environment)
    for name, text in (("md", write_markdown(report)), ("yaml", write_yaml(report))):
        (ROOT / f"docs/a2a-cli-compliance.{name}").write_text(text, encoding="utf-8")
    for row in report.rows:
        if row.status != "pass":
            print(f"{row.requirement.id}: {row.status}: {row.note}")
    print(f"{sum(row.status == 'pass' for row in report.rows)} of {len(report.rows)} requirements pass")
    return 1 if any(row.status == "fail" for row in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
