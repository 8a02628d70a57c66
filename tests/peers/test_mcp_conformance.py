"""The conformance suite of the Model Context Protocol against a server of ordinary agents, in both eras.

One run for each revision, with all scenarios that the revision requires or lists: those of its core, and of the
extension for tasks. `make peers` installs the suite. `conformance/left_out.toml` names what is left out, and why.
"""

import asyncio
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.processes import ServerProcess

HERE = Path(__file__).parent / "conformance"
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
LIMIT_S = 120.0

LEFT_OUT: dict[str, dict[str, str]] = tomllib.loads((HERE / "left_out.toml").read_text(encoding="utf-8"))

RAN = {"2026-07-28": 32, "2025-11-25": 19}
"""How many scenarios of each revision have to pass a check of their own. One more of each only gives advice."""

OF_ALL = "wire-schema-valid"
"""The check that every scenario has: its messages fit the schema."""

OF_TASKS = frozenset(
    {"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"}
    | {"tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-status-notifications"}
    | {"tasks-required-task-error", "tasks-mrtr-composition"}
)

FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")

Checks = dict[str, list[dict[str, Any]]]

pytestmark = [pytest.mark.peer, pytest.mark.slow]


async def run_suite(folder: Path, named: re.Pattern[str], *what: str) -> Checks:
    """The checks of each scenario of a run of the suite, whose folders are `named` by it."""
    assert SUITE.exists(), f"{SUITE} is missing: run `make peers`"
    node = shutil.which("node")
    assert node is not None, "node was not found: install Node 20 or newer"
    started = await asyncio.create_subprocess_exec(
        node, "--import", str(HERE / "node20.mjs"), str(SUITE), *what, "-o", str(folder),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await started.communicate()
    finally:
        if started.returncode is None:
            started.kill()
    found: Checks = {}
    for file in folder.glob("*/checks.json"):
        of = named.fullmatch(file.parent.name)
        assert of is not None, file
        found[of["scenario"]] = json.loads(file.read_text(encoding="utf-8"))
    assert found, said.decode()
    return found


async def run(url: str, folder: Path, *what: str) -> Checks:
    """The checks of each scenario of a run against the server."""
    return await run_suite(folder, FOLDER, "server", "--url", f"{url}/mcp", *what)


async def run_revision(url: str, folder: Path, revision: str) -> Checks:
    """The checks of all scenarios of a revision.

    The suite waits for half a second for some answers, which a busy machine may miss. A scenario that fails is
    therefore run once more, by itself: that one counts.
    """
    found = await run(url, folder / revision, "--requirements", revision)
    for name in [name for name, checks in kept(found).items() if any(map(is_wrong, checks))]:
        alone = ("--scenario", name, "--spec-version", revision, "--force")
        found |= await run(url, folder / f"{revision}-{name}", *alone)
    return found


async def collect(folder: Path) -> dict[str, Checks]:
    """The checks of all revisions."""
    agents, after = str(HERE / "agents.py"), ("--mcp-task-after-s", "0.8")
    server = ServerProcess(folder, agents, "--port", "0", "--store", "memory:", *after)
    try:
        await server.start()
        ran = await asyncio.gather(*(run_revision(server.url, folder, revision) for revision in RAN))
    finally:
        await server.kill()
    return dict(zip(RAN, ran, strict=True))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checks]:
    return asyncio.run(collect(tmp_path_factory.mktemp("conformance")))


def kept(checks: Checks) -> Checks:
    """The checks of the scenarios that are not left out."""
    return {
        name: [check for check in each if check["id"] not in LEFT_OUT["checks"]]
        for name, each in checks.items()
        if name not in LEFT_OUT["scenarios"]
    }


def is_wrong(check: dict[str, Any]) -> bool:
    """Whether the check failed, was not run, or warns of what nobody has a reason for."""
    warned = check["status"] == "WARNING" and check["id"] in LEFT_OUT["warnings"]
    return check["status"] not in ("SUCCESS", "INFO") and not warned


@pytest.mark.parametrize("revision", RAN)
def test_nothing_fails(results: dict[str, Checks], revision: str) -> None:
    wrong = [
        f"{name}: {check['status']} {check['id']}: {check.get('errorMessage', '')}"
        for name, checks in kept(results[revision]).items()
        for check in checks
        if is_wrong(check)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("revision", RAN)
def test_so_many_scenarios_ran(results: dict[str, Checks], revision: str) -> None:
    checks = kept(results[revision])
    ran = {
        name
        for name, each in checks.items()
        if any(check["status"] == "SUCCESS" and check["id"] != OF_ALL for check in each)
    }
    assert len(ran) == RAN[revision], sorted(ran)
    if revision == "2026-07-28":
        assert checks.keys() >= OF_TASKS
        assert ran >= OF_TASKS - {"tasks-status-notifications"}


def test_what_is_left_out_exists_and_has_a_reason(results: dict[str, Checks]) -> None:
    scenarios = {name for checks in results.values() for name in checks}
    ids = {check["id"] for checks in results.values() for each in checks.values() for check in each}
    assert LEFT_OUT["scenarios"].keys() <= scenarios
    assert LEFT_OUT["checks"].keys() | LEFT_OUT["warnings"].keys() <= ids
    assert {*LEFT_OUT["scenarios"].values(), *LEFT_OUT["checks"].values()} == LEFT_OUT["reasons"].keys()
