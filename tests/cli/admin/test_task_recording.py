"""Steps in the log of a task, and a task that is recorded: the real command."""

import asyncio
import json
import re
from pathlib import Path

import aiohttp
import msgspec

from dragoman import Agent, Context, StepFailed
from dragoman.admin.logs import RecordedTask
from dragoman.model.events import Stepped
from tests.cli.admin.site import make_task, site


def paying() -> Agent:
    """An agent with three steps: the first works at the second attempt, the last must not be done twice."""
    agent, calls = Agent("pay"), []

    def charge() -> dict[str, int]:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the bank is away")
        return {"paid": 5}

    def refuse() -> None:
        raise ValueError("no such card")

    @agent.skill
    async def pay(ctx: Context) -> str:
        await ctx.step("charge", charge, key="order 7", retries=1, backoff_s=0.01)
        try:
            await ctx.step("refuse", refuse)
        except StepFailed:
            await ctx.step("warn", lambda: "the bank", at_most_once=True)
            return await ctx.ask("again?")
        return "paid"

    return agent


async def test_a_log_shows_steps_and_a_recording_has_them(tmp_path: Path) -> None:
    async with site(tmp_path, paying()) as here:
        async with aiohttp.ClientSession(here.url) as http:
            task = await make_task(http, "pay", "please")
        shown = (await here.admin("tasks", "log", task)).out.splitlines()
        charged, refused, begun, warned = (line for line in shown if " step " in line)
        assert re.search(r"  3  step charge order 7 \(2 attempts, \d+ ms\)$", charged), charged
        assert re.search(r"  4  step refuse \(\d+ ms\) failed +ValueError: no such card$", refused), refused
        assert re.search(r"  5  step warn begun$", begun), begun
        assert re.search(r"  6  step warn \(\d+ ms\)$", warned), warned
        told = (await here.admin("tasks", "log", task, "-o", "json")).out.splitlines()
        keys = [entry["key"] for entry in map(json.loads, told) if entry["kind"] == "step"]
        assert keys == ["order 7", None, None]
        local = await here.admin("tasks", "record", task)
        served = await here.admin("tasks", "record", task, "--server", here.url)
        assert (local.status, local.err, served) == (0, "", local)
        recording = msgspec.json.decode(local.out, type=RecordedTask)
        assert [event.name for event in recording.events if isinstance(event, Stepped)] == ["charge", "refuse", "warn"]
        assert len(recording.events) == recording.seq == json.loads(local.out)["seq"]
        none = await here.admin("tasks", "record", "none")
        assert (none.status, none.out, len(none.err.splitlines())) == (1, "", 1)
    trail = [json.loads(line) for line in (await here.run("audit", "--json")).out.splitlines()]
    assert {entry["task_id"] for entry in trail if entry["action"] == "tasks.record"} == {task, "none"}


async def test_tasks_that_sleep_can_be_listed_alone(tmp_path: Path) -> None:
    agent = Agent("rest")

    @agent.skill
    async def rest(ctx: Context) -> str:
        """Rest."""
        await ctx.sleep("2h")
        return "rested"

    async with site(tmp_path, agent, blocking_timeout_s=0.5) as here:
        async with aiohttp.ClientSession(here.url) as http:
            task = await make_task(http, "rest", "please")  # it sleeps for longer than its caller waits
        async with asyncio.timeout(60):
            while "sleeping" not in (await here.admin("tasks", "list")).out:
                await asyncio.sleep(0.1)
        for flags, expected in ((("--sleeping",), {task}), (("--not-sleeping",), {here.echo, here.other})):
            shown = await here.admin("tasks", "list", *flags, "-o", "json")
            assert {line["id"] for line in json.loads(shown.out)["tasks"]} == expected, shown
        wrong = await here.admin("tasks", "list", "--sleeping", "--order", "newest-changed")
        assert (wrong.status, "sleeping" in wrong.err and "which no index answers" in wrong.err) == (1, True), wrong
