"""All commands, from the commands themselves."""

from collections.abc import Iterator

import click

from dragoman.cli.topics.table import Section, TopicTable


def make_table() -> TopicTable:
    """Each command with its arguments and the first paragraph of its help."""
    from dragoman.cli import main

    return TopicTable(("Command", "What it does"), (Section("", tuple(_rows(main, "dragoman"))),))


def _rows(group: click.Group, path: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if not isinstance(command, click.Group) or command.invoke_without_command:
            arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
            help_ = " ".join((command.help or "").partition("\n\n")[0].split())
            yield f"`{' '.join([path, name, *arguments])}`", help_
        if isinstance(command, click.Group):
            yield from _rows(command, f"{path} {name}")
