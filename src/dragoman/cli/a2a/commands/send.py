"""`dragoman send`: send a message to an agent, to start or to continue an interaction (a2a-cli §8.2).

Invariant: the parts of the message have the order of their flags. A task that the caller names is continued or refused,
and never replaced by a new one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import ClientCommand, agent_options, waiting_options
from dragoman.cli.a2a.settings import Settings, SettingsError
from dragoman.cli.arguments import complete_files

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession
    from dragoman.model.message import Message, Part
    from dragoman.model.operations import SendMessage
    from dragoman.model.task import Task

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
@click.option("--text", multiple=True, metavar="TEXT", help="A text part; repeatable, parts keep their order.")
@click.option(
    "--file",
    multiple=True,
    metavar="PATH|URL",
    shell_complete=complete_files,
    help="A file part: the bytes of PATH, or a reference to URL; repeatable.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH|-",
    shell_complete=complete_files,
    help="A data part from a JSON file, or stdin; repeatable.",
)
@click.option(
    "--media-type",
    multiple=True,
    metavar="TYPE",
    help="Media type of the part before it.  [default: inferred]",
)
@click.option("--context-id", metavar="ID", help="Start a new task in this context.")
@click.option("--task-id", metavar="ID", help="Continue this task, for example to answer its question.")
@click.option("--metadata", metavar="JSON", help="Metadata of the message, as a JSON object.")
@click.option(
    "--async",
    "--return-immediately",
    "--no-wait",
    "async",
    is_flag=True,
    help="Return the ids at once, without waiting.  [default: wait]",
)
@click.option("--wait", is_flag=True, help="Wait until the task ends or waits for you; overrides A2ACLI_ASYNC.")
@click.option("--stream", is_flag=True, help="Print each event as it comes; JSON lines with -o json.")
@waiting_options
@agent_options
@click.pass_context
def send(ctx: click.Context, /, words: tuple[str, ...], stream: bool, **options: Any) -> None:
    """Send a message to an agent and wait for what comes of it.

    The message starts a new task, or continues the one of --task-id. The exit status says whether the command did its
    job; the state of the task says what the agent made of it.

    \b
      dragoman send -a https://agent.example "What is the weather in Oslo?"
      dragoman send -a localhost:7870 --text "Compare these" --file a.pdf --file b.pdf
      dragoman send -a localhost:7870 --task-id ID "Window seat, please"
    """
    from dragoman.cli.a2a.session import run_session

    flags = [("text", word) for word in words[:1]] + flags_in_order(ctx)
    if len(words) > 1:
        raise click.UsageError("quote the text: it must be one argument, or one --text", ctx)
    parts = list(read_parts(flags))
    if not parts:
        raise click.UsageError("the message is empty: give TEXT, --text, --file or --data", ctx)
    if options["async"] and (stream or options["wait"]):
        raise click.UsageError(f"--async and --{'stream' if stream else 'wait'} exclude each other", ctx)

    async def work(session: "CommandSession") -> None:
        await _send(session, parts, stream=stream)

    run_session(options, work, lines=stream)


def read_parts(flags: Sequence[tuple[str, str]]) -> Iterator["Part"]:
    """Make the parts from flags in their order: text, file, data, and the media type of the part before.

    Raises SettingsError.
    """
    from msgspec.structs import replace

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
        return Part(text=value)
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


def _read_json(value: str) -> Any:
    import sys

    import msgspec

    try:
        content = sys.stdin.buffer.read() if value == STDIN else Path(value).expanduser().read_bytes()
    except OSError as error:
        raise SettingsError(f"--data {value}: {error.strerror}: name a JSON file, or - for stdin") from error
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"--data {value} is no JSON: {error}") from error


def _guess_type(name: str) -> str | None:
    import mimetypes

    return mimetypes.guess_type(name)[0]


def read_metadata(settings: Settings) -> dict[str, Any] | None:
    """Read `--metadata`, a JSON object; None if there is none. Raises SettingsError."""
    import msgspec

    text = settings.text("metadata")
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        name = settings.describe("metadata")
        raise SettingsError(f'{name} is no JSON object: write it as \'{{"key": "value"}}\' ({error})') from error


def make_operation(session: "CommandSession", parts: Sequence["Part"]) -> "SendMessage":
    """Make the operation from the settings. Raises SettingsError."""
    from dragoman.client.conversation import make_message
    from dragoman.model.operations import SendMessage

    message = make_message(
        list(parts),
        context_id=session.settings.text("context-id") or None,
        task_id=session.settings.text("task-id") or None,
        metadata=read_metadata(session.settings),
    )
    return SendMessage(message=message)


async def _send(session: "CommandSession", parts: Sequence["Part"], *, stream: bool) -> None:
    from msgspec.structs import replace

    from dragoman.cli.a2a.waiting import note, send_and_wait
    from dragoman.model.errors import A2AError
    from dragoman.model.message import Message
    from dragoman.model.task import Task

    settings, output = session.settings, session.output
    check_extensions(session)
    operation = make_operation(session, parts)
    answer: Task | Message
    try:
        if settings.flag("async") and not stream and settings["wait"].text != "true":
            made = await session.connection.ask(replace(operation, return_immediately=True))
            assert isinstance(made, Task | Message)  # the client checks the type of an answer to this operation
            answer = made
            note(session, answer)
        else:
            answer = await send_and_wait(session, operation, on_update=output.update if stream else None)
    except A2AError as error:
        failure = session.failure(error)
        if operation.message.task_id and not failure.code.startswith("A2ACLI_"):
            failure.hint = "no task was started; `task list` shows yours, and --debug the agent's own error"
        raise failure from error
    check_answer(operation, answer)
    if not stream:
        output.update(answer)
    print_outcome(session, answer, restate=stream)


def check_answer(operation: "SendMessage", answer: "Task | Message") -> None:
    """Check that a message to a task was not answered with another task. Raises Failure."""
    from dragoman.cli.a2a.failures import Failure, error_name
    from dragoman.model.errors import InvalidAgentResponse
    from dragoman.model.task import Task

    wanted = operation.message.task_id
    if wanted and isinstance(answer, Task) and answer.id != wanted:
        raise Failure(
            error_name(InvalidAgentResponse("")),
            f"the message to task {wanted} was answered with task {answer.id}, which the agent has started instead",
            hint=f"`task cancel {answer.id}` ends it; --debug shows the agent's own answer",
        )


def check_extensions(session: "CommandSession") -> None:
    """Check that every extension that the agent requires is declared. Raises Failure."""
    from dragoman.cli.a2a.failures import Failure

    if session.card is None:
        return
    declared = session.settings["extension"].values
    for extension in session.card.capabilities.extensions:
        if extension.required and extension.uri not in declared:
            raise Failure(
                "ExtensionSupportRequiredError",
                f"the agent requires the extension {extension.uri}",
                hint=f"if you speak it, declare it with --extension {extension.uri}",
            )


def print_outcome(session: "CommandSession", answer: "Task | Message", *, restate: bool = False) -> None:
    """Print how to go on with a task, and name an outcome that is no plain success on stderr.

    `restate` prints the ids and the state again, as the end of a stream of text must (a2a-cli §9.2).
    """
    from dragoman.cli.a2a.output import print_lines, warn
    from dragoman.cli.a2a.session import command_line
    from dragoman.cli.a2a.text import field, identity_lines, is_unreadable
    from dragoman.cli.a2a.waiting import outcome_words
    from dragoman.model.message import Message
    from dragoman.model.task import INTERRUPTED, TERMINAL

    text = session.output.form == "text"
    if isinstance(answer, Message):
        if text and answer.context_id:
            command = f'{command_line(session.settings, "send")} --context-id {answer.context_id} --text "…"'
            print_lines([field("Next", command)])
        return
    state = answer.status.state
    if text and restate:
        print_lines(identity_lines(answer.id, answer.context_id, state))
    going_on = state not in TERMINAL and not is_unreadable(answer)
    if going_on and state in INTERRUPTED:
        command = f'{command_line(session.settings, "send")} --task-id {answer.id} --text "…"'
    elif not going_on:
        command = f'{command_line(session.settings, "send")} --context-id {answer.context_id} --text "…"'
    else:
        command = f"{command_line(session.settings, 'task get')} --wait {answer.id}"
    if text:
        print_lines([field("Next", command)])
    if words := outcome_words(state):
        warn(
            f"{words} ({state})"
            + ("" if text or state not in INTERRUPTED or not going_on else f"; go on with: {command}")
        )
