"""`dragoman keys`: make, show, limit, rotate and revoke the keys that identify callers.

Invariant: a key is printed once, by the command that makes it. Only its hash is stored. Only `--server` leads away from
the local store: the variable of the same meaning, which workers read, does not.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.admin.completion import complete_agents, complete_keys
from dragoman.cli.admin.server import Desk, ServerRefusal, TaskPlace, read_pages, with_server_by_flag
from dragoman.cli.arguments import age_of, parse_key_id
from dragoman.cli.command import Group
from dragoman.cli.endings import CommandFailed, Unusable, check_output
from dragoman.cli.listing import Listing, lists, rows_text
from dragoman.cli.tables import json_flag, print_line
from dragoman.config import agent_id_fault
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from dragoman.admin.keys import IssuedKey, KeyBeginnings, KeyLine

EXPIRES_MAX = timedelta(days=36_525)
"""The longest validity. More than a century is a typing error, and may exceed what a date can express."""

OVERLAP_MAX = timedelta(days=30)
"""The longest time for which a key counts beside the one that replaces it."""

ROLES = ("caller", "agent", "monitor", "admin", "operator")
SCOPES = ("send", "read", "cancel", "push", "card")
"""The values of `model.principal`, repeated here so that `--help` imports nothing."""

LIMITS = (
    ("max_requests_per_s", 1_000_000, "Requests that the caller may send in a second, on average."),
    ("max_open_tasks", 1 << 31, "Tasks of the caller that may be running or waiting."),
    ("max_daily_tasks", 1 << 31, "Tasks that the caller may create in a day (UTC)."),
    ("max_daily_tokens", 1 << 53, "Tokens that the caller's runs may use in a day (UTC). Then messages are refused."),
)
"""The limits of a key: the name, the largest value, and the help."""

NO_LIMIT = "none"
"""The word that takes a limit from a key."""

PAGE = 1000
"""The most keys that are asked for at once."""

T = TypeVar("T")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class LimitType(click.ParamType[int]):
    """A limit: a whole number from 1 to `largest`. With `removable` also `none`, which is read as 0."""

    name = "limit"

    def __init__(self, largest: int, *, removable: bool) -> None:
        self._largest = largest
        self._removable = removable

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the limit. Raises BadParameter."""
        text = str(value)
        if self._removable and text == NO_LIMIT:
            return 0
        if re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) and 1 <= int(text) <= self._largest:
            return int(text)
        instead = f", or {NO_LIMIT} to go by the server's setting" if self._removable else ""
        self.fail(f"{text!r}: must be a whole number from 1 to {self._largest}{instead}", param, ctx)


def with_limits(*, removable: bool) -> Decorator:
    """A decorator that adds the flags of the limits to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, largest, text in reversed(LIMITS):
            flag = "--" + name.replace("_", "-")
            more = "" if removable else "  [default: the server's setting]"
            command = click.option(
                flag, name, type=LimitType(largest, removable=removable), metavar="N", help=text + more
            )(command)
        return command

    return add


_as_one = json_flag("one JSON object")


@click.group(cls=Group)
def keys() -> None:
    """Make, show, limit, rotate and revoke the keys of callers.

    The commands work before the server's first start, and while it runs: it follows within a second. With --server they
    change the keys of a server elsewhere. Once there is a key, every caller must send one. See docs/keys.md.

    Examples:
      dragoman keys create ann
      dragoman keys list
    """


@keys.command()
@click.argument("name")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="ID",
    shell_complete=complete_agents,
    help="Agent that the key may use; repeatable.  [default: all]",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What the key may do: send messages, read tasks, cancel tasks, register webhooks (push), or see the extended "
    "card; repeatable.  "
    "[default: all]",
)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="caller",
    show_default=True,
    help="caller uses agents; agent also runs their tasks, as a worker; monitor only reads /metrics; admin uses "
    "agents and reads /metrics; operator uses `dragoman admin`.",
)
@click.option("--expires", metavar="AGE", help="How long the key is valid, such as 12h, 90d or 4w.  [default: forever]")
@with_limits(removable=False)
@click.option(
    "--one-person",
    is_flag=True,
    help="The key belongs to one person. Answers in a chat may then be recognised by the turns before them.",
)
@click.option("--team", default="", metavar="ID", help="Team of the caller.  [default: none]")
@click.option(
    "--force", is_flag=True, help="With --server: create the first key of that server although it is not an operator's."
)
@_as_one
@with_server_by_flag
def create(
    place: TaskPlace,
    name: str,
    agents: tuple[str, ...],
    scopes: tuple[str, ...],
    role: str,
    expires: str | None,
    as_json: bool,
    one_person: bool,
    team: str,
    force: bool,
    **limits: int | None,
) -> None:
    """Make a key for NAME, and show it this once.

    All keys of one NAME and team are one caller: they own the same tasks. `rotate` replaces a key.

    Examples:
      dragoman keys create ann --expires 90d --max-open-tasks 5
      dragoman keys create root --role operator
    """
    from dragoman.admin.keys import BARE_ROLES, CREATE_KEY, NAME, TEAMLESS_ROLES, KeyRequest, LimitChanges
    from dragoman.model.principal import AccessRole, Scope

    if not NAME.fullmatch(name):
        raise click.UsageError(
            f"NAME {name!r}: must be 1 to 64 letters, digits or . _ @ + - and begin with a letter or a digit"
        )
    bare = BARE_ROLES.get(AccessRole(role))
    if bare is not None and (agents or scopes):
        raise click.UsageError(f"--role {role}: goes without --agent and --scope, because {bare.reach}")
    if bare is not None and any(limits.values()):
        raise click.UsageError(f"--role {role}: goes without limits, because {bare.rate}")
    if one_person and role == "monitor":
        raise click.UsageError("--role monitor: goes without --one-person, because it reaches no agent")
    if team and AccessRole(role) in TEAMLESS_ROLES:
        raise click.UsageError(f"--role {role}: goes without --team, because {TEAMLESS_ROLES[AccessRole(role)]}")
    check_output()
    _check_agents(place, agents)
    wanted = KeyRequest(
        name=name,
        role=AccessRole(role),
        agents=tuple(dict.fromkeys(agents)) or None,
        scopes=tuple(Scope(scope) for scope in dict.fromkeys(scopes)) or None,
        expires_s=None if expires is None else _age_s("--expires", expires, EXPIRES_MAX),
        limits=LimitChanges(**{limit: number for limit, number in limits.items() if number is not None}),
        one_person=one_person,
        team=team,
        force=force or place.server is None,  # nobody is locked out who can run this command on the store
    )
    _show(place, _at_keys(place, lambda desk: desk.answer(CREATE_KEY, wanted), make=True), as_json)


@keys.command("list")
@lists(limit=None, cut=True, json_too=True)
@with_server_by_flag
def list_(place: TaskPlace) -> Listing:
    """List all keys, the oldest first, without their secrets.

    Examples:
      dragoman keys list
      dragoman keys list --server https://agents.example.org -o json
    """
    from dragoman.admin.keys import LIST_KEYS, KeyQuery
    from dragoman.cli.key_text import key_listing

    where = place.server or hide_password(place.config.store)
    found, _ = _at_keys(place, lambda desk: read_pages(desk, LIST_KEYS, KeyQuery(limit=PAGE)))
    made = [key for page in found for key in page]
    return key_listing(made, empty=f"No keys in {where}; `dragoman keys create NAME` makes one.")


@keys.command()
@click.argument("key_id", metavar="ID", shell_complete=complete_keys)
@_as_one
@with_server_by_flag
def show(place: TaskPlace, key_id: str, as_json: bool) -> None:
    """Show the key ID, and what was started with it and continues.

    These are streams, webhooks and tasks. Those of other keys of the same NAME are not listed.

    Examples:
      dragoman keys show ID
      dragoman keys show ID -o json
    """
    from dragoman.cli.key_text import describe_beginnings, key_listing, public_fields

    wanted = parse_key_id(key_id)
    key, began = _at_keys(place, lambda desk: _read_key(desk, wanted), wanted)
    if as_json:
        print_line({**public_fields(key), "began": began})
    else:
        click.echo(f"{rows_text(key_listing([key]))}\n\n{describe_beginnings(key, began)}")


@keys.command()
@click.argument("key_id", metavar="ID", shell_complete=complete_keys)
@with_limits(removable=True)
@_as_one
@with_server_by_flag
def update(place: TaskPlace, key_id: str, as_json: bool, **limits: int | None) -> None:
    """Change limits of the key ID.

    Limits that are not named stay. A running server follows within a second. N is a whole number, or `none` for the
    server's setting.

    Examples:
      dragoman keys update ID --max-open-tasks 5
      dragoman keys update ID --max-requests-per-s none
    """
    from dragoman.admin.keys import LIMIT_KEY, LimitChanges
    from dragoman.cli.key_text import limits_text

    if all(limit is None for limit in limits.values()):
        flags = ", ".join("--" + name.replace("_", "-") for name, _, _ in LIMITS)
        raise click.UsageError(f"name what to change: {flags}")
    wanted = parse_key_id(key_id)
    changes = LimitChanges(**{name: limit or None for name, limit in limits.items() if limit is not None})
    key = _at_keys(place, lambda desk: desk.answer(LIMIT_KEY, changes, wanted), wanted)
    if as_json:
        _show_fields(key)
        return
    told = limits_text(key.limits) or "those of the server's settings"
    click.echo(f"The limits of key {key.id} of {key.name} are now {told}. A running server follows within a second.")


@keys.command()
@click.argument("key_id", metavar="ID", shell_complete=complete_keys)
@click.option("--overlap", metavar="AGE", help="How long the old key stays valid, such as 1h.  [default: not at all]")
@click.option(
    "--expires",
    metavar="AGE",
    help="How long the new key is valid.  [default: as long as the old one was when it was made]",
)
@_as_one
@with_server_by_flag
def rotate(place: TaskPlace, key_id: str, overlap: str | None, expires: str | None, as_json: bool) -> None:
    """Replace the key ID by another for the same caller.

    The new key has the same rights, and is shown this once. Sessions of the console that were started with the old key
    end with it.

    Examples:
      dragoman keys rotate ID --overlap 1h
      dragoman keys rotate ID --expires 90d -o json
    """
    from dragoman.admin.keys import ROTATE_KEY, RotateRequest

    wanted = RotateRequest(
        overlap_s=0 if overlap is None else _age_s("--overlap", overlap, OVERLAP_MAX),
        expires_s=None if expires is None else _age_s("--expires", expires, EXPIRES_MAX),
    )
    old = parse_key_id(key_id)
    check_output()
    _show(place, _at_keys(place, lambda desk: desk.answer(ROTATE_KEY, wanted, old), old), as_json)


@keys.command()
@click.argument("key_id", metavar="ID", shell_complete=complete_keys)
@click.option(
    "--stop", is_flag=True, help="Also end the streams and delete the webhooks that were started with the key."
)
@click.option("--tasks", is_flag=True, help="With --stop: also cancel the open tasks that were started with the key.")
@click.option("--dry-run", is_flag=True, help="With --stop: change nothing, and show what would end.")
@click.option(
    "--force", is_flag=True, help="With --server: revoke the key even if it is the one that this command uses."
)
@_as_one
@with_server_by_flag
def revoke(place: TaskPlace, key_id: str, as_json: bool, force: bool, stop: bool, tasks: bool, dry_run: bool) -> None:
    """Revoke the key ID for good. A running server refuses it within a second.

    Its streams, webhooks and tasks continue without --stop, which also works on a revoked key. Other keys of the same
    NAME are not affected.

    Examples:
      dragoman keys revoke ID
      dragoman keys revoke ID --stop --tasks --dry-run
    """
    from dragoman.admin.keys import REVOKE_KEY, RevokeRequest
    from dragoman.cli.key_text import describe_stop

    for flag, given in (("--tasks", tasks), ("--dry-run", dry_run)):
        if given and not stop:
            raise click.UsageError(f"{flag}: goes with --stop, which ends what the key began")
    wanted = parse_key_id(key_id)
    request = RevokeRequest(force=force, stop=stop, tasks=tasks, dry_run=dry_run)
    revoked = _at_keys(place, lambda desk: desk.answer(REVOKE_KEY, request, wanted), wanted)
    key, began = revoked.key, revoked.began
    if as_json:
        _show_fields(key, changed=revoked.changed, **({} if began is None else {"began": began, "dry_run": dry_run}))
        return
    if revoked.dry_run:
        click.echo(f"Key {key.id} of {key.name} would be revoked. Nothing has changed.")
    elif revoked.changed:
        click.echo(f"Key {key.id} of {key.name} is revoked. A running server refuses it within a second.")
    else:
        click.echo(f"Key {key.id} of {key.name} was already revoked.")
    if began is not None:
        click.echo(describe_stop(key, began, tasks=tasks, dry_run=dry_run))


def _at_keys(place: TaskPlace, work: Callable[[Desk], Awaitable[T]], key_id: str = "", *, make: bool = False) -> T:
    """Run `work` with the keys of the server that is named, else of the local store, and return its result.

    With `make` a missing store is created. Ends the command if that fails, with status 2 for wrong input, such as a
    `key_id` that does not exist.
    """
    from dragoman.model.errors import A2AError, NotFound
    from dragoman.store.path import hide_password

    try:
        return place.at_desk(work, make=make)
    except (NotFound, ServerRefusal) as error:
        if isinstance(error, ServerRefusal) and error.status != 404:
            if error.status != 400:
                raise
            raise Unusable(error.message) from None
        where = place.server or hide_password(place.config.store)
        raise Unusable(f"there is no key {key_id!r} in {where}: `dragoman keys list` shows their ids") from error
    except A2AError as error:
        raise Unusable(error.message) from error


async def _read_key(desk: Desk, key_id: str) -> "tuple[KeyLine, KeyBeginnings]":
    from dragoman.admin.keys import SHOW_BEGUN, SHOW_KEY

    return await desk.answer(SHOW_KEY, None, key_id), await desk.answer(SHOW_BEGUN, None, key_id)


def _show(place: TaskPlace, issued: "IssuedKey", as_json: bool) -> None:
    """Show a key that was just made. Revokes it, and ends the command, if it cannot be written."""
    from dragoman.cli.key_text import FIRST_KEY, describe_key, public_fields

    try:
        if not as_json:
            click.echo(describe_key(place, issued))
            return
        if issued.first:
            click.echo(FIRST_KEY, err=True)
        replaced = {} if issued.replaced is None else {"replaced": public_fields(issued.replaced)}
        print_line({"key": issued.secret, **public_fields(issued.key), **replaced})
    except OSError as error:
        raise CommandFailed(f"the output cannot be written: {error.strerror}; {_take_back(place, issued)}") from error


def _take_back(place: TaskPlace, issued: "IssuedKey") -> str:
    """Revoke a key whose text nobody has. Returns how the keys stand now."""
    from dragoman.admin.keys import REVOKE_KEY, RevokeRequest

    key, old = issued.key.id, issued.replaced
    try:
        _at_keys(place, lambda desk: desk.answer(REVOKE_KEY, RevokeRequest(force=True), key), key)
        said = f"key {key} is revoked, because its text is lost"
    except click.ClickException as failed:
        said = f"the text of key {key} is lost, and it could not be revoked ({failed.format_message()})"
    if old is not None:
        said += f"; key {old.id} is revoked, too" if old.state == "revoked" else f"; key {old.id} is still {old.state}"
    return said + ("; it was the first key: every caller must send one from now on" if issued.first else "")


def _show_fields(key: "KeyLine", **more: object) -> None:
    """Show a key without its secret as a JSON object."""
    from dragoman.cli.key_text import public_fields

    print_line({**public_fields(key), **more})


def _check_agents(place: TaskPlace, agents: Sequence[str]) -> None:
    """Check the ids of agents. An id that nothing declares is only a warning: a server may get the agent later.

    The file declares agents, and so does the server that is named or runs on the local store.
    """
    for agent in agents:
        if fault := agent_id_fault(agent):
            raise click.UsageError(f"--agent {agent!r}: {fault}")
    if not agents:
        return
    declared = [] if place.server is not None else [entry.id for entry in place.config.agents]
    served = _served_agents(place)
    known = list(dict.fromkeys((*declared, *served)))
    for agent in agents:
        if known and agent not in known:
            source = "the server has" if served else "the file declares"
            click.echo(
                f"Warning: {source} no agent {agent!r}; there are {', '.join(known)}. "
                "The key can reach it only once a server has it.",
                err=True,
            )


def _served_agents(place: TaskPlace) -> list[str]:
    """The agents of the server that is named, or that runs on the local store; none if none answers."""
    import asyncio

    from dragoman.admin.overview import LIST_AGENTS

    client = place.server_client()
    try:
        return [] if client is None else [each.id for each in asyncio.run(client.answer(LIST_AGENTS, None)).agents]
    except click.ClickException:
        return []  # the command itself says so if it needs the server


def _age_s(flag: str, text: str, most: timedelta) -> int:
    return int(age_of(flag, text, "12h, 90d or 4w", most).total_seconds())
