"""How commands end: one table of exit statuses, and one shape of errors in JSON."""

import errno
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dragoman.cli import main
from dragoman.cli.command_table import CommandTable
from dragoman.cli.endings import EXIT_STATUSES, PROGRAM, Code, status_of, unwritten
from tests.cli.a2a.command import Shell
from tests.kit.commands import FullDisk

NOBODY = ("--server", "http://127.0.0.1:9")

WRONG = [
    (("keys", "list", "--bogus"), 2, "A2ACLI_ERR_USAGE", "see `dragoman keys list --help`"),
    (("keys", "list"), 2, "A2ACLI_ERR_USAGE", None),
    (("keys", "nonsense"), 2, "A2ACLI_ERR_USAGE", "see `dragoman keys --help`"),
    (("admin", "stats", *NOBODY), 3, "A2ACLI_ERR_UNREACHABLE", None),
    (("store", "check", "memory:"), 1, "DRAGOMAN_ERR_FAILED", None),
]


@pytest.mark.parametrize("form", [("-o", "json"), ("--output=json",)], ids=["-o json", "--output=json"])
@pytest.mark.parametrize(("words", "status", "code", "hint"), WRONG, ids=[" ".join(words) for words, *_ in WRONG])
def test_an_error_is_json_on_stderr_where_json_is_asked_for(
    tmp_path: Path, words: tuple[str, ...], status: int, code: str, hint: str | None, form: tuple[str, ...]
) -> None:
    shell = Shell(tmp_path)
    ran = shell.run(*words, *form)
    assert (ran.status, ran.out) == (status, "")
    error = json.loads(ran.err)["error"]
    assert list(error) == ["code", "message", "hint", "a2aCode"]
    assert (error["code"], error["hint"]) == (code, hint)
    text = shell.run(*words)
    assert (text.status, len(text.err.splitlines())) == (status, 1)
    assert error["message"] in text.err


def test_the_status_of_every_code_is_in_the_table() -> None:
    assert {status_of(code) for code in Code} <= set(EXIT_STATUSES)
    assert status_of("TaskNotFoundError") == 1


def test_the_table_is_printed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    printed = shell.run("help", "exit-statuses").out.splitlines()
    assert [line.split(maxsplit=1) for line in printed] == [
        [str(status), meaning] for status, meaning in EXIT_STATUSES.items()
    ]
    assert "dragoman help exit-statuses" in shell.run("--help").out


@pytest.mark.parametrize("words", [("--version",), ("help", "errors"), ("keys", "--help")], ids=" ".join)
def test_output_that_the_disk_does_not_take_is_one_line(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with redirect_stdout(FullDisk()), pytest.raises(SystemExit) as ended:
        main.main(words, PROGRAM)
    assert ended.value.code == 1
    assert capfd.readouterr().err == "dragoman: the output cannot be written: No space left on device\n"


def test_output_that_a_disk_does_not_take_ends_a_process_with_one_line_and_its_status() -> None:
    with open("/dev/full", "wb") as full:
        command = (sys.executable, "-m", "dragoman", "help", "errors")
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ran.returncode, ran.stderr) == (1, "dragoman: the output cannot be written: No space left on device\n")


def test_output_that_a_disk_takes_in_part_is_told_also_without_a_buffer(tmp_path: Path) -> None:
    limited = 'ulimit -f 1; exec "$@"'  # of a block; -B, since modules would be written, too
    command = ("sh", "-c", limited, "sh", sys.executable, "-Bm", "dragoman", "help", "settings")
    with (tmp_path / "out").open("wb") as out:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        ran = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environ, text=True)
    assert (ran.returncode, ran.stderr) == (1, "dragoman: the output cannot be written: File too large\n")


def test_only_output_that_cannot_be_written_is_told_so() -> None:
    full = OSError(errno.ENOSPC, "no space")
    assert unwritten(ExceptionGroup("of a server", [ValueError(), full]))
    for other in (
        OSError(errno.ENOSPC, "no space", "a.pdf"),
        OSError(errno.ENOENT, "none"),
        ExceptionGroup("x", [ValueError()]),
    ):
        assert unwritten(other) == ""


def test_ctrl_c_ends_every_command_with_the_status_of_shells() -> None:
    @click.group(cls=CommandTable, places={})
    def main() -> None:
        """A program."""

    @main.command()
    def wait() -> None:
        """Wait."""
        raise KeyboardInterrupt

    ran = CliRunner().invoke(main, ["wait"])
    assert (ran.exit_code, ran.output) == (130, "\ndragoman: interrupted\n")
