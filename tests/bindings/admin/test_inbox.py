"""The inbox: what waits for a person, and who of several answers it."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context, Part
from dragoman.model.principal import AccessRole
from tests.bindings.admin.test_admin import make_keys, make_task, read
from tests.kit import places
from tests.kit.places import V1, bearer, sqlite_url


def agents() -> list[Agent]:
    """Agents that wait for a word, an approval, a login, and for the question of another one."""
    asks, approves, login, chief = Agent("asks"), Agent("approves"), Agent("login"), Agent("chief")

    @asks.skill
    async def ask(ctx: Context) -> str:
        """Ask twice."""
        ctx.title(f"About {ctx.text}")
        return f"{await ctx.ask('Which way?')}, {await ctx.ask('How far?')}"

    @approves.skill
    async def approve(ctx: Context) -> str:
        """Ask for approval, as the adapters of frameworks do."""
        asked = Part(text="May pay be called? Answer yes or no."), Part(data={"approval": {"tool": "pay"}})
        return await ctx.ask(list(asked))

    @login.skill
    async def sign_in(ctx: Context) -> str:
        """Ask for a login."""
        return await ctx.require_auth("Log in at example.org")

    @chief.skill
    async def share(ctx: Context) -> str:
        """Pass the questions of another agent on."""
        return (await ctx.delegate("asks", ctx.text)).text

    return [asks, approves, login, chief]


async def _wait(http: aiohttp.ClientSession, agent: str, text: str) -> str:
    """Send a message whose task waits for its caller; returns the id."""
    sent = {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}
    async with http.post(f"/agents/{agent}/message:send", json=sent, headers=V1) as answer:
        task = (await answer.json())["task"]
        assert task["status"]["state"] in ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")
        return str(task["id"])


async def test_the_longest_waiting_comes_first_with_its_words_and_what_is_passed_on_once(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with places.server(*agents(), store=store) as http:
        ops = bearer(store)
        assert await read(http, "/inbox", ops) == (200, {"waiting": [], "total": 0, "next_cursor": ""})
        made = [await _wait(http, agent, agent) for agent in ("login", "chief", "approves", "asks")]
        status, page = await read(http, "/inbox", ops)
        assert (status, page["total"], page["next_cursor"]) == (200, 4, "")
        assert [line["task"]["id"] for line in page["waiting"]] == made
        assert [(line["asks"], line["question"]["parts"][0]["text"]) for line in page["waiting"]] == [
            ("sign-in", "Log in at example.org"),
            ("question", "Which way?"),
            ("approval", "May pay be called? Answer yes or no."),
            ("question", "Which way?"),
        ]
        assert page["waiting"][3]["task"]["title"] == "About asks"
        seen: list[str] = []
        cursor = ""
        while len(seen) < 10:
            _, page = await read(http, f"/inbox?limit=1&cursor={cursor}", ops)
            seen += [line["task"]["id"] for line in page["waiting"]]
            assert page["total"] == 4
            if not (cursor := page["next_cursor"]):
                break
        assert seen == made
        assert await read(http, "/inbox?limit=0", ops) == (200, {"waiting": [], "total": 4, "next_cursor": ""})


async def _question(http: aiohttp.ClientSession, ops: dict[str, str]) -> dict[str, Any]:
    _, page = await read(http, "/inbox", ops)
    (line,) = page["waiting"]
    return {"question": line["question"]["messageId"]}


@pytest.mark.parametrize("quicker", ["key:ann", "its caller", "nobody"])
async def test_whoever_answers_a_question_too_late_is_told_who_was_quicker(tmp_path: Path, quicker: str) -> None:
    """Also if the task asks again meanwhile: the answer to one question never becomes that to another one."""
    store = sqlite_url(tmp_path)
    keys = await make_keys(
        store,
        cat=(AccessRole.CALLER, None),
        ann=(AccessRole.OPERATOR, None),
        bob=(AccessRole.OPERATOR, None),
    )
    async with places.server(*agents(), store=store) as http:
        task = await make_task(http, "asks", "hi", keys["cat"])
        first = await _question(http, keys["ann"])
        answer = {"parts": [{"text": "left"}], **first}
        if quicker == "its caller":
            sent = {"message": {"messageId": "m2", "taskId": task, "role": "ROLE_USER", "parts": [{"text": "right"}]}}
            async with http.post("/agents/asks/message:send", json=sent, headers=V1 | keys["cat"]) as said:
                assert (await said.json())["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        elif quicker == "nobody":
            await read(http, f"/tasks/{task}:cancel", keys["ann"], "POST")
        else:
            status, _ = await read(http, f"/tasks/{task}:answer", keys["ann"], "POST", json=answer)
            assert status == 200
            async with asyncio.timeout(places.DEADLINE_S):
                while (await read(http, "/inbox?limit=0", keys["ann"]))[1]["total"] == 0:
                    await asyncio.sleep(0)
        status, refused = await read(http, f"/tasks/{task}:answer", keys["bob"], "POST", json=answer)
        assert status == 400
        told = {"nobody": "the question needs no answer any more: the task is canceled"}
        assert told.get(quicker, f"{quicker} has answered this question already, at ") in refused["error"]["message"]
        if quicker != "nobody":
            second = await _question(http, keys["bob"])
            assert second != first
            body = {"parts": [{"text": "far"}], **second}
            assert (await read(http, f"/tasks/{task}:answer", keys["bob"], "POST", json=body))[0] == 200
