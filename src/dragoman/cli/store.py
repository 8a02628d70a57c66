"""`dragoman store`: back a store up, bring it back, copy it to another place, look for faults in it.

Invariant: a copy does not change what is in the store that it reads. Tables of an earlier version are migrated first.
"""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.command_table import CommandTable
from dragoman.cli.store_commands import StoreUrl
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from dragoman.store.copying import CopyProgress


@click.group(cls=CommandTable, places={name: f"dragoman.cli.backup:{name}" for name in ("backup", "check", "restore")})
def store() -> None:
    """Back up, restore, copy and check a store.

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
