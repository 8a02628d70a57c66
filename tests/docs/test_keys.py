"""The remedy of docs/keys.md works: a copy of the store without keys shows the tasks from before the first key."""

import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.systems.conftest import site
from tests.systems.keyed import Holder, keyed
from tests.systems.speakers import NEW

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")


@pytest.mark.slow
async def test_tasks_from_before_the_first_key_are_read_from_a_copy_without_keys(tmp_path: Path) -> None:
    store, copy = tmp_path / "keyed.db", tmp_path / "earlier.db"
    async with site(store=f"sqlite:///{store}") as asks_nobody:
        task_id = await NEW.send(asks_nobody, "before")
    async with keyed(tmp_path, {"ann": Holder(name="ann")}) as asks:
        assert (await NEW.get(asks.site, task_id)).status == 401
        assert (await NEW.get(asks.by("ann"), task_id)).error
    commands = re.findall(r'sqlite3 data/(\w+)\.db "(.*?)"', PAGE)
    assert [name for name, _ in commands] == ["dragoman", "earlier"]
    for path, (_, statements) in zip((store, copy), commands, strict=True):
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute(statements.replace("data/earlier.db", str(copy)))
    async with site(store=f"sqlite:///{copy}") as asks_nobody:
        assert (await NEW.get(asks_nobody, task_id)).result["id"] == task_id
