"""The server of `make serve` and the build behind it, with a Makefile of two lines in place of the real one."""

import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.waiting import DEADLINE_S
from tests.processes import ENDS_WITH_US

SERVE = Path(__file__).parents[2] / "scripts" / "serve.py"
LOCK = Path("src/dragoman/bindings/console/built.lock")
SERVER = "import sys; print('listens', flush=True); sys.stdin.read()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / LOCK).parent.mkdir(parents=True)
    return tmp_path


Serving = "subprocess.Popen[str]"


def serve(folder: Path, recipe: str, ready: str = "@echo made; touch ready") -> Serving:
    """A server of which nothing is left once its input ends, and a build by that recipe."""
    (folder / "Makefile").write_text(f"ready:\n\t{ready}\nconsole:\n\t{recipe}\n")
    return subprocess.Popen(
        [*ENDS_WITH_US, sys.executable, SERVE, "ready", "console", "--", sys.executable, "-c", SERVER],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(server: Serving, stream: str, until: str) -> Iterator[str]:
    """What it says up to a line with that text."""
    for line in getattr(server, stream):
        yield line
        if until in line:
            return


def end(server: Serving) -> str:
    """End the server; what it and its build have still said. That ends when the last of them has."""
    _, told = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    return told


def test_the_server_is_there_while_the_console_is_built(folder: Path) -> None:
    server = serve(folder, "mkfifo gate && read line < gate && touch console")
    assert "".join(lines(server, "stdout", "listens")) == "made\nlistens\n"
    assert (folder / LOCK).exists()
    while not (folder / "gate").exists():
        select.select([], [], [], 0.01)
    (folder / "gate").write_text("go\n")
    assert "The console is built." in "".join(lines(server, "stderr", "built"))
    end(server)


def test_the_build_ends_with_the_server(folder: Path) -> None:
    server = serve(folder, "mkfifo gate && read line < gate && touch console")
    assert "".join(lines(server, "stdout", "listens")) == "made\nlistens\n"
    assert end(server) == ""  # its stderr is closed: the build, which waits for ever, is gone
    assert not (folder / "console").exists()


def test_a_build_that_fails_says_where_it_says_why(folder: Path) -> None:
    server = serve(folder, "@echo no network && false")
    assert "build/console.log says why" in "".join(lines(server, "stderr", "says why"))
    end(server)
    assert "no network" in (folder / "build" / "console.log").read_text()


def test_nothing_is_built_if_nothing_has_changed(folder: Path) -> None:
    (folder / "console").touch()
    (folder / "ready").touch()
    server = serve(folder, "touch console")
    assert "".join(lines(server, "stdout", "listens")) == "listens\n"
    assert end(server) == ""
    assert not (folder / LOCK).exists()


def test_no_server_starts_without_its_environment(folder: Path) -> None:
    server = serve(folder, "touch console", ready="false")
    _, told = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 2
    assert "Error 1" in told


def test_of_two_servers_at_once_one_makes_the_environment_and_one_builds(folder: Path) -> None:
    servers = [serve(folder, "mkfifo gate && read line < gate && touch console") for _ in range(2)]
    said = ["".join(lines(server, "stdout", "listens")) for server in servers]
    assert sorted(said) == ["listens\n", "made\nlistens\n"]
    while not (folder / "gate").exists():
        select.select([], [], [], 0.01)
    (folder / "gate").write_text("go\n")
    for server in servers:
        assert "built" in "".join(lines(server, "stderr", "built"))
        end(server)
