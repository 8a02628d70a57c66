"""`dragoman store`: back a store up, bring it back, copy it to another place, look for faults in it, and rekey it.

Invariant: a copy does not change what is in the store that it reads. Tables of an earlier version are migrated first.
"""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.command_table import CommandTable
from dragoman.cli.endings import Unusable
from dragoman.cli.store_commands import StoreUrl, at_store, with_store
from dragoman.cli.tables import count
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from dragoman.auth.sealing import SecretKeys
    from dragoman.config import Config
    from dragoman.store.api import Store
    from dragoman.store.copying import CopyProgress


@click.group(cls=CommandTable, places={name: f"dragoman.cli.backup:{name}" for name in ("backup", "check", "restore")})
def store() -> None:
    """Back up, restore, copy, check and rekey a store.

    A store is a file (sqlite:///path) or a PostgreSQL database (postgresql://user@host/database).

    Examples:
      dragoman store backup dragoman.backup
      dragoman store check
    """


@store.command("copy")
@click.argument("source", type=StoreUrl(exists=True))
@click.argument("target", type=StoreUrl(exists=False))
@click.option("--restart", is_flag=True, help="First delete what is left of an unfinished copy.")
def copy_(source: str, target: str, restart: bool) -> None:
    """Copy the store SOURCE into the empty store TARGET.

    Everything is copied, and both stores are compared. If SOURCE is a file, stop its server first. When a copy was
    interrupted, the same command continues it. TARGET cannot be used until the copy is whole.

    Examples:
      dragoman store copy sqlite:///data/dragoman.db postgresql://me@db/dragoman
      dragoman store copy postgresql://me@db/dragoman sqlite:///copy.db --restart
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
@with_store
def rekey(config: "Config") -> None:
    """Seal the secrets of added agents with the first key.

    The keys are those of secret_key_file (DRAGOMAN_SECRET_KEY_FILE) or secret_key. Write the new key above the old one,
    restart every server, run this command, and remove the old key. Servers may run meanwhile. See docs/agents-api.md.

    Examples:
      dragoman store rekey
      DRAGOMAN_SECRET_KEY_FILE=keys.txt dragoman store rekey
    """
    import secrets

    from dragoman.auth.sealing import read_secret_keys

    try:
        keys = read_secret_keys(config.secret_key, config.secret_key_file, secrets.token_bytes)
    except ValueError as error:
        raise Unusable(str(error)) from error
    if keys is None:
        raise Unusable("there is no key: set secret_key_file, or DRAGOMAN_SECRET_KEY, to what the servers have")
    sealed, faults = at_store(config, lambda opened: _reseal_all(opened, keys))
    for fault in faults:
        click.echo(fault, err=True)
    click.echo(f"{count(sealed, 'version of agents')} sealed anew with the key {keys.current}.")
    if faults:
        raise SystemExit(1)


async def _reseal_all(opened: "Store", keys: "SecretKeys") -> tuple[int, list[str]]:
    """Seal the secrets of all versions of agents with the first key. Returns how many, and what was left and why."""
    from dragoman.admin.agents import KIND
    from dragoman.config import ConfigError
    from dragoman.server.agent_records import SecretFault, decode_record, reseal

    sealed, faults = 0, list[str]()
    for found in await opened.operator_records.read_records():
        record = decode_record(found) if found.kind == KIND else None
        if record is None:
            continue
        try:
            anew = reseal(found.id, record, keys)
        except (SecretFault, ConfigError) as error:
            faults.append(f"{found.id}, version {found.version}, stays as it is: {error}")
        else:
            if anew is not record and await opened.operator_records.rewrite_record(found, anew.encode()):
                sealed += 1
    return sealed, faults
