"""Every driver does what the protocol says."""

from pathlib import Path

import pytest

from dragoman.store.open import open_store
from dragoman.store.sqlite.schema import check
from tests.spoil import spoil_file
from tests.store.cases import CASES, Bench, Case


@pytest.fixture(params=["file", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "memory":
        return Bench(lambda clock: open_store("memory:", clock), durable=False)
    return Bench(
        lambda clock: open_store(f"sqlite:///{tmp_path}/deep/store.db", clock),
        durable=True,
        spoil=spoil_file(tmp_path / "deep" / "store.db"),
    )


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
async def test_the_store_conforms(case: Case, bench: Bench, tmp_path: Path) -> None:
    await case(bench)
    path = tmp_path / "deep" / "store.db"
    assert not path.exists() or check(path) == []
