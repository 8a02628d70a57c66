"""docs/a2a-1.1.md names every extension of ours, once, and none that there is not."""

import re
from collections import Counter
from pathlib import Path

from dragoman.dialects import extensions

PAGE = (Path(__file__).parents[2] / "docs" / "a2a-1.1.md").read_text(encoding="utf-8")


def test_every_extension_has_one_row() -> None:
    ours = {uri for uri in vars(extensions).values() if isinstance(uri, str) and uri.startswith("urn:dragoman:")}
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")]
    named = Counter(uri for row in rows for uri in re.findall(r"`(urn:dragoman:[^`]+)`", row))
    assert named == dict.fromkeys(ours, 1)
