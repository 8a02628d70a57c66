"""Two callers over gRPC: neither finds the other's tasks, and each has limits of their own."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.rpc.error_details_pb2 import RetryInfo
from msgspec import Struct
from msgspec.structs import replace

from tests.grpc_callers import CONFIG, DEADLINE_S, V1, GrpcCaller, grpc_served, message, refusal
from tests.kit.agents import echoing
from tests.systems.test_who_did_what import command

pytestmark = pytest.mark.anyio


class Two(Struct):
    """Anna and Ben, at one server."""

    caller: GrpcCaller
    anna: tuple[str, str]
    ben: tuple[str, str]


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    store = f"sqlite:///{tmp_path_factory.mktemp('keys')}/keys.db"
    keys = {}
    for name in ("anna", "ben"):
        said = await command("keys", "create", name, "--json", "--store", store)
        keys[name] = ("x-api-key", json.loads(said)["key"])
    async with grpc_served(echoing("echo"), config=replace(CONFIG, store=store)) as caller:
        yield Two(caller, keys["anna"], keys["ben"])


async def test_a_task_of_somebody_else_is_not_found(two: Two) -> None:
    task = await two.caller.send("mine", two.anna)
    assert (await two.caller.get(task.id, two.anna)).id == task.id
    stub, theirs = two.caller.stub, (*V1, two.ben)
    asked = (
        two.caller.get(task.id, two.ben),
        two.caller.subscribe(task.id, two.ben),
        stub.CancelTask(pb.CancelTaskRequest(id=task.id), metadata=theirs),
        stub.SendMessage(message("more", task_id=task.id), metadata=theirs),
        stub.ListTaskPushNotificationConfigs(
            pb.ListTaskPushNotificationConfigsRequest(task_id=task.id), metadata=theirs
        ),
    )
    for each in asked:
        code, _ = await refusal(each)
        assert code is grpc.StatusCode.NOT_FOUND
    assert (await stub.ListTasks(pb.ListTasksRequest(), metadata=theirs)).total_size == 0


async def test_a_request_too_many_is_refused_with_the_time_to_come_back(tmp_path: Path) -> None:
    config = replace(CONFIG, max_requests_per_s=1, api_key="sesame")
    key = ("x-api-key", "sesame")
    async with asyncio.timeout(DEADLINE_S), grpc_served(echoing("echo"), config=config) as caller:
        calls = [caller.stub.ListTasks(pb.ListTasksRequest(), metadata=(*V1, key)) for _ in range(10)]
        code, status = await refusal(asyncio.gather(*calls))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = RetryInfo()
    assert any(each.Unpack(retry) for each in status.details)
    assert retry.retry_delay.seconds >= 1
