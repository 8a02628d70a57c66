"""`dragoman admin principals export|delete`: all data of one principal.

Invariant: nothing is deleted before somebody has said yes, or the command has `--yes`. An archive that is not whole has
another name, and the memory that it takes does not grow with it.
"""

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

import click
from msgspec.structs import replace

from dragoman.cli.admin.server import Desk, TaskPlace, finish, with_server
from dragoman.cli.arguments import complete_files
from dragoman.cli.command import Group
from dragoman.cli.endings import Unusable
from dragoman.cli.tables import count, output, print_json, printable

if TYPE_CHECKING:
    from dragoman.admin.principals import ExportPiece, HeldData, PrincipalReport

SPOOL_BYTES = 1 << 20
"""From this size on, a file of an archive waits on the disk until it is whole: an archive tells sizes first."""

UNFINISHED = ".part"

HELD_WORDS = (
    ("tasks", "task"),
    ("webhooks", "webhook"),
    ("deliveries", "pending or dead delivery"),
    ("receipts", "receipt of a delivery"),
    ("calls", "remembered call"),
    ("memory", "entry of agents' memory, checkpoints and sessions"),
    ("usage", "sum of usage"),
    ("keys", "key"),
    ("audit", "entry of the audit trail"),
)
"""The words for what there is, by their fields."""


@click.group(cls=Group)
def principals() -> None:
    """Export or delete all data of one principal.

    NAME is the principal as `dragoman admin tasks list` shows it, such as key:ann for the caller of a key. See
    docs/privacy.md.

    Examples:
      dragoman admin principals export key:ann ann.tar
      dragoman admin principals delete key:ann --dry-run
    """


@principals.command()
@click.argument("name", metavar="NAME")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True), shell_complete=complete_files)
@with_server
def export(place: TaskPlace, name: str, file: str) -> None:
    """Write all data of the principal NAME to FILE, a tar archive.

    The archive has tasks with their messages, artifacts, files, logs and webhooks; the memory of agents; and usage,
    keys and entries of the audit trail, as JSON that people can read. Secrets are left out: keys, and what signs or
    authorises webhook calls. FILE may be - for stdout.

    Examples:
      dragoman admin principals export key:ann ann.tar
      dragoman admin principals export key:ann - | tar -xOf - README.txt
    """
    if file != "-" and Path(file).exists():
        raise Unusable(f"{file} exists already: name another file")
    with _target(file) as target:
        archive = Archive(target)
        finish(lambda: place.read(lambda desk: _export(desk, name, archive)))
        archive.close()
    where = "standard output" if file == "-" else file
    click.echo(f"All data of {printable(name)} is in {where}: {count(archive.tasks, 'task')}.", err=True)


async def _export(desk: Desk, name: str, archive: "Archive") -> None:
    from dragoman.admin.principals import EXPORT_PRINCIPAL, ExportQuery

    query: ExportQuery | None = ExportQuery(principal=name)
    while query is not None:
        page = await desk.answer(EXPORT_PRINCIPAL, query)
        for piece in page.pieces:
            archive.add(piece)
        query = EXPORT_PRINCIPAL.next_page(query, page)


class Archive:
    """A tar archive that is written from its beginning to its end."""

    def __init__(self, target: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115  # see `close`
        self._begun: dict[str, SpooledTemporaryFile[bytes]] = {}
        """The files that are not whole: never more than a log and one of its files."""
        self._made = int(time.time())
        self._named: set[str] = set()
        """The files of the task's folder: bytes that are there already have the same name."""
        self.tasks = 0

    def add(self, piece: "ExportPiece") -> None:
        """Add a piece, and its file once that is whole. A file with nothing in it is left out."""
        spool = self._begun.get(piece.path)
        if spool is None:
            spool = self._begun[piece.path] = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115  # until it is whole
        spool.write(piece.raw or piece.text.encode())
        if piece.last:
            del self._begun[piece.path]
            with spool:
                self._finish(piece.path, spool)

    def _finish(self, path: str, spool: "SpooledTemporaryFile[bytes]") -> None:
        if path.endswith("/task.json"):
            self.tasks += 1
            self._named.clear()
        if (is_file := "/files/" in path) and path in self._named:
            return
        if is_file:
            self._named.add(path)
        entry = tarfile.TarInfo(path)
        entry.size = spool.seek(0, io.SEEK_END)
        entry.mtime, entry.mode = self._made, 0o600
        spool.seek(0)
        if entry.size or is_file:
            self._tar.addfile(entry, spool)

    def close(self) -> None:
        """End the archive."""
        self._tar.close()


@contextmanager
def _target(file: str) -> Iterator[IO[bytes]]:
    """The file to write, which only this user may read. It gets its name when it is whole."""
    if file == "-":
        yield sys.stdout.buffer
        return
    part = Path(f"{file}{UNFINISHED}")
    try:
        part.unlink(missing_ok=True)
        target = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise Unusable(f"{file}: {error.strerror}: name a file in a folder that you may write to") from error
    try:
        with target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        part.rename(file)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


@principals.command()
@click.argument("name", metavar="NAME")
@click.option("--cancel-open", is_flag=True, help="First cancel the tasks that have not ended.")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output
@with_server
def delete(place: TaskPlace, name: str, cancel_open: bool, dry_run: bool, yes: bool, form: str) -> None:
    """Delete all data of the principal NAME for good.

    Tasks are deleted with their logs, artifacts, files and webhooks, and so are the memory of agents, usage and keys.
    Entries of the audit trail keep everything but the name and the address: an alias replaces the name. Calls of the
    principal are refused meanwhile. If the command is interrupted, run it again: it continues.

    Examples:
      dragoman admin principals delete key:ann --dry-run
      dragoman admin principals delete key:ann --cancel-open
    """
    from dragoman.admin.principals import DELETE_PRINCIPAL, PrincipalDeletion

    wanted = PrincipalDeletion(principal=name, cancel_open=cancel_open, dry_run=True)
    served = place.is_served()

    def ask(wanted: PrincipalDeletion) -> "PrincipalReport":
        return place.ask(DELETE_PRINCIPAL, wanted) if served else place.delete_principal(wanted)

    if not (dry_run or yes or sys.stdin.isatty()):
        raise Unusable("nobody can be asked here: add --yes to delete, or --dry-run to count")
    report = ask(wanted)
    if dry_run or report.held.empty:
        _show_held(report, form)
        return
    if not yes:
        _show_held(report, "text")
        click.confirm(f"Delete all data of {printable(name)} for good?", abort=True)
    wanted, tasks = replace(wanted, dry_run=False), 0
    while (report := ask(wanted)).more:
        tasks += report.tasks
        if form != "json":
            click.echo(f"{count(tasks, 'task')} deleted; it goes on.", err=True)
    report = replace(report, tasks=tasks + report.tasks)
    if form == "json":
        print_json(report)
    for failure in report.failed:
        click.echo(f"{failure.id} is not canceled: {failure.reason}", err=True)
    if report.failed:
        raise click.ClickException("nothing was deleted, because these tasks go on")
    if form != "json":
        click.echo(f"All data of {printable(name)} is deleted: {count(report.tasks, 'task')}.")
        click.echo(f"In the audit trail the name is {report.alias} now.")


def _show_held(report: "PrincipalReport", form: str) -> None:
    """Show what there is."""
    if form == "json":
        print_json(report)
    elif report.held.empty:
        from dragoman.engine.admin.principal_deletion import hint

        click.echo(hint(report.principal), err=True)
    else:
        for line in _lines(report.held):
            click.echo(line)


def _lines(held: "HeldData") -> Iterator[str]:
    for field, word in HELD_WORDS:
        if number := getattr(held, field):
            open_tasks = f", {held.open_tasks:,} of them open" if field == "tasks" and held.open_tasks else ""
            yield f"{count(number, word)}{open_tasks}"
