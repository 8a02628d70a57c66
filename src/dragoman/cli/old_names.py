"""Names of commands and options that have another name now: the old ones still work, and name the new on stderr.

Invariant: a command or option that goes by its old name does exactly what the new one does, and is refused where it
was before. `--help` shows the new.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

COMMANDS = {
    ("admin", "audit"): ("audit",),
    ("admin", "backup"): ("store", "backup"),
    ("admin", "check"): ("store", "check"),
    ("admin", "keys"): ("keys",),
    ("admin", "restore"): ("store", "restore"),
    ("admin", "webhooks"): ("webhooks",),
    ("push",): ("webhooks",),
    ("push", "drop"): ("webhooks", "delete"),
    ("push", "list"): ("webhooks", "list"),
    ("push", "retry"): ("webhooks", "redeliver"),
}
"""The words of a command before and now. The longest words that fit count."""


def with_new_names(words: Sequence[str], *, tell: bool) -> list[str]:
    """The words of a command line, with the new name for an old one; `tell` says so on stderr.

    The variable that names a server counted for `admin keys`, but does not for `keys`.
    """
    for length in (2, 1):
        old = tuple(words[:length])
        if old in COMMANDS:
            server = os.environ.get("DRAGOMAN_SERVER")
            moved = ["--server", server] if server and old == ("admin", "keys") else []
            if tell:
                tell_new_name(f"dragoman {' '.join(old)}", " ".join(("dragoman", *COMMANDS[old], *moved)))
            return [*COMMANDS[old], *words[length : length + 1], *moved, *words[length + 1 :]]
    return list(words)


class OldOption(click.Option):
    """An option that goes by its old name. The command gets its value as that of the `new` one, its parameter `to`."""

    def __init__(self, *args: Any, to: str, new: str, **given: Any) -> None:
        super().__init__(*args, **{**given, "hidden": True, "expose_value": False})
        self._to = to
        self._new = new

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Read the value; if there is one, tell the new name, and give the value to the new option."""
        value, args = super().handle_parse_result(ctx, opts, args)
        if ctx.get_parameter_source(self.name) is ParameterSource.COMMANDLINE:
            if self._to in opts:
                raise click.UsageError(f"{self.opts[0]}: goes without {self._new.partition(' ')[0]}")
            ctx.meta[f"{__name__}.{self._to}"] = self.opts[0]
            ctx.params[self._to] = value
            ctx.set_parameter_source(self._to, ParameterSource.COMMANDLINE)
            if not ctx.resilient_parsing:
                tell_new_name(self.opts[0], self._new)
        return value, args


def old_option(old: str, to: str, new: str, **given: Any) -> Callable[[Any], Any]:
    """An option's old name `old`, for the option `new`, whose value the command gets as `to`."""
    return click.option(old, cls=OldOption, to=to, new=new, **given)


def old_name_given(to: str) -> str:
    """The old name by which the running command was given its parameter `to`; empty if it was by the new one."""
    name: str = click.get_current_context().meta.get(f"{__name__}.{to}", "")
    return name


def tell_new_name(old: str, new: str) -> None:
    """Tell on stderr that something has another name now."""
    click.echo(f"`{old}` is now `{new}`.", err=True)
