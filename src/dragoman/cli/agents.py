"""`dragoman agents`: list the agents that a server would have, and check whether they work.

Invariant: the configuration is read as `dragoman serve` reads it, from the same sources in the same order.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from dragoman.admin.question import Column
from dragoman.cli.admin.completion import complete_declared
from dragoman.cli.arguments import ServerUrl, complete_files
from dragoman.cli.command import Group
from dragoman.cli.endings import Unusable
from dragoman.cli.listing import Listing, lists
from dragoman.cli.store_commands import CONFIG_ENV, config_file
from dragoman.cli.tables import json_flag, print_json
from dragoman.config import FILE, ConfigParts, load_parts

if TYPE_CHECKING:
    from dragoman.cli.checks import CheckedAgent

STDOUT, STDERR = 1, 2

COLUMNS = (Column("ID", "id"), Column("RUN", "run"), Column("SKILLS", "skills"))


@click.group(cls=Group)
def agents() -> None:
    """List the agents that a server would have, and check them.

    Examples:
      dragoman agents list
      dragoman agents check agent.py:agent
    """


def _add_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both commands share."""
    usual = f"[{CONFIG_ENV}; default: {FILE} if it exists]"
    for flag in (
        click.option("--default", metavar="ID", help="Id of the agent that answers at /, as for `serve`."),
        click.option(
            "--config", "file", metavar="FILE", shell_complete=complete_files, help=f"Configuration file.  {usual}"
        ),
        click.argument("named", nargs=-1, metavar="[ID | MODULE:AGENT]...", shell_complete=complete_declared),
    ):
        command = flag(command)
    return command


@agents.command()
@_add_options
@json_flag("one JSON array")
@click.option("--server", type=ServerUrl(), metavar="URL", help="Running server, which is asked about the agents, too.")
def check(named: tuple[str, ...], file: str | None, default: str | None, server: str | None, as_json: bool) -> None:
    """Check each agent, and say what is wrong and how to fix it.

    The check creates no task. With an ID, only the agent of that id is checked. MODULE:AGENT is an agent of the command
    line, as for `serve`. The exit status is 1 if anything is wrong.

    Examples:
      dragoman agents check
      dragoman agents check weather --server localhost:7870
    """
    subjects = _load_subjects(named, file, default, tries=True, server=server)
    if as_json:
        print_json([_fields(subject) for subject in subjects])
    else:
        click.echo("\n".join(line for subject in subjects for line in _lines(subject)))
    sys.exit(0 if all(subject.ok for subject in subjects) else 1)


@agents.command("list")
@_add_options
@lists(limit=None, cut=True, json_too=True)
def list_(named: tuple[str, ...], file: str | None, default: str | None) -> Listing:
    """List the agents: their ids, what runs them, and their skills.

    Skills are listed as far as they are known locally. The exit status is 2 if the settings cannot be used, or if an ID
    or MODULE:AGENT does not exist.

    Examples:
      dragoman agents list
      dragoman agents list agent.py:agent -o json
    """
    from dragoman.cli.checks import NAME_ONE

    subjects = [subject for subject in _load_subjects(named, file, default, tries=False) if subject.id]
    for subject in subjects:
        if subject.runner is None and subject.run in ("", subject.id) and subject.id in named:
            raise Unusable(_fault(subject))
    return Listing(
        rows=[{**_fields(subject), "skills": _skills(subject)} for subject in subjects],
        columns=COLUMNS,
        words={"skills": lambda row: ", ".join(row["skills"]) if row["ok"] else "cannot be served: see `agents check`"},
        empty=f"There are none: {NAME_ONE}.",
    )


def _load_subjects(
    named: Sequence[str], file: str | None, default: str | None, *, tries: bool, server: str | None = None
) -> "list[CheckedAgent]":
    import asyncio

    from dragoman.cli.checks import load_subjects

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its C++ tells of failures in its own words, before ours
    place = config_file(file)
    if place is not None and not place.exists():
        given = "--config" if file else CONFIG_ENV
        raise Unusable(f"{given} {str(place)!r}: there is no such file: name one that is there")
    apart = load_parts(place, os.environ, {} if default is None else {"default": default})
    if apart.faults and not tries:
        raise Unusable(str(apart.faults[0]))
    chosen, references = _split_words(named, apart)

    async def found() -> "list[CheckedAgent]":
        subjects = await load_subjects(apart, references, chosen, tries=tries)
        if server is not None:
            from dragoman.cli.checks import ask_server

            await ask_server(server, subjects)
        return subjects

    logging.getLogger("dragoman").addHandler(logging.NullHandler())  # the findings tell what agents would log
    with _stdout_to_stderr():
        return asyncio.run(found())


def _fault(subject: "CheckedAgent") -> str:
    """The first fault of an agent that was not loaded, with the fix, in one line."""
    finding = subject.findings[0]
    what = finding.what if subject.run else f"{subject.id!r}: {finding.what}"
    return _plain(f"{what}: {finding.fix}" if finding.fix else what)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send to stderr what modules print while they are imported, also from C, so that stdout has only the result."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    try:
        os.dup2(STDERR, STDOUT)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)


def _split_words(named: Sequence[str], apart: ConfigParts) -> tuple[list[str], list[str]]:
    """Split the words into ids and references. A word that names both an agent and a module is the agent's id."""
    declared = {table.id for table in apart.tables}
    references = [word for word in named if word not in declared and (":" in word or "/" in word or _is_module(word))]
    return [word for word in named if word not in references], references


def _is_module(word: str) -> bool:
    return (
        word.endswith(".py") or os.path.exists(word.replace(".", "/") + ".py") or os.path.isdir(word.replace(".", "/"))
    )


def _lines(subject: "CheckedAgent") -> Iterator[str]:
    named = subject.id or "the server"
    yield f"{_sign(subject.ok)} {_plain(named)}" + (f"  {_plain(subject.run)}" if subject.run else "")
    for finding in subject.findings:
        yield f"    {_sign(finding.ok)} {_plain(finding.what)}"
        if finding.fix and not finding.ok:
            yield f"      {_plain(finding.fix)}"


def _sign(ok: bool) -> str:
    return click.style("✓", fg="green") if ok else click.style("✗", fg="red")


def _plain(text: str) -> str:
    """The text on one line, without control characters: it may come from another server."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _fields(subject: "CheckedAgent") -> dict[str, Any]:
    findings = [
        {"ok": finding.ok, "what": finding.what, **({"fix": finding.fix} if finding.fix else {})}
        for finding in subject.findings
    ]
    return {"id": subject.id, "run": subject.run, "ok": subject.ok, "findings": findings}


def _skills(subject: "CheckedAgent") -> list[str]:
    if subject.runner is None:
        return []
    profile = subject.runner.profile
    return [skill.id for skill in (*profile.skills, *profile.extended_skills)]
