"""`run = "command:…"`: a program behind a card, started for each task.

Invariant: no shell reads the command: it is split into words once, when the configuration is read.
"""

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from dragoman.config.errors import ConfigError, convert_table
from dragoman.config.upstreams import VARIABLE, Seconds

COMMAND = "command:"
"""The prefix of `run` for a program; the command follows."""

RUN = f'must be {COMMAND} and a program with its arguments, such as "command:node summary.mjs --short"'

MIB = 1024 * 1024
MEMORY_BYTES_MIN = 16 * MIB
"""With less memory hardly any program reaches its first line."""

Bytes = Annotated[int, msgspec.Meta(ge=1024, le=2**40)]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent that is a program. `command` holds the words of `run`.

    `env` names variables that it gets beside the usual ones. `input` and `output` are the formats of its input and
    output; output text is gathered for `coalesce_ms`. It also gets `history` earlier messages of the conversation.
    `timeout_s` limits its work, not counting the time for the caller's answers; it is kept waiting for one for
    `keep_s`. `grace_s` is the time from SIGTERM to SIGKILL. At most `concurrency` run at once; further tasks wait. The
    exit code `reject_code` rejects the task. `restartable` says that it may be started again for a task that a crash of
    the server cut off.
    """

    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: str | None = None
    input: Literal["json", "lines", "text"] = "json"
    output: Literal["auto", "lines", "text"] = "auto"
    history: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    timeout_s: Seconds = 600.0
    keep_s: Seconds = 60.0
    grace_s: Seconds = 3.0
    coalesce_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 30.0
    max_output_bytes: Bytes = 64 * MIB
    max_line_bytes: Bytes = 16 * MIB
    max_memory_bytes: Annotated[int, msgspec.Meta(ge=MEMORY_BYTES_MIN, le=2**50)] | None = None
    max_cpu_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16
    reject_code: Annotated[int, msgspec.Meta(ge=1, le=255)] | None = None
    restartable: bool = False


PROGRAM_KEYS = tuple(name for name in Program.__struct_fields__ if name != "command")

_ALLOWED = {
    "env": "must be a list of names of environment variables",
    "cwd": "must be the path of a folder",
    "input": "must be json, lines or text",
    "output": "must be auto, lines or text",
    "history": "must be a whole number from 0 to 1000",
    **dict.fromkeys(("timeout_s", "keep_s", "grace_s"), "must be a number of seconds from 0.1 to 86400"),
    "coalesce_ms": "must be a number of milliseconds from 0 to 10000",
    **dict.fromkeys(("max_output_bytes", "max_line_bytes"), "must be a whole number of bytes, at least 1024"),
    "max_memory_bytes": f"must be a whole number of bytes, at least {MEMORY_BYTES_MIN}",
    "max_cpu_s": "must be a whole number of seconds from 1 to 86400",
    "concurrency": "must be a whole number from 1 to 10000",
    "reject_code": "must be an exit code from 1 to 255",
    "restartable": "must be true or false",
}


def program_entry(source: str, path: str, table: Mapping[str, Any]) -> Program:
    """Read the keys of an agent's table about the program. Raises ConfigError."""
    given = {name: table[name] for name in PROGRAM_KEYS if name in table}
    run = str(table["run"])
    words = command_words(source, path, run, run.removeprefix(COMMAND), RUN)
    program = convert_table(source, path, {**given, "command": words}, Program, _ALLOWED, shows_value=True)
    for name in program.env:
        if not VARIABLE.fullmatch(name):  # it may be NAME=secret, by mistake
            raise ConfigError(source, f"{path}.env", None, _ALLOWED["env"], shows_value=False)
    if program.cwd is not None and (not program.cwd or "\0" in program.cwd):
        raise ConfigError(source, f"{path}.cwd", program.cwd, _ALLOWED["cwd"])
    return program


def command_words(source: str, path: str, run: str, command: str, allowed: str) -> tuple[str, ...]:
    """Split a command into words by the quoting rules of a shell (POSIX shlex), and no other rules of a shell.

    Raises ConfigError, naming `run`, which holds the command.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(source, f"{path}.run", run, f"{allowed}; it has a quote that is not closed") from error
    if not words or not words[0] or any("\0" in word for word in words):
        raise ConfigError(source, f"{path}.run", run, allowed)
    return words
