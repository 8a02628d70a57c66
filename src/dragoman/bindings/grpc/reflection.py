"""gRPC's reflection service: the proto files of what is served, so that tools such as grpcurl need none.

Invariant: anyone may ask; it says nothing that the public proto files do not say. Its streams end when the server
closes.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from dragoman.dialects.protobuf.schema import POOL

NAME: str = reflection.SERVICE_NAME

Context = grpc.aio.ServicerContext[Any, Any]


class ReflectionService:
    """The service, for services whose message types are loaded."""

    def __init__(self, services: Collection[str]) -> None:
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            POOL.AddSerializedFile(file.serialized_pb)  # a file that is there already is left as it is
        self._servicer: Any = reflection.aio.ReflectionServicer([*services, NAME], pool=POOL)
        self._closing = asyncio.Event()

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """gRPC's handlers by full name."""
        read, write = ServerReflectionRequest.FromString, ServerReflectionResponse.SerializeToString
        return {f"/{NAME}/ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(self._answer, read, write)}

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    async def _answer(self, requests: Any, context: Context) -> None:
        async for response in self._servicer.ServerReflectionInfo(self._requests(context), context):
            await context.write(response)

    async def _requests(self, context: Context) -> AsyncIterator[ServerReflectionRequest]:
        """The requests of a stream, until its client sends no more or the server closes."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while True:
                reading: asyncio.Future[Any] = asyncio.ensure_future(context.read())
                try:
                    await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done() or (request := reading.result()) is grpc.aio.EOF:
                        return
                finally:
                    reading.cancel()
                yield request
        finally:
            closing.cancel()
