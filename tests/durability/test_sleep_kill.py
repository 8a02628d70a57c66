"""`kill -9` of a server whose tasks sleep: each wakes once, not early, and goes on where it went to sleep."""

import asyncio
from datetime import datetime
from time import monotonic, time

import pytest

from tests.durability.caller import TERMINAL, message
from tests.durability.conftest import DEADLINE_S, Serve
from tests.durability.ledger import Call, text_of

pytestmark = pytest.mark.slow

TASKS = 20

SLEEP = "urn:dragoman:sleep:v1"


async def test_no_sleep_is_lost_or_slept_again_however_often_the_server_is_killed(serve: Serve, call: Call) -> None:
    """Of the sleeps, one is kept by the run and one is not, by their length and the setting."""
    flags = "--suspend-after-s", "0.5"
    server = await serve(*flags)
    caller, began = call(server), time()
    sent = [await caller.send("rest", message(f"{0.3 + number % 4 / 2}"), at_once=True) for number in range(TASKS)]
    for task in sent:
        while not text_of(await caller.get("rest", task["id"])):
            await asyncio.sleep(0.01)
    for _ in range(4):
        await server.kill()
        server = await serve(*flags)
        caller = call(server)
        await asyncio.sleep(0.3)
    async with asyncio.timeout(DEADLINE_S):
        for number, task in enumerate(sent):
            while (found := await caller.get("rest", task["id"]))["status"]["state"] not in TERMINAL:
                await asyncio.sleep(0.01)
            assert (found["status"]["state"], text_of(found)) == ("TASK_STATE_COMPLETED", "one two three")
            ended = datetime.fromisoformat(found["status"]["timestamp"]).timestamp()
            assert ended - began >= 2 * (0.3 + number % 4 / 2) - 0.01, "it woke early"


async def test_a_task_that_should_have_woken_meanwhile_wakes_within_two_seconds(serve: Serve, call: Call) -> None:
    server = await serve("--suspend-after-s", "0")
    caller = call(server)
    task = await caller.send("rest", message("0.8"), at_once=True)
    while not text_of(await caller.get("rest", task["id"])):
        await asyncio.sleep(0.01)
    await server.kill()
    await asyncio.sleep(1)
    caller, back = call(await serve("--suspend-after-s", "0")), monotonic()
    while "two" not in text_of(await caller.get("rest", task["id"])):
        await asyncio.sleep(0.01)
    assert monotonic() - back < DEADLINE_S
