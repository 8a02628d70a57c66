"""`kill -9` of a server whose agent waits for another: what was delegated is delegated once."""

import asyncio

import pytest

from dragoman.engine.lineage import child_of
from tests.durability.caller import WAITING, Caller, Refusal
from tests.durability.caller import message as said
from tests.durability.conftest import DEADLINE_S, Serve
from tests.durability.ledger import Call, text_of

pytestmark = pytest.mark.slow


async def at_work(caller: Caller, parent_id: str, number: int) -> None:
    """Wait until that delegation of the task has given something out."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                if text_of(await caller.get("again", child_of(parent_id, number))):
                    return
            except Refusal:  # it has not been made
                pass
            await asyncio.sleep(0.01)


async def reached(caller: Caller, task_id: str, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await caller.get("office", task_id))["status"]["state"] != state:
            await asyncio.sleep(0.01)


async def test_no_second_task_is_made_however_often_the_server_is_killed(serve: Serve, call: Call) -> None:
    server = await serve()
    caller = call(server)
    task = await caller.send("office", said("30 every 0.02"), at_once=True)
    await at_work(caller, task["id"], 1)
    for _ in range(2):
        await server.kill()
        server = await serve()
        caller = call(server)
        await at_work(caller, task["id"], 1)
    await reached(caller, task["id"], WAITING)
    await server.kill()

    server = await serve()
    caller = call(server)
    more = said("30 every 0.02", task_id=task["id"])
    await caller.send("office", more, at_once=True)
    await at_work(caller, task["id"], 2)
    await server.kill()

    caller = call(await serve())
    await reached(caller, task["id"], "TASK_STATE_COMPLETED")
    numbers = "".join(f"{number} " for number in range(30))
    assert text_of(await caller.get("office", task["id"])) == f"[{numbers}{numbers}]"
    tasks, total = await caller.tasks("again")
    assert total == 2
    for made in tasks:
        assert made["status"]["state"] == "TASK_STATE_COMPLETED"
        assert made["metadata"]["urn:dragoman:parent:v1"] == {"taskId": task["id"], "agent": "office"}
