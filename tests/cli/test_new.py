"""`dragoman new`: each template makes a project whose own tests pass, and which is clean code."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dragoman import __version__
from dragoman.cli.new import TEMPLATES, _requirement
from dragoman.config import Config
from tests.kit.commands import Run, invoke
from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"

LANGGRAPH = ROOT / ".venv-fw-langgraph"

PORT = Config().port
"""The READMEs name the port at which `dragoman serve` listens."""

LIMIT_S = 300.0


def make(folder: Path, template: str) -> Path:
    """A project of the real command."""
    command = [sys.executable, "-m", "dragoman", "new", "fine-agent", "--template", template]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (made.returncode, made.stderr) == (0, ""), made
    assert made.stdout.startswith("Made fine-agent. Next: cd fine-agent")
    assert [entry.name for entry in folder.iterdir()] == ["fine-agent"]
    return folder / "fine-agent"


def run_tests(project: Path, python: str) -> str:
    """Run the tests of a project as its README says, on this Dragoman."""
    ran = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("template", "tests"), [("python", 2), ("openai", 1), ("worker", 2)])
def test_the_tests_of_a_new_project_pass(tmp_path: Path, template: str, tests: int) -> None:
    assert f"{tests} passed" in run_tests(make(tmp_path, template), sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize(("template", "words"), [("python", "Which city?"), ("worker", "Hello, Anna!")])
def test_the_commands_of_the_readme_work(tmp_path: Path, template: str, words: str) -> None:
    project = make(tmp_path, template)
    blocks = (project / "README.md").read_text().split("```")[1::2]
    lines = [line.partition(" # ")[0].strip() for block in blocks for line in block.splitlines()]
    serve, *others = [line for line in lines if line.startswith("dragoman ")]
    assert any(line.startswith("dragoman send") for line in others)
    command = [sys.executable, "-m", *shlex.split(serve), "--port", "0"]
    server = subprocess.Popen([*ENDS_WITH_US, *command], cwd=project, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().partition(" listens on ")[2].split()[0]
    workers: list[subprocess.Popen[str]] = []
    try:
        for line in others:
            here = line.replace(f"http://127.0.0.1:{PORT}", url).replace(f"localhost:{PORT}", url)
            command = [*ENDS_WITH_US, sys.executable, "-m", *shlex.split(here)]
            if line.startswith("dragoman worker"):
                workers.append(subprocess.Popen(command, cwd=project, text=True))
            elif line.startswith("dragoman send"):
                ran = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=LIMIT_S, check=False)
                assert words in ran.stdout, ran
    finally:
        for process in (*workers, server):
            process.terminate()
            process.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_declares_this_version_of_dragoman(tmp_path: Path, template: str) -> None:
    project = tomllib.loads((make(tmp_path, template) / "pyproject.toml").read_text())
    wanted, *others = map(Requirement, project["project"]["dependencies"])
    assert (wanted.name, [other.name for other in others]) == ("dragoman", ["langgraph"] * (template == "langgraph"))
    assert wanted.specifier.contains(__version__, prereleases=True)


@pytest.mark.parametrize(
    ("version", "requirement"),
    [
        ("0.2.0", "dragoman>=0.2.0,<0.3"),
        ("0.10.3.dev0+g12ab", "dragoman>=0.10.3.dev0,<0.11"),
        ("1.4.2", "dragoman>=1.4.2,<2"),
    ],
)
def test_the_next_version_that_may_remove_names_is_left_out(version: str, requirement: str) -> None:
    assert _requirement(version) == requirement


def image_of(project: Path, folder: Path) -> tuple[dict[str, str], list[str]]:
    """Make /app in the folder as the Containerfile does; the variables and the command of the image."""
    ignored = (project / ".dockerignore").read_text().splitlines()[1:]
    names = [name.removeprefix("**/") for name in ignored]
    shutil.copytree(project, folder, ignore=lambda _, found: [name for name in found if name in names])
    text = (project / "Containerfile").read_text().replace("\\\n", " ")
    final = text.rpartition("\nFROM ")[2]
    (variables,) = re.findall(r"^ENV (.*)$", final, re.MULTILINE)
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", final, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", final, re.MULTILINE)
    (sync,) = re.findall(r"^RUN (uv sync .*)$", text, re.MULTILINE)
    assert (folder / "dragoman.toml").exists()
    assert not (folder / "tests").exists()
    return dict(word.split("=", 1) for word in variables.split()), [sync, *json.loads(entrypoint), *json.loads(command)]


@pytest.mark.peer
def test_a_new_project_is_locked_built_and_served(tmp_path: Path) -> None:
    """As its README and its Containerfile do, but for the image itself, and with this Dragoman in the index' place."""
    (tmp_path / "made").mkdir()
    project = make(tmp_path / "made", "python")
    with (project / "pyproject.toml").open("a") as file:
        file.write(f"\n[tool.uv.sources]\ndragoman = {{ path = {json.dumps(str(ROOT))} }}\n")
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(tmp_path / "packages"), "UV_PYTHON": sys.executable}
    uv = str(Path(sys.executable).parent / "uv")

    def run_uv(*words: str, folder: Path) -> None:
        ran = subprocess.run(
            [uv, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert ran.returncode == 0, ran.stderr

    run_uv("lock", folder=project)
    assert 'name = "dragoman"' in (project / "uv.lock").read_text()
    variables, (sync, program, *words) = image_of(project, tmp_path / "app")
    sync_words = [word for word in sync.split()[1:] if word != "--compile-bytecode"]
    run_uv(*sync_words, "--no-install-package", "dragoman", folder=tmp_path / "app")
    python = tmp_path / "packages" / "bin" / "python"
    assert subprocess.run([python, "-c", "import pytest"], capture_output=True, check=False).returncode != 0
    here = {"DRAGOMAN_HOST": "127.0.0.1", "DRAGOMAN_STORE": "memory:", "PYTHONPATH": str(SRC)}
    assert variables.keys() >= here.keys() - {"PYTHONPATH"}
    server = subprocess.Popen(
        [*ENDS_WITH_US, str(python), "-m", program, *words, "--port", "0"],
        cwd=tmp_path / "app",
        env={**os.environ, **variables, **here},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert " listens on " in server.stdout.readline()
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT_S)


@pytest.mark.peer
def test_the_tests_of_a_new_project_of_langgraph_pass(tmp_path: Path) -> None:
    if not (LANGGRAPH / ".ready").exists():
        pytest.skip("no environment .venv-fw-langgraph: make frameworks")
    assert "1 passed" in run_tests(make(tmp_path, "langgraph"), str(LANGGRAPH / "bin" / "python"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_is_clean_code(tmp_path: Path, template: str) -> None:
    project = make(tmp_path, template)
    for check in (
        ["check", "--select", "E,F,I,B,UP", "--line-length", "120"],
        ["format", "--check", "--line-length", "120"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--no-cache", "--isolated"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
    texts = [path.read_text() for path in project.rglob("*") if path.is_file()]
    assert not any("{{" in text and "}}" in text for text in texts)
    assert (project / ".gitignore").read_text().splitlines()[0] == ".venv/"
    assert 'name = "fine-agent"' in (project / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument 'NAME'"),
        (("a/b",), "NAME 'a/b': must be 1 to 64 letters"),
        (("..",), "NAME '..': must be 1 to 64 letters"),
        (("tasks",), "NAME 'tasks': is a path of the server itself"),
        (("end-",), "NAME 'end-': must end with a letter or digit"),
        (("there",), "NAME 'there': there exists: choose another name, or move it away"),
        (("dangling",), "NAME 'dangling': dangling exists"),
        (("fine", "--template", "rust"), "'rust' is not one of 'python', 'langgraph', 'openai', 'worker'"),
    ],
)
def test_wrong_input_says_how_to_put_it_right(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    refused = run("new", *arguments)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "there"]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refused = invoke("new", "fine")
    assert refused.exit_code == 2
    assert "NAME 'fine' cannot be made here: No such file or directory" in refused.stderr
