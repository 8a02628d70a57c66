"""The code in docs/kaos.md does what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "kaos.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_task_manager_of_the_page_prints_what_the_page_says() -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[0]], check=True, capture_output=True, text=True, timeout=60
    )
    assert f"It prints `{shown.stdout.strip()}`" in PAGE
    assert shown.stderr == ""


def test_the_remote_agent_of_the_page_can_be_defined() -> None:
    names: dict[str, object] = {}
    exec(BLOCKS[1], names)
    assert callable(names["delegate"])
