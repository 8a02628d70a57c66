"""`dragoman store`: copies a store, says what it did, and finds faults."""

import sys
from functools import partial
from pathlib import Path

import apsw
import pytest

from dragoman.store.api import Store
from tests.kit.commands import Run
from tests.kit.places import work_on
from tests.store.cases.bench import new_task

FILE = "sqlite:///old.db"


@pytest.fixture
def store(run: Run) -> Run:
    """Runs `dragoman store` with these arguments, in a directory with a store of one task."""

    async def fill(store: Store) -> None:
        await store.create(new_task("t1"))

    work_on(FILE, fill, "h1")
    return partial(run, "store")


def test_a_copy_says_what_it_has_copied(store: Run, postgres_url: str) -> None:
    target = postgres_url.replace("postgres@", "postgres:secret@")
    done = store("copy", FILE, target)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Copied 1 tasks to postgresql://postgres:…@127.0.0.1")
    assert done.stdout.endswith("(1 scopes, 1 pages): all compare equal.\n")
    assert store("check", postgres_url).stdout == f"No faults in {postgres_url}.\n"
    refused = store("copy", FILE, target)
    assert refused.exit_code == 1
    assert "has data already (scopes, tasks, pages)" in refused.stderr
    assert "Copying" not in refused.stderr
    assert "secret" not in refused.output


def test_faults_are_shown_one_a_line(store: Run) -> None:
    assert store("check", FILE).stdout == f"No faults in {FILE}.\n"
    connection = apsw.Connection("old.db")
    connection.execute("DELETE FROM pages")
    connection.close()
    found = store("check", FILE)
    assert found.exit_code == 1
    assert found.stdout == "ends: ('t1', 1, None)\n"


@pytest.mark.parametrize("command", [("store", "check"), ("store", "copy"), ("keys", "list", "--store")])
def test_a_store_that_is_not_there_is_not_made(
    run: Run, postgres_url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    target = ("sqlite:///new.db",) if "copy" in command else ()
    for _ in range(2):
        refused = run(*command, postgres_url, *target)
        assert refused.exit_code == 1
        assert "there is no store in the schema dragoman of PostgreSQL" in refused.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("check",), ("copy", FILE), ("copy",)])
def test_a_missing_driver_is_named_with_the_fix(
    store: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("dragoman.store.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    url = "postgresql://db.invalid/dragoman"
    refused = store(*arguments, url, *(("sqlite:///new.db",) if arguments == ("copy",) else ()))
    assert refused.exit_code == 1
    assert "needs the extra postgres: run pip install 'dragoman[postgres]', or pip install '.[" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("copy", FILE, "memory:"), "out of reach of commands"),
        (("check", "memory:"), "out of reach of commands"),
        (("copy", FILE, FILE), "cannot be copied into itself"),
        (("copy", FILE, "sqlite:///./old.db"), "in use by another server"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(store: Run, arguments: tuple[str, ...], said: str) -> None:
    refused = store(*arguments)
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
    assert "Copying" not in refused.stderr


@pytest.mark.parametrize("arguments", [("check", "mysql://host/db"), ("copy", "old.db", "sqlite:///new.db")])
def test_a_url_of_no_store_is_wrong_input(store: Run, arguments: tuple[str, ...]) -> None:
    refused = store(*arguments)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "use sqlite:///path" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [("check", "sqlite:///nowhere.db"), ("copy", "sqlite:///nowhere.db", "sqlite:///new.db")]
)
def test_a_store_file_that_is_not_there_is_wrong_input(store: Run, arguments: tuple[str, ...]) -> None:
    refused = store(*arguments)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "there is no store file nowhere.db: name the one that the server uses" in refused.stderr
    assert not Path("new.db").exists()
