"""The pages are short: what is written by hand in docs/ and the README has an upper bound."""

from tests.docs.test_readme import ROOT

WORDS_MAX = 76_000
"""Words as `wc -w` counts them. A page that grows lets another one shrink; a table of facts of the code is made from
the code (`dragoman help TOPIC`)."""


def test_the_pages_have_at_most_so_many_words() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= WORDS_MAX
