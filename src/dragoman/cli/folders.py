"""Folders that a command makes: each is there whole, or not at all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """Give the path of a folder to make, which becomes `target` at the end, unless that fails. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
        made = Path(beside) / target.name
        yield made
        made.rename(target)
