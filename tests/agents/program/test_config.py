"""The keys of a program's table, and the checks of the program on this machine."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.program.executable import build_environment, check_program, find_executable
from dragoman.agents.program.wire import MEANINGS, parse_line
from dragoman.config import ConfigError, Program, load
from dragoman.config.programs import PROGRAM_KEYS, program_entry


def entry(run: str, **keys: Any) -> Program:
    return program_entry("dragoman.toml", "agents[0]", {"id": "a", "run": run, **keys})


def test_the_command_is_split_into_words_once_and_no_shell_reads_it() -> None:
    assert entry("command: ./a.sh 'two words' \"$HOME\" | tee *").command == (
        *("./a.sh", "two words", "$HOME"),
        *("|", "tee", "*"),
    )


@pytest.mark.parametrize("run", ["command:", "command:  ", "command:''", "command:'open", "command:a\0b"])
def test_a_command_that_is_none_is_refused(run: str) -> None:
    with pytest.raises(ConfigError, match=r"agents\[0\]\.run = .*must be command: and a program"):
        entry(run)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env", "PATH"),
        ("env", [1]),
        ("cwd", ""),
        ("cwd", 1),
        ("input", "yaml"),
        ("output", "json"),
        ("history", -1),
        ("timeout_s", 0),
        ("keep_s", "long"),
        ("grace_s", 1e9),
        ("max_output_bytes", 1),
        ("max_line_bytes", 0.5),
        ("max_memory_bytes", 1000),
        ("max_cpu_s", 0),
        ("concurrency", 0),
        ("reject_code", 0),
        ("restartable", 1),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"agents\[0\]\.{key}.*: must be "):
        entry("command:true", **{key: value})


def test_a_secret_in_env_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        entry("command:true", env=["API_KEY=hunter2"])
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("key", sorted(PROGRAM_KEYS))
def test_every_key_says_what_is_allowed(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}.*must be "):
        entry("command:true", **{key: {}})


def test_the_environment_is_an_allow_list() -> None:
    environ = {"PATH": "/bin", "HOME": "/h", "SECRET": "s", "TOKEN": "t", "LD_PRELOAD": "x"}
    assert build_environment(("TOKEN", "GONE"), environ) == {
        "PATH": "/bin",
        "HOME": "/h",
        "TOKEN": "t",
    }


def script(folder: Path, first: str, *, executable: bool = True) -> Path:
    path = folder / "agent"
    path.write_text(first + "\ntrue\n", newline="")
    path.chmod(0o755 if executable else 0o644)
    return path


def faults(program: Program) -> list[str]:
    return [f"{finding.what}: {finding.fix}" for finding in check_program(program, os.environ) if not finding.ok]


def test_a_sound_program_has_no_faults(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/usr/bin/env bash")
    program = Program(command=(str(path),), cwd=str(tmp_path), env=("PATH",))
    assert faults(program) == []
    assert find_executable(program.command[0], os.environ) == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_is_missing_is_named_with_the_fix(tmp_path: Path) -> None:
    assert "not in PATH" in faults(Program(command=("no-such-program",)))[0]
    assert "no file there" in faults(Program(command=(str(tmp_path / "gone"),)))[0]
    assert f"chmod +x {tmp_path}" in faults(Program(command=(str(script(tmp_path, "#!/bin/sh", executable=False)),)))[0]
    assert "make it" in faults(Program(command=("true",), cwd=str(tmp_path / "gone")))[0]
    assert "set NO_SUCH_NAME" in faults(Program(command=("true",), env=("NO_SUCH_NAME",)))[0]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("#!/no/such/interpreter", "/no/such/interpreter"),
        ("#!/usr/bin/env no-such-interpreter", "no-such-interpreter"),
        ("#!/usr/bin/env -S no-such-interpreter -x", "no-such-interpreter"),
        ("#!/bin/sh\r", "save it with LF"),
        ("#!/usr/bin/env bash\r", "save it with LF"),
    ],
)
def test_a_script_whose_interpreter_is_missing_is_named(tmp_path: Path, first: str, says: str) -> None:
    (fault,) = faults(Program(command=(str(script(tmp_path, first)),)))
    assert says in fault


# -- the page about it -------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs/agents/command.md"


def rows(first: str) -> list[str]:
    """The first cells of the table whose head begins with `first`."""
    table = PAGE.read_text().partition(f"| {first} |")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()[2:]]


def test_the_lines_of_the_page_say_what_it_says_they_do() -> None:
    lines = [
        cell.strip("`").replace("{…}", "{}").replace(": …", ": 0").replace("…", "").replace("<base64>", "")
        for cell in rows("Line")
    ]
    meanings = {type(parse_line(line.encode())) for line in lines}
    assert meanings == set(MEANINGS.values())


def test_the_first_file_of_the_page_works(tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "dragoman.toml").write_text(block[1])
    (found,) = load(tmp_path / "dragoman.toml", {}, {}).agents
    assert found.program is not None
    assert faults(found.program) == []
    assert found.program.command == ("tr", "a-z", "A-Z")
