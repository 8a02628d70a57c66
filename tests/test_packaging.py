"""The packages that are installed: few, hashed, and from nowhere in particular."""

import re
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

import dragoman
from scripts.packages import commit_of

ROOT = Path(__file__).parent.parent
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")))


def test_the_installed_version_is_that_of_the_code() -> None:
    assert version("dragoman") == dragoman.__version__


def test_a_core_install_has_at_most_forty_packages() -> None:
    assert 8 <= len(pins("core")) <= 40


def test_every_dependency_is_pinned_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.match(r"[a-z0-9-]+", dependency)[0] for dependency in project["dependencies"]} <= set(pins("core"))  # type: ignore[index]
    for file in (ROOT / "requirements").glob("*.txt"):
        for pin in re.split(r"\n(?=\S)", file.read_text(encoding="utf-8").strip()):
            assert "--hash=sha256:" in pin, f"{file.name}: {pin}"


BOUNDED: dict[str, str] = {}
"""The packages whose next version is known to break this one, with that version. The page on dependencies in
docs/architecture says why, below "Bounds"."""


def test_packages_that_are_known_to_break_have_an_upper_bound_and_no_others() -> None:
    """Of what a wheel asks for, as installers read it."""
    asked = [Requirement(each) for each in requires("dragoman") or ()]
    bounds = {
        each.name: bound.version
        for each in asked
        for bound in each.specifier
        if bound.operator in ("<", "<=", "==", "~=")
    }
    assert bounds == BOUNDED
    assert all(any(bound.operator == ">=" for bound in each.specifier) for each in asked)


def test_the_extra_grpc_brings_few_packages_and_no_sdk() -> None:
    assert len(pins("grpc")) <= 8
    assert not any(name.startswith(("a2a", "httpx", "pydantic")) for name in pins("grpc"))
    (asked,) = (Requirement(each) for each in requires("dragoman") or () if each.startswith("protobuf"))
    assert asked.specifier.contains(pins("grpc")["protobuf"])


def test_checks_and_tests_run_on_the_versions_that_are_served() -> None:
    core, dev = pins("core"), pins("dev")
    assert {name: dev[name] for name in core.keys() & dev.keys()} == {
        name: core[name] for name in core.keys() & dev.keys()
    }


def test_help_needs_neither_server_nor_store() -> None:
    import subprocess

    script = "import sys, dragoman.cli; print(*sorted({'asyncio', 'apsw', 'httptools', 'rich'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == []


def test_the_module_is_the_command() -> None:
    import subprocess

    ran = subprocess.run(
        [sys.executable, "-m", "dragoman", "--version"], check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.startswith("dragoman ")


def test_a_server_imports_only_the_kinds_of_agent_that_it_has() -> None:
    import subprocess

    script = "import sys, dragoman.cli.loader, dragoman.server; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    kinds = {name.split(".")[2] for name in shown.stdout.split() if name.startswith("dragoman.agents.")}
    assert kinds.isdisjoint({"mcp", "model"})
    assert "dragoman.agents.program.agent" not in shown.stdout.split()
    assert "dragoman.kaos" not in shown.stdout.split()


def test_a_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """Templates and SQL are no modules, and are read from where the package is installed."""
    import subprocess
    from zipfile import ZipFile

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    source = ROOT / "src"
    there = {str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in (".sql", ".tmpl", ".typed")}
    assert len(there) > 30
    with ZipFile(wheel) as archive:
        assert there <= set(archive.namelist())
        built_from = archive.read("dragoman/commit.txt").decode().strip()
    assert built_from == commit_of(ROOT)[0]
