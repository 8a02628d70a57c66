"""`run = "command:…"`: a program behind a card, started for each task.

Invariant: no shell reads the command: it is split into words once, when the configuration is read.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.config.errors import ConfigError

COMMAND = "command:"
"""How `run` begins for a program; the command follows."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent that is a program. `command` is what `run` says."""

    command: str = ""
    env: tuple[str, ...] = ()


PROGRAM_KEYS = tuple(name for name in Program.__struct_fields__ if name != "command")


def program_entry(source: str, path: str, table: Mapping[str, Any]) -> Program:
    """What the keys of an agent's table say of the program. Raises ConfigError."""
    given = {name: table[name] for name in PROGRAM_KEYS if name in table}
    try:
        return msgspec.convert({**given, "command": str(table["run"]).removeprefix(COMMAND).strip()}, Program)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        raise ConfigError(source, f"{path}.{place}", None, "must be a list of texts", shows_value=False) from error
