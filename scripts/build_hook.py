"""A hook of hatchling: adds the commit of the code to both packages, and the examples to wheels.

A source distribution carries both, so that a wheel made of it has them too. Editable installs ask git, and read the
examples where they are.
"""

import re
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src", "dragoman")
BUILT = "commit.txt"
EXAMPLES = "examples"

LEFT_OUT = re.compile(
    r"(?:^|/)(?:test_[^/]*\.py|\.[^/]*|__pycache__|node_modules|data|[^/]*\.key|[^/]*\.db[^/]*)(?:$|/)"
)
"""Tests, and what running the examples leaves there where git cannot say which files are its own."""


def _examples(root: Path) -> list[str]:
    """The files of the examples but for their tests: those that git tracks, or in a source distribution all."""
    try:
        command = ["git", "-C", str(root), "ls-files", "-z", EXAMPLES]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = []
    found = [name for name in listed if (root / name).is_file()]
    found = found or [str(path.relative_to(root)) for path in (root / EXAMPLES).rglob("*") if path.is_file()]
    return sorted(name for name in found if not LEFT_OUT.search(name))


class CommitHook(BuildHookInterface[Any]):
    """Adds `dragoman/commit.txt` where git, or the source distribution, knows the commit, and `dragoman/examples`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; `version` is `editable` for an editable install."""
        root = Path(self.root)
        self._written: Path | None = None
        if version != "editable" and self.target_name == "wheel":
            build_data["force_include"].update({str(root / name): f"dragoman/{name}" for name in _examples(root)})
        if version == "editable" or (root / PACKAGE / BUILT).exists() or not (root / ".git").exists():
            return
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        try:
            commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return  # no git here: the version is shown without a commit
        with NamedTemporaryFile("w", delete=False) as file:
            file.write(commit)
        self._written = Path(file.name)
        folder = PACKAGE if self.target_name == "sdist" else Path("dragoman")
        build_data["force_include"][file.name] = str(folder / BUILT)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after each build."""
        if self._written is not None:
            self._written.unlink()
