"""The program is tested as a program: a document in, lines out."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "convert.py"


def converted(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines that the program writes for a message of these parts."""
    document = json.dumps({"message": {"parts": parts}})
    ran = subprocess.run(
        [sys.executable, PROGRAM], input=document, capture_output=True, text=True, timeout=60, check=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def file(content: bytes, name: str = "cities.csv") -> dict[str, Any]:
    return {"raw": base64.b64encode(content).decode(), "filename": name, "mediaType": "text/csv"}


def test_a_table_becomes_json_and_markdown() -> None:
    progress, result, table = converted(file((PROGRAM.parent / "cities.csv").read_bytes()))
    assert progress["progress"] == [1, 1]
    assert result["file"]["filename"] == "cities.json"
    assert json.loads(base64.b64decode(result["file"]["raw"]))[1] == {"city": "Lyon", "population": "522250"}
    assert table["text"].splitlines()[1] == "| --- | --- |"


def test_what_is_no_table_fails_or_is_refused_with_a_reason() -> None:
    assert converted({"text": "convert this"}) == [{"reject": "Send a CSV file"}]
    assert converted(file(b"city\n"))[-1] == {"reject": "cities has no rows below its header"}
    assert converted(file(b"\xff\xfe\x00"))[-1]["fail"].startswith("cities is no CSV file in UTF-8")
