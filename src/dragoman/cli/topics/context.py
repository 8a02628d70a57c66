"""What a skill can do with `ctx`, from the signatures and docstrings of its classes."""

from dragoman.agents.python.context import Context, Facts
from dragoman.agents.python.memory import Memory
from dragoman.cli.topics.members import member_rows
from dragoman.cli.topics.table import Section, TopicTable


def make_table() -> TopicTable:
    """The facts of a task, the calls of `ctx`, and those of its memory."""
    sections = (
        Section("Facts", member_rows(Facts, "ctx")),
        Section("Calls", member_rows(Context, "ctx")),
        Section("Memory", member_rows(Memory, "ctx.memory")),
    )
    return TopicTable(("Name", "Meaning"), sections)
