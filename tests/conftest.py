"""The rules for every test: async tests run on asyncio; the tests of some directories are slow by what they do."""

import gc
import logging
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kit.fixtures import egress as egress
from tests.kit.fixtures import gates as gates
from tests.kit.fixtures import peer as peer
from tests.kit.fixtures import store as store
from tests.kit.fixtures import url as url
from tests.postgres import PostgresServer
from tests.scratch import use_memory
from tests.soak import SOAK

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass  # the environments of the frameworks have no property tests, hence no hypothesis
else:
    # No deadlines: the machine may be busy.
    busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    settings.register_profile("usual", busy, max_examples=20, derandomize=True)
    settings.register_profile("soak", busy, max_examples=2000)
    settings.load_profile("soak" if SOAK else "usual")

pytest.register_assert_rewrite("tests.store.cases")  # a case that fails says which values it compared

HERE = Path(__file__).parent

SLOW = frozenset({"bindings", "client", "net", "push", "spec", "systems", "testing"})
"""Directories whose tests start a whole server each, or wait for clocks: `make test-fast` leaves them out."""


FOREIGN = ("DRAGOMAN_", "OTEL_", "AWS_")
"""Variables of these beginnings change what servers do. Those of `DRAGOMAN_PEER…` are for the tests themselves."""

FOREIGN_NAMES = frozenset(
    {
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "no_color", "force_color", "clicolor_force", "columns"),
        "pythondontwritebytecode",
    }
)
"""Others, in small letters: what clients go through to reach servers on this machine, how help is printed, and what
makes each process that a test starts compile some 450 modules."""


AUTHORITY = HERE / "nobody.pem"
"""The certificate of an authority whose key was never kept. No test reaches a server beyond this machine, and each
client of httpx reads all authorities that it trusts: the 140 public ones take 30 ms, this one 5 ms."""

SCRATCH = pytest.StashKey[Path | None]()
"""The directory of temporary files that this process has to remove."""


def pytest_configure(config: pytest.Config) -> None:
    """Before the first server is started: forget the settings of the caller, keep files in memory, trust nobody."""
    config.stash[SCRATCH] = use_memory()
    for name in tuple(os.environ):
        foreign = name.startswith(FOREIGN) and not name.startswith("DRAGOMAN_PEER")
        if foreign or name.lower() in FOREIGN_NAMES:
            del os.environ[name]
    os.environ["SSL_CERT_FILE"] = str(AUTHORITY)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """After each test, log what is logged by default: a server that a test starts in this process says more."""
    try:
        return (yield)
    finally:
        logging.root.setLevel(logging.WARNING)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the files of tests that failed."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        session.config.stash[SCRATCH] = None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the temporary files, after the last fixture and the last worker."""
    if directory := config.stash.get(SCRATCH, None):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The one event loop that Dragoman runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for the tests of this process, started when the first one asks for it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, which is dropped after the test."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def used_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database that has the tables of a store, and nothing in them."""
    with postgres_server.used_database() as url:
        yield url


LONGEST = (
    *("console", "frameworks", "durability", "peers", "systems", "simulation", "store"),
    *("server", "docs", "scripts", "cli", "compliance"),
)
"""Directories with the longest files. They come first, so that no worker is left alone with one at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which need not look at thousands of tests that live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the slow directories and those with a PostgreSQL, and put the longest files first."""
    turns = {name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(_directory(item.path), len(turns)))
    for item in items:
        if _directory(item.path) in SLOW or "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@cache
def _directory(path: Path) -> str:
    """The directory of a test's module below this one."""
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""
