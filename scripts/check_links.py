"""Checks that everything the documentation names exists: links, headings, files, the package. Needs no network.

Exits 1 with one line for every finding.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dragoman.cli.topics import TOPICS, load_table, to_markdown

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")

SUFFIXES = "c|json|md|mjs|py|sh|sql|toml|txt"
PATH = re.compile(rf"(?:[\w.*-]+/)+(?:[\w.*-]+(?:\.(?:{SUFFIXES}))?)?")
"""A path of a folder or a file; `*` stands for a part of a name."""

COMMAND = re.compile(
    rf"(?:dragoman (?:serve|worker|agents check)|\b(?:python3?|node|pytest))"
    rf"(?: --?[\w-]+)* ([\w./-]+\.(?:{SUFFIXES}))\b"
)
"""A command whose first argument is a file."""

NAVIGATED = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)
"""A page in the navigation of the site."""

MADE_BY_READERS = frozenset(
    {
        "assistant.py",
        "booking.py",
        "greeter.py",
        "hello.py",
        "house.py",
        "others.py",
        "run_tck.py",
        "speller.py",
        "try_weather.py",
        "weather.py",
        "writers.py",
    }
)
"""Files that a page has its reader make or fetch, before it names them in a command."""

FOLDERS = ("deploy", "docs", "examples")
"""The folders whose pages are checked, beside those of the root."""

WRITTEN = ("bench/results/", "build/", "data/", "dist/")
"""Folders that programs write, which are not in the repository."""

PUBLISHED = re.compile(r"(?:pip install|uv add|uvx|pipx (?:install|run))(?: -\S+)* ['\"]?dragoman\b(?!\[)")
"""An installation from a registry, where the package is not before its first release.

One with an extra adds to what is installed, from a wheel or a clone, and is what messages advise."""

UNRELEASED = "<!-- before the first release -->"
"""What stands in the README before the way to install until then. `make release` refuses it, and without it pages may
name the package of the registry."""


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
    return broken_links(page.read_text(encoding="utf-8"), page)


def broken_links(markdown: str, page: Path) -> list[str]:
    """The links of `markdown` that lead nowhere from `page`."""
    found = []
    for link in LINK.findall(CODE.sub("", FENCE.sub("", markdown))):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            found.append(f"{link}: no such file")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{link}: no such heading")
    return found


def absent(page: Path, root: Path) -> list[str]:
    """The files of the repository that `page` names, between backticks or in a command, and that are not there.

    A path may begin at the root, in the package, or beside the page.
    """
    text = page.read_text(encoding="utf-8")
    beginnings = (root, root / "src" / "dragoman", page.parent)
    return [
        f"{path}: no such file"
        for path in sorted({*_paths(text, root), *_arguments(text)})
        if not any(next(beginning.glob(path.rstrip("/")), None) for beginning in beginnings)
    ]


def _paths(text: str, root: Path) -> Iterator[str]:
    """The paths between backticks that begin with a folder of the repository or, spelled out, of the package."""
    tops, packages = (
        {entry.name for entry in folder.iterdir() if entry.is_dir()} for folder in (root, root / "src" / "dragoman")
    )
    for code in CODE.findall(FENCE.sub("", text)):
        path = code.strip("`")
        top, slash, rest = path.partition("/")
        if not slash or not PATH.fullmatch(path) or path.startswith(WRITTEN):
            continue
        if top in tops or (top in packages and ("." in rest or path.endswith("/"))):  # `server/agent` is no path
            yield path


def _arguments(text: str) -> Iterator[str]:
    """The files that commands are given, except those that readers make."""
    return (path for path in COMMAND.findall(text) if path not in MADE_BY_READERS)


def published(page: Path) -> list[str]:
    """The commands of `page` that install the package from a registry."""
    return [
        f"{command}: link to the README's Install" for command in PUBLISHED.findall(page.read_text(encoding="utf-8"))
    ]


def unlisted(root: Path) -> list[str]:
    """The pages of docs/ that neither the navigation of the site nor the list in docs/README.md leads to."""
    navigation = set(NAVIGATED.findall((root / "site" / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = root / "docs"
    index = docs / "README.md"
    linked = {(docs / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    reached = {path.resolve() for page in linked if page.suffix == ".md" for path in _beside(page)} | linked
    pages = [page for page in sorted(docs.rglob("*.md")) if page != index]
    return [
        *(
            f"site/mkdocs.yml: nav lacks {name}"
            for page in pages
            if (name := f"{page.relative_to(docs)}") not in navigation
        ),
        *(
            f"docs/README.md: nothing leads to {page.relative_to(docs)}"
            for page in pages
            if page.resolve() not in reached
        ),
    ]


def unshown(root: Path, pages: Iterable[Path]) -> list[str]:
    """The pictures of docs/pictures that no page shows."""
    shown = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    pictures = sorted((root / "docs" / "pictures").glob("*"))
    return [f"{path.relative_to(root)}: no page shows it" for path in pictures if path.resolve() not in shown]


def _beside(page: Path) -> Iterator[Path]:
    """The pages that `page` links to."""
    if page.exists():
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            yield (page.parent / link.partition("#")[0]).resolve()


def main() -> int:
    """The exit code."""
    root = Path(__file__).resolve().parent.parent
    released = UNRELEASED not in (root / "README.md").read_text(encoding="utf-8")
    folders = [*root.glob("*.md"), *(path for top in FOLDERS for path in (root / top).rglob("*.md"))]
    pages = sorted(page for page in folders if "node_modules" not in page.parts)
    found = [
        f"{page.relative_to(root)}: {finding}"
        for page in pages
        for finding in [*broken(page), *absent(page, root), *([] if released else published(page))]
    ]
    found += [
        f"{module.relative_to(root)}: {finding}"
        for module in ([] if released else sorted((root / "src").rglob("*.py")))
        for finding in published(module)
    ]
    found += [
        f"dragoman help {topic}: {finding}"
        for topic in TOPICS
        for finding in broken_links(to_markdown(load_table(topic)), root / "docs" / "README.md")
    ]
    found += [*unlisted(root), *unshown(root, pages)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
