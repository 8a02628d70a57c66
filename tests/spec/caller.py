"""A caller that speaks any lane, and checks every answer it gets against the lane's schema."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from grpc import aio
from msgspec import Struct
from yarl import URL

from dragoman.dialects.extensions import EVENT_ID
from dragoman.dialects.sse import Parser
from tests.spec import failures, grpc_lane, lanes
from tests.spec.failures import Failure
from tests.spec.grpc_lane import Reading
from tests.spec.lanes import Json, Lane, TaskView
from tests.spec.schema import decoded

DEADLINE_S = 60.0

_numbers = itertools.count(1)


class Told(Struct, frozen=True):
    """An answer: `result` or `failed`."""

    lane: Lane
    status: int
    headers: Mapping[str, str]
    result: Any = None
    failed: Failure | None = None

    @property
    def task(self) -> TaskView:
        """The task it holds."""
        assert self.failed is None, self.failed
        return lanes.task_view(self.result.get("task", self.result))

    @property
    def message(self) -> Json:
        """The message it holds instead."""
        assert self.failed is None, self.failed
        found = self.result.get("message", self.result)
        assert "role" in found, self.result
        return dict(found)

    @property
    def tasks(self) -> list[TaskView]:
        """Those of a page."""
        assert self.failed is None, self.failed
        return [lanes.task_view(raw) for raw in self.result["tasks"]]

    def refused(self, name: str) -> Failure:
        """The failure, which must be of that name."""
        assert self.failed is not None, self.result
        failures.check(self.lane, self.failed, name)
        return self.failed


class Frame(Struct, frozen=True):
    """An event of a stream: `task`, `message`, `status` or `artifact`."""

    id: str
    kind: str
    raw: Json

    @property
    def state(self) -> str:
        """The state it tells of."""
        return lanes.state_view(self.raw["status"]["state"])

    @property
    def text(self) -> str:
        """The text that it carries."""
        if "status" in self.raw:
            return lanes.text_view(self.raw["status"].get("message", {}))
        return lanes.text_view(self.raw.get("artifact", self.raw))


class Frames(Struct):
    """A stream, over any binding."""

    async def next(self) -> Frame | None:
        """The next event; None at the end."""
        raise NotImplementedError

    async def rest(self) -> list[Frame]:
        """All that comes until the end."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def until(self, text: str) -> list[Frame]:
        """The events up to the one with that text."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
            if frame.text == text:
                return frames
        raise AssertionError(f"the stream ended without {text!r}: {frames}")


class Stream(Frames):
    """An open stream, or the refusal that came instead."""

    lane: Lane
    told: Told
    answer: aiohttp.ClientResponse
    raw: bytearray
    parser: Parser
    ready: list[Frame]

    async def next(self) -> Frame | None:
        """The next event; None at the end."""
        assert self.told.failed is None, self.told.failed
        async with asyncio.timeout(DEADLINE_S):
            while not self.ready:
                piece = await self.answer.content.readany()
                if not piece:
                    return None
                self.raw += piece
                self.ready.extend(_frame(self.lane, event.id, event.data) for event in self.parser.feed(piece))
        return self.ready.pop(0)


class GrpcStream(Frames):
    """An open stream over gRPC, or the refusal that came instead. The ids of its frames are in their metadata."""

    lane: Lane
    told: Told
    reading: Reading

    async def next(self) -> Frame | None:
        """The next event; None at the end."""
        assert self.told.failed is None, self.told.failed
        async with asyncio.timeout(DEADLINE_S):
            message = await self.reading.next()
        if message is None:
            return None
        message = grpc_lane.whole(self.lane, "StreamResponse", message)
        self.lane.schema.check("StreamResponse", message)
        ((name, content),) = message.items()
        event_id = content.get("metadata", {}).pop(EVENT_ID, "")
        if not content.get("metadata", True):
            del content["metadata"]
        return Frame(event_id, _FRAMES[name], content)


class Caller(Struct, frozen=True):
    """Calls one agent in one lane; `channel` is for the lanes over gRPC."""

    http: aiohttp.ClientSession
    base: str
    lane: Lane
    agent: str = "script"
    channel: aio.Channel | None = None

    def at(self, agent: str) -> "Caller":
        """The same lane, another agent."""
        return Caller(self.http, self.base, self.lane, agent, self.channel)

    async def call(self, op: str, params: Json, headers: Mapping[str, str] | None = None) -> Told:
        """Ask for an operation that is answered at once."""
        if self.lane.grpc:
            assert self.channel is not None
            made = grpc_lane.called(self.lane, op, params, self.agent, headers)
            result, metadata, failed = await grpc_lane.answered(self.channel, self.lane, made)
            if result is not None:
                result = grpc_lane.whole(self.lane, lanes.ANSWERS[op], result)
                self.lane.schema.check(lanes.ANSWERS[op], result)
            return Told(self.lane, 0 if failed is None else failed.status, metadata, result, failed)
        async with self._answered(op, params, headers) as answer:
            return await self._told(op, answer)

    async def send(self, text: str = "say hi", **said: Any) -> Told:
        """Send a message: see `params`."""
        headers = said.pop("headers", None)
        return await self.call("send", params(text, **said), headers)

    async def get(self, task_id: str, **given: Any) -> Told:
        """Read a task."""
        return await self.call("get", {"id": task_id, **given})

    async def list(self, **given: Any) -> Told:
        """Read a page."""
        return await self.call("list", given)

    async def cancel(self, task_id: str) -> Told:
        """Cancel a task."""
        return await self.call("cancel", {"id": task_id})

    @asynccontextmanager
    async def stream(self, text: str = "say hi", **said: Any) -> AsyncIterator[Frames]:
        """Send a message and read what follows."""
        headers = said.pop("headers", None)
        async with self.streamed("stream", params(text, **said), headers) as stream:
            yield stream

    @asynccontextmanager
    async def subscribe(
        self,
        task_id: str,
        headers: Mapping[str, str] | None = None,
        since: str | None = None,
        verb: str | None = None,
        **params: Any,
    ) -> AsyncIterator[Frames]:
        """Follow a task."""
        async with self.streamed("subscribe", {"id": task_id, **params}, headers, since, verb) as stream:
            yield stream

    @asynccontextmanager
    async def _answered(
        self,
        op: str,
        given: Json,
        headers: Mapping[str, str] | None,
        since: str | None = None,
        verb: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        asked = lanes.asked(self.lane, op, given, self.agent)
        path = asked.path if since is None else f"{asked.path}?since={since}"
        type_ = {} if asked.body is None else {"Content-Type": "application/json"}
        async with self.http.request(
            verb or asked.verb,
            URL(self.base + path, encoded=True),
            headers={**asked.headers, **type_, **(headers or {})},
            data=None if asked.body is None else lanes.encoded(asked.body),
        ) as answer:
            yield answer

    @asynccontextmanager
    async def streamed(
        self,
        op: str,
        given: Json,
        headers: Mapping[str, str] | None = None,
        since: str | None = None,
        verb: str | None = None,
    ) -> AsyncIterator[Frames]:
        """Ask for an operation that is answered with a stream."""
        if self.lane.grpc:
            assert self.channel is not None
            made = grpc_lane.called(self.lane, op, given, self.agent, grpc_lane.with_ids(headers))
            async with grpc_lane.reading(self.channel, self.lane, made) as reading:
                status = 0 if reading.failed is None else reading.failed.status
                told = Told(self.lane, status, reading.headers, None, reading.failed)
                yield GrpcStream(self.lane, told, reading)
            return
        async with self._answered(op, given, headers, since, verb) as answer:
            if answer.content_type == "text/event-stream":
                told = Told(self.lane, answer.status, answer.headers)
            else:
                told = await self._told(op, answer)
                assert told.failed is not None, "a stream was asked for"
            yield Stream(self.lane, told, answer, bytearray(), Parser(), [])

    async def _told(self, op: str, answer: aiohttp.ClientResponse) -> Told:
        body = decoded(await answer.read())
        lane, failed, result = self.lane, None, body
        if lane.rpc:
            assert answer.content_type == "application/json"
            assert body.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}), body
            # HTTP itself may refuse a request before the body is read: there the id is null (JSON-RPC 2.0 §5).
            assert body["jsonrpc"] == "2.0"
            assert body["id"] == 7 or (body["id"] is None and answer.status != 200), body
            if "error" in body:
                failed = failures.failure(lane, answer.status, body["error"])
            result = body.get("result")
        else:
            wanted = "application/a2a+json" if lane.version == "1.0" else "application/json"
            assert answer.content_type == wanted
            if answer.status != 200:
                failed, result = failures.failure(lane, answer.status, body), None
        if failed is None:
            assert answer.status == 200
            kind = lanes.ANSWERS[op]
            if lane.version == "0.3" and lane.rpc and op == "send":
                kind = {"task": "Task", "message": "Message"}[result["kind"]]
            if lane.version == "0.3" and lane.rpc and op in ("list_push", "delete_push"):  # a list, and null
                for each in result or ():
                    lane.schema.check("TaskPushNotificationConfig", each)
            else:
                lane.schema.check(kind, result)
        return Told(lane, answer.status, answer.headers, result, failed)


def params(
    text: str = "say hi",
    *,
    parts: list[Json] | None = None,
    configuration: Json | None = None,
    metadata: Json | None = None,
    **said: Any,
) -> Json:
    """The params of a send: a message of one text part, unless `parts` are given; `said` goes into the message."""
    content = [{"text": text}] if parts is None else parts
    message = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": content, **said}
    message = {name: value for name, value in message.items() if value is not None}
    given: Json = {"message": message}
    if configuration is not None:
        given["configuration"] = configuration
    if metadata is not None:
        given["metadata"] = metadata
    return given


_KINDS_03 = {"task": "Task", "message": "Message", "status-update": "StatusUpdate", "artifact-update": "ArtifactUpdate"}
_FRAMES = {"task": "task", "message": "message", "statusUpdate": "status", "artifactUpdate": "artifact"}


def _frame(lane: Lane, event_id: str, data: str) -> Frame:
    body = decoded(data.encode())
    if lane.rpc:
        assert body.keys() == {"jsonrpc", "id", "result"}, body
        assert (body["jsonrpc"], body["id"]) == ("2.0", 7), body
        body = body["result"]
    if lane.version == "0.3" and lane.rpc:
        lane.schema.check(_KINDS_03[body["kind"]], body)
        return Frame(event_id, body["kind"].removesuffix("-update"), body)
    lane.schema.check("StreamResponse", body)
    ((name, content),) = body.items()
    return Frame(event_id, _FRAMES[name], content)
