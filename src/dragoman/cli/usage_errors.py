"""Usage errors: wrong input ends a command with exit status 2 and one line, which leads to the command's help.

Invariant: no command prints click's four lines of usage. A group that is called without a command still shows its help.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.exceptions import NoArgsIsHelpError


class WrongInput(click.ClickException):
    """A usage error as it is printed: one line, without a full stop at its end."""

    exit_code = 2


@contextmanager
def usage_on_one_line() -> Iterator[None]:
    """Raise WrongInput for a usage error in the block."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise WrongInput(f"{sentence(usage_text(error))} Hint: {help_hint(error)}") from error


def usage_text(error: click.UsageError) -> str:
    """The fault, on one line."""
    return " ".join(error.format_message().split()).removesuffix(".")


def help_hint(error: click.UsageError) -> str:
    """The command that shows how to put it right."""
    return f"see `{error.ctx.command_path if error.ctx is not None else 'dragoman'} --help`"


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends like a sentence already."""
    return text if text.endswith((".", "?", "?)")) else f"{text}."
