"""The benches of all drivers: each case runs on every one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.store.open import open_store
from dragoman.store.sqlite.schema import check
from tests.spoil import spoil_database, spoil_file
from tests.store.cases.bench import Bench
from tests.store.cases.states import StateBench


@pytest.fixture
def shared_bench(used_postgres_url: str) -> Bench:
    """PostgreSQL, which several processes may have open at once."""
    spoil = spoil_database(used_postgres_url)
    return Bench(lambda clock: open_store(used_postgres_url, clock), durable=True, shared=True, spoil=spoil)


BENCHES = "file", "memory", pytest.param("postgres", marks=pytest.mark.slow)


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A file of SQLite, which has no faults afterwards; SQLite in memory; PostgreSQL."""
    with _open_bench(request, tmp_path) as opened:
        yield opened


@pytest.fixture(params=[*BENCHES, "local"])
def state_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateBench]:
    """The state in each of these, and the one without a store."""
    if request.param == "local":
        yield StateBench(None)
        return
    with _open_bench(request, tmp_path) as opened:
        yield StateBench(opened)


@contextmanager
def _open_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    match request.param:
        case "file":
            path = tmp_path / "deep" / "store.db"
            yield Bench(lambda clock: open_store(f"sqlite:///{path}", clock), durable=True, spoil=spoil_file(path))
            assert not path.exists() or check(path) == []
        case "memory":
            yield Bench(lambda clock: open_store("memory:", clock), durable=False)
        case _:
            yield request.getfixturevalue("shared_bench")
