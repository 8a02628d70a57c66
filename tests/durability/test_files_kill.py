"""SIGKILL while files are being kept: no task that is there refers to bytes that are not."""

import asyncio
import base64
import json
import os
import re
from pathlib import Path

import aiohttp
import pytest

from tests.durability.caller import V1
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.soak import times

pytestmark = pytest.mark.slow

BYTES = 40_000
SENDERS = 8
ENOUGH = 30
"""Tasks that were answered before the kill."""


async def send_for_ever(http: aiohttp.ClientSession, url: str, answered: asyncio.Semaphore) -> None:
    while True:
        part = {"raw": base64.b64encode(os.urandom(BYTES)).decode()}
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [part]}
        try:
            async with http.post(f"{url}/agents/echo/message:send", json={"message": message}, headers=V1) as answer:
                assert answer.status == 200, await answer.text()
        except aiohttp.ClientError:
            return
        answered.release()


@pytest.mark.parametrize("attempt", range(times(1, 20)))
async def test_every_link_leads_to_bytes_after_a_kill(
    serve: Serve, http: aiohttp.ClientSession, tmp_path: Path, attempt: int
) -> None:
    flags = ("--files", f"folder:{tmp_path}/files", "--files-above", "1000")
    server: Server = await serve(*flags)
    answered = asyncio.Semaphore(0)
    senders = [asyncio.create_task(send_for_ever(http, server.url, answered)) for _ in range(SENDERS)]
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(ENOUGH + attempt):
            await answered.acquire()
    await server.kill()
    await asyncio.gather(*senders)
    server = await serve(*flags)
    found = 0
    token = ""
    while True:
        path = f"/agents/echo/tasks?includeArtifacts=true&pageSize=100&pageToken={token}"
        async with http.get(server.url + path, headers=V1) as answer:
            page = json.loads(await answer.read())
        for url in re.findall(r'"(http://[^"]+/files/[^"]+)"', json.dumps(page)):
            async with http.get(url) as answer:
                assert answer.status == 200, await answer.text()
                assert len(await answer.read()) == BYTES
            found += 1
        if not (token := page.get("nextPageToken", "")):
            break
    assert found >= ENOUGH
