"""`dragoman keys`: make, list and revoke the keys that identify callers.

Invariant: a key is printed once, by the command that makes it. Only its hash is stored.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.store_commands import at_store, moment, operator, table, with_store
from dragoman.config import Config, agent_id_fault
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from dragoman.model.principal import KeyLimits
    from dragoman.store.api import Store
    from dragoman.store.keyring import NewKey, StoredKey

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)

EXPIRES_MAX = timedelta(days=36_525)
"""The longest validity. More than a century is a typing error, and may exceed what a date can express."""

FIRST_KEY = (
    "This is the first key: from now on every caller and every worker must send one. A running server asks within a "
    "second.\nTasks made before it are hidden: docs/keys.md says how to read them."
)

ROLES = ("caller", "agent", "admin", "operator")
SCOPES = ("send", "read", "cancel", "push", "card")
"""The values of `model.principal`, repeated here so that `--help` imports nothing."""


LIMITS = (
    ("max_requests_per_s", 1_000_000, "Requests that its caller may make in a second, on average."),
    ("max_open_tasks", 1 << 31, "Tasks of its caller that may be running or waiting."),
    ("max_daily_tasks", 1 << 31, "Tasks that its caller may create in a day (UTC)."),
    ("max_daily_tokens", 1 << 53, "Tokens that its caller's runs may use in a day (UTC) before messages are refused."),
)
"""The limits of a key: the name, the largest value, and the help."""

NO_LIMIT = "none"
"""The word that takes a limit from a key."""


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


def with_limits(*, removable: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
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


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of callers.

    These commands work before the server's first start, and while it runs: it sees a change within a second. Once there
    is a key, every caller must send one. See docs/keys.md.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--agent", "agents", multiple=True, metavar="ID", help="An agent that it may use; repeatable.  [default: all]"
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may do: send messages, read tasks, cancel them, set up push, see the extended card; repeatable.  "
    "[default: all]",
)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="caller",
    show_default=True,
    help="caller uses agents; agent also runs their tasks, as a worker; admin also reads /metrics; operator uses "
    "`dragoman admin`.",
)
@click.option("--expires", metavar="AGE", help="How long it is valid, such as 12h, 90d or 4w.  [default: for ever]")
@with_limits(removable=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@with_store
def create(
    config: Config,
    name: str,
    agents: tuple[str, ...],
    scopes: tuple[str, ...],
    role: str,
    expires: str | None,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Make a key for NAME, and show it this once.

    All keys of one NAME are one caller: they own the same tasks. To replace a key, make a second one, hand it out, and
    revoke the first.
    """
    if not NAME.fullmatch(name):
        raise click.UsageError(
            f"NAME {name!r}: must be 1 to 64 letters, digits or . _ @ + - and begin with a letter or a digit"
        )
    if role == "operator" and (agents or scopes):
        raise click.UsageError("--role operator: goes without --agent and --scope, because it reaches every task")
    if role == "operator" and any(limits.values()):
        raise click.UsageError("--role operator: goes without limits, because the admin API has none")
    _check_agents(config, agents)
    import secrets

    import msgspec

    from dragoman.auth.keys import make_key
    from dragoman.model.ids import SystemClock
    from dragoman.model.principal import AccessRole, KeyLimits, Scope
    from dragoman.store.keyring import StoredKey

    new, now_ms = make_key(secrets.token_bytes), SystemClock().now_ms()
    key = StoredKey(
        id=new.id,
        name=name,
        role=AccessRole(role),
        agents=tuple(dict.fromkeys(agents)) or None,
        scopes=tuple(Scope(scope) for scope in dict.fromkeys(scopes)) or None,
        digest=new.digest,
        made_ms=now_ms,
        expires_ms=None if expires is None else now_ms + _age_ms(expires),
        limits=KeyLimits(**limits) if any(limits.values()) else None,
    )
    others = at_store(config, lambda store: _add(store, key), make=True)
    if as_json:
        if not others:
            click.echo(FIRST_KEY, err=True)
        click.echo(msgspec.json.encode({"key": new.text, **_public_fields(key, now_ms)}).decode())
    else:
        click.echo(_describe(config, key, new, others))


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@with_store
def list_(config: Config, as_json: bool) -> None:
    """Show every key ever made, oldest first, but not the secrets."""
    import msgspec

    from dragoman.model.ids import SystemClock

    now_ms = SystemClock().now_ms()
    found = [_public_fields(key, now_ms) for key in at_store(config, lambda store: store.keys.all())]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif found:
        columns = ("id", "name", "role", "agents", "scopes", "limits", "made", "expires", "state")
        rows = [[_cell(name, row[name]) for name in columns] for row in found]
        click.echo(table([name.upper() for name in columns], rows))
    else:
        click.echo(f"No keys in {hide_password(config.store)}; `dragoman keys create NAME` makes one.")


@keys.command()
@click.argument("key_id", metavar="ID")
@with_limits(removable=True)
@with_store
def update(config: Config, key_id: str, **limits: int | None) -> None:
    """Change limits of the key with that ID; those that are not named stay. A running server follows within a second.

    N is a whole number, or none to go by the server's setting again.
    """
    from dragoman.auth.keys import id_of

    if all(limit is None for limit in limits.values()):
        flags = ", ".join("--" + name.replace("_", "-") for name, _, _ in LIMITS)
        raise click.UsageError(f"name what to change: {flags}")
    wanted = id_of(key_id) or key_id
    key = at_store(config, lambda store: _limit(store, wanted, limits))
    if key is None:
        raise click.UsageError(
            f"there is no key {wanted!r} in {hide_password(config.store)}: `dragoman keys list` shows their ids"
        )
    if key.revoked_ms is not None:
        raise click.UsageError(f"key {key.id} of {key.name} is revoked: make another with `dragoman keys create`")
    told = _limits_text(key.limits) or "those of the server's settings"
    click.echo(f"The limits of key {key.id} of {key.name} are now {told}. A running server follows within a second.")


@keys.command()
@click.argument("key_id", metavar="ID")
@with_store
def revoke(config: Config, key_id: str) -> None:
    """Revoke the key with that ID for good. A running server refuses it within a second."""
    from dragoman.auth.keys import id_of

    wanted = id_of(key_id) or key_id
    key, now_revoked = at_store(config, lambda store: _revoke(store, wanted))
    if key is None:
        raise click.UsageError(
            f"there is no key {wanted!r} in {hide_password(config.store)}: `dragoman keys list` shows their ids"
        )
    if now_revoked:
        click.echo(f"Key {key.id} of {key.name} is revoked. A running server refuses it within a second.")
    else:
        click.echo(f"Key {key.id} of {key.name} was already revoked.")


async def _add(store: "Store", key: "StoredKey") -> "tuple[StoredKey, ...]":
    """Store a key, and return the keys that were there before."""
    import asyncio

    before = await store.keys.all()
    await asyncio.gather(store.keys.add(key), store.audit.write([_audit_entry("keys.create", key.id, key.made_ms)]))
    return before


async def _revoke(store: "Store", key_id: str) -> "tuple[StoredKey | None, bool]":
    """Revoke a key. Returns the key, if there is one, and whether this call revoked it."""
    from dragoman.model.ids import SystemClock

    key, now_ms = await store.keys.find(key_id), SystemClock().now_ms()
    if key is None or not await store.keys.revoke(key_id, now_ms):
        return key, False
    await store.audit.write([_audit_entry("keys.revoke", key_id, now_ms)])
    return key, True


async def _limit(store: "Store", key_id: str, changes: Mapping[str, int | None]) -> "StoredKey | None":
    """Change limits of a key; 0 takes one away. Returns the key as it is then, if there is one."""
    from msgspec.structs import asdict

    from dragoman.model.ids import SystemClock
    from dragoman.model.principal import KeyLimits

    key = await store.keys.find(key_id)
    if key is None:
        return None
    known = asdict(key.limits or KeyLimits())
    limits = KeyLimits(**known | {name: limit or None for name, limit in changes.items() if limit is not None})
    if await store.keys.limit(key_id, limits):
        await store.audit.write([_audit_entry("keys.update", key_id, SystemClock().now_ms())])
    return await store.keys.find(key_id)


def _audit_entry(action: str, key_id: str, now_ms: int) -> Any:
    from dragoman.store.audit import AuditEntry

    return AuditEntry(at_ms=now_ms, principal=operator(), action=action, subject=key_id)


def _check_agents(config: Config, agents: Sequence[str]) -> None:
    """Check the ids of agents. An id that is not in the file is only a warning: the server may get it from code."""
    declared = [entry.id for entry in config.agents]
    for agent in agents:
        if fault := agent_id_fault(agent):
            raise click.UsageError(f"--agent {agent!r}: {fault}")
        if declared and agent not in declared:
            click.echo(
                f"Warning: the file declares no agent {agent!r}; there are {', '.join(declared)}. "
                "The key can reach it only if the server is given it on the command line.",
                err=True,
            )


def _age_ms(text: str) -> int:
    from dragoman.config.settings import DURATION

    try:
        age = DURATION.parse(text)
    except ValueError:
        age = None
    if not age or age > EXPIRES_MAX:
        raise click.UsageError(
            f"--expires {text!r}: must be a whole number with a unit, like 12h, 90d or 4w, up to 100 years"
        )
    return int(age.total_seconds() * 1000)


def _public_fields(key: "StoredKey", now_ms: int) -> dict[str, Any]:
    """The fields of a key that may be shown."""
    from dragoman.store.keyring import key_state

    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "agents": key.agents,
        "scopes": key.scopes,
        "made": moment(key.made_ms),
        "limits": key.limits,
        "expires": None if key.expires_ms is None else moment(key.expires_ms),
        "state": key_state(key, now_ms),
    }


def _limits_text(limits: "KeyLimits | None") -> str:
    """The limits in words: `5 requests/s, 10 open tasks`; empty if the key has none of its own."""
    if limits is None:
        return ""
    units = ("requests/s", "open tasks", "tasks/day", "tokens/day")
    numbers = [getattr(limits, name) for name, _, _ in LIMITS]
    return ", ".join(f"{number} {unit}" for number, unit in zip(numbers, units, strict=True) if number is not None)


def _cell(column: str, value: Any) -> str:
    if column == "limits":
        return _limits_text(value) or "settings"
    if value is None:
        return "never" if column == "expires" else "all"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _describe(config: Config, key: "StoredKey", new: "NewKey", others: "Sequence[StoredKey]") -> str:
    """Describe a key that was just made, and how to use it."""
    reach = f"the agent{'s' * (len(key.agents) > 1)} {', '.join(key.agents)}" if key.agents else "all agents"
    doing = f"only {', '.join(key.scopes)}" if key.scopes else "every operation"
    if key.role.value in ("agent", "admin"):
        doing += " and the worker API"
    until = "until it is revoked" if key.expires_ms is None else f"until {moment(key.expires_ms)}"
    role = {"caller": "a caller", "agent": "an agent's worker", "admin": "an administrator", "operator": "an operator"}[
        key.role.value
    ]
    beside = {"admin": ", and /metrics", "operator": ", and the admin API"}.get(key.role.value, "")
    within = f", {_limits_text(key.limits)} at most" if key.limits is not None else ""
    lines = [
        f"Key {key.id} for {key.name}, {role}: {doing}, with {reach}{beside}, {until}{within}.",
        *(["It sees only its own tasks, as every role but operator does."] if key.role.value == "admin" else []),
        *(["It reads and changes the tasks of every caller: keep it safe."] if key.role.value == "operator" else []),
        "",
        f"    {new.text}",
        "",
        f"It is not shown again: {hide_password(config.store)} has only its hash. Send it with every request:",
        "",
        *(f"    {line}" for line in _sample_commands(config, key, new.text)),
    ]
    same = [other.id for other in others if other.name == key.name and other.revoked_ms is None]
    if same:
        lines += ["", f"{key.name} has another key, {', '.join(same)}: both are one caller, who owns the same tasks."]
    if not others:
        lines += ["", FIRST_KEY]
    return "\n".join(lines)


def _sample_commands(config: Config, key: "StoredKey", text: str) -> list[str]:
    """Commands that use the key, to paste into a shell."""
    from dragoman.cli.serve import base_url
    from dragoman.store.open import noted_server

    base = noted_server(config.store) or base_url(config)
    if key.role.value == "operator":
        return [f"DRAGOMAN_API_KEY={text} dragoman admin tasks list --server {base}"]
    if key.role.value == "agent":
        return [f"dragoman worker MODULE:AGENT --server {base} --key {text}"]
    header = f"curl -H 'x-api-key: {text}'"
    if config.profile is not None:
        return [f"{header} …"]
    mount = f"{base}/agents/{key.agents[0]}" if key.agents else base
    if key.scopes and "send" not in key.scopes:
        return [f"{header} -H 'A2A-Version: 1.0' {mount}/tasks"]
    message = """'{"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}'"""
    sent = f"-H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d {message}"
    return [f"{header} {sent} {mount}/message:send"]
