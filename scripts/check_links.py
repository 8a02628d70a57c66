"""Every relative link in the documentation leads to a file, and every `#anchor` to a heading. No network.

Exits 1 with one line for every link that does not.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def anchors(markdown: str) -> set[str]:
    """The anchors of the headings of `markdown`, as the usual renderers make them."""
    made: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", markdown)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in made:
            number += 1
        made.add(anchor)
    return made


def broken(page: Path) -> list[str]:
    """The links of `page` that lead nowhere."""
    found = []
    for link in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            found.append(f"{link}: no such file")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{link}: no such heading")
    return found


def main() -> int:
    """The exit code."""
    root = Path(__file__).resolve().parent.parent
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    found = [f"{page.relative_to(root)}: {link}" for page in pages for link in broken(page)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
