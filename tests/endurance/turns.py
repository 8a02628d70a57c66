"""The callers of a long run: each turn is one thing that a caller does, from its first request to the last check.

Invariant: a turn compares every answer with what it must be, at once, and leaves nothing behind that grows with the
run. A request is repeated with the same message id until the server, which may have been killed, answers.
"""

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import aiohttp
from aiohttp import web

from tests.drills.checker import ANSWER, JOURNEYS, tale
from tests.durability.caller import TERMINAL, WAITING, Caller, Refusal, message

T = TypeVar("T")

TRY_S = 20.0
PATIENCE_S = 90.0
RETRY_S = 0.2
GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError, TimeoutError)

COMPLETED, FAILED, CANCELED = (f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED"))

SWEPT_S = 150.0
"""A task is gone so long after its retention: two sweeps."""


class Wrong(Exception):
    """An answer is not what it must be."""


class Ended(NamedTuple):
    """A task whose end was told, with its text, at a time of `monotonic`."""

    at_s: float
    agent: str
    task_id: str
    state: str
    text: str


class Hooks:
    """A receiver of webhooks. Each caller that waits for calls has a path of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.calls = 0
        self._heard: dict[str, list[tuple[str, int, str]]] = {}
        self._told: dict[str, asyncio.Event] = {}

    async def take(self, request: web.Request) -> web.Response:
        """One call; one for which nobody waits any more is a repeat after a kill."""
        body = await request.read()
        self.calls += 1
        path = request.match_info["path"]
        if (heard := self._heard.get(path)) is not None:
            ((_, told),) = json.loads(body).items()
            state = str(told.get("status", {}).get("state", ""))
            heard.append(
                (request.headers["webhook-id"], int(request.headers["x-dragoman-seq"].partition(".")[0]), state)
            )
            if state in TERMINAL:
                self._told[path].set()
        return web.Response(status=204)

    def expect(self) -> str:
        """A new path."""
        path = uuid4().hex
        self._heard[path], self._told[path] = [], asyncio.Event()
        return path

    async def heard(self, path: str) -> list[tuple[str, int, str]]:
        """The calls by id, seq and state, once one of them told an end. Raises Wrong if none does in time."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._told[path].wait()
        except TimeoutError:
            raise Wrong(f"no webhook told the end, only {self._heard[path]}") from None
        return self._heard[path]

    def forget(self, path: str) -> None:
        """Expect no more calls there."""
        del self._heard[path], self._told[path]


@asynccontextmanager
async def receiving() -> AsyncIterator[Hooks]:
    """A receiver that listens."""
    hooks, app = Hooks(), web.Application()
    app.router.add_post("/{path}", hooks.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        hooks.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield hooks
    finally:
        await runner.cleanup()


class Callers:
    """Everybody who uses the server. `kills` is how often it was killed, which whoever kills it counts.

    `faults` are the breaches so far; `traveled` the journeys that were completed, with the number of their steps.
    """

    def __init__(
        self, http: aiohttp.ClientSession, url: str, hooks: Hooks, chance: random.Random, retention_s: float
    ) -> None:
        self.kills = 0
        self.turns = 0
        self.retries = 0
        self.events = 0
        self.skipped = 0
        self.faults: list[str] = []
        self.traveled: dict[str, int] = {}
        self._caller = Caller(http, url)
        self._hooks = hooks
        self._chance = chance
        self._retention_s = retention_s
        self._ended: deque[Ended] = deque()

    async def take(self, name: str) -> None:
        """Take one turn of `TURNS`, and note what is wrong."""
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                await TURNS[name](self)
        except (Wrong, Refusal, TimeoutError) as error:
            self.faults.append(f"{name}: {error!r}")
        self.turns += 1

    async def dwell(self, over: asyncio.Event, lasts_s: float) -> None:
        """Until it is over: follow a task whose question nobody answers for so long."""
        while not over.is_set():
            try:
                await self._dwell_once(over, lasts_s)
            except (Wrong, Refusal, TimeoutError) as error:
                self.faults.append(f"dwell: {error!r}")

    async def _dwell_once(self, over: asyncio.Event, lasts_s: float) -> None:
        kills, task = self.kills, await self._send("ask", "hello")
        if self._was_interrupted(task, kills):
            return
        task_id = task["id"]
        following = asyncio.create_task(self._follow("ask", task_id, "", TERMINAL))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(lasts_s):
                    await over.wait()
            ended = await self._answer_both(task_id)
            if (state := await following) != ended:
                raise Wrong(f"task {task_id} is {state} for its follower")
        finally:
            following.cancel()

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def block(self) -> None:
        """A message that is waited for."""
        agent, count, text = self._chunks()
        kills = self.kills
        task = await self._send(agent, text)
        await self._check_chunks(agent, task, count, kills)

    async def leave(self) -> None:
        """A message that is not waited for, and a look at it later."""
        agent, count, text = self._chunks()
        kills = self.kills
        task = await self._send(agent, text, returnImmediately=True)
        await self._follow(agent, task["id"], "", TERMINAL)
        await self._check_chunks(agent, await self._get(agent, task["id"]), count, kills)

    async def stream(self) -> None:
        """A message whose events are followed from the first, by a stream that is resumed."""
        agent, count, text = self._chunks()
        kills = self.kills
        task = await self._send(agent, text, returnImmediately=True)
        told = await self._follow(agent, task["id"], "0", TERMINAL)
        ended = await self._get(agent, task["id"])
        if told != ended["status"]["state"]:
            raise Wrong(f"task {task['id']} ended {told} for its follower, and is {ended['status']['state']}")
        await self._check_chunks(agent, ended, count, kills)

    async def hook(self) -> None:
        """A message with a webhook, which is called in order and told the end."""
        agent, count, text = self._chunks()
        kills, path = self.kills, self._hooks.expect()
        try:
            task = await self._send(agent, text, taskPushNotificationConfig={"url": self._hooks.url + path})
            heard = await self._hooks.heard(path)
        finally:
            self._hooks.forget(path)
        seqs = [seq for _, seq, _ in {each[0]: each for each in heard}.values()]
        if seqs != sorted(seqs) or (kills == self.kills and len(seqs) != len(heard)):
            raise Wrong(f"task {task['id']}: its webhook was told {heard}")
        task = await self._get(agent, task["id"])
        if heard[-1][2] != task["status"]["state"]:
            raise Wrong(f"task {task['id']} is {task['status']['state']}, and its webhook was told {heard[-1]}")
        await self._check_chunks(agent, task, count, kills)

    async def cancel(self) -> None:
        """A task that is canceled at work."""
        task_id = (await self._send("again", "2000 every 0.05", returnImmediately=True))["id"]
        await asyncio.sleep(self._chance.uniform(0, 0.3))  # the random moment
        canceled = await self._retry(f"cancel {task_id}", lambda: self._caller.cancel("again", task_id))
        if canceled["status"]["state"] != CANCELED:
            raise Wrong(f"task {task_id} is {canceled['status']['state']} after its cancel")
        self._note_end("again", canceled)

    async def list(self) -> None:
        """Two tasks of a context, and the list of them; and the newest tasks, which are in order."""
        context_id = str(uuid4())
        made = {(await self._send("again", "1 every 0", context_id=context_id))["id"] for _ in range(2)}
        path = f"/agents/again/tasks?contextId={context_id}"
        found = (await self._retry("list", lambda: self._caller.read(path)))["tasks"]
        if {task["id"] for task in found} != made:
            raise Wrong(f"context {context_id} has {[task['id'] for task in found]} and not {made}")
        newest = (await self._retry("list", lambda: self._caller.read("/agents/again/tasks?pageSize=50")))["tasks"]
        times = [task["status"]["timestamp"] for task in newest]
        if times != sorted(times, reverse=True):
            raise Wrong(f"the newest tasks are not in order: {times}")

    async def converse(self) -> None:
        """Two questions and their answers."""
        kills, task = self.kills, await self._send("ask", "hello")
        if not self._was_interrupted(task, kills):
            await self._answer_both(task["id"])

    async def travel(self) -> None:
        """Steps, sleeps and a question."""
        task_id = (await self._send("trip", "far", returnImmediately=True))["id"]
        if await self._follow("trip", task_id, "", TERMINAL | {WAITING}) == WAITING:
            await self._send("trip", ANSWER, task_id)
            await self._follow("trip", task_id, "", TERMINAL)
        await self._check_journey("trip", task_id, "far")

    async def walk(self) -> None:
        """Many steps in a row, which go on after a kill although the agent is not restartable."""
        task_id = (await self._send("walk", "on", returnImmediately=True))["id"]
        await self._follow("walk", task_id, "", TERMINAL)
        await self._check_journey("walk", task_id, "on")

    async def look_back(self) -> None:
        """A task that ended a while ago is as it was; one that has outlived its retention is gone."""
        now_s = monotonic()
        while self._ended and now_s - self._ended[0].at_s > self._retention_s + SWEPT_S:
            old = self._ended.popleft()
            if self._ended and now_s - self._ended[0].at_s > self._retention_s + SWEPT_S:
                continue  # one of them will do
            try:
                task = await self._get(old.agent, old.task_id)
            except Refusal as refusal:
                if refusal.status != 404:
                    raise
            else:
                raise Wrong(f"task {old.task_id} is {task['status']['state']} long after its retention")
        before = self._chance.choices(self._ended, k=5) if self._ended else []
        for each in before:
            if now_s - each.at_s < self._retention_s - TRY_S:
                task = await self._get(each.agent, each.task_id)
                if (task["status"]["state"], _text(task)) != (each.state, each.text):
                    raise Wrong(f"task {each.task_id} was {each.state} and is {task['status']['state']}: {_text(task)}")

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _retry(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to a call. Raises Wrong if there is none in time, and Refusal."""
        deadline_s = monotonic() + PATIENCE_S
        while True:
            try:
                async with asyncio.timeout(TRY_S):
                    return await call()
            except GONE as error:
                why = repr(error)
            except Refusal as refusal:
                if refusal.status not in (429, 503):
                    raise
                why = str(refusal)
            self.retries += 1
            if monotonic() > deadline_s:
                raise Wrong(f"{what}: {why}")
            await asyncio.sleep(RETRY_S)

    async def _send(
        self, agent: str, text: str, task_id: str = "", context_id: str = "", **configuration: Any
    ) -> dict[str, Any]:
        said = message(text, task_id=task_id) | ({"contextId": context_id} if context_id else {})
        body = {"message": said, "configuration": configuration}
        answer = await self._retry(
            f"send {said['messageId']}", lambda: self._caller.post(f"/agents/{agent}/message:send", body)
        )
        task: dict[str, Any] = answer["task"]
        return task

    async def _get(self, agent: str, task_id: str) -> dict[str, Any]:
        return await self._retry(f"get {task_id}", lambda: self._caller.get(agent, task_id))

    async def _follow(self, agent: str, task_id: str, after: str, until: set[str]) -> str:
        """The state, of those in `until`, in which a follower saw the task arrive. Raises Wrong and Refusal."""
        deadline_s = monotonic() + PATIENCE_S
        while monotonic() < deadline_s:
            try:
                async with self._caller.subscribe(agent, task_id, after) as frames:
                    async for frame in frames:
                        if not frame.id:
                            continue  # a hint to come back
                        if after and int(frame.id) <= int(after):
                            raise Wrong(f"task {task_id}: event {frame.id} came after {after}")
                        after = frame.id
                        self.events += 1
                        if frame.state in until:
                            return frame.state
            except GONE:
                pass
            except Refusal as refusal:
                if "has ended" in str(refusal) or "nothing follows" in str(refusal):
                    return str((await self._get(agent, task_id))["status"]["state"])
                if refusal.status not in (429, 503):
                    raise
            self.retries += 1
            await asyncio.sleep(RETRY_S)
        raise Wrong(f"task {task_id} of {agent} has not come to {until} in time")

    def _was_interrupted(self, task: dict[str, Any], kills: int) -> bool:
        """Whether a kill since `kills` hit a run that can't be restarted, and ended the task so."""
        interrupted = bool(task["status"]["state"] == FAILED and kills != self.kills)
        if interrupted:
            self._note_end("ask", task)
        return interrupted

    async def _answer_both(self, task_id: str) -> str:
        """The state in which the task ends. Raises Wrong and Refusal."""
        kills = self.kills
        for number, text in enumerate(("one", "two"), 1):
            task = await self._send("ask", text, task_id)
            if task["status"]["state"] not in TERMINAL | {WAITING}:
                await self._follow("ask", task_id, "", TERMINAL | {WAITING})
                task = await self._get("ask", task_id)
            if self._was_interrupted(task, kills):
                return FAILED
            if (state := task["status"]["state"]) != (WAITING if number == 1 else COMPLETED):
                raise Wrong(f"task {task_id} is {state} after answer {number}")
        if _text(task) != "one, two":
            raise Wrong(f"task {task_id} heard {_text(task)!r}")
        self._note_end("ask", task)
        return COMPLETED

    # -- checks --------------------------------------------------------------------------------------------------------

    def _chunks(self) -> tuple[str, int, str]:
        """An agent, and a message that has it write so many chunks."""
        count = self._chance.randint(1, 25)
        return self._chance.choice(("again", "once")), count, f"{count} every {self._chance.choice((0, 0.005, 0.05))}"

    async def _check_chunks(self, agent: str, task: dict[str, Any], count: int, kills: int) -> None:
        """The task has completed with all that one run wrote; or a kill has interrupted one that can't be restarted."""
        if task["status"]["state"] not in TERMINAL:  # the wait for it was cut short
            await self._follow(agent, task["id"], "", TERMINAL)
            task = await self._get(agent, task["id"])
        state, words = task["status"]["state"], _text(task).split()
        if state != FAILED or agent != "once" or kills == self.kills:
            run = words[0].partition("/")[0] if words else ""
            if state != COMPLETED or words != [f"{run}/{number}" for number in range(count)]:
                raise Wrong(f"task {task['id']} of {agent} is {state} with {words} of {count}")
        self._note_end(agent, task)

    async def _check_journey(self, agent: str, task_id: str, text: str) -> None:
        task = await self._get(agent, task_id)
        told = tuple(_words(artifact) for artifact in task.get("artifacts", ()))
        state, journey = task["status"]["state"], JOURNEYS[agent]
        if state == COMPLETED and told == tale(journey, text):
            self.traveled[task_id] = journey.steps
        elif state != FAILED or journey.restartable or told or not self.kills:
            raise Wrong(f"task {task_id} of {agent} is {state} with {told}")
        self._note_end(agent, task)

    def _note_end(self, agent: str, task: dict[str, Any]) -> None:
        self._ended.append(Ended(monotonic(), agent, task["id"], task["status"]["state"], _text(task)))


def _words(artifact: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in artifact["parts"])


def _text(task: dict[str, Any]) -> str:
    return "".join(map(_words, task.get("artifacts", ())))


TURNS: Mapping[str, Callable[[Callers], Awaitable[None]]] = {
    "block": Callers.block,
    "leave": Callers.leave,
    "stream": Callers.stream,
    "hook": Callers.hook,
    "cancel": Callers.cancel,
    "list": Callers.list,
    "converse": Callers.converse,
    "travel": Callers.travel,
    "walk": Callers.walk,
    "look_back": Callers.look_back,
}

MIX = (
    *("block", "stream", "hook", "list", "leave", "stream", "hook", "cancel", "block", "walk", "stream", "hook"),
    *("converse", "look_back", "travel", "leave", "hook", "block"),
)
"""The order of the turns, again and again, so that all windows of a run have the same mix."""
