"""The clients of a drill: senders and followers that use any replica, retry as clients do, and record what they hear.

Invariant: a call is repeated with the same message id, a stream resumed with the last id that it had. A call fails for
good only after `PATIENCE_S`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

import aiohttp

from tests.drills.checker import ANSWER
from tests.drills.record import Asked, Record, Seen
from tests.durability.caller import TERMINAL, WAITING, Caller, Frame, Refusal, message

T = TypeVar("T")

TRY_S = 5.0
"""How long a client waits for an answer, or for a stream's next byte, before it tries another replica."""

PATIENCE_S = 120.0
RETRY_S = 0.1

GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError, TimeoutError)
AGENTS = ("again", "once")
TRIPS = ("trip", "trip-once", "plain-trip", "plain-trip-once")


def seen(frame: Frame) -> Seen:
    """An event as the record has it."""
    payload = frame.payload
    if "task" in payload:
        return Seen(int(frame.id), "task", payload["task"]["status"]["state"])
    if (update := payload.get("artifactUpdate")) is not None:
        return Seen(int(frame.id), "text", "".join(part.get("text", "") for part in update["artifact"]["parts"]))
    return Seen(int(frame.id), "state", frame.state)


class Clients:
    """Everybody who uses the replicas at `urls`. `hook` is the URL of a webhook, `journeys` the agents that travel."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        urls: Sequence[str],
        hook: str,
        record: Record,
        chance: random.Random,
        journeys: Sequence[str] = TRIPS,
    ) -> None:
        self.record = record
        self._callers = [Caller(http, url) for url in urls]
        self._hook = hook
        self._journeys = journeys
        self._chance = chance
        self._over = asyncio.Event()
        self._made: list[tuple[str, str]] = []
        self._traveled = 0

    async def run(self, senders: int, followers: int, travelers: int) -> None:
        """Send, follow and travel until `stop`; then each finishes what it has begun."""
        async with asyncio.TaskGroup() as group:
            for _ in range(senders):
                group.create_task(self._send())
            for number in range(travelers):
                group.create_task(self._travel(number))
            for _ in range(followers):
                group.create_task(self._follow())

    def stop(self) -> None:
        """Begin nothing more."""
        self._over.set()

    @property
    def count(self) -> int:
        """How many tasks were made."""
        return len(self._made)

    async def made(self, count: int) -> None:
        """Wait until so many tasks are made."""
        while len(self._made) < count:
            await asyncio.sleep(RETRY_S)

    async def traveled(self, count: int) -> None:
        """Wait until so many journeys are made."""
        while self._traveled < count:
            await asyncio.sleep(RETRY_S)

    async def _send(self) -> None:
        things = (self._block, self._leave, self._watch, self._converse, self._cancel, self._push)
        while not self._over.is_set():
            await self._chance.choice(things)()

    async def _travel(self, number: int) -> None:
        """Have agents travel, one after the other, each at its turn."""
        while not self._over.is_set():
            agent = self._journeys[number % len(self._journeys)]
            task = await self._sent(agent, self._ask(agent, f"trip {number}"), returnImmediately=True)
            task = await self._reached(agent, task)
            if task is not None and task["status"]["state"] == WAITING:
                await self._reached(agent, await self._sent(agent, message(ANSWER, task_id=task["id"])))
            self._traveled += 1
            number += 1

    async def _reached(self, agent: str, task: dict[str, Any] | None) -> dict[str, Any] | None:
        """The task once it has ended or waits for its caller."""
        while task is not None and task["status"]["state"] not in TERMINAL | {WAITING}:
            await asyncio.sleep(RETRY_S)
            task = await self._got(agent, task["id"])
        return task

    async def _follow(self) -> None:
        while not self._over.is_set():
            if self._made:
                agent, task_id = self._chance.choice(self._made[-50:])
                await self._watch_task(agent, task_id, [], self._chance.choice(("", "0")))
            else:
                await asyncio.sleep(RETRY_S)

    def _ask(self, agent: str, text: str) -> dict[str, Any]:
        said = message(text)
        self.record.asked[said["messageId"]] = Asked(said["messageId"], agent, text)
        return said

    def _text(self) -> str:
        return f"{self._chance.randint(1, 25)} every {self._chance.choice((0, 0.01, 0.1))}"

    async def _retry(self, what: str, call: Callable[[Caller], Awaitable[T]]) -> T | None:
        """The answer of some replica to a call. Notes a failure, and returns None, if none has one in time."""
        deadline = monotonic() + PATIENCE_S
        while True:
            try:
                async with asyncio.timeout(TRY_S):
                    return await call(self._chance.choice(self._callers))
            except GONE as error:
                why = repr(error)
            except Refusal as refusal:
                if refusal.status not in (429, 503):
                    raise
                why = str(refusal)
            self.record.retries += 1
            if monotonic() > deadline:
                self.record.failed.append(f"{what}: {why}")
                return None
            await asyncio.sleep(RETRY_S)

    async def _sent(self, agent: str, said: dict[str, Any], **configuration: Any) -> dict[str, Any] | None:
        body = {"message": said, "configuration": configuration}

        async def post(caller: Caller) -> dict[str, Any]:
            task: dict[str, Any] = (await caller.post(f"/agents/{agent}/message:send", body))["task"]
            return task

        try:
            task = await self._retry(f"send {said['messageId']}", post)
        except Refusal as refusal:
            self.record.failed.append(f"send {said['messageId']} was refused: {refusal}")
            return None
        if task is not None:
            if "taskId" in said:
                self.record.answered[task["id"]].append(said["messageId"])
            else:
                self.record.acknowledged[said["messageId"]].add(task["id"])
                self._made.append((agent, task["id"]))
            self._hear(task)
        return task

    def _hear(self, task: dict[str, Any]) -> None:
        if (state := task["status"]["state"]) in TERMINAL:
            self.record.ended[task["id"]].add(state)

    async def _block(self) -> None:
        agent = self._chance.choice(AGENTS)
        await self._sent(agent, self._ask(agent, self._text()))

    async def _leave(self) -> None:
        agent = self._chance.choice(AGENTS)
        await self._sent(agent, self._ask(agent, self._text()), returnImmediately=True)

    async def _watch(self) -> None:
        agent = self._chance.choice(AGENTS)
        if (task := await self._sent(agent, self._ask(agent, self._text()), returnImmediately=True)) is not None:
            await self._watch_task(agent, task["id"], [])

    async def _push(self) -> None:
        agent = self._chance.choice(AGENTS)
        settings = {"returnImmediately": True, "taskPushNotificationConfig": {"url": self._hook}}
        if (task := await self._sent(agent, self._ask(agent, self._text()), **settings)) is not None:
            self.record.pushed.add(task["id"])

    async def _converse(self) -> None:
        task = await self._sent("ask", self._ask("ask", "hello"))
        for text in ("one", "two"):
            if task is None:
                return
            task = await self._reached("ask", task)  # the wait may have been cut short
            if task is None or task["status"]["state"] != WAITING:
                return
            task = await self._sent("ask", message(text, task_id=task["id"]))

    async def _got(self, agent: str, task_id: str) -> dict[str, Any] | None:
        try:
            task = await self._retry(f"get {task_id}", lambda caller: caller.get(agent, task_id))
        except Refusal as refusal:
            self.record.failed.append(f"get {task_id}, which was acknowledged: {refusal}")
            return None
        if task is not None:
            self._hear(task)
        return task

    async def _cancel(self) -> None:
        agent = self._chance.choice(AGENTS)
        task = await self._sent(agent, self._ask(agent, "12 every 0.1"), returnImmediately=True)
        if task is None:
            return
        try:
            canceled = await self._retry(f"cancel {task['id']}", lambda caller: caller.cancel(agent, task["id"]))
        except Refusal as refusal:
            if "TASK_NOT_CANCELABLE" not in str(refusal.body):
                self.record.failed.append(f"cancel {task['id']}: {refusal}")
            return
        if canceled is not None:
            self._hear(canceled)

    async def _watch_task(self, agent: str, task_id: str, so_far: list[Seen], after: str = "") -> None:
        """Follow a task to its end, or until it waits, over as many connections as it takes.

        `after` is the id from which it begins, if not from the task as it stands.
        """
        self.record.followed.append((task_id, so_far))
        ended = asyncio.Event()

        async def watch(caller: Caller) -> None:
            async with caller.subscribe(agent, task_id, str(so_far[-1].seq) if so_far else after) as frames:
                async for frame in _each_in_time(frames):
                    if not frame.id:
                        continue  # a hint to come back
                    event = seen(frame)
                    so_far.append(event)
                    if event.kind != "text" and event.text in TERMINAL:
                        self.record.ended[task_id].add(event.text)
                        ended.set()
                    if event.kind != "text" and event.text == WAITING:
                        ended.set()
                    if ended.is_set():
                        return

        while not ended.is_set():
            try:
                await self._retry_stream(task_id, watch)
            except Refusal as refusal:
                if "has ended" not in str(refusal) and "nothing follows" not in str(refusal):
                    self.record.failed.append(f"follow {task_id}: {refusal}")
                return

    async def _retry_stream(self, task_id: str, watch: Callable[[Caller], Awaitable[None]]) -> None:
        try:
            await watch(self._chance.choice(self._callers))
        except GONE:
            self.record.retries += 1
            await asyncio.sleep(RETRY_S)
        except Refusal as refusal:
            if refusal.status not in (429, 503):
                raise
            self.record.retries += 1
            await asyncio.sleep(RETRY_S)


async def _each_in_time(frames: Any) -> Any:
    """The frames of a stream. Raises TimeoutError if none comes for `TRY_S`."""
    while True:
        try:
            async with asyncio.timeout(TRY_S):
                frame = await anext(frames)
        except StopAsyncIteration:
            return
        yield frame
