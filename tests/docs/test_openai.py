"""docs/openai.md and docs/responses.md: their programs print what the pages say, with the official Python package."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_blocks import blocks
from tests.docs.test_readme import ROOT, serving

PYTHON = Path(os.environ.get("DRAGOMAN_PEER_OPENAI", ROOT / ".venv-openai" / "bin" / "python"))
LIMIT_S = 60.0

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TRIP = ["From where?", "To where?", "Booked: from Lyon to Paris"]

PRINTED = {
    "openai.md": ["Hello!", *TRIP],
    "responses.md": [*TRIP, "4 and a cut", "3", "2", "1", "completed ['3', '2', '1']", *TRIP],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openai")
    with serving("serve", str(ROOT / "examples" / "agents.py"), "--store", "memory:", folder=folder) as url:
        yield url


@pytest.mark.parametrize("page", PRINTED)
async def test_the_programs_of_the_page_print_what_it_says(page: str, url: str) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make peers`"
    program = "\n".join(block.text for block in blocks(ROOT / "docs" / page) if block.language == "python")
    command = [PYTHON, "-c", program.replace("http://127.0.0.1:7870", url)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.stdout.splitlines() == PRINTED[page], ran.stderr
