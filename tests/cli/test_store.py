"""`dragoman store`: copies a store, says what it did, and finds faults."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from dragoman.cli import main
from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.testing.store_cases.bench import new_task

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
    assert "secret" not in refused.output


def test_faults_are_shown_one_a_line(run: Run) -> None:
    assert run("check", FILE).stdout == f"No faults in {FILE}.\n"
    connection = apsw.Connection("old.db")
    connection.execute("DELETE FROM pages")
    connection.close()
    found = run("check", FILE)
    assert found.exit_code == 1
    assert found.stdout == "ends: ('t1', 1, None)\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "mysql://host/db"), "use sqlite:///path"),
        (("check", "sqlite:///nowhere.db"), "there is no store file nowhere.db"),
        (("copy", "sqlite:///nowhere.db", "sqlite:///new.db"), "there is no store file nowhere.db"),
        (("copy", FILE, "memory:"), "nothing can be copied from it or to it"),
        (("copy", FILE, FILE), "in use by another server"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert refused.stderr.strip().count("Error: ") == 1
