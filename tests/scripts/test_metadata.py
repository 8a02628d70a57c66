"""What an index page shows of the package: addresses from one place, and a README whose links work there."""

from pathlib import Path

import pytest

from scripts.metadata_hook import LINK, make_description, make_urls, read_repository

ROOT = Path(__file__).parents[2]
HOME = "https://example.org/dragoman"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[a](docs/a.md#b)", f"[a]({HOME}/blob/v1.2.0/docs/a.md#b)"),
        ("![a [b]](docs/a.png)", f"![a [b]]({HOME}/raw/v1.2.0/docs/a.png)"),
        ("[![a](docs/a.svg)](docs/a.md)", f"[![a](docs/a.svg)]({HOME}/blob/v1.2.0/docs/a.md)"),
        ("[a](https://example.com/b) and [c](#d)", "[a](https://example.com/b) and [c](#d)"),
    ],
)
def test_relative_links_lead_to_the_files_of_the_release(written: str, shown: str) -> None:
    assert make_description(written, HOME, "1.2.0") == shown


def test_a_development_version_leads_to_the_main_branch() -> None:
    assert make_description("[a](b.md)", HOME, "1.3.0.dev0") == f"[a]({HOME}/blob/main/b.md)"


def test_no_link_of_the_readme_stays_relative() -> None:
    shown = make_description((ROOT / "README.md").read_text(), HOME, "1.2.0")
    assert LINK.search(shown) is None
    assert f"]({HOME}/raw/v1.2.0/docs/pictures/" in shown


def test_all_addresses_are_below_the_repositorys() -> None:
    repository = read_repository(ROOT)
    assert all(address.startswith(repository) for address in make_urls(repository).values())
