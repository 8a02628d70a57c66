"""`dragoman chat` and `dragoman watch`: drawn on a terminal, plain in a pipe."""

import re

import pytest

from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal

PROMPT = "› "


@pytest.mark.requirement("CHAT_001")
def test_a_conversation_carries_task_and_context_from_turn_to_turn(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "chat", "-a", f"{demo}/agents/booking") as terminal:
        at = terminal.until(PROMPT)
        terminal.type("Book me a trip\n")
        at = terminal.until(PROMPT, after=terminal.until("input required", after=at))
        terminal.type("Oslo\n")
        at = terminal.until(PROMPT, after=terminal.until("To where?", after=at))
        terminal.type("**Rome**\n")
        at = terminal.until(PROMPT, after=terminal.until("completed", after=at))
        assert "Booked: from Oslo to \x1b[1mRome\x1b[0m" in terminal.screen  # Markdown is drawn
        terminal.type("Another one\n")
        at = terminal.until(PROMPT, after=terminal.until("From where?", after=at))
        terminal.type("/cancel\n")
        at = terminal.until(PROMPT, after=terminal.until("TASK_STATE_CANCELED", after=at))
        terminal.type("\x04")
        assert terminal.end() == 0
    tasks = re.findall(r"(?:completed|input required)  task ([0-9a-f-]{36})", terminal.screen)
    assert len(set(tasks)) == 2
    listed = shell.run("task", "list", "-a", f"{demo}/agents/booking", "-o", "json").json["tasks"]
    assert len({task["contextId"] for task in listed if task["id"] in tasks}) == 1


def test_ctrl_c_stops_waiting_and_the_conversation_goes_on(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    with at_terminal(shell, "chat", "-a", agent) as terminal:
        at = terminal.until(PROMPT)
        terminal.type("600 every 0.2\n")
        at = terminal.until("of 600", after=at)
        terminal.type("\x03")
        at = terminal.until("dragoman watch ", after=at)
        at = terminal.until(PROMPT, after=at)
        terminal.type("2 every 0.01\n")
        at = terminal.until(PROMPT, after=terminal.until("completed", after=at))
        terminal.type("/quit\n")
        assert terminal.end() == 0
    shown = re.sub(r"\s+", " ", terminal.screen)
    (task,) = re.findall(rf"dragoman watch --agent-card {re.escape(agent)} ([0-9a-f-]{{36}})", shown)
    assert shell.run("task", "cancel", "-a", agent, task).fields["State"] == "TASK_STATE_CANCELED"


def test_a_mistake_in_a_command_sends_nothing_and_loses_no_task(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "chat", "-a", f"{demo}/agents/booking") as terminal:
        at = terminal.until(PROMPT)
        terminal.type("Book me a trip\n")
        at = terminal.until(PROMPT, after=terminal.until("input required", after=at))
        terminal.type("/file missing.pdf\n")
        at = terminal.until("dragoman: A2ACLI_ERR_USAGE: /file missing.pdf: No such file", after=at)
        at = terminal.until(PROMPT, after=at)
        terminal.type("/cancle\n")
        at = terminal.until(PROMPT, after=terminal.until("did you mean /cancel?", after=at))
        terminal.type(" /cancle\n")  # a text, as the hint says
        at = terminal.until(PROMPT, after=terminal.until("To where?", after=at))
        terminal.type("/oslo\n")  # no command is like it: agents have commands of their own
        terminal.until("Booked: from  /cancle to /oslo", after=at)


def test_a_running_task_is_drawn_with_its_progress(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    task = shell.run("send", "-a", agent, "600 every 0.1", "--async", "-o", "json").json["task"]["id"]
    with at_terminal(shell, "watch", "-a", agent, task) as terminal:
        at = terminal.until("of 600")
        shell.run("task", "cancel", "-a", agent, task)
        terminal.until(f"canceled  task {task}", after=at)
        assert terminal.end() == 0
    assert "Step " in terminal.screen


@pytest.mark.requirement("CHAT_001", "OUT_005")
def test_in_a_pipe_both_are_plain_text_and_never_ask(shell: Shell, demo: str) -> None:
    talked = shell.run("chat", "-a", f"{demo}/agents/booking", stdin="Book\nOslo\nRome\n")
    assert talked.status == 0
    states = re.findall(r"State: (\w+)", talked.out)
    assert states == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]
    assert "\x1b" not in talked.out + talked.err
    task = talked.fields["Task"]
    watched = shell.run("watch", "-a", f"{demo}/agents/booking", task)
    assert watched.fields["State"] == "TASK_STATE_COMPLETED"
    assert "\x1b" not in watched.out


@pytest.mark.requirement("OUT_005")
def test_the_specifications_own_commands_look_the_same_on_a_terminal(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "send", "-a", demo, "hello") as terminal:
        assert terminal.end() == 0
    assert "\x1b" not in terminal.screen
    assert "State: TASK_STATE_COMPLETED" in terminal.screen


def test_a_hostile_agent_draws_nothing_but_text(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "chat", "-a", demo) as terminal:
        terminal.until(PROMPT)
        terminal.type("x[click](javascript:alert(1))![i](http://127.0.0.1:1/beacon)\n")
        at = terminal.until("completed")
        terminal.until(PROMPT, after=at)
        terminal.type("\x04")
        terminal.end()
    assert "\x1b]8;" not in terminal.screen  # no clickable link
