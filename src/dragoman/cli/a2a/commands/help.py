"""`dragoman help COMMAND` and `TOPIC`, and `dragoman completion SHELL` (a2a-cli §5.1)."""

import shutil
from typing import TYPE_CHECKING

import click

from dragoman.cli.arguments import complete_commands
from dragoman.cli.command import Command, no_such_command
from dragoman.cli.endings import CommandFailed
from dragoman.cli.old_names import with_new_names

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")

WIDTH_MAX = 100
"""The widest lines of a table, in characters."""

_WHOLE_ADDRESSES = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"
"""Bash parts words at colons, too, so that it would complete the port of an address alone."""

_EVERY_COMMA, _FIRST_COMMA = 'string split ","', 'string split --max 1 ","'
"""Click's script for fish splits an answer at every comma, and so cuts descriptions there (click 8.5.1)."""


def _complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Offer commands, and as the first word the tables, too."""
    offered = complete_commands(ctx, param, incomplete)
    if not ctx.params.get(param.name or ""):
        from click.shell_completion import CompletionItem

        from dragoman.cli.topics import TOPICS

        offered += [
            CompletionItem(name, help=topic.title) for name, topic in TOPICS.items() if name.startswith(incomplete)
        ]
    return offered


class _HelpCommand(Command):
    """The command `help`, whose own help lists the tables."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and titles of the tables, then the options."""
        from dragoman.cli.topics import TOPICS

        with formatter.section("Tables"):
            formatter.write_dl([(name, topic.title) for name, topic in TOPICS.items()])
        super().format_options(ctx, formatter)


@click.command("help", cls=_HelpCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete_words)
@click.pass_context
def help_(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Show how to use a command, or a reference table.

    A text after the name of a table shows only the rows that contain it. An error message may be given as it was
    printed.

    Examples:
      dragoman help send
      dragoman help settings port
      dragoman help messages "store file x.db belongs to another program"
    """
    from dragoman.cli.topics import TOPICS

    if words and words[0] in TOPICS:
        _print_table(words[0], " ".join(words[1:]))
        return
    assert ctx.parent is not None  # this command is only reached through the main one
    where = ctx.parent
    for word in with_new_names(words, tell=True):
        group = where.command if isinstance(where.command, click.Group) else None
        command = None if group is None else group.get_command(where, word)
        if group is None:
            raise click.UsageError(f"`{where.command_path}` has no commands", where)
        if command is None:
            raise no_such_command(group, where, word, TOPICS if where is ctx.parent else ())
        where = click.Context(command, parent=where, info_name=word)
    click.echo(where.get_help())


def _print_table(name: str, text: str) -> None:
    """Print a reference table, or the rows of it that have the text. Raises CommandFailed if there are none."""
    from dragoman.cli.topics import load_table, search_table, to_text

    table = search_table(load_table(name), text)
    if not table.sections:
        raise CommandFailed(f"no row of `dragoman help {name}` has {text!r}")
    click.echo(to_text(table, min(shutil.get_terminal_size().columns, WIDTH_MAX)))


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for a shell.

    The script completes commands, options, and the names of agents, tasks, keys and hosts.

    Examples:
      dragoman completion bash > ~/.local/share/bash-completion/completions/dragoman
      dragoman completion zsh > "${fpath[1]}/_dragoman"
      dragoman completion fish > ~/.config/fish/completions/dragoman.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = ctx.find_root()
    assert found is not None  # click has a class for each of these shells
    assert root.info_name is not None  # the program has a name
    script = found(root.command, {}, "dragoman", "_DRAGOMAN_COMPLETE").source()
    click.echo(script.replace(_EVERY_COMMA, _FIRST_COMMA) + (_WHOLE_ADDRESSES if shell == "bash" else ""))
