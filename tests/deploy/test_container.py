"""The Containerfile: each path, variable, port and package in it exists. `make container` builds and runs it."""

import asyncio
import json
import re
import sys
import tomllib
from pathlib import PurePath

from dragoman.config import Config
from dragoman.server import serving
from dragoman.testing.agents import echo
from tests.deploy.shipped import DEPLOY, ROOT, assert_command, read
from tests.test_packaging import pins

TEXT = re.sub(r" *\\\n *", " ", (ROOT / "Containerfile").read_text(encoding="utf-8"))
LINES = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]
FINAL = LINES[max(number for number, (word, _) in enumerate(LINES) if word == "FROM") :]


def of(instruction: str) -> str:
    """The arguments of an instruction of the last stage that is there once."""
    (arguments,) = [arguments for word, arguments in FINAL if word == instruction]
    return arguments


def test_everything_that_is_copied_exists_and_is_sent_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line[1:] for line in ignored if line.startswith("!")]
    for word, arguments in LINES:
        if word == "COPY" and not arguments.startswith("--from="):
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source
                path = PurePath(source)
                assert any(path.match(each) or PurePath(each) in path.parents for each in sent), source
    linked = {link.resolve().relative_to(ROOT) for link in (ROOT / "src").rglob("*") if link.is_symlink()}
    assert all({str(path), *map(str, path.parents)} & {*sent} for path in linked)


def test_all_examples_are_copied_for_the_image() -> None:
    assert ["COPY", "examples examples"] in LINES


def test_the_hooks_of_the_build_are_copied() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    hooks = {hatch[kind]["hooks"]["custom"]["path"] for kind in ("metadata", "build")}
    copied = {word for instruction, arguments in LINES if instruction == "COPY" for word in arguments.split()[:-1]}
    assert hooks <= copied


def test_the_variables_are_settings_and_the_ports_are_the_servers() -> None:
    variables = dict(re.findall(r"(\w+)=(\S+)", of("ENV")))
    config = read(variables)
    assert (config.host, config.store) == ("0.0.0.0", "sqlite:////data/dragoman.db")
    assert of("VOLUME") == variables["HOME"] == "/data"
    assert [int(port) for port in of("EXPOSE").split()] == [Config().port, 50051]
    assert int(of("USER").partition(":")[0]) > 0
    assert_command([*json.loads(of("ENTRYPOINT")), *json.loads(of("CMD"))][1:])
    assert Config().shutdown_grace_s <= 8


def test_every_extra_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locks = [pins(name) for name in re.findall(r"-r requirements/(\S+)\.txt", TEXT) if name != "build"]
    installed = {package: version for lock in locks for package, version in lock.items()}
    assert all(installed[package] == version for lock in locks for package, version in lock.items())
    for extra in project["optional-dependencies"].values():
        assert {re.match(r"[a-z0-9-]+", each)[0] for each in extra} <= installed.keys()  # type: ignore[index]


async def test_the_health_check_asks_the_server() -> None:
    script = DEPLOY / "container" / "healthcheck.py"
    assert json.loads(of("HEALTHCHECK").partition("CMD ")[2])[1] in TEXT
    assert f"deploy/container/{script.name}" in TEXT

    async def check(port: str) -> tuple[int | None, bytes]:
        asked = await asyncio.create_subprocess_exec(
            sys.executable, str(script), env={"DRAGOMAN_PORT": port}, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asked.communicate()
        return asked.returncode, said

    async with serving(Config(port=0, store="memory:"), [echo]) as url:
        port = url.rpartition(":")[2]
        assert await check(port) == (0, b"")
    code, said = await check(port)
    assert code == 1
    assert said.startswith(b"no answer on port")
