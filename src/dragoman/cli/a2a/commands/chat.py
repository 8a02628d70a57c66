"""`dragoman chat`: a conversation with an agent at a terminal (a2a-cli §6.2).

Invariant: each turn continues the one before: in its task while that waits for an answer, else in its context. Without
a terminal nothing asks for input: lines of stdin are the messages, and the output is plain text.
"""

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import client_command

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession
    from dragoman.model.message import Message, Part
    from dragoman.model.task import Task

HELP = """\
/file PATH   attach a file to the next message
/save DIR    save the artifacts of the last task
/cancel      cancel the task that waits for you
/new         begin a new conversation
/quit        leave; so does Ctrl-D"""

COMMANDS = [line.split()[0] for line in HELP.splitlines()]

PROMPT = "› "


@client_command()
@click.option("--context-id", metavar="ID", help="Continue this conversation.")
@click.option("--task-id", metavar="ID", help="Continue this task, which waits for you.")
async def chat(session: "CommandSession") -> None:
    """Talk with an agent, turn by turn.

    A terminal shows answers as they arrive: Markdown, progress, files. Ctrl-C stops waiting for an answer, and the task
    continues; /help lists the commands. In a pipe each line of stdin is a message, and the output is plain text.

    Examples:
      dragoman chat -a localhost:7870
      dragoman chat -a agent.example --context-id ID < questions.txt
    """
    await _chat(session)


class _Chat:
    """The place in the conversation, and the files for the next message."""

    def __init__(self, context_id: str, task_id: str) -> None:
        self.context_id = context_id
        self.task_id = task_id
        self.last: Task | None = None
        self.files: list[Part] = []

    def note(self, answer: "Task | Message") -> None:
        """Remember where the next turn continues."""
        from dragoman.model.task import INTERRUPTED, Task

        self.context_id = answer.context_id or self.context_id
        self.task_id = ""
        if isinstance(answer, Task):
            self.last = answer
            self.task_id = answer.id if answer.status.state in INTERRUPTED else ""


async def _chat(session: "CommandSession") -> None:
    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.a2a.message import check_extensions
    from dragoman.cli.a2a.output import print_failure, warn
    from dragoman.cli.a2a.session import command_line
    from dragoman.cli.a2a.view import at_terminal
    from dragoman.cli.endings import Code

    draws = at_terminal() and session.output.form == "text"
    import asyncio  # the help of all commands needs none

    if not draws and sys.stdin.isatty():
        raise Failure(Code.USAGE, "chat needs a terminal for its output", hint="use `dragoman send`, or pipe lines in")
    check_extensions(session)
    settings = session.settings
    chat = _Chat(settings.text("context-id"), settings.text("task-id"))
    if draws:
        name = session.card.name if session.card is not None else settings.text("agent-card")
        warn(f"talking with {name}; /help lists commands, Ctrl-D leaves")
    reader = _LineReader(PROMPT if draws else "")
    turn: asyncio.Task[None] | None = None

    def interrupt() -> None:
        if turn is not None and not turn.done():
            turn.cancel()
        else:
            reader.end()

    if draws:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    try:
        while (line := await reader.next_line()) is not None and line.strip() != "/quit":
            if not line.strip():
                continue
            turn = asyncio.create_task(_take_line(session, chat, line, draws))
            await asyncio.wait([turn])
            if turn.cancelled():
                chat.task_id = ""
                watch = f"{command_line(session.settings, 'watch')} {session.task.task_id}"
                warn(f"stopped waiting; the task continues: {watch}" if session.task.task_id else "stopped waiting")
            elif (error := turn.exception()) is not None:
                failure = session.failure(error)
                if not draws:
                    raise failure from error
                print_failure(failure, "text")  # a person can try again
                if not failure.code.startswith("A2ACLI_"):
                    chat.task_id = ""  # the agent has refused to go on with it
    finally:
        reader.close()
        if draws:
            print(file=sys.stderr)  # noqa: T201  the shell's prompt begins on a line of its own


async def _take_line(session: "CommandSession", chat: _Chat, line: str, draws: bool) -> None:
    if not line.startswith("/") or not await _obey(session, chat, line):
        await _take_turn(session, chat, line, draws)


class _LineReader:
    """Reads the user's lines on a thread of its own, which ends with the process.

    The thread cannot be interrupted while it waits at the prompt. So it is no thread of the loop, which would wait for
    it, and the terminal is restored when the reader is closed.
    """

    def __init__(self, prompt: str) -> None:
        import asyncio

        self._prompt = prompt
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(0)
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._terminal: list[Any] | None = None
        if prompt:
            try:
                import readline  # noqa: F401  gives `input` editing and a history
                import termios
            except ImportError:
                pass  # not every Python has them
            else:
                self._terminal = termios.tcgetattr(sys.stdin)
        threading.Thread(target=self._read, daemon=True, name="chat-input").start()

    async def next_line(self) -> str | None:
        """Return the next line, None at the end of input."""
        self._wanted.release()
        return await self._lines.get()

    def end(self) -> None:
        """Have `next_line` return None."""
        self._lines.put_nowait(None)

    def close(self) -> None:
        """Restore the terminal."""
        if self._terminal is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)

    def _read(self) -> None:
        while self._wanted.acquire():
            try:
                line = input(self._prompt) if self._prompt else (sys.stdin.readline() or None)
            except EOFError:
                line = None
            try:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, None if line is None else line.rstrip("\n"))
            except RuntimeError:
                return  # the loop has ended
            if line is None:
                return


async def _take_turn(session: "CommandSession", chat: _Chat, text: str, draws: bool) -> None:
    from dragoman.cli.a2a.message import print_outcome
    from dragoman.cli.a2a.view import TaskScreen
    from dragoman.cli.a2a.waiting import send_and_wait
    from dragoman.client.conversation import make_message
    from dragoman.model.message import Part
    from dragoman.model.operations import SendMessage

    parts = [Part(text=text), *chat.files]
    chat.files = []
    message = make_message(parts, context_id=chat.context_id or None, task_id=chat.task_id or None)
    operation = SendMessage(message=message)
    session.task.task_id = session.task.context_id = ""
    session.task.announces = not draws
    if not draws:
        answer = await send_and_wait(session, operation)
        session.output.update(answer)
        chat.note(answer)
        print_outcome(session, answer)
        return
    with TaskScreen() as view:
        answer = await send_and_wait(session, operation, on_update=view.add)
        view.add(answer)
    chat.note(answer)


async def _obey(session: "CommandSession", chat: _Chat, line: str) -> bool:
    """Carry out a command; False if the line is a message, as agents have commands of their own that begin with `/`."""
    import difflib

    from dragoman.cli.a2a.commands.send import read_parts
    from dragoman.cli.a2a.download import download_task
    from dragoman.cli.a2a.output import warn
    from dragoman.cli.a2a.settings import SettingsError

    command, _, argument = line.strip().partition(" ")
    match command:
        case "/help":
            warn("commands")
            print(HELP, file=sys.stderr)  # noqa: T201  for the person, not part of the result
        case "/file" if argument:
            try:
                chat.files += read_parts([("file", argument.strip())])
            except SettingsError as error:
                raise SettingsError(str(error).replace("--file", command, 1)) from None
            warn(f"{argument.strip()} goes with the next message")
        case "/save" if chat.last is not None:
            await download_task(session, chat.last, Path(argument.strip() or "."), overwrite=False)
        case "/cancel" if chat.task_id:
            task = await session.connection.cancel(chat.task_id)
            chat.note(task)
            warn(f"task {task.id} is {task.status.state}")
        case "/new":
            chat.context_id = chat.task_id = ""
            warn("a new conversation")
        case "/file" | "/save" | "/cancel":
            warn(f"{command} has nothing to work on: see /help")
        case _:
            meant = difflib.get_close_matches(command, COMMANDS, n=1, cutoff=0.7)
            if not meant or command in COMMANDS:
                return False
            warn(
                f"no command {command}, and nothing was sent: did you mean {meant[0]}? A space before it makes it text"
            )
    return True
