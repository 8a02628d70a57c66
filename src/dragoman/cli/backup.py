"""`dragoman store backup|restore|check`: copy the local store while its server runs, bring it back, look for faults.

Invariant: nothing is printed or left behind that holds a secret, but the backup itself, which only its owner may read.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman import __version__
from dragoman.cli.arguments import complete_files
from dragoman.cli.command import Command
from dragoman.cli.endings import Unusable
from dragoman.cli.store_commands import StoreUrl, at_store, operator, read_config, store_flags, with_store
from dragoman.cli.tables import count, json_flag, print_faults, print_line
from dragoman.config import Config
from dragoman.store.path import hide_password, is_shared

if TYPE_CHECKING:
    from dragoman.store.api import Store

FAULTS_SHOWN = 20
"""How many faults a backup names; `check` names all."""

MISSING_SHOWN = 10
"""How many missing files are named; the others are counted."""


def _with_local_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that locate the store. --server is refused: a backup holds the server's private key."""

    @wraps(command)
    def local(config: Config, server: str | None, **rest: Any) -> None:
        if server is not None:
            raise Unusable(
                "--server: a backup holds the server's private key, so it does not travel: run this on the server's "
                "machine, where --store names its store"
            )
        command(config=_kept(config), **rest)

    return with_store(click.option("--server", hidden=True)(local))


def _kept(config: Config) -> Config:
    """The same settings. Raises UsageError for a store in memory."""
    if config.store == "memory:":
        raise Unusable(
            "store 'memory:' ends with its server: give the server a file (store = \"sqlite:///data/dragoman.db\")"
        )
    return config


@click.command(cls=Command)
@click.argument("archive", metavar="FILE", type=click.Path(path_type=Path), shell_complete=complete_files)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@_with_local_store
def backup(config: Config, archive: Path, force: bool) -> None:
    """Write the store, with the files beside it, to the archive FILE.

    The server may run. The archive holds the store as it was when the command began. It contains the server's private
    key and all messages, so only you may read it. The command needs space for two copies of the store.

    Examples:
      dragoman store backup dragoman.backup
      dragoman store backup /backup/today --store sqlite:////var/lib/dragoman/dragoman.db
    """
    from dragoman.model.ids import SystemClock
    from dragoman.store.api import StoreError
    from dragoman.store.open import back_up_store

    if is_shared(config.store):
        raise Unusable(
            f"store {hide_password(config.store)!r} is backed up by PostgreSQL's own tool: "
            f"{_command(config.store, ('pg_dump', '--format=custom', f'--file={archive}'))}"
        )
    if not archive.parent.is_dir():
        raise Unusable(f"FILE {str(archive)!r}: there is no folder {archive.parent}: make it, or name another place")
    if archive.is_dir():
        raise Unusable(f"FILE {str(archive)!r} is a folder: name a file in it")
    if archive.exists() and not force:
        raise Unusable(f"FILE {str(archive)!r} exists: name another file, or add --force to replace it")
    _check_store_file(config)
    with _lines(StoreError), _progress() as show:
        done = back_up_store(
            config.store,
            config.files,
            archive,
            show,
            program=__version__,
            now_ms=SystemClock().now_ms(),
            force=force,
        )
    _note(config, "store.backup", archive.name)
    totals = done.manifest.totals
    size = archive.stat().st_size
    click.echo(
        f"Backed up {count(totals.tasks, 'task')} with {count(totals.events, 'event')} and "
        f"{count(totals.files + done.manifest.files, 'file')} to {archive} ({size:,} bytes, verified)."
    )
    if done.gone:
        click.echo(f"{count(done.gone, 'file')} had been deleted with their tasks meanwhile.", err=True)
    if done.manifest.elsewhere:
        click.echo(f"Files in {done.manifest.elsewhere} are not in it: back up the bucket as well.", err=True)
    for fault in done.faults[:FAULTS_SHOWN]:
        click.echo(fault, err=True)
    if done.faults:
        raise click.ClickException("the store has these faults, and so has its backup: see `dragoman store check`")


@click.command(cls=Command)
@click.argument("archive", metavar="FILE", type=click.Path(path_type=Path), shell_complete=complete_files)
@click.option(
    "--webhooks",
    type=click.Choice(("keep", "drop")),
    help="Send or delete the webhook deliveries that were pending.  [default: ask]",
)
@_with_local_store
def restore(config: Config, archive: Path, webhooks: str | None) -> None:
    """Make the store of a stopped server from the backup FILE.

    The whole backup is verified first. Nothing that exists is overwritten. Leases of the old server end, and the tables
    of an older version are migrated. Webhook deliveries that were pending may have been sent since the backup:
    --webhooks says whether they are sent again.

    Examples:
      dragoman store restore dragoman.backup --webhooks keep
      dragoman store restore dragoman.backup --store sqlite:///data/restored.db
    """
    from dragoman.store.api import StoreError
    from dragoman.store.open import restore_store

    if is_shared(config.store):
        raise Unusable(
            f"store {hide_password(config.store)!r} is restored by PostgreSQL's own tool, with all servers stopped: "
            f"{_command(config.store, ('pg_restore', '--exit-on-error'), (str(archive),), schema=False)}"
        )
    if not archive.is_file():
        raise Unusable(f"FILE {str(archive)!r}: there is no such file: name a backup made by `dragoman store backup`")
    with _lines(StoreError), _progress() as show:
        done = restore_store(archive, config.store, config.files, lambda owed: _drops(show, webhooks, owed), show)
    _note(config, "store.restore", archive.name)
    manifest = done.manifest
    click.echo(
        f"Restored {count(manifest.totals.tasks, 'task')} with {count(manifest.totals.events, 'event')} and "
        f"{count(manifest.totals.files + manifest.files, 'file')}, as of {manifest.made}, to {config.store}."
    )
    if done.owed:
        fate = "were deleted" if done.dropped else "go out when the server starts"
        click.echo(f"{_pending(done.owed, 'pending webhook ')} {fate}.")
    if manifest.elsewhere:
        click.echo(f"Files in {manifest.elsewhere} were not in it: restore the bucket as well.", err=True)


@click.command(cls=Command)
@click.argument("url", required=False, type=StoreUrl(exists=True), shell_complete=complete_files)
@json_flag("one JSON object")
@store_flags
def check(url: str | None, settings_file: str | None, store: str | None, as_json: bool) -> None:
    """Look for faults in the server's store, or in the one at URL.

    Faults are damaged pages, logs with gaps, rows that belong to nothing, and missing files. Files of a store at URL
    are not checked. The command only reads, and works while the server runs. It prints a line for each fault, and the
    exit status is 1 if there is any.

    Examples:
      dragoman store check
      dragoman store check sqlite:///data/copy.db -o json
    """
    import asyncio

    from dragoman.store.api import StoreError
    from dragoman.store.open import check_files, check_store

    if url is None:
        config = _kept(read_config(settings_file, store))
    elif store is not None:
        raise click.UsageError("--store: goes without URL, which names the store as well")
    else:
        config = Config(store=url)
    shared = is_shared(config.store)
    if url is None and not shared:
        _check_store_file(config)
    with _lines(StoreError):
        faults = asyncio.run(check_store(config.store))
        named, missing = (0, []) if shared or url is not None else check_files(config.store, config.files)
    faults += [f"files: {place} is missing" for place in missing[:MISSING_SHOWN]]
    if len(missing) > MISSING_SHOWN:
        faults.append(f"files: {len(missing) - MISSING_SHOWN} others are missing")
    if missing and config.files is None:
        faults.append("files: the setting files is not set: set it to the folder that the server uses")
    if as_json:
        print_line({"store": hide_password(config.store), "faults": faults})
    else:
        print_faults(faults)
    if faults:
        sys.exit(1)
    if not as_json:
        click.echo(f"No faults in {hide_password(config.store)}.")
    if shared:
        amcheck = _command(config.store, ("pg_amcheck",)).replace("--dbname=", "", 1)
        click.echo(f"Pages of PostgreSQL are checked by its own tool: {amcheck}", err=True)
    elif named and config.files is not None and not config.files.startswith("folder:"):
        click.echo(f"{count(named, 'file')} in {config.files.partition('?')[0]} were not looked for.", err=True)


def _drops(show: "StageBars", choice: str | None, owed: int) -> bool:
    """Whether pending webhook deliveries are deleted: as chosen, or as the user says."""
    if choice is not None:
        return choice == "drop"
    waiting = _pending(owed, "webhook ")
    if not sys.stdin.isatty():
        raise Unusable(
            f"--webhooks: {waiting} were pending, and may have been sent since: say --webhooks keep or --webhooks drop"
        )
    show.pause()
    question = f"{waiting} were pending when the backup was made, and may have been sent since. Keep or drop them?"
    return str(click.prompt(question, type=click.Choice(("keep", "drop")), err=True)) == "drop"


def _pending(number: int, kind: str) -> str:
    return f"{number:,} {kind}deliver{'y' if number == 1 else 'ies'}"


class StageBars:
    """A bar on stderr for each stage, if stderr is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._stages: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        if stage not in self._stages:
            self._stages[stage] = self.bars.add_task(stage, total=max(1, total))
        self.bars.update(self._stages[stage], completed=done if total else 1, total=max(1, total))

    def pause(self) -> None:
        """Leave the terminal to a question. The bars so far stay as they are."""
        self.bars.stop()
        self.bars.disable = True


@contextmanager
def _progress() -> Iterator[StageBars]:
    """Yield the bars. A signal that ends the process is an exception meanwhile, so that no half file is left."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    show = StageBars()
    try:
        with show.bars:
            yield show
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _lines(kind: type[Exception]) -> Iterator[None]:
    """End the command with one line for an error of the store."""
    try:
        yield
    except kind as error:
        raise click.ClickException(str(error)) from error


def _check_store_file(config: Config) -> None:
    from dragoman.store.path import store_path

    path = store_path(config.store)
    assert path is not None
    try:
        there = path.is_file()
    except OSError as error:
        raise Unusable(f"store file {path}: {error.strerror}: run this as the user the server runs as") from error
    if not there:
        raise Unusable(
            f"there is no store file {path} in {Path.cwd()}: run this where the server runs, or name its store with "
            "--store"
        )


def _note(config: Config, action: str, subject: str) -> None:
    """Write an entry of the audit trail, unless the store is of an earlier version, which a backup leaves as it is."""
    from dragoman.store.open import is_current

    async def write(store: "Store") -> None:
        from dragoman.store.audit import AuditEntry

        at_ms = store.clock.now_ms()
        await store.audit.write([AuditEntry(at_ms=at_ms, principal=operator(), action=action, subject=subject)])

    if is_current(config.store):
        at_store(config, write)


def _command(url: str, before: Sequence[str], after: Sequence[str] = (), *, schema: bool = True) -> str:
    """The command of PostgreSQL for the store at `url`, without its password."""
    import shlex

    from dragoman.store.api import StoreError
    from dragoman.store.open import database_tools

    with _lines(StoreError):
        dsn, name = database_tools(url)
    return shlex.join([*before, *([f"--schema={name}"] if schema else []), f"--dbname={dsn}", *after])
