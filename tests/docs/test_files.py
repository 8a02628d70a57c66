"""The agent in docs/files.md runs, and the defaults there are those of the code."""

import re
from pathlib import Path
from typing import Any

from dragoman import Part
from dragoman.agents.url_files import MAX_BYTES, REDIRECTS_MAX, TIMEOUT_S
from dragoman.config import Config, settings
from dragoman.testing import run

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only block of that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


async def test_the_agent_of_the_page_counts_bytes_wherever_they_are() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    parts = [Part(raw=b"123"), Part(url="https://example.org/4")]
    ran = await run(names["agent"], parts, files={"https://example.org/4": b"1234"})
    assert ran.text == "7 bytes"


def test_the_table_has_the_settings_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(files\w*)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    known = {setting.name: setting.default for setting in settings() if setting.name.startswith("files")}
    said = {name: default.replace(",", "").replace("not set", "") for name, default in rows.items()}
    assert said == known


def test_the_limits_of_reading_are_those_of_the_code() -> None:
    config = Config()
    assert (config.fetch_max_bytes, config.fetch_timeout_s) == (MAX_BYTES, TIMEOUT_S)
    assert f"`fetch_max_bytes` ({MAX_BYTES >> 20} MiB)" in PAGE
    assert f"`fetch_timeout_s` ({TIMEOUT_S:g} s)" in PAGE
    assert REDIRECTS_MAX == 5
    assert "at most five" in PAGE
