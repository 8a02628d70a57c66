"""Runs the checks of the a2a-cli requirements against live agents, and writes docs/a2a-cli-compliance.yaml.

The same as a page is written to build/a2a-cli-compliance.md.

Then it plants faults in copies of the package, one at a time, and counts a requirement only if a check of it has
failed on one. Exits 1 if a check failed that should not have; the report is written all the same. Other arguments go
to pytest.
"""

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dragoman import __version__
from tests.compliance.evidence import JAVASCRIPT, PYTHON, Check
from tests.compliance.faults import FAULTS, Fault, plant
from tests.compliance.report import judge, write_markdown, write_yaml

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("tests/compliance", "tests/cli/a2a")
"""Where checks are."""

ELSEWHERE = f"{PYTHON} or {JAVASCRIPT}"
"""The agents on which no fault is looked for: the others show it, and start faster."""

AT_ONCE = 2

FAULT_TIMEOUT_S = 300.0

NO_FAULT = Fault("no fault", (), ())


def run_checks(*words: str, package: Path = ROOT, timeout_s: float | None = None) -> list[Check]:
    """Run all checks, or those among the words, and return what they showed. With `--collect-only` they are found.

    `package` is a folder from which the package is imported. Checks that take longer than `timeout_s` show nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.json"
        path.write_text("[]")
        plugin = ("-p", "tests.compliance.evidence", "--evidence", str(path))
        places = () if any("::" in word for word in words) else PLACES
        command = [sys.executable, "-m", "pytest", "-q", "-m", "requirement", *plugin, *words, *places]
        environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
        quiet = None if package == ROOT else subprocess.DEVNULL
        try:
            subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=quiet, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return []
        return msgspec.json.decode(path.read_bytes(), type=list[Check])


def look_for(fault: Fault, checks: Sequence[Check]) -> list[str]:
    """Return the requirements of a planted fault whose checks have failed on it, or all that failed without a fault."""
    ids = {*fault.requirements} or {id_ for check in checks for id_ in check.requirements}
    tests = sorted({check.test for check in checks if ids.intersection(check.requirements)})
    with tempfile.TemporaryDirectory() as folder:
        plant(fault, Path(folder))
        words = ("-k", f"not ({ELSEWHERE})", *(("-x",) if fault.edits else ()), *tests)
        ran = run_checks(*words, package=Path(folder), timeout_s=FAULT_TIMEOUT_S)
    failed = {id_ for check in ran if check.outcome == "failed" for id_ in check.requirements}
    if not fault.edits and not any(check.outcome == "passed" for check in ran):
        return sorted(ids)  # nothing ran
    return sorted(ids & failed)


def find_faults(checks: Sequence[Check]) -> Mapping[str, list[str]]:
    """Plant each fault, and return those that the checks of each requirement have found."""
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for fault, ids in zip(FAULTS, pool.map(lambda fault: look_for(fault, checks), FAULTS), strict=True):
            missed = sorted({*fault.requirements} - {*ids})
            print(f"{fault.words}: {'found' if not missed else f'NOT FOUND by {missed}'}", flush=True)
            for id_ in ids:
                found.setdefault(id_, []).append(fault.words)
    return found


def main() -> int:
    """The exit code."""
    environment = f"{platform.system()}, Python {platform.python_version()}"
    date = datetime.now(UTC).date().isoformat()
    checks = run_checks(*sys.argv[1:])
    if broken := look_for(NO_FAULT, checks):
        print(f"checks fail on a copy without a fault, so that planted ones show nothing: {', '.join(broken)}")
    found = {} if broken else find_faults(checks)
    report = judge(checks, found, date=date, version=__version__, environment=environment)
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "docs/a2a-cli-compliance.yaml").write_text(write_yaml(report), encoding="utf-8")
    (ROOT / "build/a2a-cli-compliance.md").write_text(write_markdown(report), encoding="utf-8")
    for row in report.rows:
        if row.status != "pass":
            print(f"{row.requirement.id}: {row.status}: {row.note}")
    print(f"{sum(row.status == 'pass' for row in report.rows)} of {len(report.rows)} requirements pass")
    return 1 if broken or any(row.status == "fail" for row in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
