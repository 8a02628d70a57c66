"""Several endpoints of one model: which one is asked, which one next, and what that costs; over real HTTP."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from dragoman.admin.overview import UpstreamLine
from dragoman.agents.breaker import State
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint, RetryPolicy
from dragoman.agents.model.probe import EndpointProbe
from dragoman.agents.tools import Tools
from dragoman.bindings.streams import Streams
from dragoman.config import Config, Model
from dragoman.config.pools import Strategy
from dragoman.config.upstreams import UpstreamCredentials
from dragoman.engine.switches import Switches
from dragoman.engine.upstream_notes import read_upstream_notes
from dragoman.model.card import Profile
from dragoman.model.task import ModelUsage, TaskState, Usage
from dragoman.server import serving
from dragoman.server.facts import ServedAgents
from dragoman.telemetry.job_group import JobGroup
from dragoman.testing import Ran, run
from dragoman.testing.agents import echo
from tests.agents.model.completions import (
    Completions,
    Script,
    called,
    completions,
    delta,
    event,
    refused,
    said,
    silent,
    usage,
    written,
)
from tests.agents.model.test_tool_loop import ADD, Adding
from tests.engine.house import house
from tests.kit.switches import board
from tests.kit.waiting import until

DEADLINE_S = 60.0
NOWHERE = "http://127.0.0.1:9/v1"

Apis = tuple[Completions, Completions]


@pytest.fixture
async def apis() -> AsyncIterator[Apis]:
    """Two endpoints, `eu` and `us`, which answer with their names."""
    async with AsyncExitStack() as stack:
        eu, us = [await stack.enter_async_context(completions()) for _ in range(2)]
        eu.answers(said("eu"))
        us.answers(said("us"))
        yield eu, us


def pool(
    *urls: str,
    strategy: Strategy = "failover",
    moves: bool = True,
    retries: int = 0,
    pause: Callable[[float], Awaitable[None]] | None = None,
    clock: Callable[[], float] | None = None,
    probe_s: float = 30.0,
    tools: Tools | None = None,
    weights: tuple[int, ...] = (1, 1, 1),
    **keys: Any,
) -> ChatAgent:
    async def soon(_: float) -> None:
        """Waits for nothing."""

    model = Model(**{"url": urls[0], "model": "small", "idle_s": 5.0, "coalesce_ms": 0, **keys})
    names = ("eu", "us", "zz")
    endpoints = [
        PoolEndpoint(
            replace(model, url=url, model=f"small-{name}", credentials=UpstreamCredentials(env="KEY")),
            f"key-{name}",
            name=name,
            order=place if strategy == "failover" else 0,
            weight=weights[place],
        )
        for place, (url, name) in enumerate(zip(urls, names, strict=False))
    ]
    given = {} if clock is None else {"clock": clock}
    return ChatAgent(
        Profile(id="agent", name="Chat", description="Chats", version="1", skills=()),
        model,
        ModelPool(endpoints, strategy, moves=moves, probe_s=probe_s, **given),
        tools=tools,
        retry=RetryPolicy(pause=pause or soon, retries=retries),
    )


def quick(*urls: str, moves: bool = True) -> ChatAgent:
    model = Model(url=urls[0], model="small", idle_s=0.6, answer_s=0.6, coalesce_ms=0)
    endpoints = [PoolEndpoint(replace(model, url=url), "", name=url[-9:-3], order=at) for at, url in enumerate(urls)]
    profile = Profile(id="chat", name="Chat", description="Chats", version="1", skills=())
    return ChatAgent(profile, model, ModelPool(endpoints, moves=moves), retry=RetryPolicy(retries=0))


async def asked(agent: ChatAgent) -> Ran:
    async with asyncio.timeout(DEADLINE_S):
        return await run(agent, "Hi")


async def test_the_first_one_that_answers_is_asked_with_its_own_key_and_model(apis: Apis) -> None:
    eu, us = apis
    agent = pool(eu.url, us.url)
    assert [(await asked(agent)).text for _ in range(2)] == ["eu", "eu"]
    assert (len(eu.asked), len(us.asked)) == (2, 0)
    assert (eu.body["model"], eu.asked[0].headers["authorization"]) == ("small-eu", "Bearer key-eu")
    eu.answers(refused(500))
    ran = await asked(agent)
    assert (ran.text, us.body["model"], us.asked[0].headers["authorization"]) == ("us", "small-us", "Bearer key-us")
    assert ran.usage.models == (ModelUsage("small-us", 7, 3, 10, upstream="us"),)
    await agent.close()


@pytest.mark.parametrize(
    ("script", "moves_anyway"),
    [
        (refused(500), False),
        (refused(503), False),
        (refused(503, headers={"Retry-After": "30"}), True),
        (refused(429), True),
        (refused(429, {"message": "pay", "code": "insufficient_quota"}), True),
        (refused(401), True),
        (refused(404), True),
        (written(event(delta("Hal")), ends=False), False),
        (written(event(delta("Hal"))), False),
        (written(b"<html>"), True),
        (written(event(delta("Hal")) + event({"error": {"message": "overloaded", "code": 500}})), False),
        (silent("Hal"), False),
        (silent(), False),
    ],
)
async def test_a_call_moves_where_the_trouble_is_with_the_endpoint(
    apis: Apis, script: Script, moves_anyway: bool
) -> None:
    """With `move_models = false` only a call moves that the endpoint has certainly not worked on."""
    eu, us = apis
    eu.answers(script)
    agent = quick(eu.url, us.url)
    ran = await asked(agent)
    assert (ran.state, ran.text, len(eu.asked), len(us.asked)) == (TaskState.COMPLETED, "us", 1, 1)
    await agent.close()
    stays = quick(eu.url, us.url, moves=False)
    assert ((await asked(stays)).state is TaskState.COMPLETED) == moves_anyway
    assert len(us.asked) == 1 + moves_anyway
    await stays.close()


@pytest.mark.parametrize(
    "script",
    [
        refused(400, {"message": "too long", "code": "context_length_exceeded"}),
        refused(400, {"message": "no", "code": "content_filter"}),
        refused(400),
    ],
)
async def test_a_call_that_no_endpoint_would_take_does_not_move(apis: Apis, script: Script) -> None:
    eu, us = apis
    eu.answers(script)
    agent = pool(eu.url, us.url)
    assert (await asked(agent)).state in (TaskState.FAILED, TaskState.REJECTED)
    assert not us.asked
    await agent.close()


async def test_what_was_shown_of_the_first_answer_is_replaced_and_its_tokens_are_uncertain(apis: Apis) -> None:
    eu, us = apis
    eu.answers(written(event(delta("Half of an ans")), ends=False))
    agent = pool(eu.url, us.url)
    ran = await asked(agent)
    assert ran.text == "us"
    assert [(chunk.append, chunk.artifact.parts[0].text) for chunk in ran.chunks if chunk.artifact.parts][:2] == [
        (False, "Half of an ans"),
        (False, "us"),
    ]
    assert ran.usage == Usage.unknown("small-eu", "eu") + Usage.of(7, 3, model="small-us", upstream="us")
    await agent.close()


async def test_tokens_of_a_broken_answer_are_counted_where_they_were_told(apis: Apis) -> None:
    eu, us = apis
    eu.answers(written(event(delta("Hal")) + event(usage(100, 2)), ends=False))
    agent = pool(eu.url, us.url)
    first = Usage.of(100, 2, model="small-eu", upstream="eu")
    assert (await asked(agent)).usage == first + Usage.of(7, 3, model="small-us", upstream="us")
    await agent.close()


async def test_nobody_charges_for_an_error_or_where_nobody_is(apis: Apis) -> None:
    eu, us = apis
    eu.answers(refused(500))
    agent = pool(NOWHERE, eu.url, us.url)
    assert (await asked(agent)).usage == Usage.of(7, 3, model="small-zz", upstream="zz")
    await agent.close()


@pytest.mark.parametrize("status", [502, 504, 524])
async def test_a_model_that_a_proxy_gave_up_on_may_charge_for_its_answer(apis: Apis, status: int) -> None:
    eu, us = apis
    eu.answers(refused(status))
    agent = pool(eu.url, us.url)
    uncertain = Usage.unknown("small-eu", "eu")
    assert (await asked(agent)).usage == uncertain + Usage.of(7, 3, model="small-us", upstream="us")
    await agent.close()


async def test_each_endpoint_is_asked_once_before_one_is_asked_again(apis: Apis) -> None:
    eu, us = apis
    order: list[str] = []
    waited: list[float] = []

    def noting(name: str, script: Script) -> Script:
        async def noted(answering: Any) -> None:
            order.append(name)
            await script(answering)

        return noted

    async def pause(wait_s: float) -> None:
        waited.append(wait_s)

    eu.answers(noting("eu", refused(500)), noting("eu", refused(429, headers={"Retry-After": "3"})))
    us.answers(noting("us", refused(503, headers={"Retry-After": "2"})), noting("us", said("Hello.")))
    agent = pool(eu.url, us.url, retries=3, pause=pause)
    assert (await asked(agent)).text == "Hello."
    assert order == ["eu", "us", "eu", "us"]
    assert len(waited) == 2
    assert waited[0] < 1
    assert waited[1] == 2, "as long as the endpoint asked for"
    await agent.close()


async def test_without_an_answer_the_task_ends_by_what_may_pass(apis: Apis) -> None:
    eu, us = apis
    eu.answers(refused(429, headers={"Retry-After": "30"}))
    us.answers(refused(401))
    agent = pool(eu.url, us.url)
    status = (await asked(agent)).record.status
    assert status.message is not None
    assert (status.message.metadata or {})["reason"] == "model_busy"
    await agent.close()


async def test_an_endpoint_that_asks_for_a_pause_is_asked_last_until_then(apis: Apis) -> None:
    eu, us = apis
    now = [100.0]
    eu.answers(refused(429, headers={"Retry-After": "30"}), said("eu"))
    agent = pool(eu.url, us.url, clock=lambda: now[0])
    assert [(await asked(agent)).text for _ in range(2)] == ["us", "us"]
    assert len(eu.asked) == 1
    us.answers(refused(500))
    assert (await asked(agent)).text == "eu", "rather than nobody"
    us.answers(said("us"))
    assert (await asked(agent)).text == "us"
    now[0] += 31
    assert (await asked(agent)).text == "eu"
    await agent.close()


async def test_each_endpoint_has_a_breaker(apis: Apis) -> None:
    eu, us = apis
    eu.answers(refused(500))
    agent = pool(eu.url, us.url, failures=2, pause_s=300)
    assert [(await asked(agent)).text for _ in range(5)] == ["us"] * 5
    assert len(eu.asked) == 2
    assert agent.degraded == "1 of its 2 endpoints do not answer: calls to eu are held back for a while"
    assert not agent.offline
    us.answers(refused(500))
    await asked(agent)
    await asked(agent)
    assert agent.offline
    assert "'agent' cannot be reached" in str(agent.refusal())
    await agent.close()


@pytest.mark.parametrize(("strategy", "share"), [("round_robin", {"eu": 4, "us": 4}), ("weighted", {"eu": 6, "us": 2})])
async def test_calls_are_shared_out(apis: Apis, strategy: Strategy, share: dict[str, int]) -> None:
    eu, us = apis
    agent = pool(eu.url, us.url, strategy=strategy, weights=(3, 1, 1))
    assert Counter([(await asked(agent)).text for _ in range(8)]) == share
    await agent.close()


async def test_the_least_busy_one_is_asked(apis: Apis) -> None:
    eu, us = apis
    eu.answers(silent("…"))
    agent = pool(eu.url, us.url, strategy="least_busy")
    open_call = asyncio.create_task(asked(agent))
    async with asyncio.timeout(DEADLINE_S):
        await eu.arrived.wait()
    assert {(await asked(agent)).text for _ in range(4)} == {"us"}
    open_call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await open_call
    eu.answers(said("eu"))
    assert Counter([(await asked(agent)).text for _ in range(4)]) == {"eu": 2, "us": 2}
    await agent.close()


async def test_no_call_goes_to_an_endpoint_that_an_operator_has_switched(apis: Apis) -> None:
    eu, us = apis
    agent = pool(eu.url, us.url)
    assert agent.members == ("eu", "us")
    async with board() as at:
        agent.heed(at.switches)
        await at.set("agent/eu", "disabled")
        assert [(await asked(agent)).text, agent.offline] == ["us", False]
        us.answers(refused(500))
        assert (await asked(agent)).state is TaskState.FAILED
        assert len(eu.asked) == 0, "nor if there is no other one"
        us.answers(said("us"))
        await at.set("agent/us", "draining")
        assert agent.offline
        assert str(agent.refusal()) == "agent 'agent' is offline: all of its servers are out of service at present"
        await at.set("agent/eu", "enabled")
        assert [(await asked(agent)).text, agent.offline] == ["eu", False]
    await agent.close()


async def test_every_endpoint_is_checked(apis: Apis) -> None:
    eu, us = apis
    eu.models = {"data": [{"id": "small-eu"}]}
    us.models = {"data": [{"id": "other"}]}
    agent = pool(eu.url, us.url)
    found = [(finding.ok, finding.what) async for finding in agent.check()]
    assert [ok for ok, _ in found] == [True, True, True, False]
    assert found[1][1].startswith("eu: ")
    assert found[3][1] == "us: it has no model small-us"


async def test_an_endpoint_that_is_away_is_found_and_one_that_is_back_is_tried(apis: Apis) -> None:
    eu, _ = apis
    endpoints = [PoolEndpoint(Model(url=url, model="m", failures=2, pause_s=300), "") for url in (eu.url, NOWHERE)]
    probe = EndpointProbe("chat", ModelPool(endpoints), lambda: 0.5)
    for each in endpoints * 3:
        await probe.look(each)
    assert [each.ready for each in endpoints] == [True, False]
    eu.model_status = 503
    await probe.look(endpoints[0])
    await probe.look(endpoints[0])
    assert not endpoints[0].ready
    eu.model_status = 429
    await probe.look(endpoints[0])
    assert endpoints[0].ready
    assert endpoints[0].endpoint.breaker.state is State.HALF_OPEN, "the next call decides"
    assert not eu.asked, "and no token was asked for"


async def test_several_endpoints_are_looked_at_while_the_agent_is_open(apis: Apis) -> None:
    eu, us = apis
    agent = pool(eu.url, us.url, probe_s=0.05, failures=1, pause_s=300)
    eu.model_status = 500
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        await agent.open(JobGroup(group))
        while agent.degraded is None:
            await asyncio.sleep(0.01)
        assert "calls to eu are held back" in agent.degraded
        eu.model_status = 200
        while not all(each.ready for each in agent.pool.endpoints):
            await asyncio.sleep(0.01)
        await agent.close()


async def test_a_single_endpoint_is_looked_at_while_its_calls_are_held_back(apis: Apis) -> None:
    """Not for as long as the pause of its breaker, which grows to five minutes."""
    eu, _ = apis
    endpoint = PoolEndpoint(Model(url=eu.url, model="m", failures=1, pause_s=300), "")
    probe = EndpointProbe("chat", ModelPool([endpoint], probe_s=0.01), lambda: 0.5)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        watching = group.create_task(probe.watch())
        endpoint.endpoint.record_failure("chat")
        assert not endpoint.ready
        await until(lambda: endpoint.ready)
        watching.cancel()


async def test_an_answer_that_is_recorded_is_not_asked_for_again_at_another_endpoint(
    apis: Apis, tmp_path: Path
) -> None:
    """The server dies within the second answer of one endpoint. The task goes on at the other one, from the record."""
    eu, us = apis
    tools = Adding()
    url = f"sqlite:///{tmp_path / 'store.db'}"
    eu.answers(called(("c1", "add", ADD)), silent("It is"))
    us.answers(said("It is 3."))
    agent = pool(eu.url, us.url, tools=tools)
    async with house(agent, url=url, crashes=True) as here:
        task_id = await here.begin()
        while len(eu.asked) < 2:
            await asyncio.sleep(0.01)
    await agent.close()
    eu.answers(refused(500))
    again = pool(eu.url, us.url, tools=tools)
    async with house(again, url=url) as here:
        record = await here.reach(task_id, TaskState.COMPLETED)
    await again.close()
    assert [artifact.parts[0].text for artifact in record.artifacts] == ["It is 3."]
    assert (len(eu.asked), len(us.asked), len(tools.calls)) == (3, 1, 1)
    assert [message["role"] for message in us.body["messages"]] == ["user", "assistant", "tool"]
    assert record.usage is not None
    assert [(each.upstream, each.input_tokens) for each in record.usage.models] == [("eu", 7), ("us", 7)]


async def test_operators_read_of_each_attempt_why_it_gave_no_answer(
    apis: Apis, caplog: pytest.LogCaptureFixture
) -> None:
    eu, us = apis
    eu.answers(refused(429, {"message": "slow down", "code": "rate_limit_exceeded"}))
    agent = pool(NOWHERE, eu.url, us.url)
    note = (await asked(agent)).record.note
    await agent.close()
    attempts = read_upstream_notes(note or {}).attempts
    assert [(each.member, each.reason) for each in attempts] == [("eu", "model_unreachable"), ("us", "model_busy")]
    assert "127.0.0.1:9" in attempts[0].why
    assert attempts[1].why == "status 429 rate_limit_exceeded slow down"
    assert "us did not answer (model_busy): zz is asked in 0.0 s" in caplog.text


async def test_one_endpoint_leaves_no_notes(apis: Apis) -> None:
    eu, _ = apis
    eu.answers(refused(500), said("Hello."))
    model = Model(url=eu.url, model="small")
    profile = Profile(id="agent", name="Chat", description="Chats", version="1", skills=())
    agent = ChatAgent(profile, model, ModelPool([PoolEndpoint(model, "")]), retry=RetryPolicy(chance=lambda: 0.0))
    assert (await asked(agent)).record.note is None
    await agent.close()


async def test_operators_see_how_calls_of_each_endpoint_went(apis: Apis) -> None:
    eu, us = apis
    eu.answers(refused(500), written(event(delta("Hal")), ends=False), silent("…"))
    agent = pool(eu.url, us.url, failures=9)
    assert [(await asked(agent)).text for _ in range(2)] == ["us", "us"]
    open_call = asyncio.create_task(asked(agent))
    async with asyncio.timeout(DEADLINE_S):
        while len(eu.asked) < 3:
            await asyncio.sleep(0.01)
    facts = ServedAgents({"agent": agent, "echo": echo}, Streams(), Switches())
    assert facts.upstreams() == tuple(
        UpstreamLine(
            agent="agent", member=name, url=api.url, breaker="closed", order=order, weight=1, open=busy, **outcomes
        )
        for name, api, order, busy, outcomes in (
            ("eu", eu, 0, 1, {"succeeded": 0, "refused": 1, "failed": 1}),
            ("us", us, 1, 0, {"succeeded": 2, "refused": 0, "failed": 0}),
        )
    )
    open_call.cancel()
    await asyncio.gather(open_call, return_exceptions=True)
    assert agent.endpoints[0].busy == 0
    await agent.close()


async def test_metrics_tell_the_endpoints_apart(apis: Apis) -> None:
    eu, us = apis
    eu.answers(refused(500))
    agent = pool(eu.url, us.url, failures=1, pause_s=300)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(Config(port=0, store="memory:", shutdown_grace_s=0.1), [agent]) as url,
        ClientSession(url) as http,
    ):
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}}
        async with http.post("/message:send", json=body, headers={"A2A-Version": "1.0"}) as answer:
            assert (await answer.json())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        async with http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
    for sample in (
        'dragoman_upstream_calls_total{agent="agent",member="eu",outcome="refused"} 1.0',
        'dragoman_upstream_calls_total{agent="agent",member="us",outcome="succeeded"} 1.0',
        'dragoman_upstream_state{agent="agent",member="eu",state="open"} 1.0',
    ):
        assert sample in lines
