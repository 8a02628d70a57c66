"""Deleting a principal: what names it beside its tasks, and who may not be deleted."""

import msgspec
import pytest

from dragoman.admin.principals import PrincipalDeletion, PrincipalReport
from dragoman.engine.admin import principal_deletion
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.idle_store import IdleTasks
from dragoman.engine.admin.principal_deletion import PrincipalEraser
from dragoman.engine.erasures import Erasures
from dragoman.engine.key_stops import KeyStops
from dragoman.model.errors import Unavailable, UnsupportedOperation
from dragoman.store.api import ListQuery, Store
from dragoman.store.audit import AuditEntry
from dragoman.store.shared import CONSOLE_SESSIONS
from tests.store.cases.bench import ending, new_task

ROOT = Operator("operator:root")


async def delete(store: Store, principal: str, **wanted: bool) -> PrincipalReport:
    """Delete a principal on a store that no server has open."""
    stops, erasures = KeyStops(store.shared, store.clock), Erasures(store.shared, store.clock)
    eraser = PrincipalEraser(store, IdleTasks(store, None), erasures, stops, alone=True)
    return await eraser.delete(Asked(ROOT, PrincipalDeletion(principal=principal, **wanted)))


async def test_sessions_end_and_requests_to_stop_keys_name_nobody(store: Store) -> None:
    """Those of other principals stay, whose names begin alike."""
    stops = KeyStops(store.shared, store.clock)
    await store.audit.write([AuditEntry(at_ms=1, principal="key:ann", action="GetTask")])
    for name in ("key:ann", "key:anna"):
        await store.shared.put(f"{CONSOLE_SESSIONS}{name}", msgspec.json.encode([name, "id", 1]), 60_000)
    await stops.request("k1", "ann", "operator:x", tasks=False)
    await stops.request("k2", "bob", "key:ann", tasks=True)
    await stops.request("k3", "bob", "key:anna", tasks=True)
    report = await delete(store, "key:ann")
    assert [entry.key for entry in await store.shared.scan(CONSOLE_SESSIONS)] == [f"{CONSOLE_SESSIONS}key:anna"]
    assert [(each.key, each.by) for each in await stops.refresh()] == [("k2", report.alias), ("k3", "key:anna")]


async def test_nobody_is_kept_out_for_whom_there_is_nothing(store: Store) -> None:
    report = await delete(store, "key:nobody")
    assert (report.held.empty, report.alias) == (True, "")
    assert await store.shared.scan("erasure/") == ()


async def test_a_principal_is_kept_out_only_while_its_data_goes(store: Store) -> None:
    """Also if nothing was deleted, because a task is open."""
    await store.replicas.join("h1", address="", agents=("echo",))
    await store.create(new_task("t1", owner="key:ann"))
    erasures = Erasures(store.shared, store.clock)
    await erasures.begin("key:ann")
    assert await erasures.refresh()
    with pytest.raises(Unavailable):
        erasures.check("key:ann")
    erasures.check("key:bob")
    with pytest.raises(UnsupportedOperation, match="1 open task:"):
        await delete(store, "key:ann")
    with pytest.raises(UnsupportedOperation, match="another operator"):
        await delete(store, ROOT.principal)
    await store.append(ending("t1", 1))
    report = await delete(store, "key:ann")
    assert report.tasks == 1
    assert await erasures.refresh(), "what was remembered meanwhile is forgotten once more"
    erasures.check("key:ann")
    assert b"key:ann" not in b"".join(entry.value for entry in await store.shared.scan("erasure/"))


async def test_a_deletion_goes_on_under_its_alias(store: Store) -> None:
    erasures = Erasures(store.shared, store.clock)
    first = await erasures.begin("key:ann")
    assert (await erasures.begin("key:ann")).alias == first.alias
    await erasures.end("key:ann")
    assert (await erasures.begin("key:ann")).alias != first.alias, "another deletion is another alias"


async def test_an_open_task_ends_in_its_log_before_it_is_deleted(store: Store) -> None:
    await store.replicas.join("h1", address="", agents=("echo",))
    await store.create(new_task("t1", owner="key:ann"))
    report = await delete(store, "key:ann", cancel_open=True)
    assert (report.held.open_tasks, report.tasks, report.failed) == (1, 1, ())
    assert (await store.list_rows(ListQuery(owner="key:ann", agent=None))).rows == ()


async def test_a_request_that_has_no_time_left_says_that_there_is_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client waits a minute at most, however many tasks there are to cancel."""
    monkeypatch.setattr(principal_deletion, "TURN_S", 0.0)
    monkeypatch.setattr(principal_deletion, "CANCELED_AT_A_TIME", 2)
    await store.replicas.join("h1", address="", agents=("echo",))
    for number in range(5):
        await store.create(new_task(f"t{number}", owner="key:ann"))
    reports = [await delete(store, "key:ann", cancel_open=True)]
    while reports[-1].more:
        reports.append(await delete(store, "key:ann", cancel_open=True))
    assert [report.held.open_tasks for report in reports][:4] == [5, 3, 1, 0]
    assert sum(report.tasks for report in reports) == 5
    assert len({report.alias for report in reports}) == 1


class Stubborn(IdleTasks):
    """Tasks that cannot be canceled."""

    async def cancel(self, operator: Operator, task_id: str, reason: str) -> None:
        raise UnsupportedOperation(f"task {task_id} goes on")


async def test_nothing_is_deleted_if_a_task_cannot_be_canceled(store: Store) -> None:
    await store.replicas.join("h1", address="", agents=("echo",))
    for task_id in ("open", "ended"):
        await store.create(new_task(task_id, owner="key:ann"))
    await store.append(ending("ended", 1))
    stops, erasures = KeyStops(store.shared, store.clock), Erasures(store.shared, store.clock)
    eraser = PrincipalEraser(store, Stubborn(store, None), erasures, stops, alone=True)
    report = await eraser.delete(Asked(ROOT, PrincipalDeletion(principal="key:ann", cancel_open=True)))
    assert [(failure.id, failure.reason) for failure in report.failed] == [("open", "task open goes on")]
    assert (report.tasks, report.more, report.alias) == (0, False, "")
    assert len((await store.list_rows(ListQuery(owner="key:ann", agent=None))).rows) == 2
    assert await erasures.find_request("key:ann") is None, "the principal may go on"
