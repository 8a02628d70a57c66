"""`dragoman completion`: the scripts complete commands, options and values, asked as the shells ask them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.a2a.command import DEADLINE_S, Shell

ASK = {
    "bash": """
compopt() { COMPREPLY=("<$2>"); }
eval "$SCRIPT"
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMPREPLY=()
_dragoman_completion dragoman
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { : }
compadd() { print -rl -- $completions }
_path_files() { print "<default>" }
_describe() { print -rl -- ${completions_with_descriptions%%:*} }
eval $SCRIPT
words=(${(s: :)LINE})
[[ $LINE == *" " ]] && words+=("")
CURRENT=$#words
_dragoman_completion dragoman
""",
    "fish": """
function __fish_complete_path; echo "$argv[1]<default>"; end
echo $SCRIPT | source
complete --do-complete "$LINE"
""",
}
"""Programs of the shells that print the completions of LINE. Each replaces the shell's own completion of files."""

LINES = [
    ("dragoman adm", {"admin"}),
    (
        "dragoman admin tasks ",
        {"answer", "ask-upstream", "cancel", "delete", "list", "log", "record", "send-again", "show", "tree"},
    ),
    ("dragoman admin tasks list --state in", {"input-required"}),
    ("dragoman send --ap", {"--api-key"}),
    ("dragoman send -o ", {"text", "json"}),
    ("dragoman send --file note", {"<default>"}),
    ("dragoman serve age", {"<default>"}),
    ("dragoman completion ", {"bash", "zsh", "fish"}),
    ("dragoman help store ba", {"backup"}),
    ("dragoman help met", {"metrics"}),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command, for PATH."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "dragoman"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dragoman "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("name", ASK)
def test_a_shell_completes_commands_options_and_values(name: str, programs: Path, tmp_path: Path) -> None:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    script = Shell(tmp_path).run("completion", name).out
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{programs}:{os.environ['PATH']}", "SCRIPT": script}
    for line, expected in LINES:
        ran = subprocess.run(
            [found, "-c", ASK[name]],
            env={**environment, "LINE": line},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        answers = {re.sub(r".*(?=<)|\t.*", "", answer) for answer in ran.stdout.splitlines()}
        assert answers == expected, (line, ran.stderr)


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_the_command_answers_shells_that_are_not_here(name: str, tmp_path: Path) -> None:
    """The scripts of zsh and fish ask the command in this way; its answers are three lines each, or one."""
    shell = Shell(tmp_path)
    assert f"_DRAGOMAN_COMPLETE={name}_complete" in shell.run("completion", name).out
    asked = {"_DRAGOMAN_COMPLETE": f"{name}_complete"}
    word = {"COMP_WORDS": "dragoman task ca", "COMP_CWORD": "2" if name == "zsh" else "ca"}
    ran = shell.run(**asked, **word)
    help_ = "Cancel a task, and show its state afterwards."
    assert ran.out == (f"plain\ncancel\n{help_}\n" if name == "zsh" else f"plain,cancel\t{help_}\n")


def test_a_description_in_fish_goes_on_past_a_comma(tmp_path: Path) -> None:
    script = Shell(tmp_path).run("completion", "fish").out
    assert 'string split --max 1 "," $completion' in script
