"""`dragoman send`: send a message to an agent, to start or to continue an interaction (a2a-cli §8.2).

Invariant: the parts of the message have the order of their flags.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.completion import complete_agent_tasks
from dragoman.cli.a2a.options import ClientCommand, agent_options, waiting_options
from dragoman.cli.a2a.settings import SettingsError
from dragoman.cli.arguments import complete_files

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession
    from dragoman.model.message import Part

PART_FLAGS = ("text", "file", "data", "media_type")

_ORDER = "dragoman.cli.a2a.commands.send.order"
"""The key in click's context under which the flags of parts stand in the order of the command line."""

STDIN = "-"

FILE_BYTES_MAX = 64 * 1024 * 1024
"""The largest file that is put into a message. Few agents accept as much; a URL has no limit."""


class SendCommand(ClientCommand):
    """A command that keeps the order of flags for parts, which click forgets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep the flags of parts with their values in their order."""
        keep_order(self, ctx, args)
        return super().parse_args(ctx, args)


def keep_order(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Keep the flags of parts among `args` with their values, for `flags_in_order`."""
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    left = {name: iter(values.get(name) or ()) for name in PART_FLAGS}
    ctx.meta[_ORDER] = [
        (param.name, next(left[param.name])) for param in order if param.name in left and param.name is not None
    ]


def flags_in_order(ctx: click.Context) -> list[tuple[str, str]]:
    """The flags of parts with their values, in the order of the command line."""
    flags: list[tuple[str, str]] = ctx.meta[_ORDER]
    return flags


@click.command(cls=SendCommand)
@click.argument("words", nargs=-1, metavar="[TEXT]")
@click.option(
    "--text", multiple=True, metavar="TEXT|-", help="Add a text part, - for stdin; repeatable. Parts keep their order."
)
@click.option(
    "--file",
    multiple=True,
    metavar="PATH|URL",
    shell_complete=complete_files,
    help="Add a file part: the bytes of PATH, or a reference to URL; repeatable.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH|-",
    shell_complete=complete_files,
    help="Add a data part from a JSON file, - for stdin; repeatable.",
)
@click.option(
    "--media-type",
    multiple=True,
    metavar="TYPE",
    help="Media type of the part before this option.  [default: inferred]",
)
@click.option("--context-id", metavar="ID", help="Start a new task in this conversation.")
@click.option(
    "--task-id",
    metavar="ID",
    shell_complete=complete_agent_tasks,
    help="Continue this task, for example by answering its question.",
)
@click.option("--metadata", metavar="JSON", help="Metadata of the message, as a JSON object.")
@click.option(
    "--async",
    "--return-immediately",
    "--no-wait",
    "async",
    is_flag=True,
    help="Print the ids at once, without waiting.  [default: wait]",
)
@click.option("--wait", is_flag=True, help="Wait until the task ends or waits for you, whatever A2ACLI_ASYNC says.")
@click.option("--stream", is_flag=True, help="Print each event as it arrives; with -o json as JSON lines.")
@agent_options
@waiting_options
@click.pass_context
def send(ctx: click.Context, /, words: tuple[str, ...], stream: bool, **options: Any) -> None:
    """Send a message to an agent, and wait for the result.

    The message starts a new task, or continues the one of --task-id. TEXT is the text of the message; -, or no part at
    all in a pipe, reads it from stdin. The exit status says whether the command did its job; the state of the task says
    what the agent did.

    Examples:
      dragoman send -a https://agent.example "What is the weather in Oslo?"
      dragoman send -a localhost:7870 --text "Compare these" --file a.pdf --file b.pdf
      dragoman send -a localhost:7870 --task-id ID "Window seat, please"
      git diff | dragoman send -a localhost:7870 --text "Review this:" --text -
    """
    from dragoman.cli.a2a.message import send_message
    from dragoman.cli.a2a.session import run_session

    flags = [("text", word) for word in words[:1]] + flags_in_order(ctx)
    if len(words) > 1:
        raise click.UsageError("quote the text: it must be one argument, or one --text", ctx)
    piped = not flags and sys.stdin is not None and not sys.stdin.isatty()
    parts = list(read_parts([("text", STDIN)] if piped else flags))
    if not parts or (piped and not parts[0].text):
        raise click.UsageError("the message is empty: give TEXT, --text, --file or --data, or a text on stdin", ctx)
    if options["async"] and (stream or options["wait"]):
        raise click.UsageError(f"--async and --{'stream' if stream else 'wait'} exclude each other", ctx)

    async def work(session: "CommandSession") -> None:
        await send_message(session, parts, stream=stream)

    run_session(options, work, lines=stream)


def read_parts(flags: Sequence[tuple[str, str]]) -> Iterator["Part"]:
    """Make the parts from flags in their order: text, file, data, and the media type of the part before.

    `-` is stdin, for one text or one data part. Raises SettingsError.
    """
    from msgspec.structs import replace

    if sum(value == STDIN for flag, value in flags if flag in ("text", "data")) > 1:
        raise SettingsError("stdin can be read only once: use - for one part")
    part: Part | None = None
    for flag, value in flags:
        if flag == "media_type":
            if part is None:
                raise SettingsError("--media-type has no part before it: give it after --text, --file or --data")
            part = replace(part, media_type=value)
            continue
        if part is not None:
            yield part
        part = _read_part(flag, value)
    if part is not None:
        yield part


def _read_part(flag: str, value: str) -> "Part":
    from dragoman.model.message import Part

    if flag == "text":
        return Part(text=_read_text() if value == STDIN else value)
    if flag == "data":
        return Part(data=_read_json(value), media_type="application/json")
    if value.partition("://")[0] in ("http", "https") and "://" in value:
        name = value.partition("?")[0].rstrip("/").rpartition("/")[2]
        return Part(url=value, filename=name or None, media_type=_guess_type(name))
    path = Path(value).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"--file {value}: {error.strerror}: name a file that can be read, or a URL") from error
    if len(content) > FILE_BYTES_MAX:
        raise SettingsError(f"--file {value} is larger than 64 MB: pass a URL from which the agent can fetch it")
    return Part(raw=content, filename=path.name, media_type=_guess_type(path.name) or "application/octet-stream")


def _read_text() -> str:
    """The text on stdin, without the newline at its end."""
    content = _read_stdin("the text on stdin")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise SettingsError("the text on stdin is not UTF-8: send a file with --file") from error


def _read_stdin(what: str) -> bytes:
    if sys.stdin is None:  # it was closed before the start
        raise SettingsError("stdin is closed: give the text or the data as an option, or in a file")
    content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise SettingsError(f"{what} is larger than 64 MB: send a file with --file, or pass a URL")
    return content


def _read_json(value: str) -> Any:
    import msgspec

    try:
        content = _read_stdin("--data -") if value == STDIN else Path(value).expanduser().read_bytes()
    except OSError as error:
        raise SettingsError(f"--data {value}: {error.strerror}: name a JSON file, or - for stdin") from error
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"--data {value} is no JSON: {error}") from error


def _guess_type(name: str) -> str | None:
    import mimetypes

    return mimetypes.guess_type(name)[0]
