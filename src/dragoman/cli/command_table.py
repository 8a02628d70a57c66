"""CommandTable: a group that knows where its commands are, and puts wrong input for them on one line.

Invariant: only the module of the command that runs is imported. A list of all commands, with their help, imports them
all.
"""

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from dragoman.cli.command import Group
from dragoman.cli.endings import INTERRUPTED_STATUS, PROGRAM, asks_for_json, buffer_output, told_as_asked
from dragoman.cli.old_names import with_new_names

OPERATORS = ("admin", "agents", "keys", "prices", "store", "webhooks")
"""Groups whose commands are about a server of ours."""

WORDS = f"{__name__}.words"
"""The key of all arguments in a context's `meta`, which the contexts below it have as well."""


class CommandTable(Group):
    """A group whose `places` name the module and the attribute of commands (`package.module:attribute`).

    It may have commands of its own besides. `headings` part the list of the commands.
    """

    def __init__(
        self,
        *args: Any,
        places: Mapping[str, str],
        headings: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._places = places
        self._headings = headings

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; a mistake in them is one line."""
        if parent is None:
            buffer_output()
            args = with_new_names(args, tell=not extra.get("resilient_parsing"))
        words = tuple(args) if parent is None else parent.meta.get(WORDS, tuple(args))
        with _usage_of(words):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[WORDS] = words
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A usage error of any command below is one line, and Ctrl-C ends all alike."""
        with _usage_of(ctx.meta[WORDS]):
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                click.echo(f"\n{PROGRAM}: interrupted", err=True)
                raise SystemExit(INTERRUPTED_STATUS) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands below their headings, each with its first sentence."""
        names = self.list_commands(ctx)
        width = max(map(len, names))
        headed = dict(self._headings or {})
        if rest := [name for name in names if not any(name in below for below in headed.values())]:
            headed["More" if headed else "Commands"] = rest
        for heading, below in headed.items():
            commands = [(name, self.get_command(ctx, name)) for name in below]
            limit = formatter.width - 6 - width
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", one.get_short_help_str(limit)) for name, one in commands if one is not None]
                )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in order."""
        return sorted({*super().list_commands(ctx), *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, imported from its place; None if there is none."""
        if cmd_name not in self._places:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._places[cmd_name].partition(":")
        with collections_paused():
            command: click.Command = getattr(import_module(module), attribute)
        return command


@contextmanager
def _usage_of(words: Sequence[str]) -> Iterator[None]:
    """Report an error in the block in the form that is asked for. `words` are all arguments.

    Where no command was found, `-o json` gets the error of the client's commands, unless it is a group of operators'.
    """
    with told_as_asked(words):
        try:
            yield
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            group = error.ctx.command if error.ctx is not None else None
            if isinstance(group, click.Group) and words[0] not in OPERATORS and asks_for_json(words):
                from dragoman.cli.a2a.options import refuse

                refuse(error, words)
            raise


@contextmanager
def collections_paused() -> Iterator[None]:
    """Import without the garbage collector: in a fifth less time, for modules make next to no garbage.

    Collections skip what was imported, because it stays for good.
    """
    before = gc.isenabled()
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()  # else the first collection would look at all of it
        if before:
            gc.enable()
