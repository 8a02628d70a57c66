"""The pages are short: what is written by hand in docs/ and the README has an upper bound."""

import re

from tests.docs.test_readme import ROOT

GENERATED = re.compile(r"<!-- written by make bench -->.*?<!-- end -->", re.DOTALL)
"""The table of figures in docs/performance.md, which no hand writes."""

WORDS_MAX = 60_000
"""Words as `wc -w` counts them. A page that grows lets another one shrink; a table of facts of the code is made from
the code (`dragoman help TOPIC`)."""


def test_the_pages_have_at_most_so_many_words() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = (GENERATED.sub("", page.read_text(encoding="utf-8")) for page in pages)
    assert sum(len(text.split()) for text in texts) <= WORDS_MAX


def test_the_list_of_pages_has_the_groups_of_the_site() -> None:
    listed = re.findall(r"^## (.+)$", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    navigation = (ROOT / "site" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert listed == re.findall(r"^  - (\w+):$", navigation, re.MULTILINE)
