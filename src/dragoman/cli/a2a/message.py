"""The message of a command: made by its settings, sent, and what came of it.

Invariant: a task that the caller names is continued or refused, and never replaced by a new one.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.cli.a2a.failures import Failure, error_name
from dragoman.cli.a2a.output import print_lines, warn
from dragoman.cli.a2a.session import CommandSession, command_line
from dragoman.cli.a2a.settings import Settings, SettingsError
from dragoman.cli.a2a.text import field, identity_lines, is_unreadable
from dragoman.cli.a2a.waiting import note, outcome_words, send_and_wait
from dragoman.client.conversation import make_message
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Message, Part
from dragoman.model.operations import SendMessage
from dragoman.model.task import INTERRUPTED, TERMINAL, Task


def read_metadata(settings: Settings) -> dict[str, Any] | None:
    """Read `--metadata`, a JSON object; None if there is none. Raises SettingsError."""
    text = settings.text("metadata")
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        name = settings.describe("metadata")
        raise SettingsError(f'{name} is no JSON object: write it as \'{{"key": "value"}}\' ({error})') from error


def make_operation(session: CommandSession, parts: Sequence[Part]) -> SendMessage:
    """Make the operation from the settings. Raises SettingsError."""
    message = make_message(
        list(parts),
        context_id=session.settings.text("context-id") or None,
        task_id=session.settings.text("task-id") or None,
        metadata=read_metadata(session.settings),
    )
    return SendMessage(message=message)


async def send_message(session: CommandSession, parts: Sequence[Part], *, stream: bool) -> None:
    """Send a message as the settings say, and print what comes of it. Raises Failure, SettingsError."""
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


def check_answer(operation: SendMessage, answer: Task | Message) -> None:
    """Check that a message to a task was not answered with another task. Raises Failure."""
    wanted = operation.message.task_id
    if wanted and isinstance(answer, Task) and answer.id != wanted:
        raise Failure(
            error_name(InvalidAgentResponse("")),
            f"the message to task {wanted} was answered with task {answer.id}, which the agent has started instead",
            hint=f"`task cancel {answer.id}` ends it; --debug shows the agent's own answer",
        )


def check_extensions(session: CommandSession) -> None:
    """Check that every extension that the agent requires is declared. Raises Failure."""
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


def print_outcome(session: CommandSession, answer: Task | Message, *, restate: bool = False) -> None:
    """Print how to go on with a task, and name an outcome that is no plain success on stderr.

    `restate` prints the ids and the state again, as the end of a stream of text must (a2a-cli §9.2).
    """
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
            + ("" if text or state not in INTERRUPTED or not going_on else f"; continue with: {command}")
        )
