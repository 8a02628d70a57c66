"""Six clients of one agent, each in its own words, through its own mount: what each writes, and what it is told."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from tests.systems.conftest import DEADLINE_S, Flow, Frame, Site, Told

Json = dict[str, Any]
_numbers = itertools.count(1)


class Speaker(Struct, frozen=True, eq=False):
    """A client. `path` has the agent for `{agent}`; `tag` is how it tags parts; `methods` are send, get, cancel,
    subscribe, the last None where the system has none."""

    name: str
    path: str
    methods: tuple[str, str, str, str | None]
    tag: str | None
    key: str = "id"
    headers: Mapping[str, str] = MappingProxyType({})
    at_once: Mapping[str, Any] = MappingProxyType({"blocking": False})
    role: str = "user"
    has_message_id: bool = False

    def at(self, agent: str) -> str:
        """The path of an agent."""
        return self.path.format(agent=agent)

    def said(self, text: str, *, wait: bool = True, task_id: str | None = None) -> Json:
        """Params of a send."""
        part = {"text": text} if self.tag is None else {self.tag: "text", "text": text}
        message: Json = {"role": self.role, "parts": [part]}
        if self.has_message_id:
            message["messageId"] = f"m-{next(_numbers)}"
        if self.name in ("0.3", "0.3 at the tenant"):
            message["kind"] = "message"
        if task_id is not None:
            message["taskId"] = task_id
        return {"message": message} if wait else {"message": message, "configuration": dict(self.at_once)}

    async def call(self, served: Site, method: str, params: Json, agent: str = "desk") -> Told:
        """A call."""
        return await served.rpc(self.at(agent), method, params, **self.headers)

    async def send(self, served: Site, text: str, agent: str = "desk") -> str:
        """The id of a task that has ended."""
        return task_of((await self.call(served, self.methods[0], self.said(text), agent)).result)

    async def start(self, served: Site, gate: str, agent: str = "desk") -> str:
        """The id of a task that works and stands at the gate."""
        told = await self.call(served, self.methods[0], self.said(f"wait {gate}", wait=False), agent)
        task_id = task_of(told.result)
        async with asyncio.timeout(DEADLINE_S):
            await served.begun(gate, task_id, agent)
        return task_id

    async def get(self, served: Site, task_id: str, agent: str = "desk") -> Told:
        """Read it."""
        return await self.call(served, self.methods[1], {self.key: task_id}, agent)

    async def cancel(self, served: Site, task_id: str, agent: str = "desk") -> Told:
        """Cancel it."""
        return await self.call(served, self.methods[2], {self.key: task_id}, agent)

    @asynccontextmanager
    async def followed(self, served: Site, task_id: str, agent: str = "desk") -> AsyncIterator[Flow]:
        """Follow it."""
        body = {"jsonrpc": "2.0", "id": 1, "method": self.methods[3], "params": {self.key: task_id}}
        async with served.flow(self.at(agent), body, **self.headers) as flow:
            yield flow

    def spelled(self, state: str) -> str:
        """A state as this client reads it."""
        return f"TASK_STATE_{state.upper()}" if self.name == "1.0" else state

    def shows(self, task: Json) -> bool:
        """Whether a task is in these words."""
        return SHAPES[self.name.removesuffix(" at the tenant")](task)

    def state(self, frame: Frame) -> str:
        """The state that a frame tells of, as this client reads it; empty if of none."""
        body = frame.body
        if self.name == "beeos":
            assert list(body)[:2] == ["type", "task_id"], body
            return str(body.get("status", {}).get("state", ""))
        result = body["result"]
        match self.name:
            case "evoai":
                assert list(body) == ["jsonrpc", "result", "id"]
                assert list(result)[:2] == ["id", "status"]
                assert "final" in result
            case "1.0":
                (result,) = result.values()
            case _:
                assert "kind" in result
        return str(result.get("status", {}).get("state", ""))


def task_of(result: Json) -> str:
    """The id of a task in a result of any of them."""
    return str(result.get("task", result)["id"])


def _official(task: Json) -> bool:
    return task["status"]["state"].startswith("TASK_STATE_") and "kind" not in task


SHAPES = {
    "beeos": lambda task: list(task)[:3] == ["id", "status", "artifacts"] and len(task["status"]["timestamp"]) == 20,
    "kaos": lambda task: list(task)[:4] == ["id", "sessionId", "status", "history"],
    "evoai": lambda task: "createdAt" in task and list(task)[:3] == ["id", "status", "contextId"],
    "protoagent": lambda task: list(task)[:6] == ["kind", "id", "contextId", "status", "artifacts", "data"],
    "0.3": lambda task: task["kind"] == "task" and "data" not in task and not {"createdAt", "sessionId"} & task.keys(),
    "1.0": _official,
}

PASCAL = ("SendMessage", "GetTask", "CancelTask", "SubscribeToTask")
SLASH = ("message/send", "tasks/get", "tasks/cancel", "tasks/resubscribe")
V = {"a2a_version": "1.0"}

BEEOS = Speaker("beeos", "/{agent}", PASCAL, "kind", headers=V)
KAOS = Speaker("kaos", "/", (*PASCAL[:3], None), "type", at_once={"mode": "autonomous"})
EVOAI = Speaker("evoai", "/api/v1/a2a/{agent}", SLASH, "type", key="taskId")
PROTOAGENT = Speaker("protoagent", "/a2a", SLASH, None)
OLD = Speaker("0.3", "/agents/{agent}", SLASH, "kind", has_message_id=True)
NEW = Speaker(
    "1.0", "/agents/{agent}", PASCAL, None, headers=V, at_once={"returnImmediately": True}, role="ROLE_USER",
    has_message_id=True,
)  # fmt: skip

ALL = (BEEOS, KAOS, EVOAI, PROTOAGENT, OLD, NEW)
