"""Workers of a cluster: each of their calls reaches another replica than the one before."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import asyncpg
import pytest

from dragoman import Agent, Context
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.config import Config
from dragoman.engine.runs.run_writer import BUFFER_BYTES_MAX
from dragoman.model.events import ArtifactChunk, Event
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.store.api import Append, Appended, Repeat, Store, StoreUnreachable
from tests.kit.agents import asking, hired
from tests.kit.workers import WorkerDoor
from tests.shared_store import shared_store
from tests.spoil import spoil_database
from tests.store.cases.spoiling import cut

DEADLINE_S = 60.0

MOVE_S = 1.0
"""How long a late write waits for a task to move. Where the move waits for that write, it is over then."""

V1 = {"A2A-Version": "1.0"}


class Cluster(WorkerDoor):
    """A worker `w` at servers on one store, the addresses of these, and the agent that each of them has."""

    def __init__(self, servers: list[aiohttp.ClientSession], urls: list[str], agents: list[WorkerAgent]) -> None:
        super().__init__(servers, name="w")
        self.urls = urls
        self.agents = agents


class LateAppends:
    """Appends as the store does, but some events come late: after their task has moved, if it can move."""

    def __init__(self, store: Store, late: Callable[[Event], bool]) -> None:
        self._late = late
        self.together: list[list[type]] = []
        """The kinds of the events that came in each append with a late one."""
        self.delayed: list[asyncio.Task[Appended | Repeat]] = []
        self._append = store.append
        self._moved = asyncio.Event()

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """As `Store.append`."""
        if any(map(self._late, append.events)):
            self.together.append(list(map(type, append.events)))
        if not self.delayed and any(map(self._late, append.events)):
            self.delayed.append(asyncio.create_task(self._append_late(append)))
            return self.delayed[-1]
        appended = self._append(append)
        if append.holder is not None:
            appended.add_done_callback(lambda _: self._moved.set())
        return appended

    async def _append_late(self, append: Append) -> Appended | Repeat:
        try:
            async with asyncio.timeout(MOVE_S):
                await self._moved.wait()
        except TimeoutError:
            pass  # the move waits for this write
        return await self._append(append)


def near() -> Agent:
    agent = Agent("near")

    @agent.skill
    async def shout(ctx: Context) -> str:
        """Say it louder."""
        return f"{ctx.text}!"

    return agent


@asynccontextmanager
async def cluster(url: str, count: int = 3, *, queues: bool = True, **said: Any) -> AsyncIterator[Cluster]:
    config = Config(port=0, store=url, shutdown_grace_s=0.2, cancel_grace_s=0.2, allow_unauthenticated=True, **said)
    async with AsyncExitStack() as stack:
        servers, urls, agents = [], [], []
        for _ in range(count):
            agents.append(hired("far", lease_s=30, queues=queues))
            base = await stack.enter_async_context(serving(config, [agents[-1], near(), asking("curious")]))
            urls.append(base)
            timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
            servers.append(await stack.enter_async_context(aiohttp.ClientSession(base, timeout=timeout)))
        yield Cluster(servers, urls, agents)


async def test_a_task_is_done_through_all_replicas(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        delivery = await here.take(at=1)
        lease = delivery["lease"]
        assert delivery["task"]["id"] == sent["id"]
        assert delivery["note"] is None
        for number, word in enumerate(("one ", "two ", "three ", "four "), 1):
            await here.say(lease, word, number)
            await here.say(lease, word, number)  # again, on the next replica, since the answer was lost
            assert await here.report("heartbeat", lease) == {"cancel": False, "expires_s": 30.0, "answers": []}
        await here.report("update", lease, message="almost", usage={"input": 3}, number=5)
        for _ in range(3):
            task = await here.report("complete", lease, artifacts=[{"artifactId": "z", "parts": [{"text": "Z"}]}])
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        for at in range(3):
            kept = await here.task(sent["id"], at)
            texts = ["".join(part["text"] for part in one["parts"]) for one in kept["artifacts"]]
            assert texts == ["one two three four ", "Z"]
            assert kept["metadata"]["urn:dragoman:usage:v1"]["inputTokens"] == 3
        assert (await here.act("update", {"lease": lease, "message": "late"}))[0] == 409


def note_statements(task_id: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements about a task from now on, but for polls, which ask for many."""
    fetch, statements = asyncpg.Connection.fetch, list[str]()

    async def note(connection: Any, sql: str, *values: object, **more: Any) -> list[Any]:
        if any(task_id in value for value in values if isinstance(value, str)):
            statements.append(sql)
        return list(await fetch(connection, sql, *values, **more))

    monkeypatch.setattr(asyncpg.Connection, "fetch", note)
    return statements


async def test_a_report_of_nothing_does_not_hide_that_the_one_before_is_lost(used_postgres_url: str) -> None:
    async with cluster(used_postgres_url, 2) as here:
        await here.send()
        lease = (await here.take())["lease"]
        await here.report("update", lease, 1, message="kept", number=1)
        await here.report("update", lease, 0, message="lost", number=2)
        connection = await asyncpg.connect(used_postgres_url)
        await connection.execute("UPDATE dragoman.worker_leases SET reports = 1")
        await connection.close()
        status, _ = await here.act("update", {"lease": lease, "number": 3, "confirmed": 2}, 1)
        assert status == 409


async def test_a_word_is_one_statement_whichever_replica_takes_it(
    used_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(used_postgres_url) as here:
        task_id = (await here.send("hello", at=0))["id"]
        lease = (await here.take(at=1))["lease"]
        for number in range(1, 4):
            await here.say(lease, f"{number} ", number, at=number - 1)  # now each replica has read the task
        statements = note_statements(task_id, monkeypatch)
        for number in range(4, 13):
            await here.say(lease, f"{number} ", number, at=number % 3)
        assert len(statements) == 9
        for number in range(13, 16):
            await here.report("update", lease, number % 3, message=f"step {number}", number=number)
        assert len(statements) == 12
        task = await here.report("complete", lease, 0)
        (artifact,) = task["artifacts"]
        assert "".join(part["text"] for part in artifact["parts"]) == "".join(f"{n} " for n in range(1, 13))


async def test_a_word_is_one_statement_where_its_task_is_followed(
    used_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(used_postgres_url, 2) as here:
        task_id = (await here.send("hello", at=0))["id"]
        lease = (await here.take(at=1))["lease"]
        for number in range(1, 5):
            await here.say(lease, f"{number} ", number, at=number % 2)
        async with here.servers[1].get(f"/agents/far/tasks/{task_id}:subscribe", headers=V1) as stream:
            await stream.content.readuntil(b"\n\n")  # the task as it stands
            statements = list[str]()
            for number in range(5, 17):
                if number == 7:  # what was told before the stream began has been read by then
                    statements = note_statements(task_id, monkeypatch)
                await here.say(lease, f"{number} ", number, at=number % 2)
                await stream.content.readuntil(b"\n\n")  # it has come here, perhaps by the bus
            assert len(statements) == 10
        await here.report("complete", lease, 0)


async def test_a_worker_that_waits_gets_a_task_that_is_sent_to_another_replica(shared_url: str) -> None:
    async with cluster(shared_url, 2) as here:
        waiting = asyncio.create_task(here.take(at=1))
        sent = await here.send("hello", at=0)
        delivery = await waiting
        assert delivery["task"]["id"] == sent["id"]
        assert (await here.act("lease", {"worker": "w2"}, 0)) == (204, None)
        assert (await here.act("lease", {"worker": "w2"}, 1)) == (204, None)
        await here.report("complete", delivery["lease"], 1)


async def test_a_question_and_its_answer_cross_replicas(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=1))["lease"]
        for number, words in enumerate((("Which?", "this"), ("And then?", "that")), 1):
            question, answer = words
            asked = {"lease": lease, "question": number, "message": question, "wait_s": 0}
            for at in range(3):
                assert await here.act("ask", asked, at) == (200, {"answer": None, "expires_s": 30.0})
            task = await here.reach(sent["id"], "INPUT_REQUIRED")
            assert task["status"]["message"]["parts"] == [{"text": question}]
            waiting = asyncio.create_task(here.act("ask", {**asked, "wait_s": 15}, 2))
            await here.send(answer, at=0, taskId=sent["id"])
            status, came = await waiting
            assert status == 200
            assert came["answer"]["parts"] == [{"text": answer}]
            for at in range(3):
                status, came = await here.act("ask", asked, at)
                assert came["answer"]["parts"] == [{"text": answer}]
            await here.say(lease, answer, number)
        await here.report("complete", lease)
        task = await here.task(sent["id"])
        assert [message["parts"][0]["text"] for message in task["history"]] == [
            "hello",
            "Which?",
            "this",
            "And then?",
            "that",
        ]
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["thisthat"]


async def test_an_answer_comes_with_a_heartbeat_on_any_replica(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        await here.report("update", lease, 1, state="input-required", message="Which?")
        beating = asyncio.create_task(here.report("heartbeat", lease, 2, wait_s=15))
        await here.send("this", at=0, taskId=sent["id"])
        beat = await beating
        async with asyncio.timeout(DEADLINE_S):
            while not beat["answers"]:
                beat = await here.report("heartbeat", lease, wait_s=1)
        assert [answer["parts"] for answer in beat["answers"]] == [[{"text": "this"}]]
        await here.report("complete", lease)


async def test_an_answer_comes_with_a_heartbeat_where_an_earlier_word_was_told(shared_url: str) -> None:
    """What that replica keeps of the lease knows nothing of a question that was put elsewhere since."""
    async with cluster(shared_url) as site:
        task_id = (await site.send())["id"]
        lease = (await site.take(0))["lease"]
        await site.say(lease, "one ", 1, at=1)
        assert (await site.report("ask", lease, 0, question=1, message="which?"))["answer"] is None
        await site.reach(task_id, "INPUT_REQUIRED")
        await site.send("this", 0, taskId=task_id)
        beat = await site.report("heartbeat", lease, 1, wait_s=10, answers=0)
        assert [answer["parts"] for answer in beat["answers"]] == [[{"text": "this"}]]
        await site.send("that", 0, taskId=task_id)
        answer = (await site.report("ask", lease, 0, question=2, message="and?", wait_s=10))["answer"]
        assert answer["parts"] == [{"text": "that"}]  # it had come before the question
        beat = await site.report("heartbeat", lease, 1, wait_s=10, answers=1)
        assert [answer["parts"] for answer in beat["answers"]] == [[{"text": "that"}]]


async def test_a_worker_that_repeats_its_questions_goes_on_anywhere(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello")
        lease = (await here.take(replays=True))["lease"]
        for number in (1, 2):
            await here.report("ask", lease, question=number, message=f"Question {number}?", wait_s=0)
            await here.send(f"answer {number}", taskId=sent["id"])
            await here.report("ask", lease, question=number, message=f"Question {number}?", wait_s=15)
        await here.say(lease, "before ", 1)
        assert (await here.act("release", {"lease": lease}))[0] == 204
        again = await here.take(replays=True)
        lease = again["lease"]
        assert again["task"]["id"] == sent["id"]
        await here.say(lease, "dropped ", 1)
        for number in (1, 2):
            answer = await here.report("ask", lease, question=number, message=f"Question {number}?", wait_s=15)
            assert answer["answer"]["parts"] == [{"text": f"answer {number}"}]
        await here.say(lease, "after", 2)
        await here.report("complete", lease)
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["after"]


async def test_the_first_word_of_a_second_worker_replaces_what_the_first_has_left_on_any_replica(
    shared_url: str,
) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        await here.say(lease, "before ", 1, at=0)
        assert (await here.act("release", {"lease": lease}, 0))[0] == 204
        lease = (await here.take(at=0))["lease"]
        await here.say(lease, "after", 1, at=1)
        await here.say(lease, " that", 2, at=0)
        await here.report("complete", lease, at=2)
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["after that"]


async def test_a_late_word_of_the_first_worker_is_refused_once_a_second_one_has_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shared_store(monkeypatch) as whole, cluster("memory:") as here:
        sent = await here.send("hello", at=0)
        first = (await here.take(at=0))["lease"]
        await here.say(first, "before ", 1, at=0)
        chunks = LateAppends(whole, lambda event: isinstance(event, ArtifactChunk))
        monkeypatch.setattr(whole, "append", chunks.append)
        late = asyncio.create_task(here.say(first, "late ", 2, at=0))
        async with asyncio.timeout(MOVE_S):
            while not chunks.delayed:
                await asyncio.sleep(0.01)
        assert (await here.act("release", {"lease": first}, 1))[0] == 204
        second = (await here.take(at=2))["lease"]
        with pytest.raises(AssertionError):
            await late
        await here.say(second, "after", 1, at=1)
        await here.say(second, " that", 2, at=0)
        await here.report("complete", second, at=2)
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["after that"]


async def test_a_word_without_a_number_is_written_before_the_next_one_on_another_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shared_store(monkeypatch) as whole, cluster("memory:") as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        chunks = LateAppends(whole, lambda event: isinstance(event, ArtifactChunk))
        monkeypatch.setattr(whole, "append", chunks.append)
        await here.say(lease, "one ", 0, at=0)
        await here.say(lease, "two", 0, at=1)
        await here.report("complete", lease, at=2)
        assert chunks.delayed
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["one two"]


async def test_the_tokens_of_a_last_report_count_on_any_replica(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        for at in (1, 2):  # the second time it is repeated
            await here.report("complete", lease, at, usage={"input": 3})
        task = await here.task(sent["id"])
        assert task["metadata"]["urn:dragoman:usage:v1"]["inputTokens"] == 3


async def test_tokens_count_once_wherever_they_are_reported(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lost = (await here.take(at=0))["lease"]
        await here.report("update", lost, 0, usage={"input": 100}, number=1)
        assert (await here.act("release", {"lease": lost}, 0))[0] == 204
        lease = (await here.take(at=0))["lease"]
        for at in (0, 1):  # the second time it is repeated
            await here.report("update", lease, at, usage={"input": 1}, number=1)
        chunk = {"artifactId": "a", "parts": [{"text": "one"}]}
        await here.report("artifact", lease, 2, artifact=chunk, usage={"input": 20}, number=2)
        await here.report("complete", lease, 0)
        task = await here.task(sent["id"])
        assert task["metadata"]["urn:dragoman:usage:v1"]["inputTokens"] == 21


async def test_a_report_while_a_question_is_open_is_refused_by_every_replica(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        await here.report("update", lease, 0, state="input-required", message="Which?")
        for at in range(3):
            status, refusal = await asyncio.wait_for(here.act("update", {"lease": lease, "message": "m"}, at), 60)
            assert status == 400, refusal


async def test_a_cancel_on_one_replica_reaches_the_worker_on_another(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=1))["lease"]
        beating = asyncio.create_task(here.report("heartbeat", lease, 2, wait_s=15))
        async with here.servers[0].post(f"/agents/far/tasks/{sent['id']}:cancel", json={}, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
        beat = await beating
        async with asyncio.timeout(DEADLINE_S):
            while not beat["cancel"]:
                beat = await here.report("heartbeat", lease, wait_s=1)
        assert (await here.act("update", {"lease": lease, "message": "late"}))[0] == 409


async def test_a_worker_goes_on_when_its_replica_stops(shared_url: str) -> None:
    async with cluster(shared_url, 2) as here:
        async with cluster(shared_url, 1) as passing:
            sent = await here.send("hello", at=0)
            lease = (await passing.take(at=0))["lease"]
            await passing.say(lease, "one ", 1)
        await here.say(lease, "one ", 1)
        await here.say(lease, "two", 2)
        await here.report("complete", lease)
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["one two"]


async def test_the_task_of_a_silent_worker_goes_to_one_of_another_replica(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lost = (await here.take(at=0))["lease"]
        await here.say(lost, "half", 1)
        here.agents[0].leases.lease_s = 0.5  # from its last heartbeat on
        await here.report("heartbeat", lost, 0)
        found = await here.take(at=1)
        assert found["task"]["id"] == sent["id"]
        assert (await here.act("heartbeat", {"lease": lost}, 2))[0] == 409
        assert (await here.act("update", {"lease": lost, "message": "late"}, 0))[0] == 409
        await here.report("complete", found["lease"], artifacts=[{"artifactId": "a", "parts": [{"text": "whole"}]}])
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["whole"]


async def test_a_worker_that_was_seen_anywhere_puts_its_agent_online_everywhere(shared_url: str) -> None:
    async with cluster(shared_url, 2, queues=False) as here:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        async with here.servers[0].post("/agents/far/message:send", json=body, headers=V1) as answer:
            assert answer.status == 503
        waiting = asyncio.create_task(here.take(at=1))
        async with asyncio.timeout(DEADLINE_S):
            while True:
                async with here.servers[0].post("/agents/far/message:send", json=body, headers=V1) as answer:
                    if answer.status == 200:
                        break
        delivery = await waiting
        await here.report("complete", delivery["lease"], 0)


async def test_a_delegation_of_a_worker_is_made_once_and_its_outcome_is_had_anywhere(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        await here.send("hello")
        lease = (await here.take())["lease"]
        for number, word in enumerate(("one", "two"), 1):
            order = {"agent": "near", "message": word, "delegation": number}
            for at in range(3):
                reply = await here.report("delegate", lease, at, **order, wait_s=15)
                while reply["outcome"] is None:
                    reply = await here.report("delegate", lease, at, **order, wait_s=15)
                assert reply["outcome"]["artifacts"][0]["parts"] == [{"text": f"{word}!"}]
            await here.say(lease, word, number)
        await here.report("complete", lease)
        async with here.servers[0].get("/agents/near/tasks", headers=V1) as answer:
            assert (await answer.json())["totalSize"] == 2


async def test_a_worker_goes_on_anywhere_after_a_delegation_whose_question_was_passed_on(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0, replays=True))["lease"]
        order = {"agent": "curious", "message": "find out", "delegation": 1}
        assert (await here.report("delegate", lease, 0, **order))["outcome"] is None
        await here.reach(sent["id"], "INPUT_REQUIRED")
        assert (await here.report("delegate", lease, 1, **order))["outcome"] is None, "it is asked again with patience"
        await here.send("red", at=2, taskId=sent["id"])
        while (outcome := (await here.report("delegate", lease, 1, **order, wait_s=15))["outcome"]) is None:
            pass
        assert outcome["artifacts"][0]["parts"] == [{"text": "red"}]
        await here.say(lease, "after ", 1, at=2)
        await here.say(lease, "that", 2, at=0)
        await here.report("complete", lease, 1)
        task = await here.task(sent["id"])
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["after that"]


async def test_a_worker_is_told_to_try_again_while_the_store_cannot_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is put together with its number, since a replica that did not know it would refuse the next one."""

    def lose(append: Append) -> "asyncio.Future[Appended | Repeat]":
        failed: asyncio.Future[Appended | Repeat] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreUnreachable("it cannot be reached"))
        return failed

    async def fail(*args: Any, **said: Any) -> Any:
        raise StoreUnreachable("it cannot be reached")

    async with shared_store(monkeypatch) as whole, cluster("memory:") as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0, replays=True))["lease"]
        with monkeypatch.context() as broken:
            broken.setattr(whole.worker_leases, "renew", fail)
            assert (await here.act("heartbeat", {"lease": lease}, 1))[0] == 503
        question = {"lease": lease, "message": "Which?", "question": 1}
        with monkeypatch.context() as broken:
            broken.setattr(whole, "append", lose)
            assert (await here.act("ask", question, 0))[0] == 503
        assert (await here.task(sent["id"]))["status"]["state"] == "TASK_STATE_WORKING"
        assert (await here.act("ask", question, 0))[1]["answer"] is None
        await here.reach(sent["id"], "INPUT_REQUIRED")


async def test_delegations_without_numbers_are_counted_on_all_replicas(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        await here.send("hello")
        lease = (await here.take())["lease"]
        for at, word in ((0, "one"), (1, "two"), (1, "three"), (2, "four")):
            reply = await here.report("delegate", lease, at, agent="near", message=word, wait_s=15)
            assert reply["outcome"]["artifacts"][0]["parts"] == [{"text": f"{word}!"}]
        await here.report("complete", lease)


async def test_a_damaged_lease_costs_its_worker_and_nobody_else(used_postgres_url: str) -> None:
    async with cluster(used_postgres_url) as here:
        first = await here.send("first", at=0)
        damaged = await here.take(at=0)
        await spoil_database(used_postgres_url)("worker_leases", "lease", "true", cut)
        await here.send("second", at=0)
        other = await here.take(at=0)
        status, answer = await here.act("heartbeat", {"lease": damaged["lease"]}, 1)
        assert status in (404, 409, 410), answer
        await here.report("complete", other["lease"], 1)
        await here.reach(other["task"]["id"], "COMPLETED")
        async with here.servers[1].post(f"/agents/far/tasks/{first['id']}:cancel", json={}, headers=V1) as canceled:
            assert canceled.status == 200, await canceled.text()


async def test_a_large_chunk_is_written_together_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shared_store(monkeypatch) as whole, cluster("memory:") as here:
        await here.send("hello", at=0)
        lease = (await here.take(at=0))["lease"]
        append = whole.append
        appends: list[Append] = []

        def note(each: Append) -> "asyncio.Future[Appended | Repeat]":
            appends.append(each)
            return append(each)

        monkeypatch.setattr(whole, "append", note)
        large = "x" * BUFFER_BYTES_MAX
        await here.say(lease, large, 1, at=0)
        await here.say(lease, "y", 2, at=1)
        made = [each for each in appends if any(isinstance(event, ArtifactChunk) for event in each.events)]
        changes = [each.lease for each in made if each.lease is not None]
        assert [each.number or each.lease.reports for each in changes] == [1, 2]
        await here.report("complete", lease, at=2)


async def test_an_answer_reaches_a_worker_that_turns_to_another_replica_at_once(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0, replays=True))["lease"]
        await here.report("update", lease, 0, state="input-required", message="Which?")
        await here.send("this", at=0, taskId=sent["id"])
        beat = await here.report("heartbeat", lease, 1, wait_s=15)
        assert [answer["parts"] for answer in beat["answers"]] == [[{"text": "this"}]]
        await here.report("complete", lease, 1)


async def test_an_answer_reaches_its_worker_although_no_lease_could_be_read_or_changed_when_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*args: Any, **said: Any) -> Any:
        raise StoreUnreachable("it cannot be reached")

    async with shared_store(monkeypatch) as whole, cluster("memory:") as here:
        sent = await here.send("hello", at=0)
        lease = (await here.take(at=0, replays=True))["lease"]
        await here.report("update", lease, 0, state="input-required", message="Which?")
        with monkeypatch.context() as broken:
            for call in ("get", "renew", "note", "of_agent", "due"):
                broken.setattr(whole.worker_leases, call, fail)
            await here.send("this", at=0, taskId=sent["id"])
        beat = await here.report("heartbeat", lease, 1, wait_s=15)
        assert [answer["parts"] for answer in beat["answers"]] == [[{"text": "this"}]]
        await here.report("complete", lease, 1)


async def test_a_task_goes_to_the_next_worker_when_one_leaves_that_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    async with shared_store(monkeypatch) as whole, cluster("memory:", 1) as here:
        append = whole.append

        async def late(each: Append) -> Appended | Repeat:
            begun.set()
            await gate.wait()
            return await append(each)

        def wait(each: Append) -> "asyncio.Future[Appended | Repeat]":
            granted = each.lease is not None and each.lease.granted_ms is not None
            return asyncio.ensure_future(late(each)) if granted and not begun.is_set() else append(each)

        monkeypatch.setattr(whole, "append", wait)
        sent = await here.send("hello")
        leaves = asyncio.create_task(here.take())
        await begun.wait()
        leaves.cancel()
        await asyncio.wait((leaves,))
        gate.set()
        delivery = await here.take()
        assert delivery["task"]["id"] == sent["id"]
        await here.report("complete", delivery["lease"])


async def test_a_report_without_a_lease_is_taken_by_any_replica(shared_url: str) -> None:
    async with cluster(shared_url) as here:
        sent = await here.send("hello", at=0)
        await here.take(at=1)
        for at, state in ((2, "working"), (0, "completed")):
            params = {"id": sent["id"], "status": {"state": state, "message": f"it is {state}"}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "UpdateStatus", "params": params}
            async with here.servers[at].post("/far", json=call, headers=V1) as answer:
                reply = await answer.json()
                assert "result" in reply, reply
        assert (await here.task(sent["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_worker_process_goes_on_with_the_next_server(shared_url: str) -> None:
    agent, spoken, gate = Agent("far"), asyncio.Event(), asyncio.Event()

    @agent.skill
    async def speak(ctx: Context) -> AsyncIterator[str]:
        """Speak, and go on once told to."""
        yield "one "
        spoken.set()
        await gate.wait()
        yield "two"

    egress, stop = Egress(), asyncio.Event()
    async with cluster(shared_url, 1) as here, asyncio.timeout(DEADLINE_S):
        async with cluster(shared_url, 1) as passing:
            api = WorkerApi(egress, passing.urls[0], "far", others=here.urls)
            working = asyncio.create_task(Lessee(agent, api, name="w", tasks=1).work(stop, 1))
            sent = await passing.send("hello")
            await spoken.wait()
        gate.set()
        task = await here.reach(sent["id"], "COMPLETED")
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["one two"]
        stop.set()
        await working
    await egress.close()


@pytest.mark.parametrize("replays", [True, False])
async def test_steps_and_sleeps_are_told_to_another_replica_each_time(shared_url: str, replays: bool) -> None:
    async with cluster(shared_url) as here, asyncio.timeout(DEADLINE_S):
        sent = await here.send("hello")
        lease = (await here.take(replays=replays))["lease"]
        for number in (1, 2):
            step = {"number": number, "name": f"step {number}"}
            for _ in range(3):  # as if answers were lost
                assert (await here.report("step", lease, **step))["run"]
            for _ in range(3):
                assert (await here.report("step-result", lease, **step, result=number))["result"] == number
            await here.say(lease, f"{number} ", number)
        once = {"number": 3, "name": "once", "at_most_once": True}
        for _ in range(3):
            assert (await here.report("step", lease, **once))["run"]
        await here.report("step-result", lease, number=3, name="once", result="so")
        assert not (await here.report("sleep", lease, number=4, seconds=0.2))["over"]
        assert (await here.act("step", {"lease": lease, "number": 1, "name": "step 1"}))[0] == 409
        lease = (await here.take(replays=replays))["lease"]
        for number in (1, 2):
            assert (await here.report("step", lease, number=number, name=f"step {number}"))["result"] == number
            if replays:
                await here.say(lease, f"{number} ", number)
        assert (await here.report("step", lease, **once))["result"] == "so"
        for _ in range(3):
            assert (await here.report("sleep", lease, number=4, seconds=0.2))["over"]
        await here.say(lease, "end", 3)
        await here.report("complete", lease)
        task = await here.reach(sent["id"], "COMPLETED")
        assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["1 2 end"]


async def test_branches_of_a_worker_process_are_found_again_by_another_one(shared_url: str) -> None:
    executed: list[str] = []
    agent, stuck = Agent("far"), asyncio.Event()

    async def branch(ctx: Context, name: str) -> str:
        return " ".join([await ctx.step("work", executed.append, f"{name}{number}") or name for number in range(3)])

    @agent.skill
    async def work(ctx: Context) -> str:
        """Work in branches, and stop there once."""
        said = await asyncio.gather(*(branch(ctx, name) for name in "xyz"))
        if not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        return ", ".join(said)

    egress = Egress(connections_max=0)
    async with cluster(shared_url) as here, asyncio.timeout(DEADLINE_S):
        sent = await here.send("hello")
        for turn in range(2):
            api, stop = WorkerApi(egress, here.urls[turn], "far", others=here.urls), asyncio.Event()
            working = asyncio.create_task(Lessee(agent, api, name=f"w{turn}", tasks=1).work(stop, 0))
            if turn == 0:
                await stuck.wait()
            else:
                task = await here.reach(sent["id"], "COMPLETED")
            stop.set()
            await working
        assert task["artifacts"][0]["parts"] == [{"text": "x x x, y y y, z z z"}]
        assert sorted(executed) == [f"{name}{number}" for name in "xyz" for number in range(3)]
    await egress.close()


async def test_what_a_worker_remembers_goes_over_any_replica(shared_url: str) -> None:
    async with cluster(shared_url, 2) as here:
        sent = await here.send("hello")
        lease = (await here.take(replays=True))["lease"]
        versions = []
        for number in range(1, 5):
            value = {"verb": "set", "key": "k", "value": number}
            versions.append((await here.report("memory", lease, number=number, **value))["version"])
        await here.report("ask", lease, question=1, message="go on?")
        await here.send("yes", taskId=sent["id"])
        assert (await here.report("ask", lease, question=1, message="go on?", wait_s=5))["answer"] is not None
        for number in range(5, 9):  # under another epoch
            value = {"verb": "set", "key": "k", "value": number, "if_version": versions[-1]}
            versions.append((await here.report("memory", lease, number=number, **value))["version"])
        assert versions == sorted(set(versions))
        for number in range(9, 11):
            found = await here.report("memory", lease, number=number, verb="get", key="k")
            assert found == {"value": 8, "version": versions[-1]}
        await here.act("release", {"lease": lease})
        for _ in here.servers:
            late = {"lease": lease, "number": 11, "verb": "set", "key": "k", "value": "late"}
            assert (await here.act("memory", late))[0] == 409


async def test_a_task_waits_as_long_as_a_worker_with_its_code_was_seen_on_any_replica(shared_url: str) -> None:
    async with cluster(shared_url, 2, agent_absent_s=1) as here:
        sent = await here.send("hello")
        began = asyncio.get_running_loop().time()
        delivery = await here.take(0, steps_version="1")
        await here.act("release", {"lease": delivery["lease"]})
        other = await here.send("other")
        while asyncio.get_running_loop().time() - began < 2.5:
            status, busy = await here.act("lease", {"worker": "old", "steps_version": "1", "wait_s": 0}, 0)
            if status == 200:
                await here.act("release", {"lease": busy["lease"]}, 0)
            status, new = await here.act("lease", {"worker": "new", "steps_version": "2", "wait_s": 0.2}, 1)
            if status == 200:
                assert new["task"]["id"] == other["id"]
                await here.report("complete", new["lease"])
        assert (await here.task(sent["id"]))["status"]["state"] == "TASK_STATE_WORKING"
