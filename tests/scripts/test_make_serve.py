"""`make serve`: the command that it runs for the variables that it is given."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def command(*given: str, **variables: str) -> list[str]:
    """The words of the command, which is not run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "DRAGOMAN"))}
    ran = subprocess.run(
        ["make", "-n", "serve", "CONSOLE_IF_NODE=", *given],
        cwd=ROOT,
        env=environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1].split()


def ports(words: list[str]) -> tuple[str, str]:
    return words[words.index("--port") + 1], words[words.index("--grpc-port") + 1]


def test_a_second_server_on_another_port_has_another_port_for_grpc() -> None:
    assert ports(command()) == ("7870", "50051")
    assert ports(command("PORT=7871")) == ("7871", "50052")
    assert ports(command("PORT=7871", "GRPC_PORT=9000")) == ("7871", "9000")


@pytest.mark.parametrize("port", [1024, 23_000, 24_000, 65_535])
def test_the_port_for_grpc_is_one_that_there_is(port: int) -> None:
    _, found = ports(command(f"PORT={port}"))
    assert 1024 <= int(found) <= 65_535
    assert int(found) != port


def test_a_server_that_poses_as_another_system_has_no_grpc() -> None:
    assert "--grpc-port" not in command("ARGS=--profile kaos")
    assert "--grpc-port" not in command("DRAGOMAN_PROFILE=kaos")
    assert "--grpc-port" in command("ARGS=--log-level debug")


def test_the_first_interpreter_that_is_new_enough_is_tried_once(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    for name, status in (("python3", 1), ("python3.14", 0), ("python3.13", 0)):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} >> "{tries}"\nexit {status}\n')
        (tmp_path / name).chmod(0o755)
    words = command(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "python3.14" in words
    assert tries.read_text().split() == ["python3", "python3.14"]
