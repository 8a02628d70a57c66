"""A caller that keeps what it sees: A2A 1.0 over raw HTTP, with a reader of event streams that forgives nothing.

Invariant: an event counts as seen when its blank line has arrived, not before.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiohttp

V1 = {"A2A-Version": "1.0"}
TERMINAL = {f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
RUNNING = {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
WAITING = "TASK_STATE_INPUT_REQUIRED"


class Refusal(Exception):
    """The server answered, and the answer was an error."""

    def __init__(self, status: int, headers: dict[str, str], body: Any) -> None:
        super().__init__(status, body)
        self.status = status
        self.headers = headers
        self.body = body

    def must_be(self, reason: str) -> None:
        """The one refusal that was possible here."""
        assert reason in str(self.body)


@dataclass(frozen=True)
class Frame:
    """One event of a stream: its id and its bytes; or, without both, a `retry:` hint."""

    id: str
    data: bytes
    retry: str = ""

    @property
    def payload(self) -> Any:
        """The answer, without a JSON-RPC envelope."""
        said = json.loads(self.data)
        return said["result"] if "jsonrpc" in said else said

    @property
    def state(self) -> str:
        """The state it tells of, empty if it tells of none."""
        payload = self.payload
        told = payload.get("statusUpdate") or payload.get("task") or {}
        return str(told.get("status", {}).get("state", ""))

    @property
    def task_id(self) -> str:
        """The task it is about."""
        payload = self.payload
        if "task" in payload:
            return str(payload["task"]["id"])
        return str((payload.get("statusUpdate") or payload["artifactUpdate"])["taskId"])


def message(text: str, message_id: str = "", task_id: str = "") -> dict[str, Any]:
    """A message of the user; its id is a UUID, so that a repeat is the same call."""
    made: dict[str, Any] = {"messageId": message_id or str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id:
        made["taskId"] = task_id
    return made


class Caller:
    """Operations over HTTP+JSON, streams also over JSON-RPC."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url

    async def send(self, agent: str, said: dict[str, Any], *, at_once: bool = False) -> dict[str, Any]:
        """SendMessage; the task. Raises Refusal."""
        body = {"message": said, "configuration": {"returnImmediately": at_once}}
        task: dict[str, Any] = (await self.post(f"/agents/{agent}/message:send", body))["task"]
        return task

    async def cancel(self, agent: str, task_id: str) -> dict[str, Any]:
        """CancelTask; the task. Raises Refusal."""
        task: dict[str, Any] = await self.post(f"/agents/{agent}/tasks/{task_id}:cancel", {})
        return task

    async def get(self, agent: str, task_id: str) -> dict[str, Any]:
        """GetTask. Raises Refusal."""
        task: dict[str, Any] = await self.read(f"/agents/{agent}/tasks/{task_id}")
        return task

    async def tasks(self, agent: str) -> tuple[list[dict[str, Any]], int]:
        """Every page of ListTasks, and the total that the last of them gave."""
        tasks: list[dict[str, Any]] = []
        token = ""
        while True:
            page = await self.read(f"/agents/{agent}/tasks?pageSize=100&pageToken={token}")
            tasks += page.get("tasks", [])
            if not (token := page.get("nextPageToken", "")):
                return tasks, page["totalSize"]

    async def total(self, agent: str) -> int:
        """How many tasks there are."""
        return int((await self.read(f"/agents/{agent}/tasks?pageSize=1"))["totalSize"])

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        """Any POST. Raises Refusal."""
        async with self._http.post(self.url + path, json=body, headers=V1 | (headers or {})) as response:
            return await _answer(response)

    async def read(self, path: str) -> Any:
        """Any GET. Raises Refusal."""
        async with self._http.get(self.url + path, headers=V1) as response:
            return await _answer(response)

    async def read_text(self, path: str) -> str:
        """A page that is not JSON."""
        async with self._http.get(self.url + path) as response:
            assert response.status == 200
            return await response.text()

    @asynccontextmanager
    async def stream(self, agent: str, said: dict[str, Any]) -> AsyncIterator[AsyncIterator[Frame]]:
        """SendStreamingMessage. Raises Refusal."""
        url = f"{self.url}/agents/{agent}/message:stream"
        async with self._http.post(url, json={"message": said}, headers=V1) as response:
            yield await _stream(response)

    @asynccontextmanager
    async def subscribe(
        self, agent: str, task_id: str, after: str = "", rpc_id: int | None = None
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """SubscribeToTask, from the event after `after` on; over JSON-RPC if it is given an id. Raises Refusal."""
        headers = V1 | ({"Last-Event-ID": after} if after else {})
        if rpc_id is None:
            url, body = f"{self.url}/agents/{agent}/tasks/{task_id}:subscribe", {}
        else:
            url = f"{self.url}/agents/{agent}"
            body = {"jsonrpc": "2.0", "id": rpc_id, "method": "SubscribeToTask", "params": {"id": task_id}}
        async with self._http.post(url, json=body, headers=headers) as response:
            yield await _stream(response)

    async def replay(self, agent: str, task_id: str, after: str = "0", until: str = "") -> list[Frame]:
        """The events of a task's log after `after`: to its end, or until the event `until`."""
        seen: list[Frame] = []
        if after == until:
            return seen
        async with self.subscribe(agent, task_id, after) as frames:
            async for frame in frames:
                seen.append(frame)
                if frame.id == until:
                    break
        return seen


async def _answer(response: aiohttp.ClientResponse) -> Any:
    body = json.loads(await response.read())
    if response.status != 200:
        raise Refusal(response.status, dict(response.headers), body)
    return body


async def _stream(response: aiohttp.ClientResponse) -> AsyncIterator[Frame]:
    if response.content_type != "text/event-stream":
        raise Refusal(response.status, dict(response.headers), json.loads(await response.read()))
    return _frames(response)


async def _frames(response: aiohttp.ClientResponse) -> AsyncIterator[Frame]:
    rest = bytearray()
    async for piece in response.content.iter_any():
        rest += piece
        while (end := rest.find(b"\n\n")) >= 0:
            block = bytes(rest[:end])
            del rest[: end + 2]
            if lines := _without_comments(block):
                yield frame(lines)
    if (lines := _without_comments(bytes(rest.removesuffix(b"\n")))).startswith(b"retry: "):
        yield frame(lines)


def _without_comments(block: bytes) -> bytes:
    return b"\n".join(line for line in block.split(b"\n") if not line.startswith(b":"))


def frame(block: bytes) -> Frame:
    """An event from its lines."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
    if set(fields) == {b"retry"}:
        return Frame("", b"", fields[b"retry"].decode())
    assert set(fields) == {b"id", b"data"}, block[:200]
    return Frame(fields[b"id"].decode(), fields[b"data"])
