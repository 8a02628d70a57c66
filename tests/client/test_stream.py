"""Streams that mend themselves: however they are cut, what is told is what would have been told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Agent, Context, Part
from dragoman.client import CallBroken, Retries, StreamLost, Timeouts, connect, text_of
from dragoman.client.connection import Connection
from dragoman.client.conversation import make_message
from dragoman.client.retries import Retrier
from dragoman.client.task_fold import TaskFold, join_text
from dragoman.config import Config
from dragoman.model.errors import InvalidAgentResponse, InvalidParams, TaskNotFound
from dragoman.model.operations import StreamMessage
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.server import serving
from tests.client.proxy import Fault, Proxy, before, twice, unnumbered
from tests.net.peer import DEADLINE_S, Peer, hangs, raw, says
from tests.ports import kept_port
from tests.soak import times
from tests.spec.agents import Gates, house

CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=0.3)
NOW = Retrier(Retries(dedupes=True), pause=lambda seconds: asyncio.sleep(0), chance=lambda: 1.0)
TIMEOUTS = Timeouts(idle_s=0.3, mend_s=DEADLINE_S)


def player() -> Agent:
    """Does a list of things: says texts in pieces, gives out artifacts, reports, asks."""
    agent = Agent("player")

    @agent.skill
    async def play(ctx: Context) -> AsyncIterator[object]:
        """Plays what is in the data."""
        for verb, *rest in ctx.data:
            match verb:
                case "say":
                    yield rest[0]
                case "give":
                    yield {"given": rest[0]}
                case "report":
                    await ctx.status(rest[0])
                case "more":
                    await ctx.artifact(rest[1], id=rest[0], append=True, last=False)
                case "ask":
                    yield await ctx.ask(rest[0])
            await asyncio.sleep(0)

    return agent


@pytest.fixture(scope="module")
async def gates() -> Gates:
    return Gates()


@pytest.fixture(scope="module")
async def proxy(gates: Gates) -> AsyncIterator[Proxy]:
    async with serving(CONFIG, [player(), *house(gates)]) as url, before(url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
async def agent(proxy: Proxy) -> AsyncIterator[Connection]:
    url = f"{proxy.url}/agents/player"
    async with connect(url, dialect="1.0", retries=NOW, timeouts=TIMEOUTS) as agent:
        yield agent


@pytest.fixture(scope="module")
async def patient(proxy: Proxy) -> AsyncIterator[Connection]:
    """Waits for a stream that is silent: what it measures is one whole answer."""
    async with connect(f"{proxy.url}/agents/player", dialect="1.0", retries=NOW) as agent:
        yield agent


def no_subscription(asked: bytes) -> Fault | None:
    if b'"SubscribeToTask"' not in asked and b'"tasks/resubscribe"' not in asked:
        return None
    error = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Method not found"}})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(error)}\r\n\r\n"
    return Fault(refuses=(head + error).encode())


def said(updates: list[Update]) -> dict[str, str]:
    """All text that was told, in order, by artifact."""
    texts: dict[str, str] = {}
    for update in updates:
        if isinstance(update, ArtifactUpdate):
            name = update.artifact.artifact_id
            texts[name] = texts.get(name, "") + "".join(part.text or "" for part in update.artifact.parts)
    return texts


def outcome(updates: list[Update]) -> Any:
    """The task that the updates fold to, without ids and times."""
    fold = TaskFold()
    for update in updates:
        fold.add(update)
    task = fold.task()
    assert task is not None
    said = task.status.message
    return (
        task.status.state,
        () if said is None else said.parts,
        [(each.artifact_id, join_text(each.parts)) for each in task.artifacts],
    )


async def streamed(agent: Connection, script: list[Any]) -> list[Update]:
    async with asyncio.timeout(DEADLINE_S):
        return [update async for update in agent.stream(Part(data=script))]


SCRIPT = [
    ["report", "Begun"],
    ["say", "One, "],
    ["more", "log", "a"],
    ["say", "two"],
    ["more", "log", "b"],
    ["give", 3],
]

SHORT = [["say", "One"], ["say", "two"]]

STEP = st.one_of(
    st.tuples(st.just("say"), st.text(min_size=1, max_size=8)),
    st.tuples(st.just("give"), st.integers(0, 9)),
    st.tuples(st.just("report"), st.text("ab", min_size=1, max_size=3)),
)


@settings(suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(STEP, min_size=1, max_size=12).map(lambda steps: [list(step) for step in steps]),
    cuts=st.lists(st.integers(1, 2500), max_size=4),
    piece=st.sampled_from([0, 1, 5]),
    politely=st.booleans(),
    way=st.sampled_from(["numbered", "repeated", "unnumbered", "polled"]),
)
async def test_a_stream_that_is_cut_anywhere_folds_to_what_it_would_have(
    agent: Connection, proxy: Proxy, script: list[Any], cuts: list[int], piece: int, politely: bool, way: str
) -> None:
    frames = {"numbered": None, "repeated": twice}.get(way, unnumbered)
    proxy.choose = lambda asked: None
    proxy.next()
    whole = await streamed(agent, script)
    if way == "polled":
        proxy.choose = no_subscription
    faults = [Fault(cut=cut, piece=piece, frames=frames, politely=politely) for cut in cuts]
    proxy.next(*faults, then=Fault(piece=piece, frames=frames))
    mended = await streamed(agent, script)
    assert outcome(mended) == outcome(whole)
    assert said(mended) == said(whole)
    if way == "numbered":
        assert [type(each) for each in mended] == [type(each) for each in whole]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["numbered", "unnumbered", "polled"])
async def test_a_stream_may_be_cut_at_any_byte(agent: Connection, patient: Connection, proxy: Proxy, way: str) -> None:
    frames = None if way == "numbered" else unnumbered
    proxy.choose = no_subscription if way == "polled" else lambda asked: None
    proxy.next(then=Fault(frames=frames))
    whole = await streamed(patient, SHORT)
    (size,) = proxy.sizes
    for cut in range(1, size, times(7, 1)):
        proxy.next(Fault(cut=cut, frames=frames), then=Fault(frames=frames))
        mended = await streamed(agent, SHORT)
        assert (outcome(mended), said(mended)) == (outcome(whole), said(whole)), cut


PLACES = {"1.0": "/", "0.3": "/", "beeos": "/player", "evoai": "/api/v1/a2a/player", "protoagent": "/a2a", "kaos": "/"}


@pytest.mark.parametrize("way", ["numbered", "repeated", "unnumbered", "polled"])
@pytest.mark.parametrize("dialect", PLACES)
async def test_a_stream_mends_itself_in_every_dialect(proxy: Proxy, dialect: str, way: str) -> None:
    frames = {"numbered": None, "repeated": twice}.get(way, unnumbered)
    url = proxy.url + PLACES[dialect]
    async with (
        connect(url, dialect=dialect, retries=NOW) as patient,  # an idle timeout would cut the stream that is measured
        connect(url, dialect=dialect, retries=NOW, timeouts=TIMEOUTS) as agent,
    ):
        proxy.choose = lambda asked: None
        proxy.next()
        whole = end(await streamed(patient, SCRIPT))
        (size,) = proxy.sizes
        proxy.choose = no_subscription if way == "polled" else proxy.choose
        for cut in range(1, size, size // 7):
            faults = Fault(cut=cut, frames=frames), Fault(cut=size - cut, frames=frames, politely=True)
            proxy.next(*faults, then=Fault(frames=frames))
            assert end(await streamed(agent, SCRIPT)) == whole, cut


def end(updates: list[Update]) -> tuple[TaskState, str]:
    fold = TaskFold()
    for update in updates:
        fold.add(update)
    task = fold.task()
    assert task is not None
    return task.status.state, text_of(task)


async def test_a_stream_that_goes_silent_is_taken_up_again(
    agent: Connection, patient: Connection, proxy: Proxy
) -> None:
    proxy.choose = lambda asked: None
    proxy.next()
    whole = await streamed(patient, SCRIPT)
    proxy.next(Fault(stall=proxy.sizes[0] // 2))
    assert outcome(await streamed(agent, SCRIPT)) == outcome(whole)
    assert b"Last-Event-ID: " in proxy.asked[1]


async def test_what_was_missed_while_the_task_works_comes_before_what_follows(
    agent: Connection, proxy: Proxy, gates: Gates
) -> None:
    name = "missed"

    def choose(asked: bytes) -> None:
        if b'"SubscribeToTask"' in asked:
            gates.open[name].set()

    proxy.choose = choose
    proxy.next(Fault(cut=900, frames=unnumbered), then=Fault(frames=unnumbered))
    url = f"{proxy.url}/agents/script"
    async with asyncio.timeout(DEADLINE_S), connect(url, dialect="1.0", retries=NOW, timeouts=TIMEOUTS) as script:
        got = [update async for update in script.stream(f"wait {name}")]
    methods = [json.loads(asked.partition(b"\r\n\r\n")[2])["method"] for asked in proxy.asked]
    assert methods[:3] == ["SendStreamingMessage", "GetTask", "SubscribeToTask"]
    assert said(got) == {"result": "done"}
    assert [update.status.state for update in got if isinstance(update, StatusUpdate)][-1] is TaskState.COMPLETED


@pytest.mark.parametrize("way", ["numbered", "unnumbered", "polled"])
async def test_a_stream_that_was_mended_ends_where_the_agent_asks(agent: Connection, proxy: Proxy, way: str) -> None:
    proxy.choose = no_subscription if way == "polled" else lambda asked: None
    frames = None if way == "numbered" else unnumbered
    proxy.next(Fault(cut=700, frames=frames), then=Fault(frames=frames))
    updates = await streamed(agent, [["say", "a"], ["report", "b"], ["ask", "Which?"]])
    fold = TaskFold()
    for update in updates:
        fold.add(update)
    task = fold.task()
    assert task is not None
    assert (task.status.state, said(updates)) == (TaskState.INPUT_REQUIRED, {"result": "a"})
    proxy.next(Fault(cut=700, frames=frames), then=Fault(frames=frames))
    async with asyncio.timeout(DEADLINE_S):
        more = [update async for update in agent.stream("this", task_id=task.id, context_id=task.context_id)]
    assert outcome(more)[0] is TaskState.COMPLETED


async def test_a_subscription_goes_on_where_it_broke(agent: Connection, proxy: Proxy) -> None:
    proxy.choose = lambda asked: None
    proxy.next()
    (task, *_) = await streamed(agent, SCRIPT)
    assert isinstance(task, Task)
    proxy.next(Fault(cut=500))
    async with asyncio.timeout(DEADLINE_S):
        updates = [update async for update in agent.subscribe(task.id, after="1")]
    assert outcome([task, *updates])[0] is TaskState.COMPLETED
    assert said(updates) == {"result": "One, two", "log": "ab"}
    assert len(proxy.asked) == 2


async def test_a_stream_outlives_a_restart_of_the_server(tmp_path: Path, gates: Gates) -> None:
    config = replace(CONFIG, port=kept_port(), store=f"sqlite:///{tmp_path}/tasks.db")
    again = Retrier(Retries(first_s=0.05, longest_s=0.2))
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        async with serving(config, house(gates)) as url:
            agent = await stack.enter_async_context(connect(f"{url}/agents/script", dialect="1.0", retries=again))
            stream = agent.task_stream(StreamMessage(message=make_message("wait restart")))
            updates = await stack.enter_async_context(aclosing(stream.updates()))
            got = [await anext(updates)]
            await gates.reached["restart"].wait()
        async with serving(config, house(gates)):
            got += [update async for update in updates]
    assert outcome(got)[0] is TaskState.FAILED
    assert [type(each) for each in got].count(Task) == 1
    assert stream.position.id


# Agents that are not ours


TASK: dict[str, Any] = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T07:00:00.000Z"},
}
DONE = {**TASK, "status": {**TASK["status"], "state": "TASK_STATE_COMPLETED"}}
SSE = {"Content-Type": "text/event-stream"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n"


def framed(*results: Any) -> bytes:
    return b"".join(
        b"data: " + json.dumps({"jsonrpc": "2.0", "id": None, "result": result}).encode() + b"\n\n"
        for result in results
    )


def answering(peer: Peer, **by_method: list[Any]) -> None:
    """Answer each method with these, one after the other, the last for ever."""

    async def script(asked: Any, writer: asyncio.StreamWriter) -> None:
        left = by_method[asked.json["method"].replace("/", "_")]
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    peer.scripts["POST /"] = script


def result(value: Any) -> Any:
    return says({"jsonrpc": "2.0", "id": None, "result": value})


def refusal(code: int) -> Any:
    return says({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "No"}})


async def followed(peer: Peer, *, dialect: str = "1.0", dedupes: bool = False, **more: Any) -> list[Update]:
    again = Retrier(Retries(dedupes=dedupes), pause=lambda seconds: asyncio.sleep(0), chance=lambda: 1.0)
    async with connect(peer.url, dialect=dialect, retries=again, **more) as agent:
        return [update async for update in agent.stream("hello", message_id="m-1")]


async def test_a_send_of_which_nothing_was_heard_is_not_repeated_where_it_may_count_twice(peer: Peer) -> None:
    peer.scripts["POST /"] = raw(HEAD + b"da")
    with pytest.raises(CallBroken, match="not known whether the agent has received message m-1") as caught:
        await followed(peer)
    assert (caught.value.message_id, caught.value.sent, len(peer.asked)) == ("m-1", True, 1)


async def test_a_send_of_which_nothing_was_heard_is_repeated_where_the_agent_knows_it(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[raw(HEAD + b"da"), raw(b""), says(framed({"task": DONE}), headers=SSE)])
    assert len(await followed(peer, dedupes=True)) == 1
    assert len(peer.asked) == 3
    assert {asked.json["params"]["message"]["messageId"] for asked in peer.asked} == {"m-1"}


async def test_a_stream_that_nobody_takes_up_is_given_up_by_the_name_of_its_time(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[raw(HEAD + b"id: 7\n" + framed({"task": TASK}))], SubscribeToTask=[raw(b"")])
    with pytest.raises(StreamLost, match=r"\(mend_s\)") as caught:
        await followed(peer, timeouts=Timeouts(mend_s=0.05))
    assert (caught.value.task_id, caught.value.event_id, caught.value.timeout) == ("t", "7", "mend_s")


async def test_a_stream_that_breaks_again_and_again_goes_on_as_long_as_there_is_news(peer: Peer) -> None:
    def chunk(number: int) -> Any:
        artifact = {"artifactId": "a", "parts": [{"text": f"{number} "}]}
        update = {"taskId": "t", "contextId": "c", "artifact": artifact, "append": number > 0}
        broken = raw(HEAD + f"id: {8 + number}\n".encode() + framed({"artifactUpdate": update}))

        async def script(asked: Any, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.25)  # in all longer than `mend_s`
            await broken(asked, writer)

        return script

    answering(
        peer,
        SendStreamingMessage=[raw(HEAD + b"id: 7\n" + framed({"task": TASK}))],
        SubscribeToTask=[*map(chunk, range(3)), says(b"id: 11\n" + framed({"task": DONE}), headers=SSE)],
    )
    updates = await followed(peer, timeouts=Timeouts(mend_s=0.6))
    assert said(updates) == {"a": "0 1 2 "}


async def test_a_server_that_starts_again_with_the_task_is_compared_with_what_was_told(peer: Peer) -> None:
    part = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "ab"}]}}
    whole = {**DONE, "artifacts": [{"artifactId": "a", "parts": [{"text": "a"}, {"text": "bc"}]}]}
    first = framed({"task": TASK}).replace(b"data", b"id: 1\ndata") + framed({"artifactUpdate": part})
    answering(
        peer, SendStreamingMessage=[raw(HEAD + first)], SubscribeToTask=[says(framed({"task": whole}), headers=SSE)]
    )
    updates = await followed(peer)
    assert [type(each) for each in updates] == [Task, ArtifactUpdate, ArtifactUpdate, StatusUpdate]
    assert said(updates) == {"a": "abc"}


async def test_a_subscription_that_begins_in_the_middle_is_not_trusted(peer: Peer) -> None:
    part = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "c"}]}, "append": True}
    working = {**TASK, "artifacts": [{"artifactId": "a", "parts": [{"text": "a"}]}]}
    done = {**DONE, "artifacts": [{"artifactId": "a", "parts": [{"text": "abc"}]}]}
    answering(
        peer,
        SendStreamingMessage=[raw(HEAD + framed({"task": TASK}))],
        SubscribeToTask=[says(framed({"artifactUpdate": part}), headers=SSE)],
        GetTask=[result(working), result(done)],
    )
    assert said(await followed(peer)) == {"a": "abc"}


async def test_what_comes_together_with_an_error_is_told_first(peer: Peer) -> None:
    parts = [
        {
            "taskId": "t",
            "contextId": "c",
            "append": text != "a",
            "artifact": {"artifactId": "a", "parts": [{"text": text}]},
        }
        for text in "ab"
    ]
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "No"}}
    sent = framed({"task": TASK}, *({"artifactUpdate": part} for part in parts))
    answering(peer, SendStreamingMessage=[raw(HEAD + sent + b"data: " + json.dumps(error).encode() + b"\n\n")])
    told: list[Update] = []
    async with connect(peer.url, dialect="1.0") as agent:
        with pytest.raises(InvalidParams):
            async for update in agent.stream("hello"):
                told.append(update)
    assert [type(each) for each in told] == [Task, ArtifactUpdate, ArtifactUpdate]


async def test_a_mere_acknowledgement_of_a_subscription_leads_to_asking(peer: Peer) -> None:
    working = {"id": "t", "contextId": "c", "status": {"state": "working"}, "artifacts": []}
    done = {**working, "status": {"state": "completed"}, "artifacts": [{"parts": [{"type": "text", "text": "ok"}]}]}
    answering(
        peer,
        message_stream=[raw(HEAD + framed({**working, "final": False}))],
        tasks_resubscribe=[result({"success": True, "message": "resubscribed"})],
        tasks_get=[result(working), result(working), result(done)],
    )
    updates = await followed(peer, dialect="evoai")
    assert list(said(updates).values()) == ["ok"]
    assert [asked.json["method"] for asked in peer.asked].count("tasks/resubscribe") == 1


async def test_a_dialect_without_streams_gives_its_answer_and_asks_until_it_ends(peer: Peer) -> None:
    working = {"id": "t", "sessionId": "c", "status": {"state": "working"}}
    answering(
        peer,
        SendMessage=[result(working)],
        GetTask=[result(working), result({**working, "status": {"state": "completed", "message": "Done"}})],
    )
    assert [type(each) for each in await followed(peer, dialect="kaos")] == [Task, StatusUpdate]


async def test_a_stream_that_ends_early_with_a_time_to_come_back_is_taken_up_then(peer: Peer) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    answering(
        peer,
        SendStreamingMessage=[says(framed({"task": TASK}) + b"retry: 700\n\n", headers=SSE)],
        GetTask=[result(DONE)],
    )
    async with connect(peer.url, dialect="1.0", retries=Retrier(pause=pause)) as agent:
        assert len([update async for update in agent.stream("hello")]) == 2
    assert pauses == [0.7]


@pytest.mark.parametrize("state", ["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"])
async def test_a_stream_that_its_agent_leaves_open_is_over_with_the_task(peer: Peer, state: str) -> None:
    said = framed({"task": TASK}, {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}}})
    answering(peer, SendStreamingMessage=[hangs(HEAD + said)])
    async with asyncio.timeout(DEADLINE_S):
        updates = await followed(peer, timeouts=Timeouts(idle_s=600))
    assert [type(update) for update in updates] == [Task, StatusUpdate]
    assert len(peer.asked) == 1


async def test_a_task_that_is_gone_is_told(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[raw(HEAD + framed({"task": TASK}))], GetTask=[refusal(-32001)])
    with pytest.raises(TaskNotFound):
        await followed(peer)


async def test_an_agent_that_is_unwell_for_a_while_is_asked_again(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[raw(HEAD + framed({"task": TASK}))], GetTask=[refusal(-32603), result(DONE)])
    assert len(await followed(peer)) == 2


async def test_whoever_leaves_is_not_followed(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[hangs(HEAD + framed({"task": TASK}))])
    async with connect(peer.url, dialect="1.0") as agent, aclosing(agent.stream("hello")) as updates:
        async for _ in updates:
            break
    assert len(peer.asked) == 1


# Ends of streams that were joined late


def grown(*parts: Any, name: str = "a", append: bool = True, task_id: str = "t") -> dict[str, Any]:
    artifact = {"artifactId": name, "parts": [{"text": each} if isinstance(each, str) else each for each in parts]}
    return {"artifactUpdate": {"taskId": task_id, "contextId": "c", "append": append, "artifact": artifact}}


def stands(state: str, said: str = "", task_id: str = "t") -> dict[str, Any]:
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if said:
        status["message"] = {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": said}]}
    return {"statusUpdate": {"taskId": task_id, "contextId": "c", "status": status}}


def shown(state: str, said: str = "", **artifacts: list[Any]) -> dict[str, Any]:
    """The task with these parts in its artifacts."""
    held = [grown(*parts, name=name)["artifactUpdate"]["artifact"] for name, parts in artifacts.items()]
    return {**TASK, "status": stands(state, said)["statusUpdate"]["status"], "artifacts": held}


def streaming(*results: Any) -> Any:
    return says(framed(*results), headers=SSE)


def begun(*results: Any) -> Any:
    """A stream that breaks after these."""
    return raw(HEAD + framed({"task": TASK}, *results))


def methods(peer: Peer) -> list[str]:
    return [asked.json["method"] for asked in peer.asked if asked.body]


def told_of(updates: list[Update]) -> Any:
    """The task that the updates fold to: the state with its text, and the parts by artifact."""
    state, parts, artifacts = outcome(updates)
    return state, "".join(part.text for part in parts), dict(artifacts)


async def test_a_chunk_that_comes_again_after_the_task_is_taken_back(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"])), result(shown("COMPLETED", a=["1", "2", "3"]))],
        SubscribeToTask=[
            streaming({"task": shown("WORKING", a=["1", "2"])}, grown("2"), grown("3"), stands("COMPLETED"))
        ],
    )
    updates = await followed(peer)
    assert told_of(updates) == (TaskState.COMPLETED, "", {"a": (Part(text="123"),)})
    *_, replaced, end = updates
    assert isinstance(replaced, ArtifactUpdate)
    assert (replaced.append, replaced.artifact.parts) == (False, (Part(text="123"),))
    assert isinstance(end, StatusUpdate)


async def test_chunks_that_no_snapshot_holds_come_with_the_end(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("COMPLETED", a=["1", "2", "3"], b=[{"data": 7}]))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("3"), stands("COMPLETED"))],
    )
    ended = told_of(await followed(peer))
    assert ended == (TaskState.COMPLETED, "", {"a": (Part(text="123"),), "b": (Part(data=7),)})


async def test_an_end_is_compared_in_all_parts(peer: Peer) -> None:
    whole = ["see", {"raw": "AAEC", "filename": "a.bin", "mediaType": "application/x"}, {"data": {"n": 1}}, "end"]
    answering(
        peer,
        SendStreamingMessage=[begun(grown(*whole[:2], append=False))],
        GetTask=[result(shown("WORKING", a=whole[:2])), result(shown("COMPLETED", a=whole))],
        SubscribeToTask=[
            streaming({"task": shown("WORKING", a=whole[:3])}, grown(whole[2]), grown(whole[3]), stands("COMPLETED"))
        ],
    )
    assert [part.text or part.data or part.raw for part in told_of(await followed(peer))[2]["a"]] == [
        "see",
        b"\0\1\2",
        {"n": 1},
        "end",
    ]


async def test_artifacts_that_the_agent_does_not_keep_stay(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("COMPLETED"))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("2"), stands("COMPLETED", "All said"))],
    )
    assert told_of(await followed(peer)) == (TaskState.COMPLETED, "All said", {"a": (Part(text="12"),)})


async def test_a_task_that_is_not_shown_in_its_end_yet_is_read_again(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[
            *[result(shown("WORKING", a=["1"]))] * 3,
            refusal(-32603),
            result(shown("COMPLETED", "Well", a=["1", "2"])),
        ],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1"])}, stands("COMPLETED"))],
    )
    assert told_of(await followed(peer)) == (TaskState.COMPLETED, "Well", {"a": (Part(text="12"),)})


async def test_an_agent_that_never_shows_the_end_is_believed_in_its_stream(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"]))],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1"])}, grown("2"), stands("COMPLETED"))],
    )
    updates = await followed(peer, timeouts=Timeouts(mend_s=0.5))
    assert told_of(updates) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})
    assert "the agent shows it as TASK_STATE_WORKING" in caplog.text


async def test_an_agent_that_shows_no_task_is_believed_in_its_stream(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"])), refusal(-32001)],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1"])}, grown("2"), stands("COMPLETED"))],
    )
    assert told_of(await followed(peer)) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})
    assert "cannot be compared" in caplog.text


async def test_an_end_that_cannot_be_compared_for_long_is_not_told(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"])), refusal(-32603)],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1"])}, grown("2"), stands("COMPLETED"))],
    )
    with pytest.raises(StreamLost, match="its end is not certain") as caught:
        await followed(peer, timeouts=Timeouts(mend_s=0.5))
    assert caught.value.task_id == "t"


async def test_a_question_after_a_joint_comes_after_what_was_missed(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("INPUT_REQUIRED", "Which?", a=["1", "2"]))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, stands("INPUT_REQUIRED", "Which?"))],
    )
    updates = await followed(peer)
    assert told_of(updates) == (TaskState.INPUT_REQUIRED, "Which?", {"a": (Part(text="12"),)})
    assert isinstance(updates[-1], StatusUpdate)


async def test_a_subscription_that_ends_with_a_question_is_compared(peer: Peer) -> None:
    answering(
        peer,
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("2"), stands("INPUT_REQUIRED", "Which?"))],
        GetTask=[result(shown("INPUT_REQUIRED", "Which?", a=["1", "2"]))],
    )
    async with connect(peer.url, dialect="1.0") as agent:
        updates = [update async for update in agent.subscribe("t")]
    assert told_of(updates) == (TaskState.INPUT_REQUIRED, "Which?", {"a": (Part(text="12"),)})


async def test_a_stream_that_goes_on_by_its_numbers_is_believed(patient: Connection, proxy: Proxy) -> None:
    proxy.choose = lambda asked: None
    proxy.next()
    whole = await streamed(patient, SCRIPT)
    proxy.next(Fault(cut=proxy.sizes[0] // 2))
    assert outcome(await streamed(patient, SCRIPT)) == outcome(whole)
    assert [json.loads(asked.partition(b"\r\n\r\n")[2])["method"] for asked in proxy.asked] == [
        "SendStreamingMessage",
        "SubscribeToTask",
    ]


@pytest.mark.parametrize("number", [b"1766000000001", b"9", b"1"])
async def test_a_stream_whose_numbers_leave_something_out_is_compared(peer: Peer, number: bytes) -> None:
    """As those of the JavaScript SDK, which are times."""
    first = b"id: 1766000000000\n" if len(number) > 9 else b"id: 7\n"
    answering(
        peer,
        SendStreamingMessage=[raw(HEAD + first + framed({"task": TASK}))],
        SubscribeToTask=[
            says(b"id: " + number + b"\n" + framed(grown("2")) + framed(stands("COMPLETED")), headers=SSE)
        ],
        GetTask=[result(shown("COMPLETED", a=["1", "2"]))],
    )
    assert told_of(await followed(peer)) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})


async def test_whoever_began_after_an_event_is_told_the_whole_task(peer: Peer) -> None:
    answering(
        peer,
        SubscribeToTask=[streaming(stands("WORKING", "Going on"), grown("12"), stands("COMPLETED"))],
        GetTask=[result(shown("COMPLETED", a=["12", "12"]))],
    )
    async with connect(peer.url, dialect="1.0") as agent:
        updates = [update async for update in agent.subscribe("t", after="5")]
    assert isinstance(updates[-1], Task)
    assert join_text(updates[-1].artifacts[0].parts) == (Part(text="1212"),)


async def test_frames_of_another_task_are_ignored(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    answering(
        peer,
        SendStreamingMessage=[
            streaming(
                {"task": TASK},
                grown("1", append=False),
                grown("x", task_id="other"),
                {"task": {**shown("COMPLETED", a=["y"]), "id": "other"}},
                stands("FAILED", task_id="other"),
                grown("2"),
                stands("COMPLETED"),
            )
        ],
    )
    assert told_of(await followed(peer)) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})
    assert caplog.text.count("a frame of another task, 'other': ignored") == 1


async def test_a_subscription_is_not_told_of_another_task(peer: Peer) -> None:
    answering(
        peer,
        SubscribeToTask=[
            streaming({"task": {**shown("FAILED"), "id": "other"}}, {"task": shown("COMPLETED", a=["1"])})
        ],
    )
    async with connect(peer.url, dialect="1.0") as agent:
        updates = [update async for update in agent.subscribe("t")]
    assert told_of(updates) == (TaskState.COMPLETED, "", {"a": (Part(text="1"),)})


async def test_another_task_than_was_asked_for_is_no_answer(peer: Peer) -> None:
    answering(peer, SendStreamingMessage=[begun()], GetTask=[result({**DONE, "id": "other"})])
    with pytest.raises(InvalidAgentResponse, match="expected the task t, got the task 'other'"):
        await followed(peer)
    async with connect(peer.url, dialect="1.0") as agent:
        with pytest.raises(InvalidAgentResponse, match="expected the task t, got the task 'other'"):
            await agent.get("t")


@pytest.mark.parametrize("after", [stands("FAILED", "No"), stands("WORKING"), {"task": shown("FAILED", "No")}])
async def test_what_has_ended_has_ended(peer: Peer, caplog: pytest.LogCaptureFixture, after: Any) -> None:
    answering(
        peer,
        SendStreamingMessage=[streaming({"task": TASK}, grown("1", append=False), stands("COMPLETED", "Yes"), after)],
    )
    updates = await followed(peer)
    assert told_of(updates) == (TaskState.COMPLETED, "Yes", {"a": (Part(text="1"),)})
    assert "came after TASK_STATE_COMPLETED, which is final: ignored" in caplog.text
