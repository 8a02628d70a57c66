"""Two more clients, over gRPC: 1.0, whose tenant names the agent, and 0.3, whose metadata does."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio
from msgspec import Struct

from tests.spec import grpc_lane
from tests.spec.lanes import GRPC_03, GRPC_1, Lane
from tests.systems.conftest import DEADLINE_S, Site
from tests.systems.speakers import ALL, Speaker

Json = dict[str, Any]
_numbers = itertools.count(1)


class GrpcTold(Struct, frozen=True):
    """An answer, in protobuf JSON."""

    result: Json


class GrpcFrame(Struct, frozen=True):
    """A message of a stream, in protobuf JSON."""

    body: Json


class GrpcFlow(Struct, frozen=True):
    """An open stream."""

    reading: grpc_lane.Reading

    async def next(self) -> GrpcFrame | None:
        """The next message; None at the end."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.reading.next()
        return None if message is None else GrpcFrame(message)

    async def rest(self) -> list[GrpcFrame]:
        """All that comes until the end."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames


class GrpcSpeaker(Struct, frozen=True, eq=False):
    """A client over gRPC, as the others are over HTTP."""

    name: str
    lane: Lane
    methods: tuple[str, str, str, str] = ("send", "get", "cancel", "subscribe")

    async def call(self, served: Site, op: str, params: Json, agent: str = "desk") -> GrpcTold:
        """A call."""
        async with aio.insecure_channel(served.grpc) as channel:
            made = grpc_lane.called(self.lane, op, params, agent, dict(served.always))
            result, _, failed = await grpc_lane.answered(channel, self.lane, made)
        assert result is not None, failed
        return GrpcTold(result)

    def said(self, text: str, *, wait: bool = True, task_id: str | None = None) -> Json:
        """Params of a send, as 1.0 has them."""
        message: Json = {"messageId": f"g-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
        if task_id is not None:
            message["taskId"] = task_id
        return {"message": message, "configuration": {"returnImmediately": not wait}}

    async def send(self, served: Site, text: str, agent: str = "desk") -> str:
        """The id of a task that has ended."""
        told = await self.call(served, "send", self.said(text), agent)
        return str(told.result["task"]["id"])

    async def start(self, served: Site, gate: str, agent: str = "desk") -> str:
        """The id of a task that works and stands at the gate."""
        told = await self.call(served, "send", self.said(f"wait {gate}", wait=False), agent)
        task_id = str(told.result["task"]["id"])
        async with asyncio.timeout(DEADLINE_S):
            await served.begun(gate, task_id, agent)
        return task_id

    async def get(self, served: Site, task_id: str, agent: str = "desk") -> GrpcTold:
        """Read it."""
        return await self.call(served, "get", {"id": task_id}, agent)

    async def cancel(self, served: Site, task_id: str, agent: str = "desk") -> GrpcTold:
        """Cancel it."""
        return await self.call(served, "cancel", {"id": task_id}, agent)

    @asynccontextmanager
    async def followed(
        self, served: Site, task_id: str, agent: str = "desk", **metadata: str
    ) -> AsyncIterator[GrpcFlow]:
        """Follow it; `last_event_id` is the metadata `last-event-id`."""
        sent = {**served.always, **{name.replace("_", "-"): value for name, value in metadata.items()}}
        async with aio.insecure_channel(served.grpc) as channel:
            made = grpc_lane.called(self.lane, "subscribe", {"id": task_id}, agent, sent)
            async with grpc_lane.reading(channel, self.lane, made) as reading:
                assert reading.failed is None, reading.failed
                yield GrpcFlow(reading)

    def spelled(self, state: str) -> str:
        """A state as this client reads it."""
        name = f"TASK_STATE_{state.upper()}"
        return name.replace("CANCELED", "CANCELLED") if self.lane is GRPC_03 else name

    def shows(self, task: Json) -> bool:
        """Whether a task is in these words: the official type has read it, and it is not empty."""
        self.lane.schema.check("Task", task)
        return True

    def state(self, frame: GrpcFrame) -> str:
        """The state that a frame tells of; empty if of none."""
        ((_, content),) = frame.body.items()
        return str(content.get("status", {}).get("state", ""))


Client = Speaker | GrpcSpeaker

OVER_GRPC = (GrpcSpeaker("1.0-grpc", GRPC_1), GrpcSpeaker("0.3-grpc", GRPC_03))

CLIENTS: tuple[Client, ...] = (*ALL, *OVER_GRPC)
"""All clients, over every transport."""
