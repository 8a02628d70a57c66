"""The library finds what is there, says where, and follows its folder."""

import os
from pathlib import Path

import pytest

from dragoman import TaskState
from dragoman.testing import run
from examples.library import library as example
from examples.library.library import Library, agent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "birds.md").write_text("# Birds\n\nAn owl hunts at night.\n\nA lark sings in the morning.\n")
    (tmp_path / "tools.txt").write_text("A saw cuts wood.\nA file makes it smooth.\n")
    (tmp_path / "owl.png").write_bytes(b"owl owl owl")
    return tmp_path


def test_passages_are_found_with_their_place(folder: Path) -> None:
    first, *_ = Library(folder).search("When does the owl hunt?")
    assert (first.file, first.line, first.text) == ("birds.md", 3, "An owl hunts at night.")


def test_a_rare_word_counts_for_more_than_a_common_one(folder: Path) -> None:
    (folder / "more.txt").write_text("A lark flies.\n\nA lark nests.\n\nA lark eats.\n")
    first, *_ = Library(folder).search("lark wood")
    assert first.file == "tools.txt"


def test_a_changed_file_is_read_again(folder: Path) -> None:
    library = Library(folder)
    assert not library.search("hammer")
    (folder / "tools.txt").write_text("A hammer drives nails.\n")
    os.utime(folder / "tools.txt", (1, 1))
    assert [passage.text for passage in library.search("hammer")] == ["A hammer drives nails."]


async def test_an_answer_cites_its_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "library", Library(folder))
    ran = await run(agent, "What sings in the morning?")
    assert "A lark sings in the morning.\n(birds.md:5)" in ran.text
    assert {"file": "birds.md", "line": 5} in ran.data[0]


async def test_nothing_is_made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "library", Library(folder))
    ran = await run(agent, "quantum chromodynamics")
    assert not ran.artifacts
    assert (await run(agent, "?")).state is TaskState.REJECTED
