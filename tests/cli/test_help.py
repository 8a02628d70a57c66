"""`--help`: what every command says of itself in a terminal of 80 columns."""

from collections.abc import Iterator

import click
import pytest

from dragoman.cli import main

COLUMNS = 80


def groups_below(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    """A group and all groups below it, each with the words that lead to it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups_below(command, *path, name)


GROUPS = dict(groups_below(main))


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "dragoman")
def test_a_list_of_commands_cuts_none_of_their_sentences(path: tuple[str, ...]) -> None:
    """Click ends a sentence that is too long for its line with three dots."""
    group = GROUPS[path]
    context = click.Context(group, info_name=" ".join(("dragoman", *path)))
    context.terminal_width = COLUMNS - 2  # click leaves as much at the edge
    _, _, commands = group.get_help(context).partition("\nCommands:\n")
    lines = commands.splitlines()
    assert len(lines) == len(group.list_commands(context))
    assert [line for line in lines if line.endswith("...")] == []
    assert max(map(len, lines)) < COLUMNS
