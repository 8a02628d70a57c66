"""`dragoman admin` on a store that no server has open: one damaged task must not need a server that it may hinder."""

import json
from pathlib import Path

import pytest

from tests.cli.admin.site import Ran, dragoman, site
from tests.spoil import spoil_database, spoil_file
from tests.store.cases.bench import Spoil
from tests.store.cases.spoiling import cut
from tests.systems.conftest import site as served_site
from tests.systems.speakers import NEW


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Spoil]:
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db", spoil_file(tmp_path / "store.db")
    url = request.getfixturevalue("used_postgres_url")
    return url, spoil_database(url)


async def test_a_damaged_task_is_found_shown_and_deleted_without_a_server(
    place: tuple[str, Spoil], tmp_path: Path
) -> None:
    store, spoil = place

    async def run(*words: str) -> Ran:
        return await dragoman(tmp_path, *words, DRAGOMAN_STORE=store)

    async with served_site(store=store) as served:
        ended, whole = await NEW.send(served, "one"), await NEW.send(served, "two")
        asking = (await NEW.call(served, "SendMessage", NEW.said("ask"))).result["task"]["id"]
        assert (await run("store", "check")).status == 0
    for task_id in (ended, asking):
        await spoil("pages", "events", f"task = (SELECT task FROM tasks WHERE id = '{task_id}') AND first_seq = 1", cut)
    await spoil("tasks", "head", f"id = '{ended}'", cut)
    checked = await run("store", "check")
    assert checked.status == 1
    assert all(f"damaged: task {task_id}" in checked.out for task_id in (ended, asking)), checked
    assert whole not in checked.out
    assert f"damaged: task {ended}: its record: " in checked.out
    assert "`dragoman admin tasks show ID`" in checked.err
    assert (await run("store", "check", store)).err == checked.err
    rows = (await run("admin", "tasks", "list")).out.splitlines()
    assert ["(its record is damaged)" in row for row in rows if ended in row] == [True]
    for task_id, state in ((ended, "completed"), (asking, "input-required")):
        shown = await run("admin", "tasks", "show", task_id)
        assert (shown.status, shown.err) == (0, "")
        assert state in shown.out
        assert "unreadable:" in shown.out
    timeline = await run("admin", "tasks", "log", asking)
    assert (timeline.status, "submitted" in timeline.out) == (0, False)
    assert "damaged" in timeline.err
    assert "log_retention" in timeline.err, "nobody knows which of both it was"
    assert (await run("admin", "tasks", "delete", ended)) == (0, f"{ended} is deleted.\n", "")
    kept = await run("admin", "tasks", "delete", asking)
    assert (kept.status, "force" in kept.err) == (1, True), kept
    assert (await run("admin", "tasks", "delete", asking, "--force")) == (0, f"{asking} is deleted.\n", "")
    gone = await run("admin", "tasks", "delete", asking)
    assert (gone.status, len(gone.err.splitlines())) == (1, 1)
    assert (await run("store", "check")).status == 0
    listed = json.loads((await run("admin", "tasks", "list", "-o", "json")).out)
    assert [task["id"] for task in listed["tasks"]] == [whole]
    trail = await run("audit", "--json")
    entries = [json.loads(line) for line in trail.out.splitlines()]
    assert [entry["task_id"] for entry in entries if entry["action"] == "tasks.delete"].count(asking) == 3


@pytest.mark.parametrize("verb", ["delete", "cancel"])
async def test_a_change_of_no_task_says_what_is_missing(tmp_path: Path, verb: str) -> None:
    async with site(tmp_path) as here:
        nothing = await here.admin("tasks", verb)
        assert nothing.status == 2
        assert "no task is given" in nothing.err
        assert "--agent" in nothing.err
        both = await here.admin("tasks", verb, here.echo, "--agent", "echo")
        assert (both.status, "but not both" in both.err) == (2, True)
