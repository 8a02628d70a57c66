"""gRPC's health service (grpc.health.v1): the answer of `/ready`, for probes that speak gRPC.

Invariant: anyone may ask. A watcher is told of a change within `LOOK_S`, and its stream ends when the server closes.
"""

import asyncio
from collections.abc import Collection
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1.health_pb2 import DESCRIPTOR, HealthCheckRequest, HealthCheckResponse

from dragoman.bindings.monitoring import Health

NAME: str = DESCRIPTOR.services_by_name["Health"].full_name

LOOK_S = 1.0
"""How often a watcher's status is looked up."""

Context = grpc.aio.ServicerContext[Any, Any]


class HealthService:
    """The service. All `services` have the status of the server, which is that of `health`."""

    def __init__(self, health: Health, services: Collection[str]) -> None:
        self._health = health
        self._services = frozenset({"", *services})
        self._closing = asyncio.Event()

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """gRPC's handlers by full name."""
        read, write = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        return {
            f"/{NAME}/Check": grpc.unary_unary_rpc_method_handler(self._check, read, write),
            f"/{NAME}/Watch": grpc.unary_stream_rpc_method_handler(self._watch, read, write),
        }

    def close(self) -> None:
        """End the watchers' streams."""
        self._closing.set()

    async def _check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return HealthCheckResponse(status=await self._status())

    async def _watch(self, request: HealthCheckRequest, context: Context) -> None:
        told: int | None = None
        known = request.service in self._services
        while not self._closing.is_set():
            status = await self._status() if known else HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._closing.wait()
            except TimeoutError:
                continue

    async def _status(self) -> Any:
        ready = not self._closing.is_set() and await self._health.fault() is None
        return HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
