"""The switch under load, on three replicas: how long tokens go on after the command, with a bus and without.

`make test-soak` has many streams at each replica and holds the times against what docs/admin.md says.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from dragoman.admin.switches import KIND, Switch
from dragoman.model.principal import AccessRole
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED
from tests.kit.places import add_keys, beside
from tests.kit.waiting import no_hang
from tests.nats import NatsServer
from tests.soak import SOAK, times

pytestmark = [pytest.mark.slow, pytest.mark.drill]

STREAMS = times(2, 40)
"""At each replica."""

LEASE_S = 3.0
CHUNKS = "100000 every 0.05"


class Reading(Struct):
    """A stream of a task: when its last token came, when it ended, and how."""

    agent: str
    at: int
    begun: asyncio.Event
    last_s: float = 0.0
    ended_s: float = 0.0
    state: str = ""
    late: int = 0
    """Tokens that came after the end."""


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of an answer, to its end or until its server dies."""
    with suppress(aiohttp.ClientError):
        async for line in answer.content:
            yield line


class Floor:
    """Three replicas, their operator, and callers."""

    def __init__(self, replicas: Sequence[ReplicaProcess], keys: dict[str, str], http: aiohttp.ClientSession) -> None:
        self.replicas = replicas
        self._http = http
        self._keys = keys

    async def follow(self, reading: Reading) -> None:
        """Send a message whose answer is a stream, and read it to its end."""
        message = {"messageId": f"m-{id(reading)}", "role": "ROLE_USER", "parts": [{"text": CHUNKS}]}
        url = f"{self.replicas[reading.at].url}/agents/{reading.agent}/message:stream"
        headers = {"A2A-Version": "1.0", "x-api-key": self._keys["ann"]}
        async with self._http.post(url, json={"message": message}, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            async for line in lines(answer):
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                if "artifactUpdate" in event:
                    reading.last_s = time.monotonic()
                    reading.late += bool(reading.state)
                    reading.begun.set()
                elif "statusUpdate" in event and event["statusUpdate"]["status"]["state"] != "TASK_STATE_WORKING":
                    reading.state, reading.ended_s = event["statusUpdate"]["status"]["state"], time.monotonic()

    async def switch(self, at: int, verb: str, agent: str) -> None:
        """The command."""
        headers = {"x-api-key": self._keys["ops"]}
        async with self._http.post(f"{self.replicas[at].url}/admin/v1/agents/{agent}:{verb}", headers=headers) as done:
            assert done.status == 200, await done.text()

    async def count(self, agent: str, state: str, awaited: int) -> int:
        """How many tasks of an agent are in a state, once it is as many as are awaited."""
        url = f"{self.replicas[0].url}/admin/v1/tasks?agent={agent}&state={state}&limit=200"
        while True:
            async with self._http.get(url, headers={"x-api-key": self._keys["ops"]}) as answer:
                if (found := len((await answer.json())["tasks"])) >= awaited:
                    return found
            await asyncio.sleep(0.1)

    async def refuses(self, at: int, agent: str) -> float:
        """When a replica refuses a message for an agent."""
        url = f"{self.replicas[at].url}/agents/{agent}/message:send"
        headers = {"A2A-Version": "1.0", "x-api-key": self._keys["ann"]}
        while True:
            said = {"messageId": f"r{time.monotonic()}", "role": "ROLE_USER", "parts": [{"text": "1 every 0"}]}
            async with self._http.post(url, json={"message": said}, headers=headers) as answer:
                if answer.status == 503 and b"out of service" in await answer.read():
                    return time.monotonic()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def floor(folder: Path, store: str, bus: str) -> AsyncIterator[Floor]:
    keys = await add_keys(store, ops={"role": AccessRole.OPERATOR}, ann={})
    lease = "--replica-lease-s", f"{LEASE_S:g}", "--replica-beat-s", "1"
    replicas = [
        ReplicaProcess(f"r{each}", ("--store", store, "--bus", bus, *lease, *ALLOWED), folder) for each in range(3)
    ]
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        async with no_hang(), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            yield Floor(replicas, keys, http)
    finally:
        await asyncio.gather(*(replica.kill() for replica in replicas if replica.process is not None))


@asynccontextmanager
async def streams(at: Floor, agent: str) -> AsyncIterator[list[Reading]]:
    """Streams at every replica, of which each has had a token. At the end of the block all have ended."""
    readings = [Reading(agent, each % 3, asyncio.Event()) for each in range(3 * STREAMS)]
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(at.follow(each)) for each in readings]
        for each in readings:
            await each.begun.wait()
        yield readings
        await asyncio.wait(following)


LONG = pytest.mark.skipif(not SOAK, reason="tests/engine/test_switches.py shows it with a bus in one process")


@pytest.mark.parametrize(("bus", "within_s"), [pytest.param("nats", 1.0, marks=LONG), ("none", 2.0)])
async def test_no_token_comes_after_the_switch_for_long(
    tmp_path: Path, postgres_url: str, bus: str, within_s: float
) -> None:
    with NatsServer() as nats:
        async with floor(tmp_path, postgres_url, nats.url if bus == "nats" else "none") as at:
            async with streams(at, "once") as readings:
                began_s = time.monotonic()
                await at.switch(0, "disable", "once")
                answered_s = time.monotonic()
                refused_s = max(await asyncio.gather(*(at.refuses(each, "once") for each in range(3))))
            assert {(each.state, each.late) for each in readings} == {("TASK_STATE_CANCELED", 0)}
            last_s, ended_s = (max(getattr(each, name) for each in readings) for name in ("last_s", "ended_s"))
            took = [f"{moment - began_s:.2f} s" for moment in (answered_s, last_s, ended_s, refused_s)]
            print(
                "{} streams, bus {}: answered {}, last token {}, last end {}, all refuse {}".format(
                    len(readings), bus, *took
                )
            )
            if SOAK:
                assert max(last_s, ended_s, refused_s) - began_s <= within_s
            if bus == "none":
                await check_that_others_carry_it_out(at, postgres_url)
            assert "Traceback" not in "".join(replica.said() for replica in at.replicas)


async def check_that_others_carry_it_out(at: Floor, store: str) -> None:
    """The replica that was told dies when the record is written, with tasks of its own: all end all the same."""
    switch = Switch(state="disabled", running="cancel", by="operator:gone", at="2026-01-01T00:00:00.000Z")
    async with beside(store) as opened, streams(at, "again") as readings:
        await opened.operator_records.put_record(KIND, "again", msgspec.json.encode(switch))
        await at.replicas[2].kill()
    kept = [each for each in readings if each.at != 2]
    assert {(each.state, each.late) for each in kept} == {("TASK_STATE_CANCELED", 0)}
    assert await at.count("again", "canceled", len(readings)) == len(readings)
