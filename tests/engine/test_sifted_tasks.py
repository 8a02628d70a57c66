"""Tasks that are found by what the store does not know: by metadata and by how long they took."""

import pytest
from msgspec.structs import replace

from dragoman.admin.tasks import LIST_TASKS, TaskOrder, TaskQuery
from dragoman.engine.admin import inspection
from dragoman.engine.admin.inspection import Inspector
from dragoman.store.api import Store
from tests.store.cases.bench import new_task

TASKS = 30


@pytest.mark.parametrize("order", ["newest-created", "oldest-created"])
async def test_pages_have_each_task_that_fits_once_however_dense_these_are(
    store: Store, order: TaskOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "SIFTED_ROWS", 5)
    monkeypatch.setattr(inspection, "SIFTS", 2)
    fitting = [number for number in range(TASKS) if number < 8 or number % 9 == 0]
    for number in range(TASKS):
        task = new_task(f"t{number}")
        metadata = {"ticket": number} if number in fitting else {}
        await store.create(replace(task, head=replace(task.head, metadata=metadata)))
    inspector = Inspector(store)
    for limit in (1, 2, 3, 8):
        query: TaskQuery | None = TaskQuery(metadata="ticket", order=order, limit=limit)
        found: list[str] = []
        while query is not None:
            page = await inspector.list(query)
            assert len(page.tasks) <= limit
            found += [line.id for line in page.tasks]
            query = LIST_TASKS.next_page(query, page)
        wanted = fitting if order == "oldest-created" else reversed(fitting)
        assert found == [f"t{number}" for number in wanted], limit
