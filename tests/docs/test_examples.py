"""The README of each example says what happens, in a folder that has nothing but what `dragoman examples` wrote."""

from contextlib import chdir
from pathlib import Path

import pytest

from tests.docs.reader import reader
from tests.docs.test_readme import ROOT
from tests.kit.commands import invoke

PAGES = sorted(ROOT.glob("examples/*/README.md"))

NEEDS = {
    "gateway": "a folder of its own, for keys; its test copies it",
    "payment": "a kill in the right moment; its test makes one",
    "reminder": "a minute of sleep, and a restart by hand; its test makes one in a shorter one",
    "runner": "two kills of the server; its test makes them",
    "tck": "the test kit; its test runs the agent without it",
    "tools": "a model of the reader's own; its test plays one",
    "typescript": "Node 22.18 or newer; its test compiles the worker",
}
"""Pages whose commands need something that a test cannot start, and how they are tested instead."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name not in NEEDS], ids=lambda page: page.parent.name
)
def test_the_readme_says_what_happens(page: Path, tmp_path: Path) -> None:
    work, kept = tmp_path / "work", tmp_path / "kept"
    for folder in (work, kept):
        folder.mkdir()
    with chdir(work):
        assert invoke("examples").exit_code == 0
    for environment in ROOT.glob(".venv-fw-*"):
        (work / environment.name).symlink_to(environment)
    with reader(kept, at=work) as reading:
        reading.follow(page)


def test_every_example_has_a_readme_and_a_test_and_is_in_the_list() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for folder in sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name[0] not in "_."):
        assert f"({folder.name}/README.md)" in listed or folder.name == "frameworks", folder.name
        assert folder.name == "frameworks" or list(folder.glob("test_*.py")), folder.name
