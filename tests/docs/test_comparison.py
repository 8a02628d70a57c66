"""The comparison: whatever is said of others has a source and a date, what they have comes first, and it is short."""

import re
from datetime import date
from itertools import groupby

import pytest

from dragoman.cli.topics import Section, load_table, search_table
from tests.docs.test_readme import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
DATE = r"\d{4}-\d{2}-\d{2}"
DATED = re.compile(rf"\(({DATE})(?: to ({DATE}))?\)$")
SECTIONS = load_table("comparison").sections
OTHERS = {
    "Python SDK",
    "Other SDKs",
    "LangGraph's server",
    "LiteLLM",
    "agentgateway",
    "ContextForge",
    "Conductor",
    "Temporal",
    "DBOS",
}
PROSE_MAX = 500


def kind(section: Section) -> str:
    return section.title.partition(": ")[2]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_every_cell_about_others_has_a_source_and_the_date_of_its_copy(section: Section) -> None:
    for title, _, *cells in section.rows:
        for cell in cells:
            links = LINK.findall(cell)
            assert links, (title, cell)
            assert all(link.startswith("https://") for link in links), (title, cell)
            dated = DATED.search(cell)
            assert dated is not None, (title, cell)
            days = [date.fromisoformat(day) for day in dated.groups() if day]
            assert days == sorted(days)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_every_cell_about_dragoman_has_a_page_or_file_that_exists(section: Section) -> None:
    assert section.columns[:2] == ("", "Dragoman")
    for title, ours, *_ in section.rows:
        links = LINK.findall(ours)
        assert links, (title, ours)
        assert all((ROOT / "docs" / link.partition("#")[0]).is_file() for link in links), (title, ours)


def test_what_others_have_and_dragoman_lacks_comes_first() -> None:
    order = ["what they have and Dragoman lacks", "what each has in some form", "what was found only here"]
    groups = [list(group) for _, group in groupby(SECTIONS, key=lambda section: section.title.partition(": ")[0])]
    assert [[kind(section) for section in group] for group in groups] == [order] * 3
    assert {column for section in SECTIONS for column in section.columns[2:]} == OTHERS


@pytest.mark.parametrize("other", sorted(OTHERS))
def test_a_search_for_another_system_shows_it_beside_dragoman(other: str) -> None:
    found = search_table(load_table("comparison"), other.lower()).sections
    whole = [section for section in SECTIONS if other in section.columns]
    shown = [section for section in found if other in section.columns[2:]]
    assert [section.title for section in shown] == [section.title for section in whole]
    for section, full in zip(shown, whole, strict=True):
        assert section.columns == ("", "Dragoman", other)
        at = full.columns.index(other)
        assert section.rows == tuple((*row[:2], row[at]) for row in full.rows)


def test_the_page_shows_every_section_and_its_prose_is_short() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    texts = re.findall(r"^\*\*Table:\*\* `dragoman help comparison ([^`]+)`$", page, re.MULTILINE)
    shown = [section for text in texts for section in search_table(load_table("comparison"), text).sections]
    assert shown == list(SECTIONS)
    assert len(page.split()) <= PROSE_MAX
