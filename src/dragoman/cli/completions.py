"""Completions: what a shell offers for the values of options and arguments that click knows no words for."""

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer files, also where a value may be something else, such as a URL."""
    return [CompletionItem(incomplete, type="file")]


def complete_folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer folders."""
    return [CompletionItem(incomplete, type="dir")]


def complete_words(*words: str) -> Complete:
    """Offer these words."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    return complete


def complete_commands(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the commands of the group that the words before lead to."""
    where = ctx.find_root()
    for word in ctx.params.get(param.name or "") or ():
        command = where.command.get_command(where, word) if isinstance(where.command, click.Group) else None
        if command is None:
            return []
        where = click.Context(command, parent=where, info_name=word)
    if not isinstance(where.command, click.Group):
        return []
    return [CompletionItem(name) for name in where.command.list_commands(where) if name.startswith(incomplete)]
