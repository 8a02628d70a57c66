"""The rows of a team: its tasks in lists, searches and changes, what belongs to them, and its quota.

Invariant: a case uses nothing but the Store protocol.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.store.api import (
    ContextQuery,
    ListQuery,
    NewTask,
    OverQuota,
    Owners,
    Quota,
    Store,
    TaskSearch,
    covers,
    owner_range,
)
from dragoman.store.audit import AuditEntry, AuditFilter
from dragoman.store.members import TeamMembers
from tests.store.cases.bench import START_MS, TODAY, Bench, by_run, chunk, ending, new_task
from tests.store.cases.deliveries import telling, webhook
from tests.store.cases.test_receipts import deliver_all

OWNERS = {
    "team:a/key:ann": "a",
    "team:a/jwt:bob@https://issuer/x": "a",
    "team:ab/key:ann": "ab",
    "team:a0/key:ann": "a0",
    "team:a.b/key:ann": "a.b",
    "team:b/key:ann": "b",
    "key:ann": "",
    "key:team:a": "",
}
"""Owners, with their teams. The ids of some teams begin with those of others."""

A = TeamMembers("a")


def task_of(owner: str, number: int = 0, **facts: Any) -> NewTask:
    team = OWNERS[owner]
    new = new_task(f"{owner}-{number}", owner=owner, **facts)
    return replace(new, head=replace(new.head, team=team))


async def make_all(store: Store) -> list[str]:
    """Make a task for each owner, and return the ids of those of the team a, the newest made first."""
    for number, owner in enumerate(OWNERS):
        await store.create(task_of(owner, at=START_MS + number))
    return [f"{owner}-0" for owner, team in reversed(OWNERS.items()) if team == "a"]


def test_the_members_of_a_team_are_a_range_of_owners() -> None:
    for owner, team in OWNERS.items():
        for asked in ("a", "ab", "a0", "a.b", "b"):
            first, last = owner_range(TeamMembers(asked))
            assert (first <= owner <= last) is (team == asked) is covers(TeamMembers(asked), owner)
        first, last = owner_range(Owners.ALL)
        assert first <= owner <= last


async def test_the_tasks_of_a_team_are_listed_searched_found_and_counted_alone(bench: Bench) -> None:
    async with bench.store() as store:
        own = await make_all(store)
        listed = await store.list_rows(ListQuery(owner=A, agent=None))
        assert ([row.head.id for row in listed.rows], listed.total) == (own, 2)
        page = await store.list(ListQuery(owner=A, agent="echo", context_id="c1", limit=1))
        assert ([each.head.id for each in page.tasks], page.total, page.more) == (own[:1], 2, True)
        found = await store.search(TaskSearch(owner=A, agent=None, limit=1, scan_max=1))
        assert ([row.head.id for row in found.rows], found.after is None) == (own[:1], False)
        rest = await store.search(TaskSearch(owner=A, agent=None, limit=5, after=found.after))
        assert ([row.head.id for row in rest.rows], rest.after) == (own[1:], None)
        oldest = await store.search(TaskSearch(owner=Owners.ALL, team="a", agent=None, oldest=True))
        assert [row.head.id for row in oldest.rows] == own[::-1]
        contexts = await store.contexts(ContextQuery(owner=A, agent=None))
        assert sorted(row.owner for row in contexts.rows) == sorted(each[:-2] for each in own)
        changes = await store.changes(START_MS, 10, A)
        assert [row.id for row in changes] == own[::-1]
        for owner in OWNERS:
            assert (await store.find(f"{owner}-0", A, "echo") is not None) is (OWNERS[owner] == "a")
        (echo,) = await store.teams.open_tasks(A)
        assert (echo.agent, echo.running) == ("echo", 2)
        await store.append(ending(own[0], 1, at=START_MS + 9))
        (echo,) = await store.teams.open_tasks(A)
        assert echo.running == 1
        assert [used.owner for used in await store.usage.days(0, TODAY + 1, A)] == [own[0][:-2]]
        assert await store.usage.days(0, TODAY + 1, TeamMembers("ab")) == ()
        head = await store.head(own[0])
        assert head is not None
        assert head[0].team == "a"


async def test_the_deliveries_of_a_team_are_told_alone(bench: Bench) -> None:
    async with bench.store() as store:
        for owner in OWNERS:
            await store.create(replace(task_of(owner), push=webhook()))
            await store.append(replace(by_run(f"{owner}-0", chunk("a")), deliveries=(telling(2, kept=True),)))
        own = sorted(f"{owner}-0" for owner, team in OWNERS.items() if team == "a")
        owed = await store.teams.owed(A)
        assert sorted(each.task_id for each in owed) == own
        assert [each.task_id for each in await store.teams.owed(A, limit=1, after=owed[0].number)] == [owed[1].task_id]
        assert await store.teams.owed(A, dead=True) == ()
        assert [(each.calls, each.webhooks) for each in await store.teams.owed_groups(A, 9)] == [(2, 2)]
        assert len(await store.teams.owed(A, host=owed[0].host)) == 2
        assert await store.teams.owed(A, host="https://nobody:1") == ()
        counts = await store.teams.count_owed(A)
        assert (counts.pending, counts.dead, counts.paused) == (2, 0, 0)
        assert counts.due_ms is not None
        assert await store.teams.receipts(A) == ()
        await deliver_all(bench, store)
        assert sorted(each.task_id for each in await store.teams.receipts(A)) == own
        assert len(await store.teams.receipts(A, limit=1)) == 1
        assert (await store.teams.count_owed(A)).pending == 0


async def test_the_audit_trail_of_a_team_has_what_its_members_did(bench: Bench) -> None:
    async with bench.store() as store:
        await store.audit.write(
            [AuditEntry(at_ms=number, principal=owner, action="keys.create") for number, owner in enumerate(OWNERS)]
        )
        own = [owner for owner, team in OWNERS.items() if team == "a"]
        for forward in (False, True):
            page = await store.audit.page(AuditFilter(members=A), 10, forward=forward)
            assert [each.principal for each in page.entries] == own
        refused = await store.audit.page(AuditFilter(members=A, refused=True), 10)
        assert refused.entries == ()
        _, acts = await store.audit.acts(0, A)
        assert [each.principal for each in acts] == own


async def test_the_quota_of_a_team_is_that_of_all_its_members_together(bench: Bench) -> None:
    ann, bob, *_ = OWNERS
    async with bench.store() as store:

        def limited(owner: str, number: int, most: int = 0, daily: int = 0) -> NewTask:
            quota = Quota(0, 0, TODAY, TeamMembers(OWNERS[owner]), most, daily)
            return replace(task_of(owner, number), quota=quota)

        await store.create(task_of("team:ab/key:ann"))
        await store.create(limited(ann, 0, most=2, daily=3))
        await store.create(limited(bob, 0, most=2, daily=3))
        with pytest.raises(OverQuota) as over:
            await store.create(limited(ann, 1, most=2, daily=3))
        assert (over.value.limit, over.value.of_team) == ("max_open_tasks", True)
        await store.append(ending(f"{bob}-0", 1))
        await store.create(limited(ann, 1, most=2, daily=3))
        await store.append(ending(f"{ann}-1", 1))
        with pytest.raises(OverQuota) as over:
            await store.create(limited(bob, 1, most=2, daily=3))
        assert (over.value.limit, over.value.of_team) == ("max_daily_tasks", True)
        other = replace(task_of("team:b/key:ann"), quota=Quota(0, 0, TODAY, TeamMembers("b"), 1, 1))
        await store.create(other)
