"""The exit statuses of all commands, from the table that commands end by."""

from dragoman.cli.endings import EXIT_STATUSES
from dragoman.cli.topics.table import Section, TopicTable


def make_table() -> TopicTable:
    """The statuses in their order."""
    rows = tuple((str(status), meaning) for status, meaning in EXIT_STATUSES.items())
    return TopicTable(("Exit status", "Meaning"), (Section("", rows),))
