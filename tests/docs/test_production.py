"""docs/production.md names every place where the server can run, and its example is a configuration that works."""

import re
from pathlib import Path

from dragoman.config import load
from tests.docs.test_readme import ROOT

PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


def test_every_page_of_deploy_is_on_the_list() -> None:
    for page in (ROOT / "deploy").glob("*/README.md"):
        assert f"](../{page.relative_to(ROOT)})" in PAGE, page


def test_the_example_gives_every_caller_limits_and_asks_for_a_key(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "dragoman.toml"
    file.write_text(text, encoding="utf-8")
    config = load(file, {}, {})
    assert config.authentication == "required"
    assert 0 not in (config.max_requests_per_s, config.max_streams, config.max_open_tasks)
