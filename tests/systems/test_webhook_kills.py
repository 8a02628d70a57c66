"""A server is killed between a webhook call and its settlement: the call comes again, and leaves one receipt."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from tests.kit.processes import ServerProcess
from tests.push.receiver import receiving
from tests.systems.test_upstream_kills import served

DEADLINE_S = 60.0

AGENT = '''
from dragoman import Agent, Context

echo = Agent("echo")


@echo.skill
async def say(ctx: Context) -> str:
    """Says it back."""
    return ctx.message.text
'''


@pytest.mark.slow
async def test_a_call_whose_answer_was_lost_comes_again_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    place = ("--store", "sqlite:///tasks.db", "--port", "0")
    server = ServerProcess(tmp_path, "agents.py", *place, "--push-allowed-hosts", "127.0.0.1")
    async with asyncio.timeout(DEADLINE_S), receiving() as receiver, served(server):
        receiver.hold.clear()
        config = {"url": f"{receiver.url}/in", "events": ["completed"]}
        message = {"role": "ROLE_USER", "messageId": "m1", "parts": [{"text": "hello"}]}
        body = {"message": message, "configuration": {"taskPushNotificationConfig": config}}
        async with (
            aiohttp.ClientSession(server.url, headers={"A2A-Version": "1.0"}) as http,
            http.post("/message:send", json=body) as answer,
        ):
            task_id = (await answer.json())["task"]["id"]
        await receiver.came(1)
        await server.kill()
        receiver.hold.set()
        await server.start()
        store = open_store(f"sqlite:///{tmp_path / 'tasks.db'}", SystemClock())
        await store.open(None)
        try:
            while not (receipts := await store.receipts.page()):
                await asyncio.sleep(0.01)
        finally:
            await store.close()
    first, second = receiver.asked
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert task_id.encode() in first.body
    (receipt,) = receipts
    assert (receipt.id, receipt.task_id, receipt.status) == (first.headers["webhook-id"], task_id, 204)
