#!/usr/bin/env python3
"""Turns a CSV file into JSON and a Markdown table. It knows nothing of A2A: it reads a document and writes lines."""

import base64
import csv
import io
import json
import sys


def say(**line: object) -> None:
    """Write a line for the server: one command, or one piece of the result."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Convert every file of the message that stands on standard input."""
    files = [part for part in json.load(sys.stdin)["message"]["parts"] if "raw" in part]
    if not files:
        say(reject="Send a CSV file")
        return
    for number, file in enumerate(files, start=1):
        name = file.get("filename", "table.csv").rpartition(".")[0] or "table"
        say(progress=[number, len(files)], text=f"Converting {name}")
        try:
            rows = list(csv.DictReader(io.StringIO(base64.b64decode(file["raw"]).decode("utf-8-sig")), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            say(fail=f"{name} is no CSV file in UTF-8: {error}")
            return
        if not rows:
            say(reject=f"{name} has no rows below its header")
            return
        content = base64.b64encode(json.dumps(rows, indent=2).encode()).decode()
        say(file={"raw": content, "filename": f"{name}.json", "mediaType": "application/json"})
        cells = [list(rows[0]), ["---"] * len(rows[0]), *([row[key] or "" for key in rows[0]] for row in rows)]
        say(text="".join(f"| {' | '.join(line)} |\n" for line in cells))


if __name__ == "__main__":
    main()
