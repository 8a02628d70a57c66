"""Keys in words: the table of keys, and what a person reads who has just made one.

Invariant: only the description of a key that was just made has its secret.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dragoman.cli.admin.server import OPERATOR_KEY_ENV, TaskPlace
from dragoman.cli.listing import Listing, list_rows
from dragoman.cli.program import program
from dragoman.cli.tables import count, second, table
from dragoman.model.principal import key_owner
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from dragoman.admin.keys import IssuedKey, KeyBeginnings, KeyLine
    from dragoman.model.principal import KeyLimits

FIRST_KEY = (
    "This is the first key: from now on every caller and every worker must send one. A running server asks within a "
    "second.\nTasks made before it are hidden: docs/keys.md says how to read them."
)

BEGINNINGS = ("KIND", "TASK", "AGENT", "WHAT")

ROLES = {
    "caller": "a caller",
    "agent": "an agent's worker",
    "monitor": "a monitor",
    "admin": "an administrator",
    "operator": "an operator",
}
"""The holder of a key of each role."""

UNITS = {
    "max_requests_per_s": "requests/s",
    "max_open_tasks": "open tasks",
    "max_daily_tasks": "tasks/day",
    "max_daily_tokens": "tokens/day",
}


def public_fields(key: "KeyLine") -> dict[str, Any]:
    """The fields of a key, for JSON and for the table."""
    return {
        "id": key.id,
        "name": key.name,
        "team": key.team or "",
        "role": key.role.value,
        "agents": key.agents,
        "scopes": key.scopes,
        "made": second(key.made),
        "limits": key.limits,
        "one_person": key.one_person,
        "expires": None if key.expires is None else second(key.expires),
        "state": key.state,
    }


def key_listing(keys: "Sequence[KeyLine]", empty: str = "") -> Listing:
    """The keys as rows."""
    from dragoman.admin.keys import LIST_KEYS

    members = [column.field for column in LIST_KEYS.columns]
    rows = list(map(public_fields, keys))
    return list_rows(LIST_KEYS, rows, words=WORDS, empty=empty, members=members)


def limits_text(limits: "KeyLimits | None") -> str:
    """The limits in words: `5 requests/s, 10 open tasks`; empty if the key has none of its own."""
    numbers = {name: getattr(limits, name, None) for name in UNITS}
    return ", ".join(f"{number} {UNITS[name]}" for name, number in numbers.items() if number is not None)


def describe_key(place: TaskPlace, issued: "IssuedKey") -> str:
    """Describe a key that was just made, and how to use it."""
    key = issued.key
    reach = f"the agent{'s' * (len(key.agents) > 1)} {', '.join(key.agents)}" if key.agents else "all agents"
    doing = f"only {', '.join(key.scopes)}" if key.scopes else "every operation"
    if key.role.value == "agent":
        doing += " and the worker API"
    until = "until it is revoked" if key.expires is None else f"until {second(key.expires)}"
    beside = {"admin": ", and /metrics", "operator": ", and the admin API"}.get(key.role.value, "")
    within = f", {limits_text(key.limits)} at most" if key.limits is not None else ""
    may = "only /metrics" if key.role.value == "monitor" else f"{doing}, with {reach}{beside}"
    lines = [
        f"Key {key.id} for {key.name}{_in_team(key)}, {ROLES[key.role.value]}: {may}, {until}{within}.",
        *(["One person alone uses it."] if key.one_person else []),
        *(["It sees only its own tasks, as every role but operator does."] if key.role.value == "admin" else []),
        *([_operates(key)] if key.role.value == "operator" else []),
        *([_replacement(issued.replaced)] if issued.replaced is not None else []),
        "",
        f"    {issued.secret}",
        "",
        f"It is not shown again: {place.server or hide_password(place.config.store)} has only its hash. Send it with "
        "every request:",
        "",
        *(f"    {line}" for line in _sample_commands(place, key, issued.secret)),
    ]
    if issued.others:
        others = ", ".join(issued.others)
        has = f"another key, {others}: both" if len(issued.others) == 1 else f"other keys, {others}: all"
        lines += ["", f"{key.name} has {has} are one caller, who owns the same tasks."]
    if issued.first:
        lines += ["", FIRST_KEY]
    return "\n".join(lines)


def _in_team(key: "KeyLine") -> str:
    return f" in the team {key.team}" if key.team else ""


def _operates(key: "KeyLine") -> str:
    whose = f"of the team {key.team}, and no others" if key.team else "of every caller"
    return f"It reads and changes the tasks {whose}: keep it safe."


def describe_beginnings(key: "KeyLine", began: "KeyBeginnings") -> str:
    """The beginnings of a key that go on, a line each."""
    rows = _rows(began, tasks=True)
    lines = [table(BEGINNINGS, rows)] if rows else [f"Nothing that key {key.id} began goes on."]
    lines += _remarks(key, began, tasks=True)
    if (stop := began.stop) is not None:
        when = "servers work on it" if stop.done is None else f"done at {second(stop.done)}"
        left = f"; {count(stop.left, 'task')} could not be canceled yet" if stop.left else ""
        what = "streams, webhooks and tasks" if stop.tasks else "streams and webhooks"
        lines.append(f"{stop.by} asked to end its {what} at {second(stop.asked)}: {when}{left}.")
    return "\n".join(lines)


def describe_stop(key: "KeyLine", began: "KeyBeginnings", *, tasks: bool, dry_run: bool) -> str:
    """The beginnings that end with a key, or would end, and those that go on."""
    kinds = ("stream", "webhook", "open task") if tasks else ("stream", "webhook")
    rows = _rows(began, tasks=tasks)
    if not rows:
        lines = [f"It has no {' and no '.join(kinds)} to end."]
    elif dry_run:
        lines = ["These would end with it:", "", table(BEGINNINGS, rows)]
    else:
        lines = ["Running servers end these within 2 s, others when they start:", "", table(BEGINNINGS, rows)]
    lines += _remarks(key, began, tasks=tasks)
    if began.open_tasks and not tasks:
        go, them = ("open task goes", "it") if began.open_tasks == 1 else (f"{began.open_tasks} open tasks go", "them")
        lines += ["", f"Its {go} on: add --tasks to cancel {them}, too."]
    return "\n".join(lines)


def _rows(began: "KeyBeginnings", *, tasks: bool) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [
        ("stream", "-", "-", f"{each.streams} open on {each.server}") for each in began.streams
    ]
    rows += [("webhook", each.task, each.agent, each.host) for each in began.webhooks]
    return rows + [("task", each.id, each.agent, each.state) for each in began.tasks if tasks]


def _remarks(key: "KeyLine", began: "KeyBeginnings", *, tasks: bool) -> list[str]:
    """The beginnings that the rows leave out."""
    lines = ["It has more webhooks than these."] if began.more_webhooks else []
    if tasks and began.open_tasks > len(began.tasks):
        lines.append(f"It has {began.open_tasks} open tasks: `dragoman admin tasks list --key {key.id}` lists all.")
    unknown = [
        count(number, noun)
        for number, noun in ((began.unknown_tasks, "open task"), (began.unknown_webhooks, "webhook"))
        if number
    ]
    if unknown:
        lines.append(
            f"Unknown: {' and '.join(unknown)} of {key_owner(key.name, key.team or '')} came before keys were noted, "
            "so any key of that name may have begun them."
        )
    return lines


def _replacement(old: "KeyLine") -> str:
    if old.state == "revoked" or old.expires is None:
        return f"It replaces {old.id}, which is revoked: a running server refuses that within a second."
    return f"It replaces {old.id}, which counts until {second(old.expires)}."


WORDS: Mapping[str, Callable[[Any], str]] = {
    "agents": lambda key: "all" if key["agents"] is None else ",".join(key["agents"]),
    "scopes": lambda key: "all" if key["scopes"] is None else ",".join(key["scopes"]),
    "limits": lambda key: limits_text(key["limits"]) or "settings",
    "one_person": lambda key: "one" if key["one_person"] else "any",
    "expires": lambda key: key["expires"] or "never",
}


def _sample_commands(place: TaskPlace, key: "KeyLine", text: str) -> list[str]:
    """Commands that use the key, to paste into a shell."""
    from dragoman.cli.serve import base_url
    from dragoman.store.open import noted_server

    config = place.config
    base = place.server or config.public_url or noted_server(config.store) or base_url(config)
    if key.role.value == "operator":
        return [f"{OPERATOR_KEY_ENV}={text} {program()} admin tasks list --server {base}"]
    if key.role.value == "agent":
        return [f"{program()} worker MODULE:AGENT --server {base} --key {text}"]
    header = f"curl -H 'x-api-key: {text}'"
    if key.role.value == "monitor":
        return [f"{header} {base}/metrics"]
    if config.profile is not None:
        return [f"{header} …"]
    mount = f"{base}/agents/{key.agents[0]}" if key.agents else base
    if key.scopes and "send" not in key.scopes:
        return [f"{header} -H 'A2A-Version: 1.0' {mount}/tasks"]
    message = """'{"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}'"""
    sent = f"-H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d {message}"
    return [f"{header} {sent} {mount}/message:send"]
