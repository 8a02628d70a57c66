"""Builds wheel and source distribution from what git tracks, and checks what is in them.

Invariant: the same files and commit give the same bytes, wherever and whenever they are built.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from msgspec import Struct

PACKAGE = Path("src", "dragoman")
CONSOLE = PACKAGE / "bindings" / "console" / "built"
COMMIT = PACKAGE / "commit.txt"
EXAMPLES = Path("examples")

SDIST = (
    *("deploy", ".dockerignore", "Containerfile"),
    *(f"requirements/{name}.txt" for name in ("build", "container", "core", "grpc")),
    *("src", "docs", "examples", "scripts/build_hook.py", "scripts/metadata_hook.py", "pyproject.toml", ".gitignore"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "GOVERNANCE.md", "LICENSE", "README.md", "SECURITY.md"),
)
"""The files and whole folders of the repository that are in the source distribution."""

TEST = re.compile(r"(?:^|/)(?:test_[^/]*|conftest)\.py$")
"""A test, which is in neither package; a template of `dragoman new` is none yet."""

NEEDED = (
    *("dragoman/py.typed", "dragoman/commit.txt"),
    *("dragoman/bindings/console/built/index.html", "dragoman/bindings/console/built/licenses.txt"),
)
"""Files that every wheel must have, although git does not track all of them."""

METADATA = frozenset({"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"})

SECRET = re.compile(
    rb"-----BEGIN (?:RSA |EC |OPENSSH |ENCRYPTED )?PRIVATE KEY-----\n[A-Za-z0-9+/=]{40}"
    rb"|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bsk-(?:proj-)?[A-Za-z0-9]{32,}\b|\bpypi-[A-Za-z0-9_-]{60,}"
)
"""Private keys, and the tokens of some services, that have no place in a package."""


class Built(Struct, frozen=True):
    """The files of a build."""

    wheel: Path
    sdist: Path


def tracked(root: Path) -> list[Path]:
    """The files that git tracks below `root`, by their relative paths. Deleted ones are left out."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True, text=True)
    paths = (Path(name) for name in listed.stdout.split("\0") if name)
    return [path for path in paths if (root / path).is_symlink() or (root / path).exists()]


def commit_of(root: Path) -> tuple[str, int]:
    """The commit, and when it was made, in seconds since 1970."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%H %ct"]
    commit, made_s = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return commit, int(made_s)


def export(root: Path, target: Path, commit: str) -> None:
    """Copy what git tracks, and the built console, to `target`, with the commit as builds find it."""
    for path in tracked(root):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, target / path, follow_symlinks=False)  # with its mode: some examples are programs
    if (root / CONSOLE).exists():
        shutil.copytree(root / CONSOLE, target / CONSOLE)
    (target / COMMIT).write_text(f"{commit}\n", encoding="utf-8")


def build(source: Path, target: Path, committed_s: int) -> Built:
    """Build both from `source` into `target`. Raises CalledProcessError."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(committed_s)}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, sdist)


def faults(root: Path, built: Built) -> list[str]:
    """One line for everything that is missing in the packages, or should not be there."""
    return [*wheel_faults(root, built.wheel), *sdist_faults(root, built.sdist)]


def wheel_faults(root: Path, wheel: Path) -> list[str]:
    """The same for the wheel alone."""
    with ZipFile(wheel) as archive:
        there = {info.filename: archive.read(info) for info in archive.infolist()}
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/"
    known = {str(path.relative_to("src")) for path in _shipped(root) if path.is_relative_to(PACKAGE)}
    known |= {f"dragoman/{path}" for path in _shipped(root) if path.is_relative_to(EXAMPLES)}
    built = {name for name in there if name.startswith(f"{CONSOLE.relative_to('src')}/")}
    expected = known | built | {f"{info}{name}" for name in METADATA} | {str(COMMIT.relative_to("src"))}
    return _compare(wheel.name, there, expected, NEEDED)


def sdist_faults(root: Path, sdist: Path) -> list[str]:
    """The same for the source distribution alone."""
    prefix = sdist.name.removesuffix(".tar.gz") + "/"
    with tarfile.open(sdist) as archive:
        there = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            there[member.name.removeprefix(prefix)] = b"" if file is None else file.read()
    known = {str(path) for path in _shipped(root) if any(path.is_relative_to(each) for each in SDIST)}
    built = {name for name in there if name.startswith(f"{CONSOLE}/")}
    needed = [f"src/{name}" for name in NEEDED]
    return _compare(sdist.name, there, known | built | {"PKG-INFO", str(COMMIT)}, needed)


def _shipped(root: Path) -> Iterator[Path]:
    """The files of the repository that may be in a package: all but the tests."""
    return (path for path in tracked(root) if not TEST.search(str(path)))


def _compare(
    archive: str, there: dict[str, bytes], expected: set[str], needed: tuple[str, ...] | list[str]
) -> list[str]:
    found = [f"{archive}: {name} is missing" for name in sorted((expected | set(needed)) - there.keys())]
    found += [f"{archive}: {name} does not belong there" for name in sorted(there.keys() - expected)]
    return found + [f"{archive}: {name} has a secret" for name, body in sorted(there.items()) if SECRET.search(body)]
