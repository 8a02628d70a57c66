"""`dragoman help messages` explains every error message of the server that names a fix, and no other."""

import re

import pytest

from dragoman.cli.topics import load_table
from tests.docs.messages import FIX, messages

CELLS = [row[0] for section in load_table("messages").sections for row in section.rows]
ROWS = [re.sub(r"^(``?) ?(.+?) ?\1$", r"\2", cell) for cell in CELLS]


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """The messages of the code."""
    return messages()


def test_every_message_that_names_a_fix_is_explained(said: dict[str, str]) -> None:
    lost = {text: module for text, module in said.items() if text not in ROWS}
    assert not lost, "explain these in src/dragoman/cli/topics/messages.txt"


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
