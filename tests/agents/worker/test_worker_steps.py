"""Steps of workers: executed by a process elsewhere, recorded once, and not executed again by a later worker."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from msgspec import Struct
from msgspec.structs import replace

from dragoman import Agent, Context, StepFailed
from dragoman.agents.worker import lessee, wire
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.engine.api import Runner
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing.loopback import CONFIG
from tests.kit.agents import hired
from tests.kit.waiting import no_hang
from tests.kit.workers import WorkerDoor
from tests.soak import times

NEVER_S = 1000.0

T = TypeVar("T")


@asynccontextmanager
async def site(tmp_path: Path, **settings: Any) -> AsyncIterator[WorkerDoor]:
    """A server whose agent `far` is done by workers, and a door for them."""
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}", **settings)
    async with (
        no_hang(),
        serving(config, [hired("far", lease_s=NEVER_S)]) as url,
        aiohttp.ClientSession(url) as http,
    ):
        door = WorkerDoor([http])
        door.url = url  # type: ignore[attr-defined]
        yield door


async def leased(door: WorkerDoor, **said: Any) -> tuple[str, str]:
    """A task, and the lease of a worker that has it."""
    task = await door.send()
    return task["id"], (await door.take(replays=True, **said))["lease"]


async def taken_again(door: WorkerDoor, lease: str, **said: Any) -> str:
    """The lease of the worker that gets the task after this one."""
    assert (await door.act("release", {"lease": lease}))[0] == 204
    return str((await door.take(**{"replays": True, **said}))["lease"])


# -- any worker over HTTP ----------------------------------------------------------------------------------------------


async def test_a_step_is_run_once_and_answers_what_is_recorded(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        step = {"number": 1, "name": "charge", "key": "k"}
        for _ in range(2):  # the first answer was lost
            assert await door.report("step", lease, **step) == {"run": True, "key": f"{task_id}:1"}
        result = {"receipt": [1, 2.5, None, "é"]}
        for _ in range(2):
            told = await door.report("step-result", lease, **step, result=result, attempts=2)
            assert told == {"key": f"{task_id}:1", "result": result, "attempts": 2}
        later = await taken_again(door, lease)
        assert (await door.report("step", later, **step))["result"] == result
        assert (await door.act("step", {"lease": lease, **step}))[0] == 409
        assert (await door.act("step-result", {"lease": lease, **step, "result": 3}))[0] == 409


async def test_a_failure_comes_back_alike(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        failure = {"type": "Declined", "text": "no money"}
        await door.report("step-result", lease, number=1, name="charge", failure=failure)
        later = await taken_again(door, lease)
        assert (await door.report("step", later, number=1, name="charge"))["failure"] == failure


async def test_what_is_given_without_a_step_before_is_recorded_as_it_came_first(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        first = await door.report("step-result", lease, number=1, name="now", result="2026-01-01T00:00:00Z")
        later = await taken_again(door, lease)
        second = await door.report("step-result", later, number=1, name="now", result="2027-01-01T00:00:00Z")
        assert (first["result"], second["result"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("replays", [True, False])
async def test_a_large_result_is_kept_as_a_file_and_comes_back_whole(tmp_path: Path, replays: bool) -> None:
    text, raw = "x" * 1_001_000, "QUJD" * 250_000  # longer than what the log holds
    async with site(tmp_path, files=f"folder:{tmp_path / 'blobs'}", files_above=1000) as door:
        _, lease = await leased(door)
        await door.report("step-result", lease, number=1, name="json", result={"text": text})
        parts = [{"raw": raw, "filename": "a.bin"}]
        reply = await door.report("step-result", lease, number=2, name="file", parts=parts)
        assert "parts" not in reply  # its worker has just sent them
        later = await taken_again(door, lease, replays=replays)
        assert (await door.report("step", later, number=1, name="json"))["result"] == {"text": text}
        assert (await door.report("step", later, number=2, name="file"))["parts"] == parts
        assert sum(file.stat().st_size for file in (tmp_path / "blobs").rglob("*") if file.is_file()) > 1_700_000


async def test_reports_before_the_last_recorded_step_are_not_told_again(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.say(lease, "one ", 1)
        await door.report("step-result", lease, number=1, name="a", result=1)
        await door.say(lease, "two ", 2)
        await door.report("step-result", lease, number=2, name="b", result=2)
        await door.say(lease, "lost", 3)
        later = await taken_again(door, lease)
        for number, text in enumerate(("one ", "two ", "three"), 1):
            if number > 1:
                assert "result" in await door.report("step", later, number=number - 1, name="ab"[number - 2])
            await door.say(later, text, number)
        await door.report("complete", later)
        assert (await door.task(task_id))["artifacts"][0]["parts"] == [{"text": "one two three"}]


@pytest.mark.parametrize("call", ["step", "step-result"])
async def test_another_step_than_is_recorded_ends_the_task(tmp_path: Path, call: str) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.report("step-result", lease, number=1, name="charge", result=1)
        later = await taken_again(door, lease)
        body = {"lease": later, "number": 1, "name": "ship"} | ({"result": 2} if call == "step-result" else {})
        assert (await door.act(call, body))[0] == 409
        status = (await door.task(task_id))["status"]
        assert status["message"]["metadata"] == {"reason": "replay_mismatch"}
        assert "At place 1, the step “charge” is recorded, but the step “ship” came." in str(status["message"]["parts"])


async def test_a_worker_that_ends_without_its_recorded_steps_has_not_repeated_itself(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.report("step-result", lease, number=1, name="charge", result=1)
        await door.act("complete", {"lease": await taken_again(door, lease)})
        assert (await door.task(task_id))["status"]["message"]["metadata"] == {"reason": "replay_mismatch"}


async def test_one_step_too_many_ends_the_task(tmp_path: Path) -> None:
    async with site(tmp_path, max_steps=2) as door:
        task_id, lease = await leased(door)
        for number in (1, 2):
            await door.report("step-result", lease, number=number, name="a", result=number)
        assert (await door.act("step", {"lease": lease, "number": 3, "name": "a"}))[0] == 409
        message = (await door.task(task_id))["status"]["message"]
        assert message["metadata"] == {"reason": "too_many_steps"}
        assert "max_steps" in str(message["parts"])


async def test_a_step_that_must_not_run_twice_fails_the_task_if_it_may_have_run(tmp_path: Path) -> None:
    step = {"number": 1, "name": "charge", "at_most_once": True}
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        for _ in range(2):  # the first answer was lost
            assert (await door.report("step", lease, **step))["run"]
        later = await taken_again(door, lease)
        assert (await door.act("step", {"lease": later, **step}))[0] == 409
        assert (await door.task(task_id))["status"]["message"]["metadata"] == {"reason": "step_uncertain"}


async def test_a_worker_may_decide_about_a_step_that_may_have_run(tmp_path: Path) -> None:
    step = {"number": 1, "name": "charge", "at_most_once": True}
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.report("step", lease, **step)
        for begun in (1, 2):
            lease = await taken_again(door, lease)
            key = f"{task_id}:1"
            assert await door.report("step", lease, **step, uncertain=0) == {"key": key, "uncertain": begun}
            for _ in range(2):
                assert await door.report("step", lease, **step, uncertain=begun) == {"key": key, "run": True}
        await door.report("step-result", lease, number=1, name="charge", result="paid")
        assert (await door.report("step", await taken_again(door, lease), **step))["result"] == "paid"


@pytest.mark.parametrize(
    ("call", "body", "text"),
    [
        ("step", {"name": "a"}, "number: is missing"),
        ("step", {"name": "a", "number": 0}, "number: is missing"),
        ("step", {"name": "a", "number": -1}, "number"),
        ("step", {"name": "a", "number": 1, "place": "1"}, "number: goes without a place"),
        ("step", {"name": "a", "place": "1"}, "number: is missing"),
        ("step", {"name": "", "number": 1}, "name is empty"),
        ("step", {"number": 1}, "name"),
        ("step", {"name": "a" * 2000, "number": 1}, "name"),
        ("step", {"name": "a", "number": 1, "key": 5}, "key"),
        ("step-result", {"name": "a", "number": 1}, "result: give one of result, parts and failure"),
        ("step-result", {"name": "a", "number": 1, "result": 1, "parts": []}, "result: give one of"),
        ("step-result", {"name": "a", "number": 1, "parts": [{}]}, "parts"),
        ("step-result", {"name": "a", "number": 1, "result": 1, "attempts": -1}, "attempts"),
        ("step-result", {"name": "a", "number": 1, "result": 1, "took_ms": -1}, "took_ms"),
        ("step-result", {"name": "a", "number": 1, "failure": {"text": "no"}}, "type"),
    ],
)
async def test_what_is_no_step_is_refused_and_named(tmp_path: Path, call: str, body: dict[str, Any], text: str) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        status, answer = await door.act(call, {"lease": lease, **body})
        assert (status, text in answer["error"]["message"]) == (400, True), answer
        assert (await door.report("step", lease, name="a", number=1))["run"]  # it has the task still


async def test_a_step_may_be_begun_while_a_question_is_open_and_is_recorded_after_it(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        assert (await door.report("ask", lease, question=1, message="what?"))["answer"] is None
        assert (await door.report("step", lease, number=1, name="a"))["run"]
        status, answer = await door.act("step-result", {"lease": lease, "number": 1, "name": "a", "result": 1})
        assert (status, "waits for its caller" in answer["error"]["message"]) == (400, True)
        await door.send("this", taskId=task_id)
        assert (await door.report("ask", lease, question=1, message="what?", wait_s=5))["answer"] is not None
        assert (await door.report("step-result", lease, number=1, name="a", result=1))["result"] == 1


async def test_tokens_of_a_step_count_once(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        for _ in range(2):
            usage = {"input": 1, "output": 2}
            await door.report("step-result", lease, number=1, name="model", result=1, usage=usage)
        await door.report("complete", lease)
        used = (await door.task(task_id))["metadata"]["urn:dragoman:usage:v1"]
        assert used["totalTokens"] == 3


# -- `dragoman worker` -------------------------------------------------------------------------------------------------


class Mortal(WorkerApi):
    """The calls of a worker process that can be killed at any moment."""

    def __init__(self, egress: Egress, url: str) -> None:
        super().__init__(egress, url, "far")
        self.leases: list[str] = []
        self.dead = False

    async def call(
        self, action: str, body: Struct, into: type[T], wait_s: float = 0.0, call_s: float = 30.0
    ) -> T | None:
        """As a process calls, as long as it lives."""
        if not self.dead:
            reply = await super().call(action, body, into, wait_s, call_s)
            if isinstance(reply, wire.LeasedTask):
                self.leases.append(reply.lease)
            if not self.dead:
                return reply
            if isinstance(reply, wire.LeasedTask):  # its connection would have broken before
                await super().call("release", wire.ReleaseRequest(reply.lease), wire.EmptyReply)
        await asyncio.Event().wait()
        raise AssertionError


class Workers:
    """Worker processes of one agent, one after the other."""

    def __init__(self, door: WorkerDoor, egress: Egress) -> None:
        self.door = door
        self.executed: Counter[str] = Counter()
        """How often each step was executed."""
        self._egress = egress
        self._processes: list[tuple[Mortal, asyncio.Task[None]]] = []
        self._gates: dict[str, asyncio.Event] = {}

    def hire(self, agent: Runner) -> None:
        """Start a worker."""
        api = Mortal(self._egress, self.door.url)  # type: ignore[attr-defined]
        working = asyncio.create_task(Lessee(agent, api, name="w", tasks=1).work(asyncio.Event(), 0))
        self._processes.append((api, working))

    async def kill(self) -> None:
        """Kill the newest worker. Its lease runs out at once."""
        api, working = self._processes[-1]
        api.dead = True
        working.cancel()
        await asyncio.sleep(0)
        for lease in api.leases[-1:]:
            await self.door.act("release", {"lease": lease})

    @property
    def leases(self) -> list[str]:
        """The leases that the newest worker has had."""
        return self._processes[-1][0].leases

    async def close(self) -> None:
        """Stop all."""
        for api, working in self._processes:
            api.dead = True
            working.cancel()
        await asyncio.gather(*(working for _, working in self._processes), return_exceptions=True)

    def gate(self, name: str) -> asyncio.Event:
        """An event of the test."""
        return self._gates.setdefault(name, asyncio.Event())

    def do(self, name: str) -> Callable[[], str]:
        """The function of a step, which is counted."""

        def work() -> str:
            self.executed[name] += 1
            return f"{name} done"

        return work

    async def hang(self, name: str) -> None:
        """Reach a place of the agent's code, and stay there until the worker is killed."""
        if not self.gate(name).is_set():
            self.gate(name).set()
            await asyncio.Event().wait()


@asynccontextmanager
async def hiring(tmp_path: Path, **settings: Any) -> AsyncIterator[Workers]:
    egress = Egress(connections_max=0)
    async with site(tmp_path, **settings) as door:
        workers = Workers(door, egress)
        try:
            yield workers
        finally:
            await workers.close()
            await egress.close()


def agent_of(skill: Callable[[Context], Any], **declared: Any) -> Agent:
    agent = Agent("far", **declared)
    agent.skill(skill)
    return agent


async def text_of(door: WorkerDoor, task_id: str) -> str:
    task = await door.reach(task_id, "COMPLETED")
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


async def test_a_killed_worker_is_followed_by_one_that_repeats_no_step(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:
        seen: list[tuple[Any, ...]] = []

        async def skill(ctx: Context) -> AsyncIterator[str]:
            """Work."""
            seen.append((await ctx.now(), await ctx.random(), await ctx.uuid()))
            yield "one, "
            yield await ctx.step("a", workers.do("a")) + ", "
            try:
                await ctx.step("broken", lambda: [][0])
            except StepFailed as failed:
                yield f"{failed.type} {failed.text}, "
            answer = await ctx.ask("how?")
            yield f"{answer}, "
            await workers.hang("after the answer")
            yield await ctx.step("b", workers.do("b"), key="k") + ", "
            yield "unrecorded, "
            await workers.hang("after b")
            yield "end"

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.door.reach(sent["id"], "INPUT_REQUIRED")
        await workers.door.send("so", taskId=sent["id"])
        for place in ("after the answer", "after b"):
            await workers.gate(place).wait()
            await workers.kill()
            workers.hire(agent)
        text = await text_of(workers.door, sent["id"])
        assert text == "one, a done, IndexError list index out of range, so, b done, unrecorded, end"
        assert workers.executed == {"a": 1, "b": 1}
        assert seen == [seen[0]] * 3


async def test_a_question_that_an_early_message_answers_has_that_answer_in_every_worker(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> AsyncIterator[str]:
            """Ask twice; the first answer comes before its question."""
            await workers.hang("at work")
            yield f"{await ctx.ask('first?')}, "
            await workers.hang("after the first")
            yield f"{await ctx.ask('second?')}, "
            await workers.hang("after the second")
            yield "end"

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("at work").wait()
        await workers.door.send("early", taskId=sent["id"])
        for place in ("at work", "after the first"):
            await workers.gate(place).wait()
            await workers.kill()
            workers.hire(agent)
        await workers.door.reach(sent["id"], "INPUT_REQUIRED")
        await workers.door.send("late", taskId=sent["id"])
        await workers.gate("after the second").wait()
        await workers.kill()
        workers.hire(agent)
        assert await text_of(workers.door, sent["id"]) == "early, late, end"


async def test_a_result_that_is_a_file_comes_back(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(1_500_000)
    async with hiring(tmp_path, files=f"folder:{tmp_path / 'blobs'}", files_above=1000) as workers:

        async def skill(ctx: Context) -> str:
            """Work."""
            made = await ctx.step("make", lambda: content)
            long = await ctx.step("long", lambda: "y" * 1_200_000)
            await workers.hang("made")
            return f"{made == content} {len(long)}"

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("made").wait()
        await workers.kill()
        workers.hire(agent)
        assert await text_of(workers.door, sent["id"]) == "True 1200000"


async def test_branches_ask_delegate_and_step_at_once_and_are_found_again(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        async def branch(ctx: Context, name: str) -> str:
            first = await ctx.step("first", workers.do(f"{name}1"))
            answer = await ctx.ask(f"{name}?")
            await workers.hang(f"{name} asked")
            return f"{first} {answer} {await ctx.step('second', workers.do(f'{name}2'))}"

        async def skill(ctx: Context) -> str:
            """Work."""
            said = await asyncio.gather(branch(ctx, "x"), branch(ctx, "y"))
            return "; ".join(said)

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        for turn in range(2):
            task = await workers.door.reach(sent["id"], "INPUT_REQUIRED")
            name = task["status"]["message"]["parts"][0]["text"][0]
            await workers.door.send(f"to {name}", taskId=sent["id"])
            await workers.gate(f"{name} asked").wait()
            if turn == 0:
                await workers.kill()
                workers.hire(agent)
        await workers.kill()
        workers.hire(agent)
        assert await text_of(workers.door, sent["id"]) == "x1 done to x x2 done; y1 done to y y2 done"
        assert workers.executed == {"x1": 1, "x2": 1, "y1": 1, "y2": 1}


async def test_branches_killed_at_any_moment_repeat_no_recorded_step(tmp_path: Path) -> None:
    chance = random.Random(7)
    kills = 0
    async with hiring(tmp_path) as workers:
        recorded: dict[str, int] = {}
        """How often each step had been executed when it was recorded."""

        async def branch(ctx: Context, name: str) -> int:
            for number in range(3):
                await asyncio.sleep(chance.random() * 0.02)
                step, place = f"{ctx.task_id}{name}{number}", f"{name}{number}"
                assert await ctx.step("work", workers.do(step)) == f"{step} done"
                recorded.setdefault(step, workers.executed[step])
                await ctx.artifact(f"{place} ", id=name, append=True)
            return 3

        async def skill(ctx: Context) -> str:
            """Work."""
            return str(sum(await asyncio.gather(*(branch(ctx, name) for name in "abcde"))))

        agent = agent_of(skill)
        workers.hire(agent)
        for turn in range(times(5, 40)):
            sent = await workers.door.send(f"{turn}")
            waits_s = 0.015
            while (await workers.door.task(sent["id"]))["status"]["state"] != "TASK_STATE_COMPLETED":
                await asyncio.sleep(waits_s * (1 + chance.random()))
                await workers.kill()
                waits_s, kills = waits_s * 1.2, kills + 1
                workers.hire(agent)
            task = await workers.door.task(sent["id"])
            texts = {artifact["artifactId"]: artifact["parts"][0]["text"] for artifact in task["artifacts"]}
            assert texts.pop("result") == "15"
            assert texts == {name: f"{name}0 {name}1 {name}2 " for name in "abcde"}
        assert kills > times(5, 40)
        assert len(recorded) == times(5, 40) * 15
        assert recorded == {step: workers.executed[step] for step in recorded}


async def test_a_caller_decides_about_a_step_that_may_have_run(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> str:
            """Work."""

            async def charge(*, step_key: str) -> str:
                workers.executed["charge"] += 1
                await workers.hang("charging")
                return step_key

            return await ctx.step("charge", charge, at_most_once=True)

        agent = agent_of(skill, step_uncertain="ask")
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("charging").wait()
        await workers.kill()
        workers.hire(agent)
        asked = await workers.door.reach(sent["id"], "INPUT_REQUIRED")
        assert 'Answer "again"' in asked["status"]["message"]["parts"][0]["text"]
        await workers.door.send("again", taskId=sent["id"])
        assert await text_of(workers.door, sent["id"]) == f"{sent['id']}:1"
        assert workers.executed["charge"] == 2


async def test_changed_code_ends_the_task_and_says_where(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:
        names = iter(["charge", "ship"])

        async def skill(ctx: Context) -> str:
            """Work."""
            name = next(names)
            await ctx.step(name, workers.do(name))
            await workers.hang("charged")
            return "done"

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("charged").wait()
        await workers.kill()
        workers.hire(agent)
        message = (await workers.door.reach(sent["id"], "FAILED"))["status"]["message"]
        assert message["metadata"] == {"reason": "replay_mismatch"}
        assert "At place 1, the step “charge” is recorded, but the step “ship” came." in str(message["parts"])
        assert workers.executed == {"charge": 1}


async def test_a_lease_that_runs_out_within_a_step_has_its_result_refused(tmp_path: Path) -> None:
    keys: list[str] = []
    ended = asyncio.Event()
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> str:
            """Work."""

            async def charge(*, step_key: str) -> int:
                keys.append(step_key)
                await workers.hang("charging")
                return len(keys)

            try:
                return f"charge {await ctx.step('charge', charge)}"
            finally:
                ended.set()

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("charging").wait()
        (lease,) = workers.leases
        await workers.door.act("release", {"lease": lease})  # as if it had run out; its worker lives on
        workers.hire(agent)
        assert await text_of(workers.door, sent["id"]) == "charge 2"
        assert keys == [f"{sent['id']}:1"] * 2
        assert (await workers.door.act("step-result", {"lease": lease, "place": "1", "name": "charge", "result": 1}))[
            0
        ] == 409


async def test_steps_are_counted_where_the_worker_took_the_task(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        paid: dict[str, Any] = {"number": 1, "name": "charge"}
        await door.report("step", lease, **paid)
        for _ in range(2):  # the first answer was lost
            await door.report("step-result", lease, **paid, result=1)
        await door.report("step-result", lease, number=2, name="ship", failure={"type": "Late", "text": "no ship"})
        later = await taken_again(door, lease)
        await door.report("step", later, **paid)
        async with aiohttp.ClientSession() as http, http.get(f"{door.url}/metrics") as page:  # type: ignore[attr-defined]
            shown = dict(re.findall(r'dragoman_steps_total{agent="far",outcome="(\w+)"} (\S+)', await page.text()))
        assert shown == {"succeeded": "1.0", "failed": "1.0", "replayed": "1.0"}


# -- sleep -------------------------------------------------------------------------------------------------------------


async def test_a_sleep_ends_the_lease_and_the_task_comes_again_when_it_wakes(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.report("step-result", lease, number=1, name="a", result=1)
        slept = await door.report("sleep", lease, number=2, seconds=0.5)
        assert (slept["over"], 0 < slept["left_s"] <= 0.5) == (False, True)
        assert (await door.act("heartbeat", {"lease": lease}))[0] == 409
        status = (await door.task(task_id))["status"]
        assert (status["state"], (await door.act("lease", {"worker": "w"}))[0]) == ("TASK_STATE_WORKING", 204)
        delivery = await door.take(replays=True)
        again = delivery["lease"]
        assert delivery["task"]["id"] == task_id
        assert (await door.report("step", again, number=1, name="a"))["result"] == 1
        for _ in range(2):
            assert await door.report("sleep", again, number=2, seconds=0.5) == {
                "until": slept["until"],
                "over": True,
                "left_s": 0.0,
            }
        await door.report("complete", again)
        assert (await door.task(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_message_wakes_a_task_that_asks_for_it(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        sleep = {"number": 1, "seconds": 1000, "wake_on_message": True}
        assert not (await door.report("sleep", lease, **sleep))["over"]
        await door.send("wake up", taskId=task_id)
        again = (await door.take(replays=True))["lease"]
        assert (await door.report("sleep", again, **sleep))["over"]
        answer = await door.report("ask", again, question=1, message="what?", wait_s=5)
        assert answer["answer"]["parts"] == [{"text": "wake up"}]


async def test_the_answer_to_a_question_does_not_wake_a_branch_that_sleeps_beside_it(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        sleep = {"number": 1, "seconds": 1000, "wake_on_message": True, "keep": True}
        assert not (await door.report("sleep", lease, **sleep))["over"]
        await door.act("ask", {"lease": lease, "question": 1, "message": "which?", "wait_s": 0})
        await door.send("this one", taskId=task_id)
        answer = await door.report("ask", lease, question=1, message="which?", wait_s=5)
        assert answer["answer"]["parts"] == [{"text": "this one"}]
        assert not (await door.report("sleep", lease, **sleep))["over"]
        await door.send("wake up", taskId=task_id)
        assert (await door.report("sleep", lease, **sleep))["over"]


async def test_a_cancel_ends_a_task_that_sleeps(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await door.report("sleep", lease, number=1, until="2030-01-01T00:00:00Z")
        async with door.server().post(f"/agents/far/tasks/{task_id}:cancel", json={}, headers={"A2A-Version": "1.0"}):
            pass
        assert (await door.task(task_id))["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await door.act("lease", {"worker": "w"}))[0] == 204


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"number": 1}, "seconds: give either seconds or until"),
        ({"number": 1, "seconds": 1, "until": "2030-01-01T00:00:00Z"}, "seconds: give either seconds or until"),
        ({"number": 1, "seconds": 0}, "seconds"),
        ({"number": 1, "seconds": -1}, "seconds"),
        ({"number": 1, "seconds": 1e12}, "seconds"),
        ({"number": 1, "until": "2030-01-01T00:00:00"}, "until: has no time zone"),
        ({"number": 1, "until": "2130-01-01T00:00:00Z"}, "until: is too late"),
        ({"number": 1, "until": "soon"}, "until"),
        ({"seconds": 1}, "number: is missing"),
    ],
)
async def test_what_is_no_sleep_is_refused_and_named(tmp_path: Path, body: dict[str, Any], text: str) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        status, answer = await door.act("sleep", {"lease": lease, **body})
        assert (status, text in answer["error"]["message"]) == (400, True), answer


async def test_an_agent_of_a_worker_sleeps_and_goes_on_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lessee, "KEPT_SLEEP_S", 0.2)
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> AsyncIterator[str]:
            """Work."""
            yield await ctx.step("a", workers.do("a")) + ", "
            await ctx.sleep(0.1)  # kept
            yield "short, "
            await ctx.sleep(1)
            yield await ctx.step("b", workers.do("b")) + ", "
            await asyncio.gather(ctx.sleep(0.3), ctx.step("c", workers.do("c")))
            yield "end"

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        assert await text_of(workers.door, sent["id"]) == "a done, short, b done, end"
        assert workers.executed == {"a": 1, "b": 1, "c": 1}
        assert len(workers.leases) == 2


async def test_a_worker_that_asks_somebody_who_will_not_answer_has_completed_its_task(tmp_path: Path) -> None:
    title = "Provide a concise, 5-word-or-less title for the conversation\n\nConversation:\nUser: hi"
    body = {"model": "far", "messages": [{"role": "user", "content": title}]}
    async with site(tmp_path) as door:
        asking = asyncio.create_task(door.server().post("/v1/chat/completions", json=body))
        lease = (await door.take())["lease"]
        question = {"lease": lease, "question": 1, "message": "Which?", "wait_s": 5}
        assert [(await door.act("ask", question))[0] for _ in range(2)] == [200, 409]
        async with await asking as answered:
            assert (await answered.json())["choices"][0]["message"]["content"] == "Which?"
            task = await door.task(answered.headers["x-dragoman-task-id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
