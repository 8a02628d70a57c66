"""The calls of KAOS's task managers, and the errors of its remote agent, from their classes.

The commands do not depend on KAOS's names: the package is looked up when its table is asked for.
"""

import inspect
from importlib import import_module

from dragoman.cli.topics.members import member_rows
from dragoman.cli.topics.table import Section, TopicTable

PACKAGE = "dragoman.kaos"
ERRORS = ("AgentUnavailable", "AgentTimedOut", "TaskFailed", "RemoteAgentError")


def make_table() -> TopicTable:
    """The methods of a manager, and the errors from the narrowest to their base."""
    kaos = import_module(PACKAGE)
    errors = tuple((f"`{name}`", " ".join((inspect.getdoc(getattr(kaos, name)) or "").split())) for name in ERRORS)
    calls = member_rows(kaos.TaskManager, "manager")
    sections = Section("Task managers", calls), Section("Errors of RemoteAgent", errors)
    return TopicTable(("Call or error", "Meaning"), sections)
