"""`dragoman store`: copies a store, says what it did, and finds faults."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from dragoman.cli import main
from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from tests.store.cases.bench import new_task

Run = Callable[..., Result]
FILE = "sqlite:///old.db"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `dragoman store` with these arguments, in a directory with a store of one task."""
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        store = open_store(FILE, SystemClock())
        await store.open("h1")
        await store.create(new_task("t1"))
        await store.close()

    asyncio.run(fill())
    return lambda *arguments: CliRunner().invoke(main, ["store", *arguments])


def test_a_copy_says_what_it_has_copied(run: Run, postgres_url: str) -> None:
    target = postgres_url.replace("postgres@", "postgres:secret@")
    done = run("copy", FILE, target)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Copied 1 tasks to postgresql://postgres:…@127.0.0.1")
    assert done.stdout.endswith("(1 scopes, 1 pages): all compare equal.\n")
    assert run("check", postgres_url).stdout == f"No faults in {postgres_url}.\n"
    refused = run("copy", FILE, target)
    assert refused.exit_code == 1
    assert "has data already (scopes, tasks, pages)" in refused.stderr
    assert "Copying" not in refused.stderr
    assert "secret" not in refused.output


def test_faults_are_shown_one_a_line(run: Run) -> None:
    assert run("check", FILE).stdout == f"No faults in {FILE}.\n"
    connection = apsw.Connection("old.db")
    connection.execute("DELETE FROM pages")
    connection.close()
    found = run("check", FILE)
    assert found.exit_code == 1
    assert found.stdout == "ends: ('t1', 1, None)\n"


@pytest.mark.parametrize("command", [("store", "check"), ("store", "copy"), ("keys", "list", "--store")])
def test_a_store_that_is_not_there_is_not_made(
    postgres_url: str, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = ("sqlite:///new.db",) if "copy" in command else ()
    for _ in range(2):
        refused = CliRunner().invoke(main, [*command, postgres_url, *target])
        assert refused.exit_code == 1
        assert "there is no store in the schema dragoman of PostgreSQL" in refused.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("check",), ("copy", FILE), ("copy",)])
def test_a_missing_driver_is_named_with_the_fix(
    run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("dragoman.store.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    url = "postgresql://db.invalid/dragoman"
    refused = run(*arguments, url, *(("sqlite:///new.db",) if arguments == ("copy",) else ()))
    assert refused.exit_code == 1
    assert "needs the extra postgres: run pip install '.[postgres]'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("copy", FILE, "memory:"), "out of reach of commands"),
        (("check", "memory:"), "out of reach of commands"),
        (("copy", FILE, FILE), "cannot be copied into itself"),
        (("copy", FILE, "sqlite:///./old.db"), "in use by another server"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
    assert "Copying" not in refused.stderr


@pytest.mark.parametrize("arguments", [("check", "mysql://host/db"), ("copy", "old.db", "sqlite:///new.db")])
def test_a_url_of_no_store_is_wrong_input(run: Run, arguments: tuple[str, ...]) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "use sqlite:///path" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [("check", "sqlite:///nowhere.db"), ("copy", "sqlite:///nowhere.db", "sqlite:///new.db")]
)
def test_a_store_file_that_is_not_there_is_wrong_input(run: Run, arguments: tuple[str, ...]) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "there is no store file nowhere.db: name the one that the server uses" in refused.stderr
    assert not Path("new.db").exists()
