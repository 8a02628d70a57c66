"""A reader does what the page says, in a copy of its folder."""

import shutil
from pathlib import Path

import pytest

from tests.docs.reader import reader

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_gateway_does_what_the_page_says(tmp_path: Path) -> None:
    before, after = (HERE / "README.md").read_text(encoding="utf-8").split("Stop the first server with Ctrl-C.")
    pages = [tmp_path / name for name in ("before.md", "after.md")]
    for page, text in zip(pages, (before, after), strict=True):
        page.write_text(text)
    folder = tmp_path / "gateway"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("data", "*.key", "__pycache__"))
    table = (HERE / "dragoman.toml").read_text(encoding="utf-8")
    ports = tmp_path / "ports.md"  # the reader puts free ports in place of those of the page
    ports.write_text(f"Save this as `dragoman.toml`:\n\n```toml\n{table}```\n")
    with reader(tmp_path, at=folder) as reading:
        reading.save(ports)
        reading.follow(pages[0])
        reading.stop(0)
        reading.follow(pages[1])
