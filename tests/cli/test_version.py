"""`dragoman --version`: the version with the commit of the code that runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dragoman import __version__

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = Path(__file__).parents[2] / "src" / "dragoman"
MODULES = ("__init__.py", "cli/version.py")


def described(tree: Path) -> str:
    """The version that a package in `tree` describes: a copy of the few modules that do so."""
    for name in MODULES:
        target = tree / "src" / "dragoman" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name, target)
    (tree / "src" / "dragoman" / "cli" / "__init__.py").touch()
    script = "from dragoman.cli.version import describe_version; print(describe_version())"
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def git(tree: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=N", "-c", "user.email=n@example.org"]
    command = ["git", "-C", str(tree), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_package_shows_the_commit_that_it_was_built_from(tmp_path: Path) -> None:
    described(tmp_path)
    (tmp_path / "src" / "dragoman" / "commit.txt").write_text(COMMIT + "\n")
    assert described(tmp_path) == f"{__version__} (commit {COMMIT[:12]})"


def test_a_checkout_shows_its_commit_and_whether_the_code_was_changed(tmp_path: Path) -> None:
    assert described(tmp_path) == __version__
    git(tmp_path, "init", "-q")
    assert described(tmp_path) == __version__  # no commit yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "One")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert described(tmp_path) == f"{__version__} (commit {commit[:12]})"
    (tmp_path / "notes.txt").touch()
    assert described(tmp_path) == f"{__version__} (commit {commit[:12]})"
    (tmp_path / "src" / "dragoman" / "more.py").touch()
    assert described(tmp_path) == f"{__version__} (commit {commit[:12]}, changed)"


def test_a_package_outside_of_a_checkout_shows_the_version_alone(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", described(tmp_path))
