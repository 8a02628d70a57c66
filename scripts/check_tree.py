"""Checks that lock files hold versions and hashes, and name no registry. No linter checks that.

Exits 1 with one line for every finding.
"""

import re
import sys
from pathlib import Path

HOST = re.compile(r"https?://|^--(index|extra-index|find-links)|\"resolved\":", re.MULTILINE)
"""A place to download from: lock files hold versions and hashes, the place is the user's configuration."""


def hosts(root: Path) -> list[str]:
    """One line for every lock file under `root` that says where packages come from."""
    locks = [*(root / "requirements").glob("*.txt"), *(root / "tests" / "peers").glob("*/package-lock.json")]
    banned = [root / "uv.lock", root / "pylock.toml"]
    named = [f"{path.relative_to(root)}: names a registry" for path in sorted(locks) if HOST.search(_text(path))]
    return named + [f"{path.relative_to(root)}: do not keep this file" for path in banned if path.exists()]


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":  # links to funding pages are not download places
        text = re.sub(r'"(url|funding)": "[^"]*"', "", text)
    return text


def main() -> int:
    """The exit code."""
    root = Path(__file__).resolve().parent.parent
    found = hosts(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
