"""Streams: subscribe, order, ids, resuming, how they look on the wire (A2A 1.0 §3.1.2, §3.1.6, §3.5.2, §9.4.2)."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.server import serving
from tests.spec.agents import Gates, house
from tests.spec.caller import DEADLINE_S, Caller, Frame
from tests.spec.conftest import CONFIG, House
from tests.spec.lanes import LANES, REST_03, REST_1, RPC_03, RPC_1, Lane, over_grpc, task_view


def key(frame: Frame) -> tuple[str, str, str]:
    """The parts of an event that its two readers compare."""
    return (frame.id, frame.kind, str(frame.raw))


async def test_a_stream_looks_as_proxies_and_browsers_need_it(caller: Caller) -> None:
    """§9.4.2, §11.7: `text/event-stream`, not cached, not held back by nginx; an id and one line of data an event."""
    async with caller.stream("chunks 2") as stream:
        frames = await stream.rest()
    headers = stream.answer.headers
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"
    said = re.sub(r"(?m)^: keepalive\n+", "", bytes(stream.raw).decode())  # a busy server may be silent for long enough
    for block in said.strip().split("\n\n"):
        assert re.fullmatch(r"id: [0-9]+\ndata: \{.*\}", block), block
    ids = [int(frame.id) for frame in frames]
    assert ids == sorted(set(ids))


async def test_a_stream_ends_when_the_task_waits_for_its_caller(caller: Caller) -> None:
    """§11.7, 0.3 §7.2: after `input-required` the stream of a send closes; the answer's stream goes on from there."""
    async with caller.stream("ask") as stream:
        frames = await stream.rest()
    assert frames[-1].state == "input-required"
    task_id = frames[0].raw["id"]
    async with caller.stream("that", taskId=task_id) as stream:
        answered = await stream.rest()
    assert answered[0].kind == "task"
    assert answered[-1].state == "completed"
    assert int(answered[0].id) > int(frames[-1].id)


async def test_0_3_says_which_update_is_the_last(served: House) -> None:
    """0.3 §7.2.2 `final`: true on the last status update of a stream, and on no other."""
    for text in ("chunks 2", "ask", "fail", "steps"):
        async with served.caller(RPC_03).stream(text) as stream:
            frames = await stream.rest()
        finals = [frame.raw["final"] for frame in frames if frame.kind == "status"]
        assert finals == [False] * (len(finals) - 1) + [True]


@over_grpc
async def test_a_subscription_begins_with_the_task_as_it_stands(caller: Caller, served: House) -> None:
    """§3.1.6: the first event is the task, so that nothing is lost between reading and following."""
    name = f"begins {caller.lane.name}"
    task_id = await served.working(caller, name)
    async with caller.subscribe(task_id) as stream:
        first = await stream.next()
        assert first is not None
        assert first.kind == "task"
        assert task_view(first.raw) == (await caller.get(task_id)).task
        served.gates.open[name].set()
        frames = await stream.rest()
    assert [frame.text for frame in frames if frame.kind == "artifact"] == ["done"]
    assert frames[-1].state == "completed"


async def test_a_hundred_subscribers_see_the_same_events_in_the_same_order(served: House) -> None:
    """§3.5.2: broadcast to all streams of a task, in all versions; one that leaves changes nothing for the others."""
    callers = [served.caller(LANES[number % len(LANES)]) for number in range(100)]
    task_id = await served.working(callers[0], "many")
    joined = asyncio.Semaphore(0)

    async def follow(number: int, caller: Caller) -> list[Frame]:
        async with caller.subscribe(task_id) as stream:
            first = await stream.next()
            assert first is not None
            joined.release()
            return [] if number % 10 == 0 else await stream.rest()

    following = [asyncio.create_task(follow(number, caller)) for number, caller in enumerate(callers)]
    for _ in following:
        await joined.acquire()
    served.gates.open["many"].set()
    seen = [
        (caller.lane, frames)
        for caller, frames in zip(callers, await asyncio.gather(*following), strict=True)
        if frames
    ]
    assert len(seen) == 90
    for lane in LANES:
        of_lane = [[key(frame) for frame in frames] for its, frames in seen if its is lane]
        assert all(events == of_lane[0] for events in of_lane)
    assert len({tuple((frame.id, frame.kind, frame.text) for frame in frames) for _, frames in seen}) == 1
    assert (await callers[0].get(task_id)).task.state == "completed"


async def test_a_resubscription_of_0_3_ends_when_the_task_waits(served: House) -> None:
    """0.3 §7.9 with §7.2.2: `final` is the end of a stream."""
    for lane in (RPC_03, REST_03):
        caller = served.caller(lane)
        task_id = await served.working(caller, f"pause {lane.name}", verb="pause")
        async with caller.subscribe(task_id) as stream:
            await stream.next()
            served.gates.open[f"pause {lane.name}"].set()
            last = (await stream.rest())[-1]
        assert (last.state, last.raw["final"]) == ("input-required", True)


@pytest.mark.parametrize(("text", "state"), [("say", "completed"), ("fail", "failed"), ("reject", "rejected")])
@over_grpc
async def test_a_task_that_has_ended_is_not_followed(caller: Caller, text: str, state: str) -> None:
    """§3.1.6: UnsupportedOperationError, in plain JSON."""
    task = (await caller.send(text)).task
    assert task.state == state
    async with caller.subscribe(task.id) as stream:
        stream.told.refused("UnsupportedOperation")


@over_grpc
async def test_an_unknown_task_is_not_followed(caller: Caller) -> None:
    """§3.1.6: TaskNotFoundError, in plain JSON."""
    async with caller.subscribe("unknown") as stream:
        stream.told.refused("TaskNotFound")


async def test_a_subscription_of_1_0_stays_open_while_the_task_waits(served: House) -> None:
    """§3.1.6: it ends only when the task does; in 0.3 it ends with `final` (0.3 §7.9)."""
    for lane in (RPC_1, REST_1):
        caller = served.caller(lane)
        task = (await caller.send("ask")).task
        async with caller.subscribe(task.id) as stream:
            first = await stream.next()
            assert first is not None
            assert first.state == "input-required"
            await caller.send("that", taskId=task.id)
            frames = await stream.rest()
        assert [frame.state for frame in frames if frame.kind == "status"][-1] == "completed"


@over_grpc
async def test_an_agent_that_does_not_stream_refuses_streams(caller: Caller) -> None:
    """§3.3.4: the card says `streaming: false`: UnsupportedOperationError for both; everything else works."""
    mute = caller.at("mute")
    async with mute.stream() as stream:
        stream.told.refused("UnsupportedOperation")
    task = (await mute.send("hi")).task
    async with mute.subscribe(task.id) as stream:
        stream.told.refused("UnsupportedOperation")
    assert task.text == "hi"


@over_grpc
async def test_a_stream_is_resumed_without_gap_or_repeat_from_any_event(caller: Caller) -> None:
    """HTML §9.2 `Last-Event-ID`: exactly what follows, also when the task has ended."""
    async with caller.stream("chunks 6") as stream:
        whole = await stream.rest()
    task_id = whole[0].raw["id"]
    for index, frame in enumerate(whole):
        async with caller.subscribe(task_id, headers={"Last-Event-ID": frame.id}) as stream:
            assert [key(each) for each in await stream.rest()] == [key(each) for each in whole[index + 1 :]]


async def test_a_stream_is_resumed_by_the_query_too(caller: Caller) -> None:
    """`?since=` is for clients that cannot set headers; the header wins."""
    async with caller.stream("chunks 4") as stream:
        whole = await stream.rest()
    task_id = whole[0].raw["id"]
    async with caller.subscribe(task_id, since=whole[2].id) as stream:
        assert [key(each) for each in await stream.rest()] == [key(each) for each in whole[3:]]
    async with caller.subscribe(task_id, since="0", headers={"Last-Event-ID": whole[-2].id}) as stream:
        assert [key(each) for each in await stream.rest()] == [key(whole[-1])]


async def test_a_stream_is_resumed_by_the_params_too(caller: Caller) -> None:
    """`fromSeq` is a param or, over JSON-RPC, in the metadata; the header wins."""
    async with caller.stream("chunks 4") as stream:
        whole = await stream.rest()
    task_id, place = whole[0].raw["id"], int(whole[2].id)
    spelled: list[dict[str, Any]] = [{"fromSeq": place}, {"fromSeq": str(place)}]
    if caller.lane.rpc:
        spelled += [{"metadata": {"fromSeq": place}}, {"fromSeq": place, "metadata": {"fromSeq": 0}}]
    for params in spelled:
        async with caller.subscribe(task_id, **params) as stream:
            assert [key(each) for each in await stream.rest()] == [key(each) for each in whole[3:]]
    async with caller.subscribe(task_id, fromSeq=0, headers={"Last-Event-ID": whole[-2].id}) as stream:
        assert [key(each) for each in await stream.rest()] == [key(whole[-1])]
    for wrong in (99_999, "x", -1, "1.") + ((1.5, True, [1]) if caller.lane.rpc else ()):
        async with caller.subscribe(task_id, fromSeq=wrong) as stream:
            stream.told.refused("InvalidParams")


async def test_a_browser_follows_a_task_with_nothing_but_a_url(served: House) -> None:
    """§3.6.1: an EventSource sets no headers: version and place stand in the query."""
    caller = served.caller(REST_1)
    async with caller.stream("chunks 2") as stream:
        whole = await stream.rest()
    url = f"{served.url}/agents/script/tasks/{whole[0].raw['id']}:subscribe?A2A-Version=1.0&since={whole[1].id}"
    async with served.http.get(url, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.content_type == "text/event-stream"
        assert (await answer.text()).count("data: ") == len(whole) - 2


async def test_a_stream_resumed_from_before_the_first_event_is_whole(caller: Caller) -> None:
    """`since=0` gives everything, the making of the task first."""
    async with caller.stream("chunks 3") as stream:
        whole = await stream.rest()
    async with caller.subscribe(whole[0].raw["id"], since="0") as stream:
        again = await stream.rest()
    assert (again[0].kind, again[0].id) == ("task", "1")
    assert [key(each) for each in again if each.kind == "artifact"] == [
        key(each) for each in whole if each.kind == "artifact"
    ]


@over_grpc
async def test_a_running_stream_is_resumed_where_it_broke_off(caller: Caller, served: House) -> None:
    """A client that leaves changes nothing; it comes back with the last id it saw."""
    name = f"broken {caller.lane.name}"
    async with caller.stream(f"wait {name}") as stream:
        before = await stream.until("waiting")
    task_id = before[0].raw["id"]
    async with caller.subscribe(task_id, headers={"Last-Event-ID": before[-1].id}) as stream:
        served.gates.open[name].set()
        after = await stream.rest()
    ids = [int(frame.id) for frame in before + after]
    assert ids == sorted(set(ids))
    assert [frame.kind for frame in after][-2:] == ["artifact", "status"]
    assert after[-1].state == "completed"


@pytest.mark.parametrize("last", ["x", "-1", "1.x", "99999", "9" * 40, "1e3", "१"])
@over_grpc
async def test_an_id_that_no_stream_gave_is_refused(caller: Caller, last: str) -> None:
    """Not one of this stream's, or beyond its end: invalid params, in plain JSON."""
    if caller.lane.grpc and not last.isascii():
        return  # metadata is ASCII
    task = (await caller.send("ask")).task
    async with caller.subscribe(task.id, headers={"Last-Event-ID": last.encode().decode("latin-1")}) as stream:
        stream.told.refused("InvalidParams")
    if caller.lane.grpc:
        return
    async with caller.subscribe(task.id, since=last if last.isascii() else "%E0%A5%A7") as stream:
        stream.told.refused("InvalidParams")


@over_grpc
async def test_a_send_stream_with_an_id_is_resumed_only_if_it_is_the_same_call(caller: Caller) -> None:
    """`Last-Event-ID` on a send counts if an earlier call is found; else it is a new task from its start."""
    headers = {"Idempotency-Key": f"resume {caller.lane.name}"}
    async with caller.stream("chunks 5", messageId="again", headers=headers) as stream:
        whole = await stream.rest()
    async with caller.stream(
        "chunks 5", messageId="again", headers={**headers, "Last-Event-ID": whole[3].id}
    ) as stream:
        assert [key(each) for each in await stream.rest()] == [key(each) for each in whole[4:]]
    async with caller.stream("chunks 5", messageId="again", headers=headers) as stream:
        assert [key(each) for each in await stream.rest()] == [key(each) for each in whole]
    async with caller.stream("chunks 5", headers={"Last-Event-ID": "3"}) as stream:
        fresh = await stream.rest()
    assert (fresh[0].kind, fresh[0].raw["id"] != whole[0].raw["id"]) == ("task", True)


@pytest.mark.parametrize(
    ("user_agent", "keepalive"), [("curl/8", b": keepalive\n\n"), ("python-httpx/0", b": keepalive\n")]
)
async def test_a_silent_stream_is_kept_alive_with_comments(
    caller: Caller, served: House, user_agent: str, keepalive: bytes
) -> None:
    """HTML §9.2.7: a comment every `keepalive_s`, which no client takes for an event.

    An empty line after it would be one for a2a-sdk 0.3: httpx-sse makes an event of each, once there was an id.
    """
    name = f"silent {user_agent} {caller.lane.name}"
    task_id = await served.working(caller, name)
    async with caller.subscribe(task_id, {"User-Agent": user_agent}) as stream:
        await stream.next()
        async with asyncio.timeout(DEADLINE_S):
            while b"\n\n" + 2 * keepalive not in stream.raw:
                stream.raw += await stream.answer.content.readany()
        served.gates.open[name].set()
        frames = await stream.rest()
    assert frames[-1].state == "completed"


async def test_a_stream_is_resumed_after_a_restart_of_the_server(lane: Lane, tmp_path: Path) -> None:
    """Everything that a client saw is there; it gets exactly what followed, and the task's end if there was one."""
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'd.db'}")
    async with serving(config, house(Gates())) as url, aiohttp.ClientSession() as http:
        caller = Caller(http, url, lane)
        async with caller.stream("chunks 5") as stream:
            whole = await stream.rest()
        waiting = (await caller.send("ask")).task
    async with serving(config, house(Gates())) as url, aiohttp.ClientSession() as http:
        caller = Caller(http, url, lane)
        async with caller.subscribe(whole[0].raw["id"], headers={"Last-Event-ID": whole[2].id}) as stream:
            assert [key(frame) for frame in await stream.rest()] == [key(frame) for frame in whole[3:]]
        assert (await caller.get(waiting.id)).task == waiting
        async with caller.stream("that", taskId=waiting.id) as stream:
            frames = await stream.rest()
        assert ("".join(frame.text for frame in frames if frame.kind == "artifact"), frames[-1].state) == (
            "that",
            "completed",
        )


async def test_a_server_that_stops_ends_its_streams_with_the_hint_to_come_back(lane: Lane) -> None:
    """HTML §9.2.6 `retry`: the task had not ended, so the client shall resubscribe."""
    async with aiohttp.ClientSession() as http:
        async with serving(CONFIG, house(gates := Gates())) as url:
            caller = Caller(http, url, lane)
            opening = caller.stream("wait for ever")
            stream = await opening.__aenter__()
            await stream.until("waiting")
            assert gates.reached["for ever"].is_set()
        rest = await stream.rest()
        await opening.__aexit__(None, None, None)
    assert bytes(stream.raw).endswith(b"\nretry: 1000\n")
    assert not [frame for frame in rest if frame.state == "completed"]


@over_grpc
async def test_what_was_streamed_is_what_the_task_holds(caller: Caller) -> None:
    """§4.2.2: chunks that append make up the artifact; `lastChunk`, or the end of the task, closes it."""
    async with caller.stream("chunks 10") as stream:
        frames = await stream.rest()
    chunks = [frame.raw for frame in frames if frame.kind == "artifact"]
    assert [chunk.get("append", False) for chunk in chunks] == [False] + [True] * 9
    assert len({chunk["artifact"]["artifactId"] for chunk in chunks}) == 1
    task = (await caller.get(frames[0].raw["id"])).task
    assert task.text == "".join(frame.text for frame in frames if frame.kind == "artifact")
