"""`dragoman store`: copy a store to another place, or look for faults in one.

Invariant: neither changes what is in the store that it reads. Tables of an earlier version are migrated first.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.tables import print_faults
from dragoman.store.path import ALLOWED, hide_password, store_path

if TYPE_CHECKING:
    from dragoman.store.copying import CopyProgress


class StoreUrl(click.ParamType[str]):
    """The URL of a store, as a server's setting names it. With `exists` a store in a file must be there already."""

    name = "url"

    def __init__(self, *, exists: bool) -> None:
        self._exists = exists

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the URL. Raises BadParameter."""
        url = str(value)
        try:
            path = store_path(url)
        except ValueError:
            self.fail(f"{hide_password(url)!r}: {ALLOWED}", param, ctx)
        if self._exists and path is not None and not _is_there(path):
            raise click.UsageError(f"there is no store file {path}: name the one that the server uses", ctx)
        return url


def _is_there(path: Path) -> bool:
    """Whether a file is there, or may be there in a folder that this user may not look into."""
    try:
        return path.exists()
    except OSError:
        return True


@click.group()
def store() -> None:
    """Copy a store, or look for faults in one.

    A store is a file (sqlite:///path) or a PostgreSQL database (postgresql://user@host/database).
    """


@store.command("copy")
@click.argument("source", type=StoreUrl(exists=True))
@click.argument("target", type=StoreUrl(exists=False))
@click.option("--restart", is_flag=True, help="Delete what is left of an unfinished copy first.")
def copy_(source: str, target: str, restart: bool) -> None:
    """Copy the store SOURCE into the empty store TARGET.

    Everything is copied, and both are compared. Stop the server of SOURCE first if that is a file. A copy that was
    interrupted goes on where it was when the same command is run again. TARGET is not there until the copy is whole.
    """
    import asyncio

    from dragoman.store.api import OutcomeUnknown, StoreError
    from dragoman.store.open import copy_store

    with ExitStack() as shown:
        bar: Any = None

        def show(progress: "CopyProgress") -> None:
            nonlocal bar
            if bar is None:  # a copy that is refused says nothing of copying
                bar = shown.enter_context(click.progressbar(length=1, label="Copying", file=sys.stderr))
            stages = ("copied", "compared")
            bar.label = ("Copying", "Comparing")[stages.index(progress.stage)]
            bar.length = max(1, progress.tasks * len(stages))
            bar.update(progress.done + stages.index(progress.stage) * progress.tasks - bar.pos)

        try:
            done = asyncio.run(copy_store(source, target, show, restart=restart))
        except (StoreError, OutcomeUnknown) as error:
            raise click.ClickException(str(error)) from error
    rows = ", ".join(f"{count} {name}" for name, count in done.rows.items() if count and name != "tasks")
    also = f" ({rows})" if rows else ""
    click.echo(f"Copied {done.tasks} tasks to {hide_password(target)}{also}: all compare equal.")


@store.command()
@click.argument("url", type=StoreUrl(exists=True))
def check(url: str) -> None:
    """Look for faults in the store at URL.

    Faults are counters that are off, logs with gaps, and rows that belong to nothing. It works while servers use the
    store. Prints a line for each fault, and ends with 1 if there is any.
    """
    import asyncio

    from dragoman.store.api import StoreError
    from dragoman.store.open import check_store

    try:
        faults = asyncio.run(check_store(url))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    print_faults(faults)
    if faults:
        sys.exit(1)
    click.echo(f"No faults in {hide_password(url)}.")
