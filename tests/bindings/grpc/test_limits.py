"""Limits over gRPC: what a caller may send, leave unread and hold open, and what its leaving changes."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from google.rpc.error_details_pb2 import RetryInfo
from msgspec.structs import replace

from dragoman import Agent, Context
from tests.grpc_callers import (
    CONFIG,
    DEADLINE_S,
    V1,
    GrpcCaller,
    connected,
    drain,
    grpc_served,
    kinds,
    message,
    only_task,
    refusal,
)
from tests.kit.agents import Pacer

pytestmark = pytest.mark.anyio

MEGABYTE = 1 << 20


def large(megabytes: int) -> Agent:
    agent = Agent("large")

    @agent.skill
    async def give_much(ctx: Context) -> str:
        """Answer with much."""
        return "x" * (megabytes * MEGABYTE)

    return agent


SMALL_WINDOW = {"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 65_535}
"""A client that has no more in advance than what it must."""


async def admitted(call: Callable[[], Any]) -> Any:
    """The first item of a stream, once one is let in."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            stream = call()
            with suppress(grpc.aio.AioRpcError):
                return await stream.read()
            assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


# -- callers that leave ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_that_is_canceled_changes_nothing_about_its_task(streams: bool) -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        call = caller.stream() if streams else caller.stub.SendMessage(message("hi"), metadata=V1)
        await gate.started.wait()
        call.cancel()
        task = await only_task(caller)
        following = caller.subscribe(task.id)
        assert kinds([await following.read()]) == ["task"]
        gate.put("a", None)
        assert kinds(await drain(following))[-1] == "completed"


async def test_a_deadline_changes_nothing_about_the_task() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        keyed, wait_s = (*V1, ("idempotency-key", "once")), 1
        while not gate.started.is_set():  # a busy machine may not have begun with it by then
            code, _ = await refusal(caller.stub.SendMessage(message("hi"), metadata=keyed, timeout=wait_s))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            wait_s *= 2
        task = await only_task(caller)
        assert task.status.state == pb.TASK_STATE_WORKING
        gate.put(None)
        async with asyncio.timeout(DEADLINE_S):
            while (await caller.get(task.id)).status.state != pb.TASK_STATE_COMPLETED:
                pass


async def test_streams_of_callers_that_left_are_counted_no_more() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent, config=replace(CONFIG, max_streams=1)) as caller:
        task = await caller.send(return_immediately=True)
        async with connected(caller.port) as channel:
            first = GrpcCaller(caller.url, caller.port, channel).subscribe(task.id)
            await first.read()
            code, _ = await refusal(caller.subscribe(task.id))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert kinds([await admitted(lambda: caller.subscribe(task.id))]) == ["task"]


# -- a server that stops -----------------------------------------------------------------------------------------------


async def test_a_stream_that_a_stopping_server_ends_says_when_to_come_back() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        stream = caller.stream()
        assert kinds([await stream.read()]) == ["task"]
        await gate.started.wait()
        rest = asyncio.ensure_future(refusal(stream))
    code, status = await rest
    assert code is grpc.StatusCode.UNAVAILABLE
    retry = RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.seconds == 1


async def test_a_call_that_waits_is_answered_before_the_server_has_stopped() -> None:
    gate = Pacer()
    async with grpc_served(gate.agent) as caller:
        waiting = asyncio.ensure_future(caller.send())
        await gate.started.wait()
    task = await waiting
    assert task.status.state == pb.TASK_STATE_FAILED


# -- sizes -------------------------------------------------------------------------------------------------------------


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with grpc_served(large(0), config=replace(CONFIG, max_body_bytes=MEGABYTE)) as caller:
        text = "x" * (2 * MEGABYTE - message("x" * MEGABYTE).ByteSize())
        assert message(text).ByteSize() == MEGABYTE
        code, _ = await refusal(caller.send(text + "x"))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await caller.send(text)).id


async def test_a_request_of_many_values_is_refused() -> None:
    async with grpc_served(large(0), config=replace(CONFIG, max_values=1000)) as caller:
        request = message("hi")
        request.message.parts.extend([pb.Part(text="")] * 50_000)
        code, status = await refusal(caller.stub.SendMessage(request, metadata=V1))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "max_values" in status.message
        few = message("hi")
        few.message.parts.extend([pb.Part(text="x")] * 1000)
        code, status = await refusal(caller.stub.SendMessage(few, metadata=V1))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "1000" in status.message


async def test_a_request_that_does_not_arrive_is_given_up() -> None:
    async with grpc_served(large(0), config=replace(CONFIG, body_pause_s=0.05)) as caller:
        call = caller.channel.stream_unary("/lf.a2a.v1.A2AService/SendMessage")(metadata=V1)
        async with asyncio.timeout(DEADLINE_S):
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_pages_of_large_tasks_stay_below_what_clients_accept() -> None:
    config = replace(CONFIG, max_page_bytes=64 * MEGABYTE)
    async with grpc_served(large(1), config=config) as caller:
        for number in range(6):
            await caller.stub.SendMessage(message("hi", f"m{number}", history_length=0), metadata=V1)
        seen: list[str] = []
        token, pages = "", 0
        while True:
            request = pb.ListTasksRequest(page_size=100, page_token=token, include_artifacts=True)
            page = await caller.stub.ListTasks(request, metadata=V1)
            assert page.ByteSize() < 4 * MEGABYTE
            assert page.total_size == 6
            seen += [task.id for task in page.tasks]
            pages += 1
            if not (token := page.next_page_token):
                break
        assert len(seen) == len(set(seen)) == 6
        assert pages == 2


# -- readers that do not read ------------------------------------------------------------------------------------------


def unread(caller: GrpcCaller, channel: grpc.aio.Channel, task_id: str) -> Any:
    """A call of GetTask whose answer is not read: as if it were a stream, so that the caller decides when."""
    return channel.unary_stream("/lf.a2a.v1.A2AService/GetTask", response_deserializer=pb.Task.FromString)(
        pb.GetTaskRequest(id=task_id).SerializeToString(), metadata=V1
    )


async def test_large_answers_that_nobody_reads_are_bounded_for_each_caller() -> None:
    config = replace(CONFIG, max_unread_bytes=5 * MEGABYTE)
    async with grpc_served(large(3), config=config) as caller, connected(caller.port, **SMALL_WINDOW) as channel:
        sent = GrpcCaller(caller.url, caller.port, channel)
        await sent.send("hi", return_immediately=True)
        while (task := await only_task(sent)).status.state != pb.TASK_STATE_COMPLETED:
            pass
        first = unread(caller, channel, task.id)
        await first.initial_metadata()  # it is on its way
        code, status = await refusal(sent.get(task.id))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_unread_bytes" in status.message
        assert (await first.read()).id == task.id
        assert (await admitted(lambda: unread(caller, channel, task.id))).id == task.id


async def test_a_reader_that_pauses_for_too_long_loses_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    gate = Pacer()
    config = replace(CONFIG, reader_pause_s=0.5, max_streams=1)
    async with grpc_served(gate.agent, config=config) as caller, connected(caller.port, **SMALL_WINDOW) as channel:
        slow = GrpcCaller(caller.url, caller.port, channel).stream()
        task = await only_task(caller)
        for _ in range(40):
            gate.put("x" * 100_000)
        # Its place is free again when the server has given it up, though it is still connected.
        assert kinds([await admitted(lambda: caller.subscribe(task.id))]) == ["task"]
        code, status = await refusal(slow)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "nothing was read" in status.message
        assert "a reader at 127.0.0.1 is cut off: it took nothing of its answer for 0.5 s" in caplog.text


async def test_a_reader_that_does_not_read_does_not_hold_up_the_stop() -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as outlives:
        async with grpc_served(large(3), config=replace(CONFIG, shutdown_grace_s=1.0)) as caller:
            await caller.send("hi", return_immediately=True)
            while (task := await only_task(caller)).status.state != pb.TASK_STATE_COMPLETED:
                pass
            channel = await outlives.enter_async_context(connected(caller.port, **SMALL_WINDOW))
            call = unread(caller, channel, task.id)
            await call.initial_metadata()
            began_s = loop.time()
        assert loop.time() - began_s < DEADLINE_S / 2
