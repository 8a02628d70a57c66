"""The exit statuses of all commands, from the table that commands end by."""

from dragoman.cli.endings import EXIT_STATUSES
from dragoman.cli.topics.table import Section, Table


def make_table() -> Table:
    """The statuses in their order."""
    rows = tuple((str(status), meaning) for status, meaning in EXIT_STATUSES.items())
    return Table(("Exit status", "Meaning"), (Section("", rows),))
