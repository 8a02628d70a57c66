"""A first message that is sent at once: the task's log and the requests are those of every other message."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.remote.begun_send import BegunSend, begin_send
from dragoman.agents.remote.task import UpstreamTask
from dragoman.engine.api import Ended
from dragoman.engine.bounds import Bounds
from dragoman.engine.words import End
from dragoman.model.events import Event
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.testing.run import FakeRun
from tests.client.test_stream import TASK, grown, shown
from tests.client.test_stream import stands as stands_untimed
from tests.kit import loopback
from tests.net.peer import Asked, read_request
from tests.systems.test_upstream import fronted, partner


def stands(state: str, said: str = "") -> dict[str, Any]:
    """A status with its time, without which it is no usual one."""
    update = stands_untimed(state, said)
    update["statusUpdate"]["status"]["timestamp"] = "2026-01-01T00:00:01.000Z"
    return update


BEGUN = {"task": {**TASK, "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "2026-01-01T00:00:00.000Z"}}}
ONE = grown("one", append=False)
DONE = stands("COMPLETED")

LONG = "t" * 2000


def of_long(*updates: dict[str, Any]) -> list[dict[str, Any]]:
    """The updates, of a task whose id is longer than any text that is kept here."""
    return [{name: {**value, "taskId": LONG} for name, value in update.items()} for update in updates]


USUAL = [
    pytest.param([BEGUN, ONE, DONE], id="a text"),
    pytest.param([BEGUN, stands("WORKING"), ONE, grown(" two"), DONE], id="chunks"),
    pytest.param([BEGUN, ONE, grown("x", name="b", append=False), grown(" two"), DONE], id="two artifacts"),
]
UNUSUAL = [
    pytest.param([BEGUN, ONE, stands("COMPLETED", "Done.")], id="a last word"),
    pytest.param([BEGUN, stands("WORKING", "Looking."), ONE, DONE], id="a report"),
    pytest.param([BEGUN, grown({"data": 7}, append=False), DONE], id="data"),
    pytest.param([BEGUN, ONE, ONE, DONE], id="an artifact anew"),
    pytest.param([BEGUN, grown("one"), DONE], id="a chunk that continues nothing"),
    pytest.param([BEGUN, ONE, grown("two", task_id="u"), DONE], id="a chunk of another task"),
    pytest.param([BEGUN, ONE, DONE, grown(" two")], id="a chunk after the end"),
    pytest.param([BEGUN, ONE, stands("FAILED", "No.")], id="a failure"),
    pytest.param([BEGUN, ONE, stands("FAILED")], id="a failure without a word"),
    pytest.param([BEGUN, DONE], id="nothing"),
    pytest.param([BEGUN, ONE, stands_untimed("COMPLETED")], id="an end without a time"),
    pytest.param([{"task": shown("COMPLETED", a=["one"])}], id="a task that has ended"),
    pytest.param([{"task": {**BEGUN["task"], "id": LONG}}, *of_long(ONE, DONE)], id="an id that is not kept"),
    pytest.param([BEGUN, grown("one", name="a\0", append=False), DONE], id="a name that no artifact has"),
    pytest.param([{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}]}}], id="a message"),
    pytest.param({"code": -32603, "message": "No"}, id="an error"),
    pytest.param(None, id="no answer"),
]


class Answering:
    """An agent that answers sends with `results` in a stream, an error in place of them, or not at all; other calls
    with `read`. It `keeps` its connections. With `halves` it waits for that within the answer.
    """

    def __init__(self, *, keeps: bool) -> None:
        self.url = ""
        self.results: Any = [BEGUN, ONE, DONE]
        self.halves: asyncio.Event | None = None
        self.asked: list[Asked] = []
        self._keeps = keeps

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await read_request(reader)
                if asked.method == "GET":  # a card
                    writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.asked.append(asked)
                streams = asked.json["method"] == "SendStreamingMessage"
                if streams and self.results is None:
                    break
                answer = self._frames(asked) if streams else self._envelope(asked, {"error": {"code": -32001}})
                kind = "text/event-stream" if streams else "application/json"
                close = "" if self._keeps else "Connection: close\r\n"
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{close}Transfer-Encoding: chunked\r\n\r\n"
                whole = b"%b%x\r\n%b\r\n0\r\n\r\n" % (head.encode(), len(answer), answer)
                if streams and self.halves is not None:
                    writer.write(whole[: len(whole) // 2])
                    await self.halves.wait()
                    whole = whole[len(whole) // 2 :]
                writer.write(whole)
                if not self._keeps:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _frames(self, asked: Asked) -> bytes:
        said = (
            [{"error": self.results}] if isinstance(self.results, dict) else [{"result": each} for each in self.results]
        )
        context = asked.json["params"]["message"]["contextId"]
        frames = [
            self._envelope(asked, each).replace(b'"contextId": "c"', b'"contextId": "%b"' % context.encode())
            for each in said
        ]
        return b"".join(b"id: %d\ndata: %b\n\n" % (number, frame) for number, frame in enumerate(frames, 1))

    def _envelope(self, asked: Asked, said: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], **said}).encode()


@asynccontextmanager
async def warm(*, keeps: bool) -> AsyncIterator[tuple[Answering, UpstreamAgent]]:
    """An agent elsewhere, and ours for it, which has been called once."""
    there = Answering(keeps=keeps)
    async with loopback.listening(there.serve) as port:
        agent = partner(f"http://127.0.0.1:{port}", dialect="1.0")
        await agent.run(fresh())
        there.asked.clear()
        try:
            yield there, agent
        finally:
            await agent.close()


def fresh() -> FakeRun:
    run = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),)))
    run.bounds = Bounds(max_text=1000)
    return run


async def carried_out(run: FakeRun, task: UpstreamTask) -> None:
    try:
        await task.carry_out()
    except Ended as ended:
        run.end(End(ended.state, ended.parts, ended.reason))


async def other_way(results: Any) -> tuple[list[Event], list[Any]]:
    """The events, and the requests, of a message for which there is no connection yet."""
    async with warm(keeps=False) as (there, agent):
        there.results = results
        run = fresh()
        assert begin_send(run, agent.pool) is None
        await carried_out(run, UpstreamTask(run, agent.pool, queues=False, headers=False))
        return run.events, requests(there)


def requests(there: Answering) -> list[Any]:
    """The requests without what differs each time."""
    left = ("host", "content-length")
    headers = [{name: value for name, value in each.headers.items() if name not in left} for each in there.asked]
    return [(given, {**each.json, "id": 0}) for given, each in zip(headers, there.asked, strict=True)]


@pytest.mark.parametrize("results", USUAL)
async def test_a_usual_answer_is_passed_on_at_once_as_on_the_other_way(results: Any) -> None:
    async with warm(keeps=True) as (there, agent):
        there.results = results
        begun = begin_send(run := fresh(), agent.pool)
        assert begun is not None
        assert await begun.pass_on()
        assert (run.events, requests(there)) == await other_way(results)
        assert agent.route.health.calls.outcomes["succeeded"] == 2
        again = begin_send(fresh(), agent.pool)
        assert again is not None, "the connection is kept"
        again.stream.close()


@pytest.mark.parametrize("results", UNUSUAL)
async def test_of_any_other_answer_nothing_is_passed_on_before_the_other_way_reads_it(results: Any) -> None:
    async with warm(keeps=True) as (there, agent):
        there.results = results
        begun = begin_send(run := fresh(), agent.pool)
        assert begun is not None
        before = list(run.events)
        assert not await begun.pass_on()
        assert run.events == before
        await carried_out(run, UpstreamTask(run, agent.pool, queues=False, headers=False, begun=begun))
        assert (run.events, requests(there)) == await other_way(results)


async def reads_the_rest(there: Answering, agent: UpstreamAgent, run: FakeRun, begun: BegunSend) -> None:
    """Let the second half of the answer come: the task has all of it, from the same call."""
    assert there.halves is not None
    there.halves.set()
    await carried_out(run, UpstreamTask(run, agent.pool, queues=False, headers=False, begun=begun))
    assert [each.parts for each in run.record.artifacts] == [(Part(text="one"),)]
    assert len(there.asked) == 1


async def test_an_answer_that_comes_in_pieces_is_read_as_it_comes() -> None:
    async with warm(keeps=True) as (there, agent):
        there.halves = asyncio.Event()
        begun = begin_send(run := fresh(), agent.pool)
        assert begun is not None
        assert not await begun.pass_on()
        await reads_the_rest(there, agent, run, begun)


async def test_a_call_whose_wait_was_canceled_goes_on() -> None:
    async with warm(keeps=True) as (there, agent):
        there.halves = asyncio.Event()
        begun = begin_send(run := fresh(), agent.pool)
        assert begun is not None
        begun.stream.waiting.cancel()
        await reads_the_rest(there, agent, run, begun)


async def test_a_run_that_ends_here_gives_its_call_up() -> None:
    async with warm(keeps=True) as (there, agent):
        there.halves = asyncio.Event()
        task = asyncio.create_task(agent.run(fresh()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert begin_send(fresh(), agent.pool) is None, "its connection is closed, since the answer had not come"


async def test_a_streaming_caller_reads_the_same_updates_on_both_ways() -> None:
    there, read = Answering(keeps=True), []
    async with loopback.listening(there.serve) as port:
        agent = partner(f"http://127.0.0.1:{port}", dialect="1.0", queues=True)  # it says when it is at work
        async with fronted(agent) as connection:
            for text in ("the other way", "at once"):
                read.append([state_of(update) async for update in connection.stream(text)])
    assert read[0] == read[1]
    assert read[0][1:] == [TaskState.WORKING, ArtifactUpdate, TaskState.COMPLETED]


def state_of(update: Update) -> object:
    return update.status.state if isinstance(update, StatusUpdate) else type(update)
