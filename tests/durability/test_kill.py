"""`kill -9` at any moment, again and again, with 32 senders and open streams: nothing that was told is taken back."""

import asyncio
import random
from pathlib import Path
from time import monotonic

import aiohttp
import pytest

from dragoman.store.sqlite.schema import check
from tests.durability.caller import RUNNING, TERMINAL, WAITING, Caller, Frame, Refusal, message
from tests.durability.conftest import Serve, Server
from tests.durability.ledger import Call, Ledger, expected, folded, text_of
from tests.soak import times

pytestmark = pytest.mark.slow

SENDERS = 32
ROUNDS = times(3, 40)
LOAD_S = (0.15, 0.9)
"""From when to when after the first answer the server is killed."""

STARTING_S = (0.02, 0.5)
"""The same after a start, in the rounds in which it is killed before it may have come to listen."""

LONG_RUN = "30 every 0.1"
"""A run that is longer than any pause between its beginning and the kill."""

GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
AGENTS = ("echo", "count", "again", "ask")


class Sender:
    """One client: it does one thing after another, until the server is gone."""

    def __init__(self, caller: Caller, ledger: Ledger, chance: random.Random) -> None:
        self._caller = caller
        self._ledger = ledger
        self._chance = chance
        self._things = (self.block, self.leave, self.watch, self.converse, self.cancel, self.join)

    async def run(self) -> None:
        """Until the connection breaks. An answer that is an error is no reason to end, but a failure of the test."""
        try:
            while True:
                await self._chance.choice(self._things)()
        except GONE:
            return

    def _text(self) -> str:
        return f"{self._chance.randint(1, 12)} every {self._chance.choice((0, 0.003, 0.03))}"

    async def block(self) -> None:
        """Send, and wait for the end."""
        agent = self._chance.choice(("echo", "count", "again"))
        said = self._ledger.asked(agent, message(self._text()))
        self._ledger.acknowledged(said, await self._caller.send(agent, said))

    async def leave(self) -> None:
        """Send, and do not wait."""
        agent = self._chance.choice(("count", "again"))
        said = self._ledger.asked(agent, message(self._text()))
        self._ledger.acknowledged(said, await self._caller.send(agent, said, at_once=True))

    async def watch(self) -> None:
        """Send, and read the stream to its end."""
        agent = self._chance.choice(("count", "again", "ask"))
        said = self._ledger.asked(agent, message(self._text()))
        async with self._caller.stream(agent, said) as frames:
            async for frame in frames:
                if "task" in frame.payload:
                    self._ledger.acknowledged(said, frame.payload["task"])
                self._ledger.saw(agent, frame)

    async def converse(self) -> None:
        """Send, and answer what is asked."""
        said = self._ledger.asked("ask", message("hello"))
        task = await self._caller.send("ask", said)
        self._ledger.acknowledged(said, task)
        for text in ("one", "two"):
            assert task["status"]["state"] == WAITING
            said = self._ledger.asked("ask", message(text, task_id=task["id"]))
            task = await self._caller.send("ask", said)
            self._ledger.acknowledged(said, task)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"

    async def cancel(self) -> None:
        """Send, and cancel at once; whoever comes first wins."""
        agent = self._chance.choice(("count", "again", "ask"))
        said = self._ledger.asked(agent, message(self._text()))
        task = await self._caller.send(agent, said, at_once=True)
        self._ledger.acknowledged(said, task)
        try:
            self._ledger.told(agent, await self._caller.cancel(agent, task["id"]))
        except Refusal as refusal:
            refusal.must_be("TASK_NOT_CANCELABLE")

    async def join(self) -> None:
        """Watch a task that somebody may have made, from its start or from somewhere."""
        if not self._ledger.tasks:
            return
        task_id = self._chance.choice(list(self._ledger.tasks)[-SENDERS:])
        known = self._ledger.tasks[task_id]
        after = self._chance.choice(["", "0", *known.frames])
        try:
            async with self._caller.subscribe(known.agent, task_id, after) as frames:
                last = int(after or 0)
                async for frame in frames:
                    assert last < int(frame.id) or (not after and last == 0)
                    last = int(frame.id)
                    self._ledger.saw(known.agent, frame)
                    if frame.state == WAITING or (frame.state and known.answer["status"]["state"] == WAITING):
                        break
        except Refusal as refusal:
            refusal.must_be("has ended" if after == "" else "nothing: it resumes")


async def killed_under_load(server: Server, caller: Caller, ledger: Ledger, chance: random.Random) -> None:
    """Let the senders loose, and kill the server somewhere in the middle."""
    senders = [Sender(caller, ledger, random.Random(chance.random())) for _ in range(SENDERS)]
    async with asyncio.TaskGroup() as group:
        for sender in senders:
            group.create_task(sender.run())
        await asyncio.sleep(chance.uniform(*LOAD_S))  # the random moment
        if not ledger.rerun:  # one run at least is cut off, whatever the senders do
            said = ledger.asked("again", message(LONG_RUN))
            ledger.acknowledged(said, await caller.send("again", said, at_once=True))
        await server.kill()


async def verify(caller: Caller, ledger: Ledger, task_id: str, chance: random.Random) -> None:
    """One task, after a restart, against all that was told of it."""
    known = ledger.tasks[task_id]
    task = await caller.get(known.agent, task_id)
    if task["status"]["state"] in RUNNING:
        assert known.agent == "again", f"a run that is dead: {task}"
        ledger.rerun.add(task_id)
        await caller.replay(known.agent, task_id)  # it runs again: to its end
        task = await caller.get(known.agent, task_id)
    state = task["status"]["state"]
    assert state in TERMINAL or state == WAITING
    if state == "TASK_STATE_COMPLETED":
        assert text_of(task) == expected(known)
    ledger.holds(task)
    frames = await replayed(caller, known.agent, task)
    ids = [frame.id for frame in frames]
    assert known.frames.keys() <= set(ids), f"lost of {task_id}: {known.frames.keys() - set(ids)}"
    for frame in frames:
        ledger.saw(known.agent, frame)
    assert folded(frames) == text_of(task)
    turns = sum(said["role"] == "ROLE_USER" for said in task["history"]) - 1  # a caller's own message is no frame
    assert [int(id_) for id_ in ids] == sorted({int(id_) for id_ in ids})
    assert int(ids[0]) == 1
    assert int(ids[-1]) == len(ids) + turns
    place = chance.randrange(len(ids))
    assert await caller.replay(known.agent, task_id, ids[place], until=ids[-1]) == frames[place + 1 :]


async def replayed(caller: Caller, agent: str, task: dict[str, object]) -> list[Frame]:
    """The whole log of a task that has ended or waits."""
    task_id, until = str(task["id"]), ""
    if task["status"]["state"] not in TERMINAL:  # type: ignore[index]
        async with caller.subscribe(agent, task_id) as frames:
            until = (await anext(frames)).id  # of the snapshot: how far the log goes
    return await caller.replay(agent, task_id, until=until)


async def retried(caller: Caller, ledger: Ledger, call: Call) -> None:
    """The same message again, twice: one task, the one that was acknowledged if one was."""
    for _ in range(2):
        try:
            ledger.acknowledged(call.said, await caller.send(call.agent, call.said, at_once=True))
        except Refusal as refusal:
            refusal.must_be("has ended" if call.task_id == "" else "nothing: it was acknowledged")


async def each(limit: int, works: list[object]) -> None:
    """All of them, so many at a time; the first that fails is the failure."""
    gate = asyncio.Semaphore(limit)

    async def one(work: object) -> None:
        async with gate:
            await work  # type: ignore[misc]

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(one(work))


async def test_nothing_told_is_lost_repeated_or_left_working_however_often_the_server_is_killed(
    serve: Serve, http: aiohttp.ClientSession, store: Path
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ledger = Ledger()
    server = await serve()
    for number in range(ROUNDS):
        began, before, called = monotonic(), set(ledger.tasks), set(ledger.calls)
        caller = Caller(http, server.url)
        await killed_under_load(server, caller, ledger, chance)
        assert check(store) == []
        if number % 3 == 1:
            server = await serve(wait=False)
            await asyncio.sleep(chance.uniform(*STARTING_S))  # the random moment, of a start
            await server.kill()
            assert check(store) == []
        server = await serve()
        caller = Caller(http, server.url)
        old = chance.sample(sorted(before), min(100, len(before)))
        made = [task_id for task_id in ledger.tasks if task_id not in before]
        ids = made[::-1] + old  # the newest first: they may still run again
        await each(SENDERS, [verify(caller, ledger, task_id, chance) for task_id in ids])
        calls = [call for key, call in ledger.calls.items() if key not in called]
        unanswered = [call for call in calls if not call.task_id]
        answered = [call for call in calls if call.task_id]
        again = unanswered + chance.sample(answered, min(100, len(answered)))
        await each(SENDERS, [retried(caller, ledger, call) for call in again])
        print(
            f"round {number}: {len(calls)} calls, {len(unanswered)} unanswered, {len(ids)} tasks verified, "
            f"{sum(len(known.frames) for known in ledger.tasks.values())} events, {monotonic() - began:.1f} s"
        )
    await server.kill()
    server = await serve()
    await the_end(Caller(http, server.url), ledger, chance)


async def the_end(caller: Caller, ledger: Ledger, chance: random.Random) -> None:
    """Every task once more; and there are no others than those that were asked for, each once."""
    found: dict[str, str] = {}
    for agent in AGENTS:
        tasks, total = await caller.tasks(agent)
        assert len(tasks) == total
        assert len({task["id"] for task in tasks}) == total
        for task in tasks:
            first = task["history"][0]["messageId"]
            assert first not in found, f"message {first} made two tasks"
            found[first] = task["id"]
    made = {key: call for key, call in ledger.calls.items() if "taskId" not in call.said}
    assert found.keys() <= made.keys()
    for key, call in made.items():
        assert call.task_id in ("", found.get(key)), f"lost: {call}"
    assert set(ledger.tasks) == set(found.values())
    assert ledger.rerun, "no run was ever cut off: the test has tested nothing"
    await each(SENDERS, [verify(caller, ledger, task_id, chance) for task_id in ledger.tasks])
