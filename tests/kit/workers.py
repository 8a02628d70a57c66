"""A worker's side of the worker API, as it is written: what a worker process says to servers."""

import asyncio
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import aiohttp

from tests.kit.places import V1
from tests.kit.waiting import DEADLINE_S

ENDS = {f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}


class WorkerDoor:
    """A worker of `agent` and the agent's callers, at servers on one store. One that names none calls the next in turn.

    `agent` can be named anew for a call. `name` is what the worker calls itself.
    """

    def __init__(self, servers: Sequence[aiohttp.ClientSession], agent: str = "far", name: str = "w1") -> None:
        self.servers = servers
        self.agent = agent
        self.name = name
        self._turn = cycle(range(len(servers)))

    def server(self, at: int | None = None) -> aiohttp.ClientSession:
        """The server of that number, or the next."""
        return self.servers[next(self._turn) if at is None else at]

    async def act(
        self, action: str, body: dict[str, Any], at: int | None = None, *, agent: str = "", **headers: str
    ) -> tuple[int, Any]:
        """One call of a worker: status and decoded answer."""
        path = f"/workers/{agent or self.agent}/{action}"
        async with self.server(at).post(path, json=body, headers=headers) as answer:
            return answer.status, await answer.json() if answer.status != 204 else None

    async def take(self, at: int | None = None, **said: Any) -> dict[str, Any]:
        """The next task for a worker. Where there are several servers it asks again until it gets one."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                status, delivery = await self.act("lease", {"worker": self.name, "wait_s": 5, **said}, at)
                if status == 200:
                    return dict(delivery)
                assert (status, len(self.servers) > 1) == (204, True), delivery

    async def report(self, action: str, lease: str, at: int | None = None, **said: Any) -> Any:
        """A report that is taken."""
        status, answer = await self.act(action, {"lease": lease, **said}, at)
        assert status == 200, answer
        return answer

    async def say(self, lease: str, text: str, number: int, at: int | None = None) -> None:
        """A chunk of the artifact."""
        chunk = {"artifactId": "a", "parts": [{"text": text}]}
        await self.report("artifact", lease, at, artifact=chunk, append=True, number=number)

    async def send(self, text: str = "hi", at: int | None = None, *, agent: str = "", **more: Any) -> dict[str, Any]:
        """SendMessage that does not wait."""
        message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        path = f"/agents/{agent or self.agent}/message:send"
        async with self.server(at).post(path, json=body, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
            return dict((await answer.json())["task"])

    async def task(self, task_id: str, at: int | None = None) -> dict[str, Any]:
        """The task as it stands."""
        async with self.server(at).get(f"/agents/{self.agent}/tasks/{task_id}", headers=V1) as answer:
            return dict(await answer.json())

    async def reach(self, task_id: str, state: str, at: int | None = None) -> dict[str, Any]:
        """Read the task until it is in that state. Fails at once if it ends in another one."""
        async with asyncio.timeout(DEADLINE_S):
            while (task := await self.task(task_id, at))["status"]["state"] != f"TASK_STATE_{state}":
                assert task["status"]["state"] not in ENDS, task["status"]
                await asyncio.sleep(0.01)
        return task
