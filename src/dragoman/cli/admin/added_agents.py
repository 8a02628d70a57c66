"""`dragoman admin agents add|change|remove|added|show|versions|restore`: agents that are added while servers run.

Invariant: a secret comes from a variable, a file or the standard input, and never stands on the command line, where the
process table shows it. Nothing is stored before the agent has been looked at, unless `--force` says so.
"""

import os
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from dragoman.admin.agents import LIST_ADDED, LIST_AGENT_VERSIONS
from dragoman.cli.admin.completion import complete_agents
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.arguments import with_scheme
from dragoman.cli.command import Command
from dragoman.cli.endings import Code, CommandFailed, Unusable
from dragoman.cli.listing import Listing, lists, rows_of
from dragoman.cli.tables import output, print_json, printable, second

if TYPE_CHECKING:
    from dragoman.admin.agents import AddedAgent, AgentFinding

KINDS = ("a2a:", "openai:")

COMMON_LABELS = frozenset({"www", "api", "agents", "agent", "a2a"})
"""Labels of hosts that name no agent."""


def _definition_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what an agent is."""
    for flag in (
        click.option("--dry-run", is_flag=True, help="Check the agent, and store nothing."),
        click.option("--force", is_flag=True, help="Store the agent although the check finds faults."),
        click.option(
            "--set",
            "keys",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a key of the agent's table to a TOML value; repeatable.",
        ),
        click.option(
            "--forward",
            is_flag=True,
            help="Send the callers' own credentials to the agent. Its host must be in allow_hosts.",
        ),
        click.option("--key-file", metavar="FILE", help="File with the secret for the agent; - is stdin."),
        click.option("--key-env", metavar="NAME", help="Environment variable with the secret for the agent."),
        click.option("--header", metavar="NAME", help="Header that carries the secret.  [default: a bearer token]"),
        click.option("--model", metavar="NAME", help="Name of the model, if URL is an API of chat completions."),
        click.option("--name", metavar="TEXT", help="Name of the agent on its card."),
    ):
        command = flag(command)
    return command


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--id", "agent_id", metavar="ID", help="Id of the agent.  [default: made of the URL]")
@_definition_flags
@output
@with_server
def add(place: TaskPlace, urls: tuple[str, ...], agent_id: str | None, form: str, **given: Any) -> None:
    """Add the agent at URL.

    The agent is live on every server of the store within 2 s. URL is that of an A2A agent, or with --model that of an
    API of chat completions. Several URLs make a pool. The agent is checked first, as `dragoman agents check` does. See
    docs/agents-api.md.

    Examples:
      dragoman admin agents add https://partner.example/agents/weather --key-env PARTNER_KEY
      dragoman admin agents add localhost:11434/v1 --model llama3 --id llama
    """
    from dragoman.admin.agents import ADD_AGENT, AgentRequest

    dry_run, force, table = given.pop("dry_run"), given.pop("force"), _read_table(urls, **given)
    wanted = AgentRequest(id=agent_id or _id_of(with_scheme(urls[0])), agent=table, dry_run=True)
    looked = place.ask(ADD_AGENT, wanted)
    _tell_findings(looked, form, final=dry_run, force=force)
    if not dry_run:
        _tell(place.ask(ADD_AGENT, AgentRequest(id=wanted.id, agent=table)), form)


@click.command(cls=Command)
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a key of the agent's table; repeatable.")
@click.option("--version", type=click.IntRange(1), metavar="N", help="Change the agent only if N is still its version.")
@_definition_flags
@output
@with_server
def change(
    place: TaskPlace,
    agent: str,
    urls: tuple[str, ...],
    unset: tuple[str, ...],
    version: int | None,
    form: str,
    **given: Any,
) -> None:
    """Change an added agent.

    Keys that are not named stay as they are. The secret stays with the hosts that it was given for; another host needs
    the secret anew. A new secret uses the header of the old one unless --header names another; --header "" makes it a
    bearer token.

    Examples:
      dragoman admin agents change weather --set deadline_s=60
      dragoman admin agents change weather https://new.example --unset description
    """
    from dragoman.admin.agents import CHANGE_AGENT, AgentChange

    dry_run, force, table = given.pop("dry_run"), given.pop("force"), _read_table(urls, **given)
    table |= dict.fromkeys(unset)
    if not table:
        raise click.UsageError("name what to change: a URL, --name, --set KEY=VALUE, --unset KEY, …")
    looked = place.ask(CHANGE_AGENT, AgentChange(agent=table, version=version, dry_run=True), agent)
    _tell_findings(looked, form, final=dry_run, force=force)
    if not dry_run:  # to the version that was looked at
        _tell(place.ask(CHANGE_AGENT, AgentChange(agent=table, version=looked.version), agent), form)


@click.command(cls=Command)
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@click.option("--version", type=click.IntRange(1), metavar="N", help="Change the agent only if N is still its version.")
@output
@with_server
def remove(place: TaskPlace, agent: str, version: int | None, form: str) -> None:
    """Remove an added agent.

    The agent accepts no new task. Open tasks continue, and all of its tasks stay readable to their owners.

    Examples:
      dragoman admin agents remove weather
      dragoman admin agents remove weather --version 3
    """
    from dragoman.admin.agents import REMOVE_AGENT, AgentRemoval

    _tell(place.ask(REMOVE_AGENT, AgentRemoval(version=version), agent), form)


@click.command(cls=Command)
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@click.argument("to", type=click.IntRange(1), metavar="VERSION")
@output
@with_server
def restore(place: TaskPlace, agent: str, to: int, form: str) -> None:
    """Restore an earlier VERSION of an added agent.

    The restored definition becomes the next version. An agent that was removed comes back.

    Examples:
      dragoman admin agents restore weather 2
      dragoman admin agents restore weather 2 -o json
    """
    from dragoman.admin.agents import RESTORE_AGENT, AgentRestoration

    _tell(place.ask(RESTORE_AGENT, AgentRestoration(to=to), agent), form)


@click.command(cls=Command)
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@output
@with_server
def show(place: TaskPlace, agent: str, form: str) -> None:
    """Show the definition of an added agent.

    The first line says whether the agent is live on the server that answers. Secrets are left out.

    Examples:
      dragoman admin agents show weather
      dragoman admin agents show weather -o json
    """
    from dragoman.admin.agents import SHOW_AGENT

    found = place.ask(SHOW_AGENT, None, agent)
    if form == "json":
        print_json(found)
        return
    _tell(found, form)
    click.echo(f"Version {found.version}, {found.act} by {printable(found.by)} at {second(found.changed_at)}:")
    print_json(found.agent)


@click.command(cls=Command)
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@lists(limit=None, cut=True)
@with_server
def versions(place: TaskPlace, agent: str) -> Listing:
    """Show the last ten versions of an added agent.

    Examples:
      dragoman admin agents versions weather
      dragoman admin agents versions weather -o json
    """
    return rows_of(LIST_AGENT_VERSIONS, place.ask(LIST_AGENT_VERSIONS, None, agent), name="version")


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def added(place: TaskPlace) -> Listing:
    """Show the agents that were added while the server ran.

    The list also says whether they are live on the server that answers.

    Examples:
      dragoman admin agents added
      dragoman admin agents added -o name
    """
    return rows_of(LIST_ADDED, place.ask(LIST_ADDED, None), empty="No agent was added: `add URL` adds one.")


def _read_table(
    urls: Sequence[str],
    *,
    name: str | None,
    model: str | None,
    header: str | None,
    key_env: str | None,
    key_file: str | None,
    forward: bool,
    keys: Sequence[str],
) -> dict[str, Any]:
    """The table of an agent, or the changes of one, as the options say. Ends the command if they contradict."""
    from dragoman.config.agent_definition import credentials_of

    table: dict[str, Any] = {}
    if urls:
        kind = "openai:" if model is not None else "a2a:"
        runs = [_run_of(url, kind) for url in urls]
        table["run"] = runs[0] if len(runs) == 1 else runs
    table |= {key: value for key, value in (("name", name), ("model", model)) if value is not None}
    secret = _read_secret(key_env, key_file)
    if forward and (secret is not None or header is not None):
        raise click.UsageError("--forward: goes without --header, --key-env and --key-file")
    if forward:
        table["credentials"] = {"forward": True}
    elif secret is not None:
        table["credentials"] = {"value": secret, **({} if header is None else {"header": header or None})}
    elif header is not None:
        raise click.UsageError("--header: goes with --key-env or --key-file")
    for each in keys:
        key, equals, text = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each!r}: must be KEY=VALUE, such as deadline_s=600")
        alone: dict[str, Any] = {}
        _put(alone, key.strip(), text.strip())
        if any("value" in shown for shown in credentials_of(alone)):
            raise click.UsageError(
                f"--set {key}: has a secret, which the process table would show: use --key-env or --key-file, or send "
                "the definition to POST /admin/v1/agents"
            )
        _put(table, key.strip(), text.strip())
    return table


def _run_of(url: str, kind: str) -> str:
    """The agent's `run` for a URL, which may have a kind before it and lack its scheme."""
    named = next((each for each in KINDS if url.startswith(each)), "")
    return f"{named or kind}{with_scheme(url.removeprefix(named))}"


def _put(table: dict[str, Any], key: str, text: str) -> None:
    """Set a key, with dots for the keys of tables in it. A value that is no TOML is a text."""
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *before, last = key.split(".")
    for name in before:
        found = table.setdefault(name, {})
        if not isinstance(found, dict):
            raise click.UsageError(f"--set {key}: {name} has a value already")
        table = found
    table[last] = value


def _read_secret(key_env: str | None, key_file: str | None) -> str | None:
    """The secret from where the options say; None if they name no place. Ends the command if there is none."""
    if key_env is not None and key_file is not None:
        raise click.UsageError("--key-env and --key-file: name one of them")
    if key_env is not None:
        if not (found := os.environ.get(key_env, "").strip()):
            raise Unusable(f"--key-env {key_env}: this shell has no such variable: set it")
        return found
    if key_file is None:
        return None
    if key_file == "-":
        return sys.stdin.read().strip()
    from dragoman.config import read_secret

    try:
        return read_secret(key_file)
    except ValueError as error:
        raise Unusable(f"--key-file {key_file} {error}") from error


def _id_of(url: str) -> str:
    """An id for the agent at a URL: the last word of its path, or the first label of its host that says something."""
    parts = urlsplit(url.removeprefix("a2a:").removeprefix("openai:"))
    words = [word for word in parts.path.split("/") if word and not re.fullmatch(r"v[0-9.]+|\..*|.*\.json", word)]
    labels = [label for label in (parts.hostname or "").split(".") if label not in COMMON_LABELS]
    chosen = words[-1] if words else (labels or [""])[0]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", chosen).strip("-._")
    if not plain:
        raise Unusable(f"no id can be made of {url!r}: name one with --id")
    return plain


def _tell_findings(looked: "AddedAgent", form: str, *, final: bool, force: bool) -> None:
    """Say what a look at an agent found. Ends the command if something is wrong, unless it is forced."""
    sound = all(finding.ok for finding in looked.findings)
    if form == "json":
        if final:
            print_json(looked)
    else:
        for finding in looked.findings:
            _tell_finding(finding)
    if not sound and not force:
        raise CommandFailed("nothing was stored: mend that, or use --force", Code.REFUSED)


def _tell_finding(finding: "AgentFinding") -> None:
    click.echo(
        f"{click.style('✓', fg='green') if finding.ok else click.style('✗', fg='red')} {printable(finding.what)}"
    )
    if finding.fix and not finding.ok:
        click.echo(f"  {printable(finding.fix)}")


def _tell(found: "AddedAgent", form: str) -> None:
    if form == "json":
        print_json(found)
        return
    agent = printable(found.id)
    if found.removed:
        click.echo(f"{agent} is removed: it takes no new task, and its tasks stay readable.")
    elif found.live:
        click.echo(f"{agent} is live, as version {found.version}.")
    else:
        click.echo(f"{agent} is stored as version {found.version}, and is not served by the server that answered.")
    if found.fault:
        click.echo(printable(found.fault))
