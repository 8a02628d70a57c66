"""`dragoman help`, and `dragoman completion SHELL` (a2a-cli §5.1)."""

import click

from dragoman.cli.arguments import complete_commands
from dragoman.cli.endings import EXIT_STATUSES
from dragoman.cli.old_names import with_new_names

SHELLS = ("bash", "zsh", "fish")

_EVERY_COMMA, _FIRST_COMMA = 'string split ","', 'string split --max 1 ","'
"""Click's script for fish splits an answer at every comma, and so cuts descriptions there (click 8.5.1)."""


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=complete_commands)
@click.pass_context
def help_(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Show how to use a command: `dragoman help send`.

    `dragoman help exit-statuses` shows the exit statuses of all commands.
    """
    if words == ("exit-statuses",):
        click.echo("\n".join(f"{status:>3}  {meaning}" for status, meaning in EXIT_STATUSES.items()))
        return
    assert ctx.parent is not None  # this command is only reached through the main one
    where = ctx.parent
    for word in with_new_names(words, tell=True):
        command = where.command.get_command(where, word) if isinstance(where.command, click.Group) else None
        if command is None:
            raise click.UsageError(f"no command {' '.join(words)!r}", ctx.parent)
        where = click.Context(command, parent=where, info_name=word)
    click.echo(where.get_help())


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for a shell.

    \b
      bash:  dragoman completion bash > ~/.local/share/bash-completion/completions/dragoman
      zsh:   dragoman completion zsh > "${fpath[1]}/_dragoman"
      fish:  dragoman completion fish > ~/.config/fish/completions/dragoman.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = ctx.find_root()
    assert found is not None  # click has a class for each of these shells
    assert root.info_name is not None  # the program has a name
    script = found(root.command, {}, "dragoman", "_DRAGOMAN_COMPLETE").source()
    click.echo(script.replace(_EVERY_COMMA, _FIRST_COMMA))
