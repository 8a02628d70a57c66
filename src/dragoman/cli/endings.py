"""How commands end: the exit statuses of all of them, and how an error is told.

Invariant: the status follows from the code of the error. An error is one line on stderr, which begins with the name of
the program; with `-o json` or `-o jsonl` it is a JSON object there, of the same members for every command. The commands
that talk to agents print that object on stdout, where their specification wants it (a2a-cli §9.4). A group that is
called without a command shows its help.
"""

import errno
import io
import os
import select
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import IO, Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

PROGRAM = "dragoman"


class Code(StrEnum):
    """The codes of failures that the protocol has no name for: those of a2a-cli (Appendix E), and two of our own."""

    USAGE = "A2ACLI_ERR_USAGE"
    CARD_NOT_FOUND = "A2ACLI_ERR_CARD_NOT_FOUND"
    CARD_INVALID = "A2ACLI_ERR_CARD_INVALID"
    UNREACHABLE = "A2ACLI_ERR_UNREACHABLE"
    CREDENTIALS_MISSING = "A2ACLI_ERR_CREDENTIALS_MISSING"
    AUTH_FAILED = "A2ACLI_ERR_AUTH_FAILED"
    TIMEOUT = "A2ACLI_ERR_TIMEOUT"
    INTERNAL = "A2ACLI_ERR_INTERNAL"
    REFUSED = "DRAGOMAN_ERR_REFUSED"
    FAILED = "DRAGOMAN_ERR_FAILED"


EXIT_STATUSES = {
    0: "the command did its job, whatever became of a task",
    1: "it failed, was refused, or found faults",
    2: "wrong options or settings, or a file that cannot be used",
    3: "the agent, its card or the server could not be reached",
    4: "credentials were missing or refused",
    5: "--timeout ran out; the task continues",
    130: "Ctrl-C; the task continues",
}
"""The exit statuses of all commands (a2a-cli §9.6; 130 is what shells have for SIGINT)."""

INTERRUPTED_STATUS = 130
"""The exit status after Ctrl-C."""

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors of the system for output that does not fit the disk of a file, or the limits of a user."""

OUTPUT_BYTES = 16_384
"""Room for what a command shows once."""

_STATUS = {
    Code.USAGE: 2,
    Code.CARD_NOT_FOUND: 3,
    Code.UNREACHABLE: 3,
    Code.CREDENTIALS_MISSING: 4,
    Code.AUTH_FAILED: 4,
    Code.TIMEOUT: 5,
}


def status_of(code: str) -> int:
    """The exit status of a command that ends with an error of this code: 1, unless it has one of its own."""
    return _STATUS.get(code, 1)  # type: ignore[call-overload, no-any-return]  # a StrEnum is a str


class CommandFailed(click.ClickException):
    """A command could not do its job, for a reason with a `code`."""

    def __init__(self, message: str, code: Code = Code.FAILED) -> None:
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it of each error, and wants no class variable
        """The exit status of the command."""
        return status_of(self.code)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message as one line on stderr, or to `file`."""
        click.echo(f"{PROGRAM}: {self.format_message()}", file=file, err=file is None)


class Unusable(click.UsageError):
    """A file, a setting or a place that cannot be used. The message says what to do; no help of a command does."""


class WrongInput(CommandFailed):
    """A usage error as it is printed: one line, without a full stop at its end."""

    def __init__(self, error: click.UsageError) -> None:
        self.text, self.hint = usage_text(error), help_hint(error)
        super().__init__(f"{sentence(self.text)} Hint: {self.hint}" if self.hint else self.text, Code.USAGE)


@contextmanager
def told_as_asked(words: Sequence[str]) -> Iterator[None]:
    """Report an error in the block in the form that `words`, the arguments of the whole command, ask for."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except (click.ClickException, OSError, ExceptionGroup) as error:
        told = _as_failure(error)
        if told is None:
            raise
        _drop_unwritten()
        if "--json" in words or asks_for_json(words, ("json", "jsonl")):
            _end_with_json(told)
        if told is error:
            raise
        raise told from error


def buffer_output() -> None:
    """Give an output without a buffer one, written line by line.

    Where PYTHONUNBUFFERED is set, Python drops what a full disk does not take of a long text, and raises nothing.
    """
    out = sys.stdout
    if isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(out.fileno(), "w", 1, out.encoding, out.errors, closefd=False)  # noqa: SIM115  until the end


def unwritten(error: BaseException) -> str:
    """Why output could not be written, because a disk or a limit is full; empty for any other error.

    An error about a named file is another one.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(unwritten, error.exceptions)), "")
    if not isinstance(error, OSError) or error.errno not in _UNWRITTEN or error.filename is not None:
        return ""
    return f"the output cannot be written: {os.strerror(error.errno)}"


def _drop_unwritten() -> None:
    """Let go of output that cannot be written. Python would try again at the exit, and end with a status of its own."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def check_output() -> None:
    """Check that stdout takes a text, before a command makes a thing that it shows only once. Raises CommandFailed.

    A disk that fills up later, or a reader that leaves later, is noticed only when the text is written.
    """
    try:
        if sys.stdout is None:  # `>&-`: Python would write nothing, and raise nothing
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            out = sys.stdout.fileno()
        except io.UnsupportedOperation:
            return  # memory
        mode = os.fstat(out).st_mode
        if stat.S_ISREG(mode):
            disk = os.fstatvfs(out)
            if disk.f_blocks and (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize < OUTPUT_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            reader = select.poll()
            reader.register(out, select.POLLOUT)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0)):
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        elif stat.S_ISCHR(mode) and not os.isatty(out):
            os.write(out, b"\n")  # only a write finds out that it is /dev/full
    except OSError as error:
        raise CommandFailed(f"the output cannot be written: {error.strerror}") from error


def _as_failure(error: Exception) -> CommandFailed | None:
    """The error as commands end with it; None if it is a fault of ours."""
    if isinstance(error, CommandFailed):
        return error
    if not isinstance(error, click.ClickException):
        reason = unwritten(error)
        return CommandFailed(reason) if reason else None
    return WrongInput(error) if isinstance(error, click.UsageError) else CommandFailed(error.format_message())


def _end_with_json(error: CommandFailed) -> NoReturn:
    import msgspec

    text, hint = (error.text, error.hint) if isinstance(error, WrongInput) else (error.message, "")
    click.echo(msgspec.json.encode(error_document(error.code, text, hint)).decode(), err=True)
    raise SystemExit(error.exit_code)


def error_document(code: str, message: str, hint: str = "", a2a_code: str | int | None = None) -> dict[str, Any]:
    """An error as JSON (a2a-cli §9.4). `a2a_code` is the code that an agent sent."""
    return {"error": {"code": code, "message": message, "hint": hint or None, "a2aCode": a2a_code}}


def asks_for_json(words: Sequence[str], forms: Sequence[str] = ("json",)) -> bool:
    """Whether arguments, which perhaps could not be parsed, ask for one of these forms of output."""
    spelled = {f"{flag}{form}" for flag in ("-o", "-o=", "--output=") for form in forms}
    return any(
        word in spelled or (before in ("-o", "--output") and word in forms)
        for before, word in zip(("", *words), words, strict=False)
    )


def usage_text(error: click.UsageError) -> str:
    """The fault, on one line."""
    return " ".join(error.format_message().split()).removesuffix(".")


def help_hint(error: click.UsageError) -> str:
    """The command that shows how to put it right; empty if no help does."""
    if isinstance(error, Unusable):
        return ""
    return f"see `{error.ctx.command_path if error.ctx is not None else 'dragoman'} --help`"


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends like a sentence already."""
    return text if text.endswith((".", "?", "?)")) else f"{text}."
