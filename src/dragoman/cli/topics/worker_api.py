"""The requests of workers, from the table of their actions and the docstrings of the requests."""

import inspect
import re

from msgspec.structs import fields

from dragoman.agents.worker.wire import ACTIONS, ActionRow
from dragoman.cli.topics.table import Section, TopicTable

INTRODUCED = re.compile(r"^`([a-z-]+)`: (.+?)$", re.DOTALL)
"""The docstring of a request: the action that it is for first of all, and what that does."""


def make_table() -> TopicTable:
    """Each action that workers in any language may call, with the fields of its request."""
    rows = tuple(_row(action, row) for action, row in ACTIONS.items() if row.summary)
    return TopicTable(("Action", "Fields", "Meaning"), (Section("", rows),))


def _row(action: str, row: ActionRow) -> tuple[str, ...]:
    names = ", ".join(f"`{field.encode_name}`" for field in fields(row.request))
    introduced = INTRODUCED.match(" ".join((inspect.getdoc(row.request) or "").split()))
    meaning = introduced[2] if introduced and introduced[1] == action else f"{row.summary}."
    return f"`{action}`", names, meaning[0].upper() + meaning[1:]
