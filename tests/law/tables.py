"""The tables of what words do: made by driving the engine, kept beside this module, a row a line.

A row is a decision. A change of the engine that changes one is a change of behaviour, to be read before it is written:
`python -m tests.law` writes the tables anew.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.law import decisions, local, worker

HERE = Path(__file__).parent

Rows = Callable[[str], Iterator[dict[str, Any]]]

TABLES: Mapping[str, tuple[Iterable[str], Rows]] = {
    "local": (local.SITUATIONS, local.rows),
    "worker": (worker.SITUATIONS, worker.rows),
    "decisions": (decisions.REQUESTS, decisions.rows),
}
"""The situations of each table, and the rows of one of them."""


def kept(table: str) -> dict[str, list[dict[str, Any]]]:
    """The rows that are kept, by situation."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (HERE / f"{table}.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row.pop("situation"), []).append(row)
    return found


def write(table: str) -> None:
    """Make a table and keep it."""
    situations, rows = TABLES[table]
    lines = [
        json.dumps({"situation": situation, **row}, ensure_ascii=False)
        for situation in situations
        for row in rows(situation)
    ]
    (HERE / f"{table}.jsonl").write_text("\n".join(lines) + "\n")
