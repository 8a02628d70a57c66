"""The packages of a release: the same bytes each time, and nothing in them that does not belong there.

`make dist` does the rest: it builds the console, installs the wheel, and does with it what the README shows.
"""

import json
import re
import shutil
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from dragoman import __version__
from scripts import dist, packages, sbom

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
COMMITTED_S = 1_795_000_000
BUNDLED = "svelte 5.57.3 (MIT)\n\nText of the licence\n"

pytestmark = pytest.mark.slow


def source(folder: Path) -> Path:
    """The code as a release finds it, with two files in place of the console."""
    packages.export(ROOT, folder, COMMIT)
    console = folder / packages.CONSOLE
    shutil.rmtree(console, ignore_errors=True)
    console.mkdir(parents=True)
    (console / "index.html").write_text("<!doctype html>")
    (console / "licenses.txt").write_text(BUNDLED)
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> packages.Built:
    return packages.build(tree, tmp_path_factory.mktemp("built"), COMMITTED_S)


def test_the_same_commit_gives_the_same_bytes_also_from_the_source_distribution(
    built: packages.Built, tmp_path: Path
) -> None:
    again = packages.build(source(tmp_path / "elsewhere"), tmp_path / "again", COMMITTED_S)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("dragoman-*")
    third = packages.build(unpacked, tmp_path / "third", COMMITTED_S)
    assert third.wheel.read_bytes() == built.wheel.read_bytes()


def test_a_release_has_the_package_the_console_and_the_commit_and_nothing_else(built: packages.Built) -> None:
    assert packages.faults(ROOT, built) == []
    with ZipFile(built.wheel) as archive:
        assert archive.read("dragoman/commit.txt").decode().strip() == COMMIT
        assert not [name for name in archive.namelist() if name.startswith(("tests/", "dragoman/tests"))]
        assert {"dragoman/examples/agents.py", "dragoman/examples/gateway/dragoman.toml"} <= {*archive.namelist()}
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
        assert (modes["dragoman/examples/words.sh"], modes["dragoman/examples/agents.py"]) == (0o755, 0o644)
    with tarfile.open(built.sdist) as sources:
        names = [name.partition("/")[2] for name in sources.getnames()]
        assert "examples/booking/booking.py" in names
        assert not [name for name in names if packages.TEST.search(name) or name.startswith("tests/")]


@pytest.mark.parametrize(
    ("name", "body", "fault"),
    [
        ("tests/test_it.py", b"", "tests/test_it.py does not belong there"),
        ("dragoman/left_over.py", b"", "dragoman/left_over.py does not belong there"),
        ("dragoman/py.typed", b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 64, "dragoman/py.typed has a secret"),
        ("dragoman/py.typed", b"token = 'ghp_" + b"a" * 36 + b"'", "dragoman/py.typed has a secret"),
        ("dragoman/py.typed", None, "dragoman/py.typed is missing"),
        ("dragoman/bindings/console/built/index.html", None, "built/index.html is missing"),
        (f"dragoman-{__version__}.dist-info/licenses/LICENSE", None, "licenses/LICENSE is missing"),
    ],
)
def test_what_does_not_belong_in_a_wheel_or_lacks_is_found(
    built: packages.Built, tmp_path: Path, name: str, body: bytes | None, fault: str
) -> None:
    spoilt = tmp_path / built.wheel.name
    with ZipFile(built.wheel) as whole, ZipFile(spoilt, "w") as target:
        for each in whole.namelist():
            if each != name:
                target.writestr(each, whole.read(each))
        if body is not None:
            target.writestr(name, body)
    (found,) = packages.wheel_faults(ROOT, spoilt)
    assert found.startswith(built.wheel.name)
    assert found.endswith(fault)


def test_the_bill_of_materials_has_every_locked_package_and_is_the_same_each_time(tree: Path) -> None:
    first = sbom.make_sbom(tree, "1.2.3", COMMIT, COMMITTED_S)
    assert first == sbom.make_sbom(tree, "1.2.3", COMMIT, COMMITTED_S)
    document = json.loads(first)
    assert document["serialNumber"] != json.loads(sbom.make_sbom(tree, "1.2.3", "f" * 40, COMMITTED_S))["serialNumber"]
    assert document["metadata"]["timestamp"] == "2026-11-18T11:06:40Z"
    scopes = {each["purl"]: each["scope"] for each in document["components"]}
    assert len(scopes) == len(document["components"])
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", (tree / "requirements/core.txt").read_text(), re.M):
        assert scopes[f"pkg:pypi/{name}@{version}"] == "required"
    locked = json.loads((tree / "console/package-lock.json").read_text())["packages"]
    assert len([purl for purl in scopes if purl.startswith("pkg:npm/")]) == len(
        {(path.rpartition("node_modules/")[2], said["version"]) for path, said in locked.items() if path}
    )
    assert [purl for purl, scope in scopes.items() if purl.startswith("pkg:npm/") and scope == "required"] == [
        "pkg:npm/svelte@5.57.3"
    ]
    assert {scope for purl, scope in scopes.items() if "asyncpg" in purl or "/grpcio@" in purl} == {"optional"}


def test_a_console_of_other_packages_than_the_locked_ones_is_refused(tree: Path, tmp_path: Path) -> None:
    for path in ("pyproject.toml", "requirements/core.txt", "requirements/dev.txt", "console/package-lock.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copyfile(tree / path, tmp_path / path)
    (tmp_path / sbom.LICENSES).parent.mkdir(parents=True)
    (tmp_path / sbom.LICENSES).write_text(BUNDLED.replace("5.57.3", "4.0.0"))
    with pytest.raises(ValueError, match="run make console"):
        sbom.make_sbom(tmp_path, "1.2.3", COMMIT, COMMITTED_S)


def test_the_first_example_of_the_readme_is_one_agent_and_two_commands() -> None:
    code, serve, call = dist.first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "Agent(" in code
    assert serve.split()[1:] == ["serve", "speller.py", "--port", "0"]
    assert call.startswith("dragoman send -a localhost:7871 ")
