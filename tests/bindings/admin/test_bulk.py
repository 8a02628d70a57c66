"""Bulk acts: a job changes all tasks that a query finds, as they stand then, and can be watched and stopped."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.engine.admin import task_changes
from dragoman.engine.admin.task_changes import TaskChanges
from tests.bindings.admin.test_admin import audit_of, make_task, operated, read
from tests.kit.places import V1
from tests.kit.waiting import DEADLINE_S

Json = dict[str, Any]


async def watch(http: aiohttp.ClientSession, ops: dict[str, str], job: str) -> Json:
    """A job as it stands."""
    _, found = await read(http, f"/bulk?id={job}", ops)
    (only,) = found["jobs"]
    return dict(only)


OPEN = ("waiting", "finding", "working")
"""The states of a job that is not over."""


async def finish(http: aiohttp.ClientSession, ops: dict[str, str], **wanted: Any) -> Json:
    """Start a job, and return it when it is over."""
    status, job = await read(http, "/bulk", ops, "POST", json=wanted)
    assert (status, job["state"]) == (200, "waiting"), job
    async with asyncio.timeout(DEADLINE_S):
        while job["state"] in OPEN:
            job = await watch(http, ops, job["id"])
    return job


def counts(job: Json) -> tuple[str, int, int, int, int]:
    return job["state"], job["found"], job["done"], job["skipped"], job["failed"]


async def test_all_tasks_of_a_query_are_changed_and_the_audit_trail_says_so_once(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        echo = [await make_task(http, "echo", f"e{number}") for number in range(3)]
        other = await make_task(http, "other", "o")
        assert counts(await finish(http, ops, action="cancel", agent="echo", dry_run=True)) == ("ended", 3, 0, 0, 0)
        limited = await finish(http, ops, action="cancel", agent="echo", limit=1, dry_run=True)
        assert (limited["found"], limited["more"]) == (1, True)
        job = await finish(http, ops, action="cancel", agent="echo", reason="gone wrong")
        assert (counts(job), job["query"], job["more"]) == (("ended", 3, 3, 0, 0), "agent=echo", False)
        assert {(await read(http, f"/tasks/{each}", ops))[1]["task"]["state"] for each in echo} == {"canceled"}
        _, log = await read(http, f"/tasks/{echo[0]}/log", ops)
        assert "gone wrong" in str(log)
        again = await finish(http, ops, action="send-again", agent="echo", state="canceled")
        assert counts(again) == ("ended", 3, 3, 0, 0)
        assert (await read(http, "/tasks?agent=echo", ops))[1]["total"] == 6
        gone = await finish(http, ops, action="delete", older_than_s=0, force=True)
        assert counts(gone) == ("ended", 7, 7, 0, 0)
        assert (await read(http, f"/tasks/{other}", ops))[0] == 404
        _, listed = await read(http, "/bulk", ops)
        assert [each["action"] for each in listed["jobs"]] == ["delete", "send-again", "cancel", "cancel", "cancel"]
    entries = await audit_of(f"sqlite:///{tmp_path}/dragoman.db", "operator:local")
    assert [
        (entry.action, entry.subject)
        for entry in entries
        if entry.action.startswith(("tasks.bulk", "tasks.cancel", "tasks.delete"))
    ] == [
        ("tasks.bulk-cancel", "agent=echo: 3"),
        ("tasks.bulk-send-again", "state=canceled agent=echo: 3"),
        ("tasks.bulk-delete", "older_than_s=0.0: 7"),
    ]


async def test_a_task_whose_state_has_changed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with operated(tmp_path) as (http, ops):
        first, second = [await make_task(http, "echo", name) for name in ("one", "two")]
        act = TaskChanges.act

        async def act_late(changes: TaskChanges, operator: Any, wanted: Any, task_id: str) -> bool:
            if task_id == first:  # somebody else is quicker
                await changes.cancel(operator, task_id)
            return await act(changes, operator, wanted, task_id)

        monkeypatch.setattr(task_changes.TaskChanges, "act", act_late)
        job = await finish(http, ops, action="cancel", state="input-required", agent="echo")
        assert counts(job) == ("ended", 2, 1, 1, 0)
        assert {(await read(http, f"/tasks/{each}", ops))[1]["task"]["state"] for each in (first, second)} == {
            "canceled"
        }


async def test_a_job_that_is_stopped_changes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def act(*_: Any) -> bool:
        begun.set()
        await gate.wait()
        return True

    monkeypatch.setattr(TaskChanges, "act", act)
    async with operated(tmp_path) as (http, ops):
        for number in range(20):
            await make_task(http, "echo", f"e{number}")
        _, job = await read(http, "/bulk", ops, "POST", json={"action": "cancel", "agent": "echo"})
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
            assert (await read(http, f"/bulk/{job['id']}:stop", ops, "POST"))[0] == 200
            gate.set()
            while (job := await watch(http, ops, job["id"]))["state"] in OPEN:
                pass
        assert (job["state"], job["found"], job["done"]) == ("stopped", 20, 16)


async def test_tasks_are_found_by_metadata(tmp_path: Path) -> None:
    async with operated(tmp_path) as (http, ops):
        made = {}
        for number, metadata in enumerate(({"ticket": "A-1"}, {"ticket": 7}, {})):
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "x"}]}
            sent = {"message": message, "metadata": metadata}
            async with http.post("/agents/echo/message:send", json=sent, headers=V1) as answer:
                made[number] = str((await answer.json())["task"]["id"])
        for words, wanted in (("ticket", {0, 1}), ("ticket=A-1", {0}), ("ticket=7", {1}), ("ticket=A", set())):
            _, page = await read(http, f"/tasks?metadata={words}", ops)
            assert {line["id"] for line in page["tasks"]} == {made[number] for number in wanted}, words
        assert counts(await finish(http, ops, action="cancel", metadata="ticket=A-1"))[1:3] == (1, 1)
        assert (await read(http, "/tasks?metadata=ticket&order=newest-changed", ops))[0] == 400


async def test_the_jobs_of_a_server_that_ends_are_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def act(*_: Any) -> bool:
        begun.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(TaskChanges, "act", act)
    monkeypatch.setattr("dragoman.engine.admin.bulk_jobs.JOBS_AT_ONCE", 1)
    async with operated(tmp_path) as (http, ops):
        await make_task(http, "echo", "one")
        jobs = [(await read(http, "/bulk", ops, "POST", json={"action": "cancel", "agent": "echo"}))[1] for _ in "ab"]
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
        async with asyncio.timeout(DEADLINE_S):
            while (await watch(http, ops, jobs[0]["id"]))["state"] != "working":
                pass  # what a job says of itself may come after its first act
        assert (await watch(http, ops, jobs[1]["id"]))["state"] == "waiting"
    async with operated(tmp_path) as (http, ops):
        assert [(await watch(http, ops, job["id"]))["state"] for job in jobs] == ["interrupted"] * 2
