"""CommandTable: a group that knows where its commands are, and puts wrong input for them on one line.

Invariant: only the module of the command that runs is imported. A list of all commands, with their help, imports them
all.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from dragoman.cli.usage_errors import usage_on_one_line


class CommandTable(click.Group):
    """A group whose `places` name the module and the attribute of commands (`package.module:attribute`).

    It may have commands of its own besides.
    """

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; a mistake in them is one line."""
        with usage_on_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a usage error of any command below is one line."""
        with usage_on_one_line():
            return super().invoke(ctx)

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
