"""A key of the role monitor opens no procedure over gRPC, and one of a caller opens all."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from msgspec.structs import replace

from dragoman.testing.agents import echo
from tests.grpc_callers import CONFIG, DEADLINE_S, V1, grpc_served, message
from tests.systems.test_who_did_what import command

PROCEDURES = {
    "SendMessage": message("hi"),
    "ListTasks": pb.ListTasksRequest(),
    "GetExtendedAgentCard": pb.GetExtendedAgentCardRequest(),
}


@pytest.mark.parametrize("procedure", PROCEDURES)
async def test_a_monitor_calls_nothing(tmp_path: Path, procedure: str) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    keys = {}
    for role in ("monitor", "caller"):
        said = await command("keys", "create", role, "--role", role, "--json", "--store", store)
        keys[role] = json.loads(said)["key"]
    async with (
        asyncio.timeout(DEADLINE_S),
        grpc_served(echo, config=replace(CONFIG, store=store)) as caller,
    ):

        async def call(role: str) -> Any:
            ask = getattr(caller.stub, procedure)
            return await ask(PROCEDURES[procedure], metadata=(*V1, ("x-api-key", keys[role])), timeout=DEADLINE_S)

        await call("caller")
        with pytest.raises(grpc.aio.AioRpcError, match="reads /metrics only") as refused:
            await call("monitor")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
