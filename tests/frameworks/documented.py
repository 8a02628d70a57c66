"""The code of the documentation, to be tried as it stands there."""

import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "agents"


def run_block(page: str, number: int) -> dict[str, Any]:
    """The names that a page's block of Python makes; blocks are counted from 1."""
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    made: dict[str, Any] = {"__name__": "documented"}
    exec(compile(blocks[number - 1], page, "exec"), made)
    return made
