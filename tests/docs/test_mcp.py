"""The client of docs/agents/mcp.md runs as it stands there, with the newer official package (2.x)."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_readme import ROOT, serving

PYTHON = Path(os.environ.get("DRAGOMAN_PEER_MCP2", ROOT / ".venv-mcp2" / "bin" / "python"))
LIMIT_S = 60.0

pytestmark = [pytest.mark.peer, pytest.mark.slow]

LINES = [
    "['countdown', 'echo', 'fail', 'login', 'papers', 'reject', 'trip']",
    *(f"{step}.0 of 3.0 Step {step} of 3" for step in (1, 2, 3)),
    "['3', '2', '1']",
    *("From where?", "To where?", "Booked: from Lyon to Lyon"),
]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with serving("serve", str(ROOT / "examples" / "agents.py"), "--store", "memory:", folder=tmp_path) as url:
        yield url


async def test_the_client_of_the_page_lists_and_calls(url: str) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    page = (ROOT / "docs" / "agents" / "mcp.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = [PYTHON, "-c", program.replace("http://127.0.0.1:7870", url)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.stdout.splitlines() == LINES, ran.stderr
