"""docs/mounting.md: its applications work when they are pasted."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.docs.test_blocks import blocks
from tests.docs.test_readme import ROOT, Block, Walk, commands
from tests.kit.asgi_servers import uvicorn_server
from tests.kit.places import V1, calling

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGE = {language: [each for each in blocks(ROOT / "docs" / "mounting.md") if each.language == language]
        for language in ("python", "sh")}  # fmt: skip

SEND = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


def pasted(number: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "main"}
    exec(compile(PAGE["python"][number].text, "main.py", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def said(http: aiohttp.ClientSession, path: str, **options: Any) -> tuple[int, Any]:
    async with http.post(path, json=SEND, **options) as answer:
        return answer.status, await answer.json()


async def test_the_first_application_serves_its_agents_beside_its_own_routes() -> None:
    async with uvicorn_server(pasted(0)["api"]) as url:
        walk = Walk({"8000": url})
        (words,) = commands(Block("sh", PAGE["sh"][0].text))
        await asyncio.to_thread(walk.curl, words)
        assert walk.texts() == ["3 2 1 "]
        async with calling(url, headers=V1) as http:
            async with http.get("/hello") as answer:
                assert await answer.json() == "a route of yours, beside the agents"
            for path in ("/.well-known", "/a2a/.well-known", "/a2a/agents/countdown/.well-known"):
                async with http.get(f"{path}/agent-card.json") as answer:
                    card = await answer.json()
                assert card["supportedInterfaces"][0]["url"].startswith(f"{url}/a2a/")


async def test_an_executor_of_the_official_sdk_with_its_card() -> None:
    from a2a.helpers import new_text_message
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.types import AgentCard

    class Travel(AgentExecutor):  # type: ignore[misc]
        async def execute(self, context: RequestContext, queue: EventQueue) -> None:
            await queue.enqueue_event(new_text_message(f"to {context.get_user_input()}"))

        async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
            raise NotImplementedError

    app = pasted(1)["make"](Travel(), AgentCard(name="The travel agency", description="Books trips", version="2.0"))
    async with uvicorn_server(app) as url, calling(url, headers=V1) as http:
        async with http.get("/agents/travel/.well-known/agent-card.json") as answer:
            assert (await answer.json())["name"] == "The travel agency"
        status, answered = await said(http, "/message:send")
        assert (status, answered["message"]["parts"][0]["text"]) == (200, "to hi")


async def test_a_lifespan_of_ones_own() -> None:
    async with uvicorn_server(pasted(2)["api"]) as url, calling(url, headers=V1) as http:
        assert (await said(http, "/a2a/message:send"))[0] == 200


async def test_callers_whom_the_application_knows() -> None:
    async with uvicorn_server(pasted(3)["api"]) as url, calling(url, headers=V1) as http:
        assert (await said(http, "/a2a/message:send"))[0] == 401
        assert (await said(http, "/a2a/message:send", headers={"cookie": "session=7d5f"}))[0] == 200
