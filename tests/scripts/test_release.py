"""`make release`: what may not be released is said, and the rest is tried all the same."""

import sys
import tomllib
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


CHART = 'name: dragoman\nversion: 1.2.0\nappVersion: "{}" # the tag\nkubeVersion: ">=1.31.0-0"\n'
PAGE = "docker run registry.example/dragoman:1.2.0 and postgres:18.0.0\n"


def deployment(root: Path, monkeypatch: pytest.MonkeyPatch, chart: str) -> None:
    files = {Path("deploy/helm/Chart.yaml"): chart, Path("deploy/README.md"): PAGE}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    monkeypatch.setattr(release, "tracked", lambda _: [*files])


def test_the_versions_of_the_deployment_are_found_for_a_development_version_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment(root, monkeypatch, CHART.format("1.2.0"))
    assert release.check_deployment() == "1.2.0, 3 times"
    monkeypatch.setattr(release, "__version__", "1.2.0.dev3")
    assert release.check_deployment() == "1.2.0, 3 times"


def test_another_version_in_the_deployment_is_refused_by_its_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment(root, monkeypatch, CHART.format("1.1.0"))
    with pytest.raises(
        release.Refused, match=r'name 1\.2\.0 in deploy/helm/Chart\.yaml: appVersion: "1\.1\.0" # the tag$'
    ):
        release.check_deployment()


def test_every_extra_has_an_import_that_shows_it() -> None:
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"].keys() == release.IMPORTS.keys()


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
    assert "1 of 3 steps got no answer" in said
    assert "1 of 3 steps failed" in said
    assert release.main((is_silent, works)) == 0
