"""`dragoman examples`: what it writes is what the repository tracks, without the tests, and nothing is overwritten."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.commands import invoke

ROOT = Path(__file__).parents[2]


def test_all_examples_are_written_but_not_their_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = invoke("examples")
    assert (ran.exit_code, ran.stdout) == (0, "Made examples. Next: dragoman serve examples/agents.py\n")
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "examples"], check=True, capture_output=True, text=True)
    tracked = {name for name in listed.stdout.split() if not Path(name).name.startswith("test_")}
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == tracked
    assert all((tmp_path / name).read_bytes() == (ROOT / name).read_bytes() for name in tracked)
    assert all(os.access(tmp_path / name, os.X_OK) == os.access(ROOT / name, os.X_OK) for name in tracked)


def test_the_next_command_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Next: dragoman serve 'to try/agents.py'" in invoke("examples", "to try").stdout


@pytest.mark.parametrize("there", ["file", "link", "unwritable"])
def test_nothing_that_exists_is_touched(there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if there == "file":
        Path("examples").write_text("mine")
    elif there == "link":
        Path("examples").symlink_to("nowhere")
    else:

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(shutil, "copyfile", full)
    before = [*tmp_path.iterdir()]
    ran = invoke("examples")
    assert ran.exit_code != 0
    expected = "No space left on device" if there == "unwritable" else "FOLDER 'examples' exists: name another one"
    assert expected in ran.stderr
    assert [*tmp_path.iterdir()] == before
