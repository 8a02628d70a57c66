"""Checks that git tracks every module, and that lock files hold versions and hashes, and name no registry.

Exits 1 with one line for every finding.
"""

import re
import subprocess
import sys
from pathlib import Path

HOST = re.compile(r"https?://|^--(index|extra-index|find-links)|\"resolved\":", re.MULTILINE)
"""A place to download from: lock files hold versions and hashes, the place is the user's configuration."""


def hosts(root: Path) -> list[str]:
    """One line for every lock file under `root` that says where packages come from."""
    lists = [*(root / "tests").glob("**/package-lock.json"), *root.glob("*/package-lock.json")]
    packages = [path for path in lists if "node_modules" not in path.parts and path.exists()]
    locks = [*(root / "requirements").glob("*.txt"), *packages]
    banned = [root / "uv.lock", root / "pylock.toml"]
    named = [f"{path.relative_to(root)}: names a registry" for path in sorted(locks) if HOST.search(_text(path))]
    return named + [f"{path.relative_to(root)}: do not keep this file" for path in banned if path.exists()]


def untracked(root: Path) -> list[str]:
    """One line for every module under `root` that git does not track; none outside a repository."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard", "--", "*.py"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [f"{path}: not tracked by git, add or delete it" for path in listed.split("\0") if path]


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":  # links to funding pages are not download places
        text = re.sub(r'"(url|funding)": ("[^"]*"|\[[^]]*\])', "", text)
    return text


def main() -> int:
    """The exit code."""
    root = Path(__file__).resolve().parent.parent
    found = hosts(root) + untracked(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
