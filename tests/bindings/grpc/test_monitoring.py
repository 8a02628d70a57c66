"""Health and reflection over gRPC: what probes and tools ask before they know anything."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from msgspec.structs import replace

from dragoman.bindings.grpc.health import HealthService
from dragoman.bindings.monitoring import Health
from tests.grpc_callers import CONFIG, DEADLINE_S, grpc_served
from tests.kit.agents import echoing

pytestmark = pytest.mark.anyio

HEALTH = "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def check(channel: grpc.aio.Channel, service: str = "") -> int:
    call: Any = channel.unary_unary(
        f"{HEALTH}Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    status: int = (await call(HealthCheckRequest(service=service), timeout=DEADLINE_S)).status
    return status


def watch(channel: grpc.aio.Channel, service: str = "") -> Any:
    call: Any = channel.unary_stream(
        f"{HEALTH}Watch", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    return call(HealthCheckRequest(service=service))


def reflect(channel: grpc.aio.Channel) -> Any:
    call: Any = channel.stream_stream(
        REFLECTION, ServerReflectionRequest.SerializeToString, ServerReflectionResponse.FromString
    )
    return call()


async def test_a_server_that_is_ready_serves_each_of_its_services() -> None:
    async with grpc_served(echoing(), config=replace(CONFIG, api_key="sesame")) as caller:
        assert await check(caller.channel) == HealthCheckResponse.SERVING
        assert await check(caller.channel, "lf.a2a.v1.A2AService") == HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await check(caller.channel, "nothing")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        watching = watch(caller.channel, "nothing")
        assert (await watching.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        watching.cancel()


async def test_streams_of_watchers_and_tools_end_with_the_server() -> None:
    config = replace(CONFIG, shutdown_grace_s=30.0)
    loop = asyncio.get_running_loop()
    async with grpc_served(echoing(), config=config) as caller:
        watching, reflecting = watch(caller.channel), reflect(caller.channel)
        assert (await watching.read()).status == HealthCheckResponse.SERVING
        await reflecting.write(ServerReflectionRequest(list_services=""))
        assert (await reflecting.read()).HasField("list_services_response")
        last = [asyncio.ensure_future(stream.read()) for stream in (watching, reflecting)]
        began_s = loop.time()
    assert loop.time() - began_s < 25
    assert [await each for each in last] == [grpc.aio.EOF, grpc.aio.EOF]


class Faults:
    """A server that is ready, or not."""

    def __init__(self) -> None:
        self.reason: str | None = None

    async def fault(self) -> str | None:
        return self.reason


@pytest.fixture
async def health() -> AsyncIterator[tuple[Faults, HealthService, grpc.aio.Channel]]:
    faults = Faults()
    service = HealthService(cast(Health, faults), ["a.B"])

    class Table(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return service.handlers()[handler_call_details.method]

    server = grpc.aio.server(handlers=(Table(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield faults, service, channel
    await server.stop(None)


async def test_a_watcher_is_told_of_each_change(health: tuple[Faults, HealthService, grpc.aio.Channel]) -> None:
    faults, service, channel = health
    watching = watch(channel, "a.B")
    assert (await watching.read()).status == HealthCheckResponse.SERVING
    faults.reason = "the store is full"
    assert (await watching.read()).status == HealthCheckResponse.NOT_SERVING
    assert await check(channel) == HealthCheckResponse.NOT_SERVING
    faults.reason = None
    assert (await watching.read()).status == HealthCheckResponse.SERVING
    service.close()
    assert await watching.read() is grpc.aio.EOF


async def test_tools_find_the_services_and_their_types() -> None:
    async with grpc_served(echoing()) as caller:
        stream = reflect(caller.channel)
        await stream.write(ServerReflectionRequest(list_services=""))
        listed = {service.name for service in (await stream.read()).list_services_response.service}
        assert listed >= {
            "lf.a2a.v1.A2AService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        for name in listed:
            await stream.write(ServerReflectionRequest(file_containing_symbol=name))
            assert (await stream.read()).file_descriptor_response.file_descriptor_proto
        await stream.write(ServerReflectionRequest(file_containing_symbol="lf.a2a.v1.Task"))
        found = await stream.read()
        files = [FileDescriptorProto.FromString(each) for each in found.file_descriptor_response.file_descriptor_proto]
        assert pb.DESCRIPTOR.name in {file.name for file in files}
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
