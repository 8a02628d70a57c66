"""ListTasks: filters, pages, order, what is left out (A2A 1.0 §3.1.4; 0.3 has it with the same parameters)."""

import asyncio
from typing import Any

import pytest

from tests.spec.caller import Caller
from tests.spec.conftest import House
from tests.spec.lanes import REST_03, REST_1, RPC_1, TaskView, over_grpc_1

AT_ONCE = {"returnImmediately": True}


async def filled(caller: Caller, context: str, count: int) -> list[str]:
    """Ids of completed tasks in a context, in the order they were made."""
    return [(await caller.send(f"say {number}", contextId=context)).task.id for number in range(count)]


@over_grpc_1
async def test_a_page_says_all_that_it_must(caller: Caller) -> None:
    """§3.1.4: `tasks`, `nextPageToken`, `pageSize` and `totalSize` are always there, also when nothing is."""
    page = await caller.list(contextId="of nobody")
    assert page.result == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@over_grpc_1
async def test_artifacts_are_left_out_unless_asked_for(caller: Caller) -> None:
    """§3.1.4 `includeArtifacts`: the field is absent, not empty; asked for, they are whole."""
    context = f"artifacts {caller.lane.name}"
    await filled(caller, context, 1)
    for given in ({}, {"includeArtifacts": False}):
        (task,) = (await caller.list(contextId=context, **given)).tasks
        assert "artifacts" not in task.raw
    (task,) = (await caller.list(contextId=context, includeArtifacts=True)).tasks
    assert task.text == "say 0"


@pytest.mark.parametrize("spelled", ["true", "True", "1"])
async def test_a_flag_in_a_query_may_be_spelled_as_languages_print_it(served: House, spelled: str) -> None:
    """§11.5: query parameters are texts; `requests` sends `True`."""
    for lane in (REST_1, REST_03):
        caller = served.caller(lane)
        (made,) = await filled(caller, f"flag {spelled} {lane.name}", 1)
        page = await caller.list(contextId=f"flag {spelled} {lane.name}", includeArtifacts=spelled)
        assert [(task.id, task.text) for task in page.tasks] == [(made, "say 0")]
        (await caller.list(includeArtifacts="perhaps")).refused("InvalidParams")


@over_grpc_1
async def test_pages_follow_one_another_without_gap_or_repeat(caller: Caller) -> None:
    """§3.1.4: cursors; the last page has an empty token; `totalSize` counts all pages."""
    context = f"pages {caller.lane.name}"
    made = await filled(caller, context, 5)
    seen: list[str] = []
    token, sizes = "", []
    while True:
        page = await caller.list(contextId=context, pageSize=2, **({"pageToken": token} if token else {}))
        seen += [task.id for task in page.tasks]
        sizes.append(len(page.tasks))
        assert (page.result["totalSize"], page.result["pageSize"]) == (5, 2)
        token = page.result["nextPageToken"]
        if not token:
            break
    assert sizes == [2, 2, 1]
    assert seen == made[::-1]


@over_grpc_1
async def test_a_page_that_is_just_full_is_the_last(caller: Caller) -> None:
    """§3.1.4: no token to an empty page."""
    context = f"full {caller.lane.name}"
    await filled(caller, context, 2)
    page = await caller.list(contextId=context, pageSize=2)
    assert (len(page.tasks), page.result["nextPageToken"]) == (2, "")


@over_grpc_1
async def test_a_cursor_stands_while_new_tasks_come(caller: Caller) -> None:
    """§3.1.4: what is newer than the cursor moves nothing behind it."""
    context = f"moving {caller.lane.name}"
    made = await filled(caller, context, 3)
    first = await caller.list(contextId=context, pageSize=1)
    await filled(caller, context, 2)
    rest = await caller.list(contextId=context, pageSize=10, pageToken=first.result["nextPageToken"])
    assert [task.id for task in rest.tasks] == [made[1], made[0]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pageSize", 0),
        ("pageSize", 101),
        ("pageSize", -1),
        ("pageSize", "many"),
        ("pageToken", "not one of ours"),
        ("pageToken", "W10"),
        ("status", "TASK_STATE_RUNNING"),
        ("historyLength", -5),
        ("statusTimestampAfter", "yesterday"),
        ("statusTimestampAfter", "2026-13-01T00:00:00Z"),
    ],
)
async def test_a_parameter_that_cannot_be_is_named(caller: Caller, field: str, value: Any) -> None:
    """§3.1.4: page sizes are 1 to 100; tokens are those of an earlier answer; §6.5 has the violations."""
    assert field in (await caller.list(**{field: value})).refused("InvalidParams").violations


async def test_several_parameters_that_cannot_be_are_named_together(served: House) -> None:
    """§6.5: one answer with all violations."""
    wrong = {"pageSize": 150, "historyLength": -5, "status": "running"}
    for lane in (RPC_1, REST_1):
        failed = (await served.caller(lane).list(**wrong)).refused("InvalidParams")
        assert failed.violations.keys() == wrong.keys()


STATES = {"say": "completed", "ask": "input-required", "login": "auth-required", "fail": "failed", "reject": "rejected"}


@over_grpc_1
async def test_the_status_filter_gives_tasks_in_that_state(caller: Caller, served: House) -> None:
    """§3.1.4 `status`: each state, with its own total, alone and with a context."""
    context, name = f"states {caller.lane.name}", f"states {caller.lane.name}"
    made = {state: (await caller.send(text, contextId=context)).task.id for text, state in STATES.items()}
    working = await served.working(caller, name, contextId=context)
    canceled = (await caller.send("wait for ever", contextId=context, configuration=AT_ONCE)).task.id
    await caller.cancel(canceled)
    made |= {"working": working, "canceled": canceled}
    for state, task_id in made.items():
        spelled = "TASK_STATE_" + state.upper().replace("-", "_")
        page = await caller.list(contextId=context, status=spelled)
        assert ([task.id for task in page.tasks], page.result["totalSize"]) == ([task_id], 1), state
        assert task_id in {task.id for task in (await caller.list(status=spelled, pageSize=100)).tasks}
    assert (await caller.list(contextId=context)).result["totalSize"] == len(made)
    served.gates.open[name].set()


async def test_an_unspecified_status_filters_nothing(served: House) -> None:
    """§3.1.4: the enum's zero is the absence of a filter."""
    for lane in (RPC_1, REST_1):
        caller = served.caller(lane)
        await filled(caller, f"zero {lane.name}", 1)
        assert len((await caller.list(contextId=f"zero {lane.name}", status="TASK_STATE_UNSPECIFIED")).tasks) == 1


@over_grpc_1
async def test_a_total_follows_a_task_from_state_to_state(caller: Caller) -> None:
    """§3.1.4 `totalSize`: as the tasks are now."""
    context = f"total {caller.lane.name}"

    async def totals() -> tuple[int, int]:
        pages = [
            await caller.list(contextId=context, status=f"TASK_STATE_{state}")
            for state in ("INPUT_REQUIRED", "COMPLETED")
        ]
        return pages[0].result["totalSize"], pages[1].result["totalSize"]

    task = (await caller.send("ask", contextId=context)).task
    assert await totals() == (1, 0)
    await caller.send("that", taskId=task.id)
    assert await totals() == (0, 1)


@over_grpc_1
async def test_the_order_is_by_status_time_and_ties_are_by_id(caller: Caller) -> None:
    """§3.1.4: the one whose status changed last comes first; tasks of the same millisecond have a fixed order too."""
    context = f"order {caller.lane.name}"
    waiting = (await caller.send("ask", contextId=context)).task
    for _ in range(3):
        await asyncio.gather(*(caller.send(contextId=context) for _ in range(16)))
    listed = (await caller.list(contextId=context, pageSize=100)).tasks
    assert len(listed) == 49
    assert [task.id for task in listed] == [
        task.id for task in sorted(listed, key=lambda task: (task.timestamp, task.id), reverse=True)
    ]
    paged: list[str] = []
    token = ""
    for _ in range(25):
        page = await caller.list(contextId=context, pageSize=2, **({"pageToken": token} if token else {}))
        paged += [task.id for task in page.tasks]
        token = page.result["nextPageToken"]
    assert (paged, token) == ([task.id for task in listed], "")
    await caller.send("that", taskId=waiting.id)
    assert (await caller.list(contextId=context)).tasks[0].id == waiting.id


@over_grpc_1
async def test_only_tasks_after_a_time_are_given_that_moment_included(caller: Caller) -> None:
    """§3.1.4 `statusTimestampAfter`: on or after; any RFC 3339 spelling; the total counts the same tasks."""
    context = f"after {caller.lane.name}"
    made: list[TaskView] = []
    while len(made) < 3:
        task = (await caller.send("ask", contextId=context)).task
        if made and task.timestamp == made[-1].timestamp:
            await caller.send(
                "that", taskId=task.id, contextId=context
            )  # of the same millisecond: not one of the three
            continue
        made.append(task)
    moment = made[1].timestamp
    for spelled, expected in (
        (made[0].timestamp, made),
        (moment, made[1:]),
        (moment.replace("Z", "+00:00"), made[1:]),
        (moment.replace("Z", "000001Z"), made[2:]),
        ("2999-01-01T00:00:00Z", []),
    ):
        given = {"contextId": context, "statusTimestampAfter": spelled, "status": "TASK_STATE_INPUT_REQUIRED"}
        page = await caller.list(**given)
        assert [task.id for task in page.tasks] == [task.id for task in expected[::-1]], spelled
        assert page.result["totalSize"] == len(expected), spelled
        page = await caller.list(**given, pageSize=1)
        assert (len(page.tasks), page.result["totalSize"]) == (min(1, len(expected)), len(expected))
    everywhere = {task.id for task in (await caller.list(statusTimestampAfter=moment, pageSize=100)).tasks}
    assert everywhere >= {task.id for task in made[1:]}
    assert made[0].id not in everywhere


@over_grpc_1
async def test_the_total_is_right_while_tasks_are_made_at_once(caller: Caller) -> None:
    """§3.1.4: counted, not estimated."""
    context = f"many {caller.lane.name}"
    await asyncio.gather(*(caller.send(contextId=context) for _ in range(20)))
    page = await caller.list(contextId=context, pageSize=7)
    assert (len(page.tasks), page.result["totalSize"]) == (7, 20)
