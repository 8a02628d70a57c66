"""The page on writing a Runner, followed by a reader in an empty folder, who kills the server where it says so."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reader import Reader, reader
from tests.docs.test_readme import DEADLINE_S, ROOT

PAGE = ROOT / "docs" / "runners.md"
KILL = re.compile(r"\b[Kk]ill the server\b")
START = re.compile(r"```sh\n(dragoman serve .*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder but for the agent that the page says to save."""
    (tmp_path / "tally.py").write_text(blocks("python")[0])
    return tmp_path


@pytest.mark.slow
def test_a_reader_sees_what_the_page_says(folder: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, question, counting = KILL.split(text[: text.index("## What a run knows")])
    (start,) = START.findall(begin)
    with reader(folder, folder) as reading:
        follow(reading, begin)
        asked = json.loads(reading.printed)["task"]
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert asked["status"]["message"]["parts"] == [{"text": "Add up 4 numbers?"}]
        kill(reading)
        follow(reading, f"```sh\n{start}```\n" + question)
        kill(reading)
        follow(reading, f"```sh\n{start}```\n" + counting)
        events = [json.loads(line.removeprefix("data: ")) for line in reading.printed.splitlines() if "data: " in line]
    statuses = [event["statusUpdate"]["status"] for event in events if "statusUpdate" in event]
    chunks = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [status["state"] for status in statuses].count("TASK_STATE_INPUT_REQUIRED") == 1
    assert statuses[-1]["state"] == "TASK_STATE_COMPLETED"
    (whole,) = [at for at, chunk in enumerate(chunks) if chunk.get("lastChunk")]
    begun = max(at for at, chunk in enumerate(chunks) if not chunk.get("append"))
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks[begun : whole + 1]] == [
        "3\n",
        "7\n",
        "12\n",
        "18\n",
    ]


def follow(reading: Reader, text: str) -> None:
    """Do what a part of the page says."""
    part = reading.folder / "part.md"
    part.write_text(re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL))
    reading.follow(part)


def kill(reading: Reader) -> None:
    """Kill the server without warning, as a reader does by its process id."""
    os.killpg(reading.processes[-1].pid, signal.SIGKILL)
    reading.processes[-1].wait(DEADLINE_S)


def test_the_tests_of_the_page_pass(folder: Path) -> None:
    (folder / "test_tally.py").write_text(blocks("python")[1])
    ran = subprocess.run(
        [sys.executable, "test_tally.py"], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
