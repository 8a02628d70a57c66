"""`--help`: what every command says of itself in a terminal of 80 columns."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dragoman.cli import HEADINGS, main
from dragoman.cli.command import HelpLayout

COLUMNS = 80

EXAMPLE_COLUMNS = 98
"""The longest example: those with two addresses are wider than a terminal."""


def groups_below(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    """A group and all groups below it, each with the words that lead to it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups_below(command, *path, name)


GROUPS = dict(groups_below(main))


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "dragoman")
def test_a_list_of_commands_cuts_none_of_their_sentences(path: tuple[str, ...]) -> None:
    """Click ends a sentence that is too long for its line with three dots."""
    group = GROUPS[path]
    context = click.Context(group, info_name=" ".join(("dragoman", *path)))
    context.terminal_width = COLUMNS - 2  # click leaves as much at the edge
    known = group.list_commands(context)
    first, *_ = names = [name for below in HEADINGS.values() for name in below] if group is main else known
    assert sorted(names) == known
    _, head, commands = group.get_help(context).partition(f"\n  {first} ")
    lines = [line for line in (head + commands).splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == names
    assert [line for line in lines if line.endswith("...")] == []
    assert max(map(len, lines)) < COLUMNS


def commands_below(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A group and all commands below it, each with the words that lead to it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_below(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = {" ".join(("dragoman", *path)): command for path, command in commands_below(main)}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_shows_two_examples_that_can_be_parsed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model_prices_and_context_window.json", "prices.json"):
        (tmp_path / name).touch()
    command = COMMANDS[path]
    assert isinstance(command, HelpLayout)
    assert len(command.examples) >= 2
    below = path if isinstance(command, click.Group) else ""
    for example in command.examples:
        assert len(example) <= EXAMPLE_COLUMNS
        line = re.sub(r"^(\w+=\S* |(?!dragoman).* \| )", "", example)
        words = shlex.split(re.split(r" [|<]|>", line)[0])
        named = [each for each in COMMANDS if line.startswith(f"{each} ") or line == each]
        found = max(named, key=len)
        assert found.startswith(below)
        assert below or found == path or path == "dragoman help"
        COMMANDS[found].make_context(found, [_parsable(word) for word in words[len(found.split()) :]])


def _parsable(word: str) -> str:
    """A word of an example, with a store in memory in the place of a file that is not there."""
    return "memory:" if word.startswith("sqlite:") else word


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_every_option_is_made_of_sentences(path: str) -> None:
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option) and not option.hidden:
            text, _, _ = (option.help or "").partition("  [")
            assert text.endswith("."), (option.opts, text)
            assert text[0].isupper() or option.name == "role", (option.opts, text)


def test_options_that_do_nothing_are_accepted_and_not_offered() -> None:
    command = COMMANDS["dragoman auth logout"]
    context = command.make_context("logout", ["-a", "agent.example", "--poll-interval", "1s", "--svc-param", "a:b"])
    assert context.params["poll_interval"] == "1s"
    shown = command.get_help(click.Context(command))
    assert "--output" in shown
    for flag in ("--poll-interval", "--svc-param", "--bearer", "--timeout", "--help-all"):
        assert flag not in shown


def test_a_folded_option_is_named_in_the_help_and_explained_in_the_whole_help() -> None:
    command = COMMANDS["dragoman send"]
    explained = "Add a service parameter"
    short = command.get_help(click.Context(command))
    assert " --svc-param " in short
    assert explained not in short
    ran = CliRunner().invoke(main, ["send", "--help-all"])
    assert ran.exit_code == 0
    assert explained in " ".join(ran.output.split())
    assert "More options" not in ran.output
