"""docs/troubleshooting.md has every error message of the server that names a fix, and no other."""

import re

import pytest

from tests.docs.messages import FIX, messages
from tests.docs.test_readme import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [row.strip() for _, row in re.findall(r"^\| (``?)(.+?)\1 \|", PAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """The messages of the code."""
    return messages()


def test_every_message_that_names_a_fix_is_explained(said: dict[str, str]) -> None:
    lost = {text: module for text, module in said.items() if text not in ROWS}
    assert not lost, "explain these in docs/troubleshooting.md"


def test_every_row_is_a_message_of_the_server(said: dict[str, str]) -> None:
    assert not [row for row in ROWS if row not in said]
    assert len(ROWS) == len(set(ROWS)) > 100


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("store file x belongs to another program: use another path", True),
        ("the bus is down. Check that it runs", True),
        ("public_url is x; set host", True),
        ("the task has ended", False),
        ("reading: usefulness is unclear", False),
    ],
)
def test_what_counts_as_naming_a_fix(text: str, names: bool) -> None:
    assert bool(FIX.search(text)) is names
