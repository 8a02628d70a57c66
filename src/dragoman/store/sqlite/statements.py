"""The SQL of the driver, read from files in which every statement has a name and a description.

Invariant: all SQL is in these files and in the migrations, except BEGIN, COMMIT and pragmas.
"""

import re
from importlib.resources import files

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
ROWS = re.compile(r"ROWS\((\d+)\)")


def read_statements(name: str = "queries.sql") -> dict[str, str]:
    """Read every statement of the file `name`, by its own name, without the comments."""
    text = (files(__package__) / name).read_text(encoding="utf-8")
    _, *pieces = NAME.split(text)
    return {name: _bare(body) for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def for_rows(sql: str, count: int) -> str:
    """`sql` with its marker `ROWS(n)` written out for `count` rows of n values."""
    return ROWS.sub(lambda hit: ", ".join(["(" + ", ".join("?" * int(hit[1])) + ")"] * count), sql)


def _bare(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
