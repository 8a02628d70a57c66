"""The tests of a framework run where that framework is installed, in an environment of its own; elsewhere they are not
collected."""

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman.agents.adapters import FRAMEWORKS
from dragoman.model.ids import SystemClock
from dragoman.store.local_state import LocalState
from dragoman.store.open import open_store
from dragoman.store.state import StateStore


def installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


KITS = frozenset(file.stem for file in (Path(__file__).parent / "kits").glob("*.py"))

MODELLED = [
    framework.module for package, framework in FRAMEWORKS.items() if installed(package) and framework.module in KITS
]
"""The installed frameworks of agents that have a model, which is what the suite for every framework scripts."""

collect_ignore = [
    file.name
    for package, framework in FRAMEWORKS.items()
    if not installed(package)
    for file in Path(__file__).parent.glob(f"test_{framework.module}*.py")
]
if not MODELLED:
    collect_ignore.append("test_every_framework.py")


@pytest.fixture(params=["local", pytest.param("postgres", marks=pytest.mark.slow)])
async def state(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    """The state of agents: in memory, and in PostgreSQL."""
    if request.param == "local":
        yield LocalState(SystemClock())
        return
    store = open_store(request.getfixturevalue("used_postgres_url"), SystemClock())
    await store.open("h1")
    try:
        yield store.state
    finally:
        await store.close()
