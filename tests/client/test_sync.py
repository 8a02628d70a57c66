"""The blocking twin: the same calls, signatures and errors, also within a loop that runs, and nothing left open."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.client import NotReached, Retries, sync
from dragoman.client.connection import Connection
from dragoman.client.conversation import Conversation
from dragoman.client.webhooks import TaskWebhooks
from dragoman.config import Config
from dragoman.model.errors import TaskNotFound
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate
from dragoman.server import serving
from tests.net.peer import DEADLINE_S, nobody
from tests.spec.agents import Gates, house

CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=0.3, push_allowed_hosts=("127.0.0.1",))


class Background:
    """A server in a thread, for callers that block."""

    def __init__(self) -> None:
        self.url = ""
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        async with serving(CONFIG, house(Gates())) as self.url:
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> "Background":
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(DEADLINE_S)
        self._loop.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Background() as server:
        yield f"{server.url}/agents/script"


def threads() -> int:
    return sum(thread.name == "dragoman-client" for thread in threading.enumerate())


def test_calls_and_streams_are_those_of_the_client(url: str) -> None:
    with sync.connect(url) as agent:
        task = agent.send("chunks 2")
        assert isinstance(task, Task)
        assert agent.get(task.id).artifacts == task.artifacts
        assert [each.id for each in agent.list(context_id=task.context_id).tasks] == [task.id]
        chunks = [each for each in agent.stream("chunks 3") if isinstance(each, ArtifactUpdate)]
        assert "".join(each.artifact.parts[0].text or "" for each in chunks) == "0 1 2 "
        hook = agent.webhooks.set(task.id, "https://127.0.0.1:9/hook")
        assert [each.id for each in agent.webhooks.list(task.id)] == [hook.id]
        assert agent.card is not None
    assert threads() == 0


def test_a_conversation_is_one_too(url: str) -> None:
    with sync.connect(url) as agent:
        talk = agent.conversation()
        assert talk.say("ask once").asks
        assert talk.say("this").text == "this"
        assert list(talk.stream("chunks 1"))
        assert talk.reply is not None
        assert talk.reply.state is TaskState.COMPLETED


def test_errors_are_those_of_the_client(url: str) -> None:
    with sync.connect(url) as agent:
        with pytest.raises(TaskNotFound):
            agent.get("nobody's")
        with pytest.raises(TaskNotFound):
            list(agent.subscribe("nobody's"))


async def test_it_works_where_a_loop_runs_already(url: str) -> None:
    with sync.connect(url) as agent:
        assert isinstance(agent.send("chunks 1"), Task)


async def test_what_cannot_be_reached_leaves_no_thread_behind() -> None:
    nowhere = await nobody()
    with pytest.raises(NotReached):
        sync.connect(nowhere, retries=Retries(attempts=1))
    assert threads() == 0


def test_a_stream_that_is_left_is_closed(url: str) -> None:
    with sync.connect(url) as agent:
        for _ in agent.stream("wait for-ever"):
            break
        assert isinstance(agent.send("chunks 1"), Task)
        held = agent.stream("wait for-ever")
        next(held)
    with pytest.raises(RuntimeError, match="closed"):
        next(held)
    assert threads() == 0


def test_an_agent_that_nobody_holds_is_closed(url: str) -> None:
    talk = sync.connect(url).conversation()
    assert talk.say("chunks 1").text == "0 "
    assert threads() == 1
    del talk
    assert threads() == 0


def test_after_the_end_it_says_so(url: str) -> None:
    agent = sync.connect(url)
    agent.close()
    agent.close()
    with pytest.raises(RuntimeError, match="closed"):
        agent.get("t")


@pytest.mark.parametrize(
    ("twin", "original"),
    [
        (sync.BlockingConnection, Connection),
        (sync.BlockingWebhooks, TaskWebhooks),
        (sync.BlockingConversation, Conversation),
    ],
)
def test_every_method_has_its_twin_with_its_signature_and_docstring(twin: type, original: type) -> None:
    within = {"begin_stream", "events", "task_stream"}  # of them the client is made
    for name, method in inspect.getmembers(original, inspect.isfunction):
        if name.startswith("_") or name in within or name == "conversation":
            continue
        made = getattr(twin, name)
        assert not inspect.iscoroutinefunction(made)
        assert inspect.signature(made) == inspect.signature(method), name
        assert made.__doc__ == method.__doc__


INTERRUPTED = """
import signal, sys, threading
from dragoman.client.sync import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background is started to ignore it
agent = connect(sys.argv[1])
try:
    for update in agent.stream("wait interrupted"):
        print("told", flush=True)
except KeyboardInterrupt:
    print(type(agent.send("chunks 1")).__name__, flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_ends_the_call_and_nothing_else(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == b"told\n"
        os.kill(script.pid, signal.SIGINT)
        out, errors = script.communicate(timeout=DEADLINE_S)
    assert (script.returncode, errors) == (0, b"")
    assert out.endswith(b"Task\n")


class Told(asyncio.SelectorEventLoop):
    """An event loop that tells when another thread has given it something to do for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.twice = threading.Event()

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        if threading.current_thread() is threading.main_thread():
            self.times += 1  # before the call, which the interrupt may end
        handle = super().call_soon_threadsafe(*args, **kwargs)
        if self.times == 2:
            self.twice.set()
        return handle


def test_an_interrupt_at_the_moment_of_the_result_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, main = Told(), threading.get_ident()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        yield None

    async def ends_as_it_is_canceled() -> str:
        signal.pthread_kill(main, signal.SIGINT)
        assert loop.twice.wait(DEADLINE_S), "the call was not canceled"
        return "done"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = sync.Thread()
    try:
        thread.open(opened())
        with pytest.raises(KeyboardInterrupt):
            thread.run(ends_as_it_is_canceled)
    finally:
        thread.close()
        signal.signal(signal.SIGINT, before)
    assert caplog.text == ""


async def test_closing_cancels_what_is_under_way() -> None:
    begun, ended = threading.Event(), threading.Event()

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        yield None

    async def waits() -> AsyncGenerator[int, None]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            ended.set()

    async def step() -> int:
        return await anext(waits())

    thread, errors = sync.Thread(), list[str]()
    thread.open(opened())

    def call() -> None:
        with pytest.raises(RuntimeError) as caught:
            thread.run(step)
        errors.append(str(caught.value))

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(DEADLINE_S)
    thread.close()
    assert ended.wait(DEADLINE_S)
    caller.join(DEADLINE_S)
    assert errors == ["the agent was closed meanwhile"]
