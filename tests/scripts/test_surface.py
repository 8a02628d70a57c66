"""The public names: none comes or goes without a word."""

from importlib.metadata import version

import pytest

from scripts import surface

CHANGES = """# Changelog

## [Unreleased]

### Added

* `added`

### Changed

* The setting `old_one` is called `new_one`.

### Removed

* `dragoman serve --gone`.

## [0.1.0] - 2026-11-22

### Removed

* `ancient`
"""

CHANGELOG = surface.CHANGELOG.read_text(encoding="utf-8")


def test_the_list_of_public_names_is_that_of_the_code() -> None:
    recorded = surface.RECORDED.read_text(encoding="utf-8").splitlines()
    assert surface.faults(recorded, surface.surface(), CHANGELOG) == []


@pytest.mark.parametrize("kind", ["setting max_body_bytes", "command dragoman serve", "name dragoman.Context.ask"])
def test_the_list_knows_every_kind_of_name(kind: str) -> None:
    assert kind in surface.surface()


@pytest.mark.parametrize("line", ["setting other", "setting added", "setting ancient", "option dragoman serve --gon"])
def test_a_name_that_goes_without_a_word_is_a_fault(line: str) -> None:
    (fault,) = surface.faults(["setting kept", line], ["setting kept"], CHANGES)
    assert fault.startswith(f"{line}: is gone; keep it, or name")
    assert surface.unexplained(["setting kept", line], ["setting kept"], CHANGES) == [fault]


@pytest.mark.parametrize("line", ["setting old_one", "option dragoman serve --gone"])
def test_a_name_may_go_once_the_changelog_says_so(line: str) -> None:
    (fault,) = surface.faults([line], [], CHANGES)
    assert fault == f"{line}: is gone, as the changelog says; run make surface"
    assert surface.unexplained([line], [], CHANGES) == []


def test_a_new_name_asks_for_make_surface_alone() -> None:
    assert surface.faults([], ["setting fresh"], CHANGES) == ["setting fresh: is new; run make surface"]
    assert surface.unexplained([], ["setting fresh"], CHANGES) == []


def test_without_an_unreleased_section_no_name_may_go() -> None:
    assert (
        len(surface.unexplained(["setting old_one"], [], "# Changelog\n\n## [0.1.0]\n\n### Removed\n\n* `old_one`\n"))
        == 1
    )


def test_the_changelog_begins_with_unreleased_and_has_a_released_version() -> None:
    headings = [line for line in CHANGELOG.splitlines() if line.startswith("## ")]
    assert headings[0] == "## [Unreleased]"
    now = version("dragoman")
    assert ".dev" in now or any(heading.startswith(f"## [{now}] - ") for heading in headings)
    kinds = {line.removeprefix("### ") for line in CHANGELOG.splitlines() if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
