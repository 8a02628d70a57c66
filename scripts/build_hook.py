"""A hook of hatchling: writes the commit of the code into wheels and source distributions.

A source distribution carries the file, so that a wheel made of it has the commit too. Editable installs ask git.
"""

import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src", "dragoman")
BUILT = "commit.txt"


class CommitHook(BuildHookInterface[Any]):
    """Adds `dragoman/commit.txt` where git, or the source distribution, knows the commit."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; `version` is `editable` for an editable install."""
        root = Path(self.root)
        self._written: Path | None = None
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
