"""`make release`: what may not be released is said, and the rest is tried all the same."""

import sys
from pathlib import Path

import pytest

from scripts import release

LOG = """# Changelog

## [Unreleased]
{}
## [{}] - 2026-12-01

### Added

* A thing.

## [0.1.0] - 2026-11-22

* It.
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "__version__", "1.2.0")
    return tmp_path


def test_a_changelog_of_the_version_is_good(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(LOG.format("", "1.2.0"))
    assert release.check_changelog() == "5 words of 2026-12-01"


@pytest.mark.parametrize(
    ("unreleased", "first", "said"),
    [("\n* New.\n", "1.2.0", "Unreleased of CHANGELOG.md is not empty"), ("", "1.1.0", "begins with 1.1.0")],
)
def test_a_changelog_that_lacks_the_version_is_refused(root: Path, unreleased: str, first: str, said: str) -> None:
    (root / "CHANGELOG.md").write_text(LOG.format(unreleased, first))
    with pytest.raises(release.Refused, match=said):
        release.check_changelog()


def test_a_development_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "__version__", "1.2.0.dev0")
    with pytest.raises(release.Refused, match="no version of a release"):
        release.check_version()


@pytest.mark.parametrize(
    ("readme", "said"),
    [("<!-- before the first release -->\npip install ./dragoman-*.whl\n", "to <!-- end -->"), ("x\n", "no line")],
)
def test_a_readme_that_installs_from_a_file_is_refused(root: Path, readme: str, said: str) -> None:
    (root / "README.md").write_text(readme)
    with pytest.raises(release.Refused, match=said):
        release.check_install()


def test_a_readme_that_installs_the_package_is_good(root: Path) -> None:
    (root / "README.md").write_text("```sh\npip install dragoman\n```\n")
    assert release.check_install() == "pip install dragoman"


@pytest.mark.parametrize("said", ["getaddrinfo ENOTFOUND registry", "npm error code ENOAUDIT"])
def test_an_auditor_without_an_answer_is_no_failure(said: str) -> None:
    with pytest.raises(release.NoAnswer):
        release.audited(sys.executable, "-c", f"import sys; sys.exit({said!r})")


def test_an_auditor_that_finds_something_is_one() -> None:
    with pytest.raises(release.Refused, match="a weakness"):
        release.audited(sys.executable, "-c", "import sys; sys.exit('a weakness of x 1.0')")


def test_all_steps_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> str:
        """One."""
        raise release.Refused("bad")

    def is_silent() -> str:
        """Two."""
        raise release.NoAnswer("nobody there")

    def works() -> str:
        """Three."""
        return "good"

    assert release.main((fails, is_silent, works)) == 1
    said = capsys.readouterr().out
    assert "FAILED     One: bad\nno answer  Two: nobody there\nok         Three: good\n" in said
    assert "1 of 3 steps failed" in said
    assert release.main((is_silent, works)) == 0
