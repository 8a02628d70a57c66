"""Whatever an agent says is refused where it says it, or its task can be read back: by anybody, in every dialect."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from dragoman import Agent, Answer, Artifact, Context, Message, Part, Role
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.client import connect
from dragoman.config import Config
from dragoman.dialects.registry import load_systems
from dragoman.engine.api import Delegation, Ended, Reject, Replied, Run
from dragoman.engine.bounds import Bounds, flag
from dragoman.model.errors import InternalError, UnsupportedOperation
from dragoman.model.events import StatusChanged
from dragoman.model.operations import GetTask, ListTasks
from dragoman.model.task import TERMINAL, ModelUsage, Record, Task, TaskState, Usage
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.store.api import Append, Appended, Repeat
from tests.engine.house import DEADLINE_S, House, Scripted, echo, house, read, streaming, text_of

S = TaskState

ANSWER = Answer(Message(message_id="m", role=Role.USER, parts=(Part(text="Lyon"),)))


class Number(int):
    """A whole number of a type of its own."""


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 5, 2**53, 2**53 + 1, 2**70, 0.5, math.nan, math.inf, Number(3)),
    *("", "a", "a\0b", "\ud800", "é", "x" * 1024, "x" * 1025, "x" * 3000, ANSWER, b"", b"\xff", bytearray(b"a")),
    *([], [1], ["a"], (), ("a",), {}, {"a": 1}, {1: 2}, {"a": math.nan}, {"\ud800": 1}, {ANSWER: ANSWER}, {"a"}),
    *(object(), Part(text="p"), Part(), Part(filename=5), Message(message_id="m", role=Role.AGENT, parts=())),  # type: ignore[arg-type]
    *(S.FAILED, UNSET, Ellipsis, int, [[[[[]]]]], Artifact(artifact_id="a", parts=(Part(text="a"),))),
)
"""Values of the types that an agent may confuse, and of some that no field has."""

odd = st.sampled_from(ODD)
texts = st.sampled_from(["", "a", ANSWER, "é", None])


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What the field is for, or anything else."""
    return st.one_of(usual, odd)


optional = mostly(texts)
metadata = mostly(st.sampled_from([None, {}, {"a": [1, ANSWER]}, {"a": {"b": None}}]))
flags = mostly(st.booleans())
numbers = mostly(st.integers(-3, 2**54))

parts = st.one_of(
    st.builds(
        lambda held, fields: Part(**held, **fields),
        st.dictionaries(st.sampled_from(["text", "raw", "url", "data"]), odd, min_size=1, max_size=2),
        st.fixed_dictionaries(
            {},
            optional={
                "filename": optional,
                "media_type": optional,
                "metadata": metadata,
                "blob": odd,
                "file": odd,
            },
        ),
    ),
    st.builds(lambda text: Part(text=text), texts),
)
contents = st.one_of(odd, parts, st.lists(st.one_of(parts, odd), max_size=3), st.tuples(odd, odd))
artifacts = st.builds(
    Artifact,
    artifact_id=optional,
    parts=st.one_of(odd, st.lists(st.one_of(parts, odd), max_size=2).map(tuple)),
    name=optional,
    description=optional,
    metadata=metadata,
    extensions=mostly(st.sampled_from([(), ("a",), (ANSWER,), (5,)])),
)
sequences = st.one_of(odd, st.lists(st.one_of(parts, odd), max_size=3).map(tuple))

Say = Callable[[Any], Awaitable[object]]


def keywords(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


async def _now(done: object) -> object:
    return done


IN_CONTEXT: dict[str, st.SearchStrategy[Say]] = {
    "artifact": st.builds(
        lambda content, words: lambda ctx: ctx.artifact(content, **words),
        st.one_of(contents, artifacts),
        keywords(name=optional, description=optional, id=optional, append=flags, last=flags, media_type=optional),
    ),
    "status": st.builds(
        lambda content, words: lambda ctx: ctx.status(content, **words), contents, keywords(metadata=metadata)
    ),
    "progress": st.builds(
        lambda at, of, words: lambda ctx: ctx.progress(at, of, **words), numbers, numbers, keywords(text=optional)
    ),
    "tool": st.builds(
        lambda name, id_, words: lambda ctx: ctx.tool(name, id=id_, **words),
        optional,
        optional,
        keywords(arguments=odd, result=odd, error=optional, done=flags),
    ),
    "note": st.builds(lambda name, text: lambda ctx: _now(ctx.note(name, text)), optional, optional),
    "usage": keywords(input=numbers, output=numbers, total=numbers, model=optional).map(
        lambda words: lambda ctx: _now(ctx.usage(**words))
    ),
    "history": odd.map(lambda limit: lambda ctx: ctx.history(limit)),
    "read": st.one_of(odd, parts).map(lambda part: lambda ctx: ctx.read(part)),
    "delegate": st.builds(
        lambda agent, message, words: lambda ctx: ctx.delegate(agent, message, **words),
        mostly(st.just("child")),
        contents,
        keywords(
            skill=optional,
            context_id=optional,
            timeout_s=mostly(st.just(5)),
            progress=flags,
            asks=mostly(st.just("raise")),
            detach=flags,
        ),
    ),
    "finish": contents.map(lambda content: lambda ctx: ctx.finish(content)),
    "fail": contents.map(lambda content: lambda ctx: ctx.fail(content)),
    "message_reply": contents.map(lambda content: lambda ctx: ctx.message_reply(content)),
    "ask": contents.map(lambda content: lambda ctx: ctx.ask(content)),
    "require_auth": contents.map(lambda content: lambda ctx: ctx.require_auth(content)),
}
"""The calls of Context, with anything for their arguments."""


async def _end(state: TaskState, said: Any) -> None:
    raise Ended(state, said)


async def _reply(said: Any) -> None:
    raise Replied(said)


async def _reject(said: Any) -> None:
    raise Reject(said)


IN_RUN: dict[str, st.SearchStrategy[Say]] = {
    "status": st.builds(
        lambda said, words: lambda run: run.status(said, **words),
        sequences,
        keywords(metadata=metadata, progress=mostly(st.tuples(numbers, numbers))),
    ),
    "artifact": st.builds(
        lambda artifact, append, last: lambda run: run.artifact(artifact, append=append, last_chunk=last),
        st.one_of(artifacts, odd),
        flags,
        flags,
    ),
    "waiting": sequences.map(lambda said: lambda run: _now(run.waiting(said))),
    "usage": st.builds(
        lambda *used: lambda run: _now(run.usage(Usage(*used))),
        numbers,
        numbers,
        numbers,
        mostly(st.builds(lambda *used: (ModelUsage(*used),), optional, numbers, numbers, numbers)),
    ),
    "note": st.builds(lambda name, text: lambda run: _now(run.note(**{name: text})), texts.filter(bool), optional),
    "note_soon": st.builds(
        lambda name, text: lambda run: _now(run.note_soon(**{name: text})), texts.filter(bool), optional
    ),
    "ask": sequences.map(lambda said: lambda run: run.ask(said)),
    "history": odd.map(lambda limit: lambda run: run.history(limit)),
    "delegate": st.builds(
        lambda said, words: (
            lambda run: run.delegate(Delegation(agent=words.pop("agent", "child"), parts=said, **words))
        ),
        sequences,
        keywords(
            agent=odd,
            skill=optional,
            context_id=optional,
            timeout_s=odd,
            progress=flags,
            asks=odd,
            detach=flags,
            number=odd,
        ),
    ),
    "ended": st.builds(
        lambda state, said: lambda run: _end(state, said),
        st.sampled_from(sorted(TERMINAL)),
        sequences.filter(lambda said: isinstance(said, tuple | list | str | bytes | dict)),
    ),
    "replied": sequences.filter(lambda said: isinstance(said, tuple | list)).map(lambda said: lambda run: _reply(said)),
    "rejects": odd.map(lambda said: lambda run: _reject(said)),
}
"""The calls of Run, and the ways to end one, with anything for their arguments."""

modes = st.sampled_from([False, "auto", True])

quickly = settings(phases=(Phase.generate,))
"""An example that fails is shown as it was found: each takes an engine, so that making it smaller takes minutes."""


async def readable(h: House, task_id: str) -> Record:
    """Read a task as callers do, from the store, and write it in every dialect; return it."""
    record = await h.get(task_id)
    page = await h.listed(ListTasks(include_artifacts=True))
    assert task_id in [each.head.id for each in page.records]
    log = await h.log(task_id)
    for system in load_systems():
        written = system.dialect
        json.loads(written.encode_result(GetTask(id=task_id), record))
        json.loads(written.encode_result(ListTasks(include_artifacts=True), page))
        for logged in log:
            assert all(isinstance(frame, bytes) for frame in written.encode_event(record.head, logged.event, record))
    return record


async def tried(agents: list[Any], raised: list[BaseException]) -> None:
    """Run the agent on a task, answer its question if it asks, and read the task."""
    async with house(*agents, Scripted(echo, "child"), retry_s=0.01) as h:
        try:
            items = await read(await h.open(streaming()))
        except (InternalError, UnsupportedOperation):
            return  # there is no task, of an agent that answers with Messages alone
        if not hasattr(items[0], "record"):
            for system in load_systems():
                assert system.dialect.encode_message(items[0].message)
            return
        task_id = items[0].record.head.id
        record = await readable(h, task_id)
        if record.state in (S.INPUT_REQUIRED, S.AUTH_REQUIRED):
            await h.send("Lyon", task_id=task_id)
            record = await readable(h, task_id)
        assert record.state in TERMINAL
        assert all(isinstance(error, TypeError | ValueError) for error in raised), raised


@pytest.mark.parametrize("name", IN_CONTEXT)
@quickly
@given(data=st.data(), direct=modes)
def test_whatever_is_said_in_a_context_is_refused_there_or_read_back(
    name: str, data: st.DataObject, direct: Any
) -> None:
    said = data.draw(IN_CONTEXT[name])
    raised: list[BaseException] = []
    agent = Agent("agent", direct=direct)

    @agent.skill
    async def say(ctx: Context) -> None:
        """Say something."""
        try:
            await said(ctx)
        except (TypeError, ValueError) as error:
            raised.append(error)

    asyncio.run(tried([agent], raised))


@quickly
@given(content=st.one_of(contents, artifacts), direct=modes)
def test_whatever_is_yielded_or_returned_can_be_read_back(content: Any, direct: Any) -> None:
    for returns in (False, True):
        agent = Agent("agent", direct=direct)

        async def give(ctx: Context) -> object:
            return content

        async def give_in_pieces(ctx: Context) -> AsyncIterator[object]:
            yield "first "
            yield content

        agent.skill(give if returns else give_in_pieces)
        asyncio.run(tried([agent], []))


@pytest.mark.parametrize("name", IN_RUN)
@quickly
@given(data=st.data(), direct=modes)
def test_whatever_a_run_is_told_is_refused_there_or_read_back(name: str, data: st.DataObject, direct: Any) -> None:
    said = data.draw(IN_RUN[name])
    raised: list[BaseException] = []

    async def script(run: Run) -> None:
        try:
            await said(run)
        except (TypeError, ValueError) as error:
            raised.append(error)

    asyncio.run(tried([Scripted(script, direct=direct)], raised))


async def test_text_is_text_whatever_its_type() -> None:
    """An Answer is a `str`; its name reaches the store as one."""
    agent = Agent("agent")

    @agent.skill
    async def ask(ctx: Context) -> str:
        """Ask, and use the answer for everything that is text."""
        answer = await ctx.ask("From where?")
        ctx.note("from", answer)
        ctx.usage(input=1, model=answer)
        await ctx.progress(1, 2, answer)
        await ctx.artifact(answer, name=answer, id=answer, media_type=answer, description=answer)
        await ctx.artifact(Part(text=answer, metadata={answer: answer}), name=answer)
        return answer

    async with house(agent) as h:
        task = await h.send()
        task = await h.send("Lyon", task_id=task.head.id)
        assert task.state is S.COMPLETED
        record = await readable(h, task.head.id)
        assert record.note == {"from": "Lyon"}
        assert record.usage == Usage(1, 0, 1, (ModelUsage("Lyon", 1, 0, 1),))
        assert [artifact.name for artifact in record.artifacts] == ["Lyon", "Lyon", None]


@pytest.mark.parametrize("refused", ["the tokens", "every end"])
async def test_an_end_that_cannot_be_written_is_replaced_once(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    async def script(run: Run) -> None:
        run.usage(Usage(1, 2, 3))

    async with house(Scripted(script), retry_s=0.01) as h:
        real, refusals = h.store.append, 0

        def append(wanted: Append) -> "asyncio.Future[Appended | Repeat]":
            nonlocal refusals
            tells = any(isinstance(event, StatusChanged) and event.usage is not None for event in wanted.events)
            if wanted.state in TERMINAL and (refused == "every end" or tells):
                refusals += 1
                raise TypeError("no such value")
            return real(wanted)

        h.store.append = append  # type: ignore[method-assign]
        with caplog.at_level(logging.ERROR):
            task_id = await h.begin()
            if refused == "the tokens":
                record = await h.reach(task_id, S.FAILED)
                assert (record.usage, refusals) == (None, 1)
            else:
                async with asyncio.timeout(60):
                    while not any("its end cannot be written" in each.getMessage() for each in caplog.records):
                        await asyncio.sleep(0)
                assert refusals == 3  # the run's end, what replaced it, and the one of the engine
                h.store.append = real  # type: ignore[method-assign]
                record = await h.reach(task_id, S.FAILED)  # nobody has to cancel it
                assert record.status.message is not None
                assert record.status.message.metadata == {"reason": "internal_error"}
        given_up = [each.exc_info for each in caplog.records if "given up" in each.getMessage()]
        assert given_up == ([] if refused == "the tokens" else [None])


@pytest.mark.parametrize("direct", [False, "auto"])
@pytest.mark.parametrize(
    "end",
    [
        Ended(S.WORKING),
        Ended(S.INPUT_REQUIRED, (Part(text="?"),)),
        Ended(S.SUBMITTED),
        Ended(S.FAILED, reason=5),  # type: ignore[arg-type]
        Ended(S.FAILED, retry_after_s=math.nan),
        Reject(Number),
        type("Unspoken", (Reject,), {"__str__": lambda _: 5})(),
    ],
    ids=repr,
)
async def test_an_end_that_is_none_is_a_fault_of_the_agent(end: Exception, direct: Any) -> None:
    async def script(run: Run) -> None:
        raise end

    async with house(Scripted(script, direct=direct)) as h:
        record = await h.send()
        assert record.status.message is not None
        if type(end) is Reject:
            assert record.state is S.REJECTED
        else:
            assert record.state is S.FAILED
            assert record.status.message.metadata == {"reason": "agent_error"}


class Itself(str):
    """A text whose `str()` is no plain text."""

    def __str__(self) -> str:
        return self


class MadeAnew:
    """A value that is another one each time."""

    def __init__(self) -> None:
        self.times = 0

    def model_dump(self, mode: str) -> dict[str, Any]:
        self.times += 1
        return {"a": [] if self.times == 2 else 2**60}


class NoRepr:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_json_is_looked_at_once() -> None:
    bounds = Bounds()
    assert bounds.json("data", {"a": Itself("b")}) == {"a": "b"}
    with pytest.raises(ValueError, match="data: integers"):
        bounds.json("data", {"a": MadeAnew()})
    with pytest.raises(TypeError, match="data: Raw has no JSON form"):
        bounds.json("data", {"a": msgspec.Raw(b"{bad")})
    for odd_one in (NoRepr(), 10**5000):
        with pytest.raises(TypeError, match="append must be True or False"):
            flag("append", odd_one)


@pytest.mark.parametrize("again", [False, True])
async def test_an_agent_that_cancels_its_own_run_fails_its_task(again: bool) -> None:
    async def script(run: Run) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        if again:
            try:
                await asyncio.sleep(60)
            finally:
                current.cancel()
        await asyncio.sleep(60)

    async with house(Scripted(script, deadline_s=3600)) as h:
        record = await h.send()
        assert record.state is S.FAILED
        assert record.status.message is not None
        assert record.status.message.metadata == {"reason": "agent_error"}


@pytest.mark.parametrize("wish", [{"context_id": math.nan}, {"skill": 5}, {"detach": "yes"}, {"timeout_s": math.inf}])
async def test_an_order_that_cannot_be_carried_out_is_refused_where_it_is_given(wish: dict[str, Any]) -> None:
    caught: list[str] = []
    agent = Agent("agent")

    @agent.skill
    async def hand_on(ctx: Context) -> None:
        """Delegate."""
        for give in (ctx.delegate, ctx.delegate_stream):
            if give == ctx.delegate_stream and "detach" in wish:
                continue
            try:
                given = give("child", **wish)
                await given if give == ctx.delegate else [each async for each in given]
            except (TypeError, ValueError) as error:
                caught.append(str(error))

    async with house(agent, Scripted(echo, "child")) as h:
        assert (await h.send()).state is S.COMPLETED
    assert caught
    assert all(said.startswith(next(iter(wish))) for said in caught), caught


async def test_a_text_longer_than_the_setting_is_refused_where_it_is_said() -> None:
    caught: list[str] = []

    async def script(run: Run) -> None:
        for said in ("x" * 11, "é" * 11, "x" * 10):
            try:
                await run.artifact(Artifact(artifact_id="a", parts=(Part(text=said),)), append=False, last_chunk=True)
            except ValueError as error:
                caught.append(str(error))

    async with house(Scripted(script), max_text=10) as h:
        assert (await h.send()).state is S.COMPLETED
    assert caught == 2 * ["artifact.parts[0].text has 11 characters: at most 10 are allowed (max_text)"]


async def test_the_callers_own_message_is_handed_on_as_it_is() -> None:
    """It may hold what an agent may not say: it was taken, and can be read."""
    agent = Agent("agent")

    @agent.skill
    async def hand_on(ctx: Context) -> str:
        """Delegate, twice: here, and by a stream."""
        here = await ctx.delegate("child")
        streamed = [piece async for piece in ctx.delegate_stream("child")]
        return here.text + "".join(map(str, streamed))

    said = (Part(text="hi"), Part(data=2**60))
    async with house(agent, Scripted(echo, "child")) as h:
        task = await h.send(parts=said)
        assert (task.state, text_of(task)) == (S.COMPLETED, "hihi")


@pytest.mark.parametrize("text", ["word", "W\u00f6rter", "\u8bcd\u8bed", "\N{GRINNING FACE}"])
async def test_a_chunk_of_text_in_any_script_is_passed_on(text: str) -> None:
    async def script(run: Run) -> None:
        for number in range(3):
            chunk = Artifact(artifact_id="a", name="\u00e9", parts=(Part(text=text),))
            await run.artifact(chunk, append=number > 0, last_chunk=False)

    async with house(Scripted(script)) as h:
        assert text_of(await h.send()) == 3 * text


async def test_a_worker_is_refused_where_it_says_it_by_the_bounds_of_its_server() -> None:
    caught: list[str] = []
    agent = Agent("desk")

    @agent.skill
    async def say(ctx: Context) -> str:
        """Say too much, and then enough."""
        for speak in (ctx.artifact, ctx.status, ctx.ask):
            try:
                await speak("x" * 2000)
            except ValueError as error:
                caught.append(str(error))
        return "done"

    there, egress, stop = WorkerAgent(agent.profile, queues=True), Egress(operator_named), asyncio.Event()
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2, max_text=1024)
    try:
        async with (
            asyncio.timeout(DEADLINE_S),
            serving(config, [there]) as url,
            connect(f"{url}/agents/desk") as connection,
        ):
            working = asyncio.create_task(
                Lessee(agent, WorkerApi(egress, url, "desk"), name="w", tasks=1).work(stop, 0.2)
            )
            try:
                task = await connection.send("go")
            finally:
                stop.set()
                await working
    finally:
        await egress.close()
    assert isinstance(task, Task)
    assert (task.status.state, [artifact.parts for artifact in task.artifacts]) == (S.COMPLETED, [(Part(text="done"),)])
    assert len(caught) == 3
    assert all("has 2000 characters: at most 1024 are allowed (max_text)" in said for said in caught)


NAMES = ("", "a", "é", "a\0b", "\ud800", "x" * 1024, "x" * 1025)


def test_a_chunk_that_is_weighed_as_plain_is_one_that_would_pass_unchanged() -> None:
    bounds, plain = Bounds(max_text=20), 0
    for key, title, text in product(NAMES, (None, *NAMES), ("", "a", "é", "a\0b", "\ud800", "x" * 20, "x" * 21)):
        artifact = Artifact(artifact_id=key, name=title, parts=(Part(text=text),))
        if bounds.weigh_plain(artifact):
            plain += 1
            assert bounds.artifact(artifact) == artifact
    assert plain > 20
