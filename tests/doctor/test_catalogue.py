"""The doctor finds each fault of the catalogue, names it by the right check, and blames nothing else."""

import asyncio
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from dragoman.doctor.checks import CHECKS
from dragoman.doctor.finding import Color, Finding, judge_all
from dragoman.doctor.fixes import FIXES, fixes_of
from dragoman.doctor.identity import SIGNS, identify
from dragoman.doctor.observation import Attempt
from dragoman.doctor.observer import observe
from dragoman.doctor.trial import Wish
from tests.doctor.agent import Agent, AgentSubject, AgentWebhook, Plant, Reply
from tests.doctor.catalogue import FAULTS, OF_03, REST, Planted
from tests.virtual_time import in_virtual_time

WRONG = (Color.RED, Color.YELLOW)


async def examine(planted: Planted | None, of: tuple[str, str]) -> list[Finding]:
    agent = Agent(*of)
    if planted is not None:
        planted.plant(agent)
    subject = AgentSubject(agent, planted.key if planted else "")
    wish = Wish(webhooks=planted is None or planted.webhooks)
    seen = await observe(subject, wish, listen=lambda host: nullcontext(AgentWebhook(agent)))
    return [each for each in judge_all(CHECKS, seen) if each.color in WRONG]


@pytest.mark.parametrize("of", [("1.0", "JSONRPC"), REST, OF_03], ids="-".join)
@in_virtual_time
async def test_an_agent_without_faults_has_no_finding(of: tuple[str, str]) -> None:
    assert await examine(None, of) == []


@pytest.mark.parametrize("planted", FAULTS, ids=[each.name for each in FAULTS])
@in_virtual_time
async def test_a_planted_fault_is_found_and_named_and_nothing_else_is(planted: Planted) -> None:
    found = await examine(planted, planted.of)
    told = [f"{each.color.value} {each.check}: {each.observed}" for each in found]
    own = [each for each in found if each.check == planted.check]
    assert len(own) == 1, told
    assert own[0].color == (Color.YELLOW if planted.yellow else Color.RED), told
    assert re.search(planted.words, own[0].observed), own[0].observed
    assert planted.fix in (own[0].fix or "") or re.search(planted.fix, own[0].fix or ""), own[0].fix
    others = {each.check for each in found if each.check not in (planted.check, *planted.also)}
    assert not others, told


def never_ends(agent: Agent) -> None:
    """Its tasks work until they are canceled."""

    def stream(given: dict[str, Any]) -> Any:
        return [{"task": agent.begin(given, "TASK_STATE_WORKING")}]

    agent.methods["SendMessage"] = lambda given: {"task": agent.begin(given, "TASK_STATE_WORKING")}
    agent.methods["SendStreamingMessage"] = stream


def never_answers(agent: Agent) -> None:
    """It begins a task for a message, and never says so."""
    never_ends(agent)
    agent.replies.append(lambda name, reply: replace(reply, after_s=3600.0) if name == "SendMessage" else reply)


@pytest.mark.parametrize("plant", [never_ends, never_answers])
@in_virtual_time
async def test_every_task_that_was_begun_is_canceled(plant: Plant) -> None:
    agent = Agent()
    plant(agent)
    seen = await observe(AgentSubject(agent), Wish())
    assert {task["status"]["state"] for task in agent.tasks.values()} == {"TASK_STATE_CANCELED"}
    assert seen.attempts[Attempt.LEFT].listed == ()


@in_virtual_time
async def test_what_was_begun_is_canceled_if_the_examination_is_interrupted() -> None:
    agent = Agent()
    never_ends(agent)
    agent.replies.append(lambda name, reply: replace(reply, after_s=3.0) if name == "ListTasks" else reply)
    examination = asyncio.create_task(observe(AgentSubject(agent), Wish()))
    while "ListTasks" not in agent.asked:
        await asyncio.sleep(0.1)
    examination.cancel()
    with pytest.raises(asyncio.CancelledError):
        await examination
    assert {task["status"]["state"] for task in agent.tasks.values()} == {"TASK_STATE_CANCELED"}


@pytest.mark.parametrize("headers", [{"retry-after": "2"}, {}], ids=["with a wait", "without"])
@in_virtual_time
async def test_a_server_that_is_asked_too_much_is_waited_for(headers: dict[str, str]) -> None:
    agent = Agent()
    refused: set[str] = set()

    def once(name: str, reply: Reply) -> Reply:
        if name in ("card", "preflight", *refused):
            return reply
        refused.add(name)
        return Reply({"error": "slow down"}, status=429, headers={"content-type": "application/json", **headers})

    agent.replies.append(once)
    seen = await observe(AgentSubject(agent), Wish())
    assert "SendMessage" in refused
    assert [each for each in judge_all(CHECKS, seen) if each.color in WRONG] == []


@in_virtual_time
async def test_tasks_that_cannot_be_canceled_are_told() -> None:
    agent = Agent()
    agent.methods["CancelTask"] = lambda given: agent.tasks.get(given["id"])
    agent.methods["SendStreamingMessage"] = lambda given: [{"task": agent.begin(given, "TASK_STATE_WORKING")}]
    seen = await observe(AgentSubject(agent), Wish())
    assert len(seen.attempts[Attempt.LEFT].listed) == 2


def test_the_frameworks_fixes_are_of_servers_and_checks_that_there_are() -> None:
    assert FIXES.keys() <= {sign.name for sign in SIGNS}
    assert {check for fixes in FIXES.values() for check in fixes} <= {check.name for check in CHECKS}


@in_virtual_time
async def test_a_fix_is_that_of_the_framework_where_it_is_known() -> None:
    agent = Agent("0.3")
    agent.card["capabilities"]["google_a2a_compatible"] = True
    agent.replies.append(lambda name, reply: reply if name == "card" else Reply({"error_": "?"}, status=500))
    seen = await observe(AgentSubject(agent))
    found = judge_all(CHECKS, seen, fixes_of(identify(seen)))
    (fix,) = [each.fix for each in found if each.check == "endpoint-answers"]
    assert fix is not None
    assert fix.startswith("python-a2a's server speaks only its own format")


def test_the_catalogue_is_of_at_least_80_faults_and_of_most_checks() -> None:
    assert len(FAULTS) >= 80
    assert len({each.name for each in FAULTS}) == len(FAULTS)
    untried = {"endpoint-private", "tls", "authentication-declared", "authentication-challenge", "transport-security"}
    untried |= {"card-signature", "stream-resumed", "message-repeated", "task-foreign", "left-running"}
    assert {check.name for check in CHECKS} - {each.check for each in FAULTS} == untried
