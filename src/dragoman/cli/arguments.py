"""Values of options and arguments: numbers with their range, and what a shell offers to complete a word.

Invariant: what is no such number is refused with the range that is allowed.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
from click.shell_completion import CompletionItem

from dragoman.cli.endings import Unusable

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


class WholeNumber(click.IntRange):
    """A whole number from `min` to `max`, or without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number. Raises BadParameter."""
        text = str(value)
        if re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) and self._holds(int(text)):
            return int(text)
        up_to = "on" if self.max is None else f"to {self.max}"
        self.fail(f"{text!r}: must be a whole number from {self.min} {up_to}", param, ctx)

    def _describe_range(self) -> str:
        return f"from {self.min}" if self.max is None else f"{self.min} to {self.max}"

    def _holds(self, number: int) -> bool:
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)


class Seconds(click.FloatRange):
    """A number of seconds from `min` to `max`."""

    def _describe_range(self) -> str:
        return f"{self.min:g} to {self.max:g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number. Raises BadParameter."""
        assert self.min is not None
        assert self.max is not None
        try:
            number_s = float(value)
        except ValueError:
            number_s = float("nan")
        if not self.min <= number_s <= self.max:
            self.fail(f"{str(value)!r}: must be a number of seconds from {self.min:g} to {self.max:g}", param, ctx)
        return number_s


class ServerUrl(click.ParamType[str]):
    """The address of a server: a URL, or a host with a port or without, which means https, or http on this machine."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the address. Raises BadParameter."""
        from urllib.parse import urlsplit

        url = with_scheme(str(value).strip())
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            self.fail(
                f"{str(value)!r}: must be an address such as localhost:7870 or https://agents.example.org", param, ctx
            )
        return url


def with_scheme(address: str) -> str:
    """The URL of an address that may lack its scheme: https, or http on this machine."""
    if "://" in address:
        return address
    return f"{'http' if is_loopback(address) else 'https'}://{address}"


def is_loopback(host: str) -> bool:
    """Whether a bare host, with a port and a path or without, is this machine."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


EXPOSED = "A secret in a flag shows in the process table and in the shell's history: prefer the variable"
"""Said in the help of each flag that takes a secret."""


def secret_of(flag: str, given: str | None, file: str | None) -> str | None:
    """Return a secret that was given as it is, or the one that a file holds; None without either. Raises UsageError.

    The file is that of the flag `--<flag>-file`.
    """
    if file is None:
        return given
    if given is not None:
        raise click.UsageError(f"--{flag} and --{flag}-file exclude each other, also as variables")
    from dragoman.config import read_secret

    try:
        return read_secret(file)
    except ValueError as error:
        raise Unusable(f"--{flag}-file {file!r} {error}") from error


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


def age_of(flag: str, text: str, like: str, most: timedelta | None = None) -> timedelta:
    """The age that a flag gives; with `most`, more than 0. Raises UsageError, which says what ages are `like`."""
    from dragoman.config.settings import DURATION

    try:
        age: timedelta | None = DURATION.parse(text)
    except ValueError:
        age = None
    if age is None or (most is not None and not timedelta(0) < age <= most):
        bound = "" if most is None else f", up to {most.days} days" if most.days < 366 else ", up to 100 years"
        raise click.UsageError(f"{flag} {text!r}: must be a whole number with a unit, like {like}{bound}")
    return age


def parse_key_id(text: str) -> str:
    """The id of a key, which may be given as a whole."""
    from dragoman.auth.keys import id_of

    return id_of(text) or text
