"""The flags that choose tasks, and the table that shows the chosen ones.

Invariant: the flags say what the filters of the admin API say, under the same names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.admin.completion import complete_agents, complete_keys
from dragoman.cli.arguments import age_of, parse_key_id
from dragoman.cli.command import shared_option
from dragoman.cli.listing import list_rows, rows_text

if TYPE_CHECKING:
    from dragoman.admin.tasks import TaskLine

STATES = ("submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected")
"""The words of `admin.tasks`, repeated here so that `--help` imports nothing."""

_WORDS = ", ".join(STATES)

TITLE_SHOWN = 40
"""Most characters of a title in a table."""

DAMAGED = "(its record is damaged)"
"""The title of a task that cannot be read."""

FILTERS = "Filters"
"""The section of the help for these flags."""

Filters = dict[str, Any]


def with_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that choose tasks; the command gets them one by one, and `read_filters` reads them."""
    for flag in reversed(
        (
            shared_option(
                FILTERS, "--state", type=click.Choice(STATES), metavar="S", help=f"Only tasks in this state: {_WORDS}."
            ),
            shared_option(
                FILTERS, "--agent", metavar="ID", shell_complete=complete_agents, help="Only tasks of this agent."
            ),
            shared_option(FILTERS, "--team", metavar="ID", help="Only tasks of this team."),
            shared_option(FILTERS, "--principal", metavar="P", help="Only tasks of this caller, such as key:ann."),
            shared_option(
                FILTERS,
                "--key",
                metavar="ID",
                shell_complete=complete_keys,
                help="Only tasks created with the key of this id.",
            ),
            shared_option(FILTERS, "--context", metavar="ID", help="Only tasks of this conversation."),
            shared_option(
                FILTERS, "--dialect", metavar="NAME", help="Only tasks created in this dialect, such as 1.0 or 0.3."
            ),
            shared_option(
                FILTERS,
                "--text",
                metavar="TEXT",
                help="Only tasks whose first message contains TEXT near its beginning.",
            ),
            shared_option(
                FILTERS,
                "--sleeping/--not-sleeping",
                default=None,
                help="Only tasks that sleep, or only tasks that do not.",
            ),
            shared_option(
                FILTERS, "--metadata", metavar="NAME[=VALUE]", help="Only tasks whose request had this metadata."
            ),
            shared_option(
                FILTERS,
                *("--longer-than", "longer_than_s"),
                metavar="AGE",
                help="Only tasks that took longer, such as 30s.",
            ),
            shared_option(
                FILTERS, "--shorter-than", "shorter_than_s", metavar="AGE", help="Only tasks that took less time."
            ),
            shared_option(
                FILTERS,
                *("--older-than", "older_than_s"),
                metavar="AGE",
                help="Only tasks whose status has not changed for this long, such as 15m or 2d.",
            ),
            shared_option(
                FILTERS,
                "--newer-than",
                "newer_than_s",
                metavar="AGE",
                help="Only tasks whose status has changed within this time.",
            ),
        )
    ):
        command = flag(command)
    return command


def read_filters(given: Filters) -> Filters:
    """The members of a filter that were given, by their names in the API. Raises UsageError."""
    filters = given | {
        "key": None if given["key"] is None else parse_key_id(given["key"]),
        **{
            name: _age_s(f"--{name.removesuffix('_s').replace('_', '-')}", given[name])
            for name in ("longer_than_s", "shorter_than_s", "older_than_s", "newer_than_s")
        },
    }
    return {name: value for name, value in filters.items() if value is not None}


def task_table(tasks: "Sequence[TaskLine]") -> str:
    """Tasks as a table."""
    from dragoman.admin.tasks import LIST_TASKS

    return rows_text(list_rows(LIST_TASKS, tasks, words=WORDS))


def describe_state(task: "TaskLine") -> str:
    """The state that callers see, and that the task is queued or sleeps if that does not say so."""
    unsaid = task.phase == "sleeping" or (task.phase == "queued" and task.state != "submitted")
    return f"{task.state} ({task.phase})" if unsaid else task.state


WORDS: Mapping[str, Callable[[Any], str]] = {
    "state": describe_state,
    "title": lambda task: (DAMAGED if task.unreadable else task.title)[:TITLE_SHOWN],
}


def _age_s(flag: str, text: str | None) -> float | None:
    return None if text is None else age_of(flag, text, "90s, 15m, 12h or 30d").total_seconds()
