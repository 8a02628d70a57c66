"""The flags that choose tasks, and the table that shows the chosen ones.

Invariant: the flags say what the filters of the admin API say, under the same names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.arguments import age_of, parse_key_id
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

Filters = dict[str, Any]


def with_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that choose tasks; the command gets them one by one, and `read_filters` reads them."""
    for flag in reversed(
        (
            click.option("--state", type=click.Choice(STATES), metavar="S", help=f"Only in this state: {_WORDS}."),
            click.option("--agent", metavar="ID", help="Only tasks of this agent."),
            click.option("--team", metavar="ID", help="Only tasks of this team."),
            click.option("--principal", metavar="P", help="Only tasks of this caller, such as key:ann."),
            click.option("--key", metavar="ID", help="Only tasks made with the key of this id."),
            click.option("--context", metavar="ID", help="Only tasks of this context."),
            click.option("--dialect", metavar="NAME", help="Only tasks made in this dialect, such as 1.0 or 0.3."),
            click.option(
                "--text", metavar="TEXT", help="Only tasks whose first message contains it near its beginning."
            ),
            click.option(
                "--sleeping/--not-sleeping", default=None, help="Only tasks that sleep until a time, or do not."
            ),
            click.option("--metadata", metavar="NAME[=VALUE]", help="Only tasks whose request had this metadata."),
            click.option(
                *("--longer-than", "longer_than_s"), metavar="AGE", help="Only tasks that took longer, such as 30s."
            ),
            click.option("--shorter-than", "shorter_than_s", metavar="AGE", help="Only tasks that took less time."),
            click.option(
                *("--older-than", "older_than_s"),
                metavar="AGE",
                help="Only tasks whose status is older, such as 15m or 2d.",
            ),
            click.option("--newer-than", "newer_than_s", metavar="AGE", help="Only tasks whose status is newer."),
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
