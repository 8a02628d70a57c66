"""A pytest plugin that keeps what each check of a requirement showed, and against which agent.

`pytest -p tests.compliance.evidence --evidence FILE` writes a JSON list of `Check`. A check is a test marked
`requirement(ids…, on=AGENT)`; a test with the fixture `live` or `demo` needs no `on`. Tests with a parameter `default`
or `error_code` show that row of the report's other tables.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

PYTHON, JAVASCRIPT, DEMO, KEYED = "python-sdk", "js-sdk", "demo-server", "keyed-server"

AGENTS = {
    PYTHON: "server of the official Python SDK",
    JAVASCRIPT: "server of the official JavaScript SDK",
    DEMO: "`dragoman demo-server`",
    KEYED: "a Dragoman server with API keys and gRPC",
    "tls-server": "a Dragoman server with TLS, on request mutual",
    "token-server": "a Dragoman server that takes tokens of an OpenID provider",
}
"""The live agents, by the names that reports give them."""

SCRIPTED = "scripted agent"
"""An agent that a test has made up. It shows nothing about live agents, but what it shows wrong counts."""

TOOL = "the tool alone"


class Check(Struct, frozen=True):
    """One run of one test. `outcome` is passed, failed, skipped or collected."""

    test: str
    requirements: tuple[str, ...]
    agent: str
    outcome: str
    default: str = ""
    error_code: str = ""


def checks_of(item: pytest.Item) -> dict[str, Any]:
    """Return what a test would show; empty if it is no check."""
    ids: list[str] = []
    agent = ""
    for marker in item.iter_markers("requirement"):
        ids += [f"A2ACLI_{short}" for short in marker.args]
        agent = agent or marker.kwargs.get("on", "")
    if not ids:
        return {}
    spec = getattr(item, "callspec", None)
    values = {} if spec is None else spec.params
    names = getattr(item, "fixturenames", ())
    fallback = DEMO if "demo" in names else SCRIPTED if "agent" in names else TOOL
    return {
        "test": item.nodeid.partition("[")[0],
        "requirements": tuple(ids),
        "agent": values.get("live") or agent or fallback,
        "default": values.get("default", ""),
        "error_code": values.get("error_code", ""),
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--evidence", metavar="FILE", help="write what the checks of requirements showed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--evidence") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(Path(config.getoption("--evidence"))))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if check := checks_of(item):
        item.user_properties.append(("check", check))  # travels with the report, also between processes


class Collector:
    """Collects the reports of all tests, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checks: dict[str, Check] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """With `--collect-only` all checks are known, and none has run."""
        if session.config.option.collectonly:
            for item in session.items:
                if check := checks_of(item):
                    self._checks[item.nodeid] = msgspec.convert({**check, "outcome": "collected"}, Check)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        check = next((value for name, value in report.user_properties if name == "check"), None)
        if not isinstance(check, dict):
            return
        before = self._checks.get(report.nodeid)
        if report.when == "call" or report.outcome != "passed":  # a fixture that fails fails its test
            worse = before is not None and before.outcome == "failed"
            outcome = "failed" if worse else report.outcome
            self._checks[report.nodeid] = msgspec.convert({**check, "outcome": outcome}, Check)

    def pytest_sessionfinish(self) -> None:
        self._path.write_bytes(msgspec.json.format(msgspec.json.encode(list(self._checks.values()))))
