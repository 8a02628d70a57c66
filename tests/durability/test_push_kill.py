"""`kill -9` around webhook calls: what a task owes arrives, at least once, in order, under the id it had before."""

import asyncio
import json
import random
from collections import defaultdict
from typing import Any

import aiohttp
import pytest

from dragoman.store.sqlite.schema import check
from tests.durability.caller import TERMINAL, Caller, Frame, message
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.net.peer import nobody
from tests.push.receiver import Receiver, place_of, receiving
from tests.soak import times

pytestmark = pytest.mark.slow

ALLOWED = ("--push-allowed-cidrs", "127.0.0.0/8")
SENDERS = 16
ROUNDS = times(2, 30)
LOAD_S = (0.1, 0.6)
"""From when to when after the first calls the server is killed."""

VERIFIED = 200
"""The number of tasks whose calls are compared with all that happened."""

GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)


async def sent(caller: Caller, agent: str, text: str, url: str) -> dict[str, Any]:
    """A task that tells `url` of itself; it is not waited for."""
    settings = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    body = {"message": message(text), "configuration": settings}
    task: dict[str, Any] = (await caller.post(f"/agents/{agent}/message:send", body))["task"]
    return task


def state_of(body: bytes) -> str:
    """The state that a call tells of; empty for an artifact."""
    ((_, told),) = json.loads(body).items()
    return str(told.get("status", {}).get("state", ""))


def task_of(body: bytes) -> str:
    """The task that a call tells of."""
    ((name, told),) = json.loads(body).items()
    return str(told["id"] if name == "task" else told["taskId"])


class Told:
    """The calls that have arrived, by task: each once, in the order of its first arrival."""

    def __init__(self) -> None:
        self.calls = 0
        self.bodies: dict[str, bytes] = {}
        self.seqs: dict[str, list[int]] = defaultdict(list)
        self.states: dict[str, list[str]] = defaultdict(list)

    def hear(self, receiver: Receiver) -> None:
        """The calls since the last time."""
        for asked in receiver.asked[self.calls :]:
            self.calls += 1
            name = asked.headers["webhook-id"]
            if name in self.bodies:
                assert self.bodies[name] == asked.body, "one id, two bodies"
                continue
            self.bodies[name] = asked.body
            task_id = task_of(asked.body)
            self.seqs[task_id].append(place_of(asked.headers["x-dragoman-seq"])[0])
            if state := state_of(asked.body):
                self.states[task_id].append(state)

    def ended(self) -> set[str]:
        """The tasks that have told of their end."""
        return {task_id for task_id, states in self.states.items() if states[-1] in TERMINAL}


async def ended(receiver: Receiver, task_ids: set[str]) -> Told:
    """Until all of these tasks have told of their end."""
    told = Told()
    async with asyncio.timeout(DEADLINE_S):
        while told.hear(receiver) or not task_ids <= told.ended():
            await receiver.came(told.calls + 1)
    return told


def must_tell(frames: list[Frame]) -> list[int]:
    """The events in a task's log that a webhook is told of: states, and artifacts that are whole."""
    seqs: list[int] = []
    open_artifacts: set[str] = set()
    for frame in frames:
        payload = frame.payload
        if (update := payload.get("artifactUpdate")) is None:
            seqs += [int(frame.id)] * (len(open_artifacts) if frame.state in TERMINAL else 0)
            seqs.append(int(frame.id))
            continue
        open_artifacts.add(update["artifact"]["artifactId"])
        if update.get("lastChunk"):
            open_artifacts.discard(update["artifact"]["artifactId"])
            seqs.append(int(frame.id))
    return seqs


async def test_what_is_owed_when_the_server_is_killed_arrives_after_its_restart(
    serve: Serve, http: aiohttp.ClientSession
) -> None:
    url = await nobody()
    server = await serve(*ALLOWED)
    task = await sent(Caller(http, server.url), "count", "3 every 0", url)
    async with asyncio.timeout(DEADLINE_S):
        while (await Caller(http, server.url).get("count", task["id"]))["status"]["state"] not in TERMINAL:
            await asyncio.sleep(0.01)
    await server.kill()
    async with receiving(port=int(url.rpartition(":")[2])) as receiver:
        await serve(*ALLOWED)
        told = await ended(receiver, {task["id"]})
        assert told.states[task["id"]][-1] == "TASK_STATE_COMPLETED"
        assert told.seqs[task["id"]] == sorted(told.seqs[task["id"]])


async def test_a_call_that_was_not_written_down_is_made_again_with_the_same_id_and_body(
    serve: Serve, http: aiohttp.ClientSession
) -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        server = await serve(*ALLOWED)
        task = await sent(Caller(http, server.url), "count", "3 every 0", receiver.url)
        await receiver.came(1)
        await server.kill()
        receiver.hold.set()
        await serve(*ALLOWED)
        await ended(receiver, {task["id"]})
        first, again = receiver.asked[:2]
        assert first.headers["webhook-id"] == again.headers["webhook-id"]
        assert first.body == again.body


class Sender:
    """Makes one task after another, until the server is gone."""

    def __init__(self, caller: Caller, url: str, made: dict[str, str], chance: random.Random) -> None:
        self._caller = caller
        self._url = url
        self._made = made
        self._chance = chance

    async def run(self) -> None:
        try:
            while True:
                agent = self._chance.choice(("echo", "count", "again"))
                text = f"{self._chance.randint(1, 6)} every {self._chance.choice((0, 0.003, 0.03))}"
                task = await sent(self._caller, agent, text, self._url)
                self._made[task["id"]] = agent
        except GONE:
            return


async def killed_under_load(
    server: Server, caller: Caller, receiver: Receiver, made: dict[str, str], seed: float
) -> None:
    """Let the senders loose, and kill the server somewhere in the middle."""
    chance, before = random.Random(seed), len(receiver.asked)
    async with asyncio.TaskGroup() as group:
        for _ in range(SENDERS):
            group.create_task(Sender(caller, receiver.url, made, random.Random(chance.random())).run())
        await receiver.came(before + SENDERS)
        await asyncio.sleep(chance.uniform(*LOAD_S))  # the random moment
        receiver.hold.clear()
        await receiver.came(len(receiver.asked) + 1)  # so that a call at least is cut off
        await server.kill()
    receiver.hold.set()


async def test_nothing_is_lost_or_out_of_order_however_often_the_server_is_killed(
    serve: Serve, http: aiohttp.ClientSession, store: Any
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    made: dict[str, str] = {}
    async with receiving() as receiver:
        receiver.pause_s = lambda: chance.uniform(0, 0.02)
        for _ in range(ROUNDS):
            server = await serve(*ALLOWED)
            await killed_under_load(server, Caller(http, server.url), receiver, made, chance.random())
            assert check(store) == []
        server = await serve(*ALLOWED)
        told = await ended(receiver, set(made))
        print(
            f"{len(made)} tasks, {len(receiver.asked)} calls, {len(receiver.asked) - len(told.bodies)} of them repeats"
        )
        assert len(receiver.asked) > len(told.bodies), "no call was ever cut off: the test has tested nothing"
        caller = Caller(http, server.url)
        for task_id, agent in chance.sample(sorted(made.items()), min(VERIFIED, len(made))):
            task = await caller.get(agent, task_id)
            assert told.states[task_id][-1] == task["status"]["state"]
            assert [state in TERMINAL for state in told.states[task_id]].count(True) == 1
            frames = await caller.replay(agent, task_id)
            assert told.seqs[task_id] == must_tell(frames), f"task {task_id} of {agent}"
