"""Streams of responses that are cut, and go on at another replica, while replicas are killed with `kill -9`."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.model.ids import new_id
from tests.kit.processes import ServerProcess
from tests.kit.waiting import DEADLINE_S
from tests.soak import times

pytestmark = pytest.mark.slow

STREAMS = times(12, 1000)
AT_ONCE = 12
KILLS_EVERY_S = (0.3, 2.0)
CUT_AFTER = (1, 15)
"""How many events a reader takes before it cuts its stream."""

GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
FRAME = re.compile(rb'event: (\S+)\ndata: .*"sequence_number":(\d+)\}')
LAST = (b"response.completed", b"response.failed", b"response.incomplete")

AGENTS = Path(__file__).with_name("responding.py")


async def frames(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The whole frames of a stream, without comments."""
    rest = b""
    async for piece in answer.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n\n")
        for frame in whole:
            if frame.startswith(b"event: "):
                yield frame


class Reader:
    """A client that follows one response to its end, from replica to replica."""

    def __init__(self, http: aiohttp.ClientSession, replicas: Sequence[ServerProcess], chance: random.Random) -> None:
        self.http = http
        self.replicas = replicas
        self.chance = chance
        self.seen: list[bytes] = []
        self.cuts = 0

    async def read(self, agent: str) -> str:
        """Make a response, and follow it. Returns its id."""
        body = {"model": agent, "input": f"{self.chance.randint(20, 60)} every 0.02", "stream": True}
        key, response_id = new_id(), ""
        while not (self.seen and self.seen[-1].startswith(tuple(b"event: " + name for name in LAST))):
            url = self.chance.choice(self.replicas).url
            with suppress(*GONE):
                if not self.seen:
                    headers = {"Idempotency-Key": key}
                    async with self.http.post(f"{url}/v1/responses", json=body, headers=headers) as answer:
                        await self.take(answer)
                else:
                    response_id = response_id or json.loads(self.seen[0].partition(b"data: ")[2])["response"]["id"]
                    path = f"{url}/v1/responses/{response_id}?stream=true&starting_after={len(self.seen) - 1}"
                    async with self.http.get(path) as answer:
                        await self.take(answer)
            await asyncio.sleep(0.02)
        return response_id

    async def take(self, answer: aiohttp.ClientResponse) -> None:
        """Take events, each of which must be the next one, and leave after some."""
        if answer.status == 503:
            return
        assert answer.status == 200, await answer.text()
        left = self.chance.randint(*CUT_AFTER)
        async for frame in frames(answer):
            found = FRAME.fullmatch(frame)
            assert found is not None, frame
            assert int(found[2]) == len(self.seen), (found[2], len(self.seen))
            self.seen.append(frame)
            left -= 1
            if not left:
                self.cuts += 1
                return


async def read_all(http: aiohttp.ClientSession, url: str, response_id: str) -> tuple[list[bytes], Any]:
    """All events of a response, and the response, as a replica gives them."""
    path = f"{url}/v1/responses/{response_id}"
    async with http.get(f"{path}?stream=true") as answer:
        events = [frame async for frame in frames(answer)]
    async with http.get(path) as answer:
        return events, await answer.json()


async def test_a_stream_that_is_cut_goes_on_at_any_replica_with_the_same_bytes(
    used_postgres_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    flags = ("--store", used_postgres_url, "--port", "0", "--replica-lease-s", "1.5", "--replica-beat-s", "0.4")
    replicas = [ServerProcess(tmp_path, str(AGENTS), *flags, log=f"replica-{number}.log") for number in range(2)]
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    killing: asyncio.Task[None] | None = None
    slots, readers = asyncio.Semaphore(AT_ONCE), list[Reader]()

    async def kill_again_and_again() -> None:
        while True:
            await asyncio.sleep(chance.uniform(*KILLS_EVERY_S))
            victim = chance.choice(replicas)
            await victim.kill()
            await victim.start()

    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:

        async def follow(number: int) -> str:
            reader = Reader(http, replicas, random.Random(seed + number))
            readers.append(reader)
            async with slots, asyncio.timeout(DEADLINE_S):
                response_id = await reader.read(chance.choice(("same", "other")))
                found = []
                for replica in replicas:
                    with suppress(*GONE):  # it may be dead just now
                        found.append(await read_all(http, replica.url, response_id))
                for events, response in found:
                    assert events == reader.seen, f"seed {seed}"
                    last = json.loads(events[-1].partition(b"data: ")[2])["response"]
                    assert response == last
                    assert response["status"] == "completed"
                    assert response["output"][-1]["status"] == "completed"
                return response_id

        try:
            await asyncio.gather(*(replica.start() for replica in replicas))
            killing = asyncio.create_task(kill_again_and_again())
            ids = await asyncio.gather(*map(follow, range(STREAMS)))
            assert not killing.done() or await killing is None
            assert len(set(ids)) == STREAMS
            assert sum(reader.cuts for reader in readers) >= STREAMS
        finally:
            if killing is not None:
                killing.cancel()
            await asyncio.gather(*(replica.kill() for replica in replicas))
    assert all("Traceback" not in replica.said() for replica in replicas)
