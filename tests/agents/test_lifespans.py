"""Lifespans on a server in this process: what is opened and closed, how often, in which task, and what goes wrong."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest

from dragoman import Agent, Context, SyncContext
from dragoman.agents.lifetimes import AgentLifetimes
from dragoman.agents.python.threads import Threads
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.server import serving
from dragoman.server.errors import StartError
from dragoman.telemetry.job_group import JobGroup
from dragoman.testing import client

CONFIG = Config(port=0, store="memory:", shutdown_grace_s=2.0)


class Diary:
    """What lifespans did, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def opening(self, name: str, yielded: Any = None) -> Callable[[], AbstractAsyncContextManager[Any]]:
        """A lifespan that writes down that it was opened and closed."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            self.lines.append(f"open {name}")
            yield yielded
            self.lines.append(f"close {name}")

        return opened


def told(agent_id: str, **options: Any) -> Agent:
    """Tells the state of its lifespan."""
    agent = Agent(agent_id, **options)

    @agent.skill
    async def tell(ctx: Context) -> str:
        return str(ctx.state)

    return agent


async def refused(*agents: Agent) -> str:
    """Why a server with these agents does not start."""
    with pytest.raises(ExceptionGroup) as raised:
        async with serving(CONFIG, agents):
            pass
    (fault,) = raised.value.exceptions
    assert isinstance(fault, StartError)
    return str(fault)


async def test_the_state_is_what_the_lifespan_yields_in_coroutines_and_in_threads() -> None:
    agent = Agent("both", lifespan=Diary().opening("pool", {"pool": 1}))

    @agent.skill("async")
    async def on_loop(ctx: Context) -> str:
        return str(ctx.state)

    @agent.skill("plain")
    def in_thread(ctx: SyncContext) -> str:
        return f"{ctx.state} in a thread"

    async with client(agent) as connection:
        assert (await connection.conversation().say("")).text == "{'pool': 1}"
        assert (await connection.conversation().say("", skill="plain")).text == "{'pool': 1} in a thread"


async def test_one_without_a_parameter_is_opened_once_for_all_agents_that_name_it() -> None:
    diary = Diary()
    pool = diary.opening("pool", "the pool")
    async with client([told("a", lifespan=pool), told("b", lifespan=pool)], agent="b") as connection:
        assert (await connection.conversation().say("")).text == "the pool"
        assert diary.lines == ["open pool"]
    assert diary.lines == ["open pool", "close pool"]


async def test_one_that_takes_the_agent_is_opened_for_each() -> None:
    closed = []

    @asynccontextmanager
    async def own(agent: Agent) -> AsyncIterator[str]:
        yield f"for {agent.profile.id}"
        closed.append(agent.profile.id)

    async with client([told("a", lifespan=own), told("b", lifespan=own)], agent="b") as connection:
        assert (await connection.conversation().say("")).text == "for b"
    assert sorted(closed) == ["a", "b"]


async def test_it_is_closed_by_the_task_that_opened_it_so_that_it_may_hold_a_task_group() -> None:
    tasks = []

    @asynccontextmanager
    async def group() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup() as beside:
            work = beside.create_task(asyncio.sleep(3600))
            yield
            work.cancel()
        tasks.append(asyncio.current_task())

    async with client(told("grouped", lifespan=group)) as connection:
        await connection.conversation().say("")
    assert tasks[0] is tasks[1]


async def test_it_is_closed_after_the_last_task_of_the_server() -> None:
    diary, agent = Diary(), Agent("slow")
    begun, go = asyncio.Event(), asyncio.Event()
    agent = Agent("slow", lifespan=diary.opening("pool"))

    @agent.skill
    async def work(ctx: Context) -> str:
        begun.set()
        await go.wait()
        diary.lines.append("worked")
        return "done"

    async with serving(CONFIG, [agent]) as url, aiohttp.ClientSession(url, headers={"A2A-Version": "1.0"}) as http:
        parts = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
        sent = asyncio.create_task(_post(http, {**parts, "configuration": {"returnImmediately": True}}))
        await begun.wait()
        await sent
        asyncio.get_running_loop().call_later(0.2, go.set)
    assert diary.lines == ["open pool", "worked", "close pool"]


async def _post(http: aiohttp.ClientSession, body: Any) -> None:
    async with http.post("/message:send", json=body) as answer:
        assert answer.status == 200


async def test_one_that_fails_keeps_the_server_from_starting_and_closes_the_others() -> None:
    diary = Diary()

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise ConnectionError("no database\nat all")
        yield

    fault = await refused(told("good", lifespan=diary.opening("pool")), told("bad", lifespan=broken))
    assert fault.startswith("agent bad: its lifespan ")
    assert "failed with ConnectionError: no database at all (" in fault
    assert fault.endswith(f"{__file__.rpartition('/')[2]}:{broken.__wrapped__.__code__.co_firstlineno + 2})")  # type: ignore[attr-defined]
    assert diary.lines == ["open pool", "close pool"]


@pytest.mark.parametrize("error", [SystemExit(3), ExceptionGroup("several", [ValueError("one")])])
async def test_whatever_it_raises_is_a_fault_of_one_line(error: BaseException) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise error
        yield

    expected = "SystemExit: 3" if isinstance(error, SystemExit) else "ValueError: one"
    assert f"failed with {expected} (" in await refused(told("bad", lifespan=broken))


async def test_one_that_takes_too_long_is_told_with_the_line_at_which_it_waits() -> None:
    canceled = []

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.append(True)
            raise
        yield

    fault = await refused(told("late", lifespan=slow, lifespan_timeout_s=0.2))
    line = slow.__wrapped__.__code__.co_firstlineno + 3  # type: ignore[attr-defined]
    assert "took longer than lifespan_timeout_s = 0.2 to open, and waits at " in fault
    assert fault.endswith(f":{line}")
    assert canceled == [True]


async def test_a_shared_one_that_takes_too_long_is_a_fault_of_all_its_agents() -> None:
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await asyncio.sleep(3600)
        yield

    patient = told("patient", lifespan=slow, lifespan_timeout_s=60.0)
    assert "took longer" in await refused(told("late", lifespan=slow, lifespan_timeout_s=0.2), patient)


async def test_one_that_fails_as_it_closes_is_logged_and_the_server_stops_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()

    @asynccontextmanager
    async def sore() -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    async with client([told("sore", lifespan=sore), told("good", lifespan=diary.opening("pool"))]) as connection:
        await connection.conversation().say("")
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "agent sore: its lifespan" in record.getMessage()
    assert record.getMessage().endswith("failed as it closed: OSError: cannot close")
    assert diary.lines == ["open pool", "close pool"]


async def test_one_that_never_closes_is_canceled_within_the_grace_period(caplog: pytest.LogCaptureFixture) -> None:
    canceled = []

    @asynccontextmanager
    async def stuck() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.append(True)
            raise

    async with asyncio.timeout(60):
        async with serving(CONFIG, [told("stuck", lifespan=stuck)]):
            pass
    assert canceled == [True]
    assert "did not close in time, and waits at " in caplog.text


@pytest.mark.parametrize("turns", range(5))
async def test_one_whose_closing_a_stop_cuts_off_is_closed_by_the_stop(turns: int) -> None:
    """A reload closes the agents that it has replaced, whenever the server stops."""
    open_now: set[str] = set()
    closed: list[str] = []

    class Closed(Agent):
        async def close(self) -> None:
            await asyncio.sleep(0)
            closed.append(self.profile.id)

    @asynccontextmanager
    async def lifespan(agent: Runner) -> AsyncIterator[None]:
        open_now.add(agent.profile.id)
        yield
        open_now.remove(agent.profile.id)

    agents = [Closed(name, lifespan=lifespan) for name in ("one", "two")]
    lifetimes = AgentLifetimes(None, cast(WorkerTasks, None), Threads())
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        await lifetimes.open(JobGroup(tasks), agents)
        closing = asyncio.create_task(lifetimes.close_agents(agents))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        await lifetimes.close()
    assert open_now == set()
    assert sorted(closed) == ["one", "two"], "each once"


async def test_one_that_ends_while_it_is_in_use_makes_the_agent_degraded_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fall = asyncio.Event()

    async def fail() -> None:
        await fall.wait()
        raise ConnectionError("lost the database")

    @asynccontextmanager
    async def group() -> AsyncIterator[str]:
        async with asyncio.TaskGroup() as beside:
            beside.create_task(fail())
            yield "kept"

    async with serving(CONFIG, [told("frail", lifespan=group)]) as url, aiohttp.ClientSession(url) as http:
        fall.set()
        while "ended while it was in use: ConnectionError: lost the database" not in caplog.text:
            await asyncio.sleep(0.01)
        async with http.get("/ready") as answer:
            ready = await answer.json()
        assert answer.status == 200
        assert ready["degraded"] == {"frail": "what it needs has broken: the log says how"}
