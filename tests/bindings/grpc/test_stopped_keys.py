"""A stream over gRPC ends with the key that opened it, and that of another key of its name goes on."""

import asyncio
from pathlib import Path

from a2a.types import a2a_pb2 as pb
from msgspec.structs import replace

from tests.grpc_callers import CONFIG, DEADLINE_S, drain, grpc_served
from tests.systems.test_leaked_key import agents, keys_of


def states(items: list[pb.StreamResponse]) -> list[int]:
    return [item.status_update.status.state for item in items if item.HasField("status_update")]


async def test_a_stream_over_grpc_ends_with_its_key(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    keys, go = await keys_of(store), asyncio.Event()
    async with (
        asyncio.timeout(DEADLINE_S),
        grpc_served(*agents(go), config=replace(CONFIG, store=store)) as caller,
    ):
        theirs = caller.stream("theirs", ("x-api-key", keys["leaked"]))
        mine = caller.stream("mine", ("x-api-key", keys["own"]))
        for stream in (theirs, mine):
            assert (await stream.read()).HasField("task")
        await keys.run("revoke", "leaked", "--stop")
        assert pb.TASK_STATE_COMPLETED not in states(await drain(theirs))
        go.set()
        assert pb.TASK_STATE_COMPLETED in states(await drain(mine))
