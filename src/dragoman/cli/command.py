"""Command and Group: the layout of every command's help.

Invariant: a command's own options come first; those that it shares with others follow in named sections. A folded
section is a list of flags in `--help`, and explained in `--help-all`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

EXAMPLES = "\n\nExamples:\n"
"""Begins the last part of a docstring: command lines, one a line."""

OWN = "Options"
"""The heading of a command's own options."""

ALL = f"{__name__}.all"
"""The key in a context's `meta` that shows folded sections, too."""


class SharedOption(click.Option):
    """An option that stands in a section of the help, below the command's own options.

    `folds` leaves its explanation to `--help-all`; else it stands under the heading `short` in `--help`, or its own.
    """

    def __init__(self, *args: Any, section: str, short: str = "", folds: bool = False, **given: Any) -> None:
        super().__init__(*args, **given)
        self.section = section
        self.short = short or section
        self.folds = folds


def shared_option(section: str, *names: str, **given: Any) -> Callable[[F], F]:
    """Declare an option in a section of the help; `given` is what SharedOption takes."""
    return click.option(*names, cls=SharedOption, section=section, **given)


class HelpLayout(click.Command):
    """A command whose docstring may end with `Examples:` and command lines, one a line."""

    def __init__(self, *args: Any, **given: Any) -> None:
        text, _, examples = cleandoc(given.get("help") or "").partition(EXAMPLES)
        super().__init__(*args, **{**given, "help": text or None})
        self.examples = tuple(line.strip() for line in examples.splitlines())
        if any(isinstance(each, SharedOption) and each.folds and not each.hidden for each in self.params):
            self.params.append(_help_all())

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the text, then the examples, each on a line of its own."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in self.examples))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, the sections, what is folded, and then a group's commands."""
        sections: dict[str, list[tuple[str, str]]] = {OWN: []}
        folded: dict[str, list[str]] = {}
        for option in self.get_params(ctx):
            record = None if isinstance(option, click.Argument) else option.get_help_record(ctx)
            if record is None:
                continue
            if not isinstance(option, SharedOption):
                sections[OWN].append(record)
            elif ctx.meta.get(ALL):
                sections.setdefault(option.section, []).append(record)
            elif option.folds:
                folded.setdefault(option.section, []).append(option.opts[0])
            else:
                sections.setdefault(option.short, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)
        if folded:
            _write_folded(formatter, folded)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _write_folded(formatter: click.HelpFormatter, folded: Mapping[str, Sequence[str]]) -> None:
    """Write the flags of each section. No flag is broken at its hyphens, so that all can be searched for."""
    from textwrap import TextWrapper

    width = 2 + max(map(len, folded))
    with formatter.section("More options, which --help-all explains"):
        indent = " " * formatter.current_indent
        for name, flags in folded.items():
            wrapper = TextWrapper(
                formatter.width,
                initial_indent=f"{indent}{name + ':':<{width}}",
                subsequent_indent=indent + " " * width,
                break_on_hyphens=False,
                break_long_words=False,
            )
            formatter.write(wrapper.fill(" ".join(flags)) + "\n")


def _help_all() -> click.Option:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[ALL] = True
            click.echo(ctx.get_help())
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show this message with all options explained, and exit.",
    )


class Command(HelpLayout):
    """A command of ours."""


class Group(HelpLayout, click.Group):
    """A group of ours. Its commands are commands of ours, too."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names. Raises NoSuchCommand, which names those that are near."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise no_such_command(self, ctx, error.command_name) from None


def no_such_command(group: click.Group, ctx: click.Context, name: str, more: Iterable[str] = ()) -> click.NoSuchCommand:
    """The error for a word that is no command of a group.

    It names what is spelled nearly so among the commands and what `more` may stand there; or else the commands of that
    very name in the groups below, or in a group of the same name elsewhere (`admin agents add` for `agents add`).
    """
    from difflib import get_close_matches

    known = group.list_commands(ctx)
    near = get_close_matches(name, [*known, *more]) or [
        f"{word} {name}" for word in known if _has(group.get_command(ctx, word), ctx, name)
    ]
    root = ctx.find_root()
    if not near and ctx is not root and isinstance(root.command, click.Group):
        for word in root.command.list_commands(root):
            beside = root.command.get_command(root, word)
            if isinstance(beside, click.Group) and _has(beside.get_command(root, group.name or ""), root, name):
                near.append(f"{word} {group.name} {name}")
    meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return click.NoSuchCommand(name, f"No such command {name!r}.{meant}", ctx=ctx)


def _has(command: click.Command | None, ctx: click.Context, name: str) -> bool:
    """Whether it is a group with a command of that name."""
    return isinstance(command, click.Group) and name in command.list_commands(ctx)
