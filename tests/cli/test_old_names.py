"""Names of earlier versions: each still works, and names the new one on one line of stderr."""

import json
import re

import click
import pytest
from click.testing import CliRunner

from dragoman.cli import main
from dragoman.cli.old_names import COMMANDS
from tests.kit.commands import Run

CALLS = {
    ("admin", "audit"): ("--limit", "1"),
    ("admin", "backup"): ("b.tar", "--force"),
    ("admin", "check"): (),
    ("admin", "keys"): ("list",),
    ("admin", "restore"): ("none.tar",),
    ("admin", "webhooks"): ("paused",),
    ("push",): ("show", "1"),
    ("push", "drop"): ("1", "--yes"),
    ("push", "list"): (),
    ("push", "retry"): ("--all",),
}
"""A call of each command that has a new name."""

OPTIONS = [
    (("webhooks", "list"), ("--dead",), ("--state", "dead")),
    (("webhooks", "list"), ("--waiting",), ("--state", "pending")),
    (("webhooks", "list"), ("--after", "7"), ("--cursor", "7")),
    (("webhooks", "list", "--state", "delivered"), ("--before", "7"), ("--cursor", "7")),
    (("task", "list"), ("--status", "failed"), ("--state", "failed")),
    (("task", "list"), ("--page-size", "7"), ("--limit", "7")),
    (("task", "list"), ("--page-token", "abc"), ("--cursor", "abc")),
]


@pytest.fixture
def run(run: Run) -> Run:
    """Runs a command in a folder with a store of one key."""
    assert run("keys", "create", "ann").exit_code == 0
    return run


def test_every_old_command_has_a_call_here() -> None:
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.parametrize("old", CALLS, ids=" ".join)
def test_an_old_command_does_what_the_new_one_does_and_names_it(run: Run, old: tuple[str, ...]) -> None:
    expected = run(*COMMANDS[old], *CALLS[old])
    ran = run(*old, *CALLS[old])
    said, _, rest = ran.stderr.partition("\n")
    assert said == f"`dragoman {' '.join(old)}` is now `dragoman {' '.join(COMMANDS[old])}`."
    out, of_new = (re.sub(r"[0-9,]+ bytes", "… bytes", each.stdout) for each in (ran, expected))
    assert (ran.exit_code, out, rest) == (expected.exit_code, of_new, expected.stderr)


@pytest.mark.parametrize(("words", "old", "new"), OPTIONS, ids=[old[0] for _, old, _ in OPTIONS])
def test_an_old_option_does_what_the_new_one_does_and_names_it(
    run: Run, words: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    seen: list[dict[str, object]] = []
    command: click.Command = main
    for word in words[:2]:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    told = CliRunner()
    for given in (old, new):
        with told.isolation() as (_, err, _):
            context = command.make_context("list", [*words[2:], *given])
            seen.append(dict(context.params))
            said = err.getvalue().decode()
        named = " ".join(new) if len(old) == 1 else new[0]
        assert said == (f"`{old[0]}` is now `{named}`.\n" if given is old else "")
    assert seen[0] == seen[1]
    assert old[0] not in run(*words, "--help").output


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--dead", "--state", "delivered"), "--dead: goes without --state"),
        (("--state", "dead", "--waiting"), "--waiting: goes without --state"),
        (("--after", "7", "--cursor", "7"), "--after: goes without --cursor"),
        (("--after", "7", "--state", "delivered"), "--after: goes with pending and dead deliveries; use --cursor"),
        (("--before", "7"), "--before: goes with --state delivered; use --cursor"),
        (("--before", "7", "--dead"), "--before: goes with --state delivered; use --cursor"),
        (("--before", "0", "--state", "delivered"), "--cursor '0': is none that an earlier call showed"),
    ],
)
def test_an_old_option_never_means_what_it_did_not_mean(run: Run, words: tuple[str, ...], fault: str) -> None:
    refused = run("webhooks", "list", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"dragoman: {fault}. Hint: " in refused.stderr


def test_the_old_word_for_a_table_is_text(run: Run) -> None:
    old, new = (run("admin", "usage", "-o", form) for form in ("table", "text"))
    assert (old.exit_code, old.stdout) == (0, new.stdout)
    assert old.stderr == "`-o table` is now `-o text`.\n" + new.stderr


def test_help_leads_from_the_old_name_to_the_new(run: Run) -> None:
    ran = run("help", "push", "retry")
    assert ran.stdout.startswith("Usage: dragoman webhooks redeliver ")
    assert ran.stderr == "`dragoman push retry` is now `dragoman webhooks redeliver`.\n"


def test_only_the_old_name_for_keys_goes_where_the_variable_leads(run: Run) -> None:
    nobody = "http://127.0.0.1:9"
    old = run("admin", "keys", "list", "-o", "json", DRAGOMAN_SERVER=nobody)
    said, error = old.stderr.splitlines()
    assert said == f"`dragoman admin keys` is now `dragoman keys --server {nobody}`."
    assert (old.exit_code, json.loads(error)["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
    assert run("keys", "list", "-o", "json", DRAGOMAN_SERVER=nobody).exit_code == 0
