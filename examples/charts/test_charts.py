"""The chart is drawn to scale, and content cannot break out of it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

CHART = Path(__file__).parent / "chart.mjs"


def drawn(values: object) -> str:
    """The SVG for `values`, or `TypeError: …`."""
    node = shutil.which("node")
    assert node is not None, "node was not found: install Node 20 or newer"
    script = f"""
import {{ chart }} from {json.dumps(CHART.as_uri())};
try {{ process.stdout.write(chart({json.dumps(values)})); }} catch (error) {{ process.stdout.write(String(error)); }}
"""
    ran = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout


def test_bars_are_to_scale_and_names_are_escaped() -> None:
    svg = drawn({"a": 1, "b": 4, "<script>": 0})
    assert 'width="75.0"' in svg
    assert 'width="300.0"' in svg
    assert "&lt;script&gt;" in svg
    assert "<script>" not in svg


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1], "send an object"),
        ({}, "the object is empty"),
        ({"a": "1"}, "a is no number"),
        ({"a": -1}, "a is no number"),
    ],
)
def test_what_cannot_be_drawn_is_refused(values: object, reason: str) -> None:
    assert reason in drawn(values)
