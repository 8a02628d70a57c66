"""Three replicas on one PostgreSQL: what one knows, every other one knows, in every dialect and over each binding."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.server import serving
from tests.ports import kept_port
from tests.postgres import PostgresServer
from tests.push.receiver import receiving
from tests.spec.agents import Gates
from tests.systems import hooks, speakers
from tests.systems.agents import house
from tests.systems.conftest import CONFIG, DEADLINE_S, Flow, Frame, Site
from tests.systems.grpc_speakers import CLIENTS, OVER_GRPC, Client, GrpcSpeaker
from tests.systems.hooks import Hooked, task_id_of
from tests.systems.speakers import EVOAI, KAOS, NEW, Speaker, task_of
from tests.systems.test_matrix import texts

pytestmark = pytest.mark.slow

Replicas = tuple[Site, Site, Site]

each_dialect = pytest.mark.parametrize("speaker", CLIENTS, ids=lambda speaker: speaker.name)
each_with_streams = pytest.mark.parametrize(
    "speaker", [each for each in speakers.ALL if each is not KAOS], ids=lambda speaker: speaker.name
)
each_with_webhooks = pytest.mark.parametrize("hooked", hooks.ALL, ids=lambda hooked: hooked.name)


@pytest.fixture(scope="module")
async def replicas(postgres_server: PostgresServer) -> AsyncIterator[Replicas]:
    """Three servers with the same agents, which stand at the same gates."""
    gates, timeout = Gates(), aiohttp.ClientTimeout(total=DEADLINE_S)
    async with AsyncExitStack() as stack:
        config = replace(
            CONFIG,
            store=stack.enter_context(postgres_server.database()),
            push_allowed_hosts=(),
            push_allowed_cidrs=("127.0.0.0/8",),
        )
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout, auto_decompress=False))
        sites: list[Site] = []
        for _ in range(3):
            port = kept_port()
            url = await stack.enter_async_context(serving(replace(config, grpc_port=port), house(gates)))
            sites.append(Site(url, http, gates, f"127.0.0.1:{port}"))
        first, second, third = sites
        yield first, second, third


async def rest(flow: Flow) -> list[Frame]:
    """The frames to the end of a stream."""
    async with asyncio.timeout(DEADLINE_S):
        return await flow.rest()


@each_dialect
async def test_a_task_is_read_on_every_replica_as_soon_as_it_is_answered(replicas: Replicas, speaker: Client) -> None:
    for number, sender in enumerate(replicas):
        text = f"hello {number} from {speaker.name}"
        task_id = await speaker.send(sender, text)
        for reader in replicas:
            task = (await speaker.get(reader, task_id)).result
            assert (task["id"], task["status"]["state"]) == (task_id, speaker.spelled("completed"))
            assert text in texts(task)


@each_dialect
async def test_a_task_is_listed_on_every_replica_as_soon_as_it_is_answered(replicas: Replicas, speaker: Client) -> None:
    task_id = await speaker.send(replicas[0], "x")
    context = (await NEW.get(replicas[0], task_id)).result["contextId"]
    for reader in replicas:
        page = await reader.ask("GET", f"/agents/desk/tasks?contextId={context}", a2a_version="1.0")
        assert [task["id"] for task in page.body["tasks"]] == [task_id]
        told = await reader.rpc("/agents/desk", "ListTasks", {"contextId": context}, a2a_version="1.0")
        assert told.result["totalSize"] == 1


@each_with_streams
async def test_a_run_is_followed_on_another_replica_and_resumed_on_a_third(
    replicas: Replicas, speaker: Speaker
) -> None:
    runs, follows, resumes = replicas
    gate = f"follow {speaker.name}"
    task_id = await speaker.start(runs, gate)
    async with speaker.followed(follows, task_id) as flow:
        first = await flow.next()
        assert first is not None
        runs.open(gate)
        frames = await rest(flow)
    assert speaker.state(frames[-1]) == speaker.spelled("completed")
    assert "done" in texts([frame.body for frame in frames])
    body = {"jsonrpc": "2.0", "id": 1, "method": speaker.methods[3], "params": {speaker.key: task_id}}
    again = await resumes.stream(speaker.at("desk"), body, last_event_id=first.id, **speaker.headers)
    assert [frame.id for frame in again] == [frame.id for frame in frames]
    assert [frame.body for frame in again] == [frame.body for frame in frames]


async def test_a_run_is_followed_on_another_replica_over_http_json(replicas: Replicas) -> None:
    runs, follows, resumes = replicas
    task_id = await NEW.start(runs, "follow over HTTP+JSON")
    path = f"/agents/desk/tasks/{task_id}:subscribe"
    async with follows.flow(path, None, verb="GET", a2a_version="1.0") as flow:
        first = await flow.next()
        assert first is not None
        runs.open("follow over HTTP+JSON")
        frames = await rest(flow)
    again = await resumes.stream(path, None, verb="GET", a2a_version="1.0", last_event_id=first.id)
    assert [(frame.id, frame.body) for frame in again] == [(frame.id, frame.body) for frame in frames]


@pytest.mark.parametrize("speaker", OVER_GRPC, ids=lambda speaker: speaker.name)
async def test_a_run_is_followed_on_another_replica_over_grpc(replicas: Replicas, speaker: GrpcSpeaker) -> None:
    runs, follows, resumes = replicas
    gate = f"follow {speaker.name}"
    task_id = await speaker.start(runs, gate)
    path = f"/agents/desk/tasks/{task_id}:subscribe"
    async with (
        speaker.followed(follows, task_id) as flow,
        follows.flow(path, None, verb="GET", a2a_version="1.0") as sse,
    ):
        assert await flow.next() is not None
        first = await sse.next()
        assert first is not None
        runs.open(gate)
        frames = await flow.rest()
    assert speaker.state(frames[-1]) == speaker.spelled("completed")
    async with speaker.followed(resumes, task_id, last_event_id=first.id) as again:
        assert await again.rest() == frames


@each_dialect
async def test_a_run_is_canceled_on_another_replica(replicas: Replicas, speaker: Client) -> None:
    runs, cancels, reads = replicas
    task_id = await speaker.start(runs, f"cancel {speaker.name}")
    canceled = (await speaker.cancel(cancels, task_id)).result
    assert (canceled["id"], canceled["status"]["state"]) == (task_id, speaker.spelled("canceled"))
    for reader in (reads, runs):
        assert (await speaker.get(reader, task_id)).result["status"]["state"] == speaker.spelled("canceled")


@each_dialect
async def test_a_question_is_answered_on_another_replica(replicas: Replicas, speaker: Client) -> None:
    runs, answers, reads = replicas
    asked = task_of((await speaker.call(runs, speaker.methods[0], speaker.said("ask"))).result)
    answer = speaker.said("Lyon", task_id=asked)
    done = (await speaker.call(answers, speaker.methods[0], answer)).result
    assert task_of(done) == asked
    assert done.get("task", done)["status"]["state"] == speaker.spelled("completed")
    assert "'Lyon'" in str((await speaker.get(reads, asked)).result["artifacts"])


@each_with_webhooks
async def test_a_webhook_is_registered_read_and_deleted_on_other_replicas(replicas: Replicas, hooked: Hooked) -> None:
    runs, second, third = replicas
    gate = f"webhook {hooked.name}"
    async with receiving() as receiver, receiving() as other:
        task_id = task_id_of(await hooked.made(runs, f"wait {gate}"))
        async with asyncio.timeout(DEADLINE_S):
            await runs.begun(gate, task_id)
        assert (await hooked.registered(second, task_id, {"id": "kept", "url": receiver.url})).status == 200
        if hooked.delete is not None and hooked.list is not None:
            assert (await hooked.registered(second, task_id, {"id": "left", "url": other.url})).status == 200
            assert await ids_in(third, hooked, task_id) == {"kept", "left"}
            method, path, body = hooked.delete(task_id, "left")
            assert (await third.ask(method, path, body, **hooked.headers)).status < 300
            assert await ids_in(runs, hooked, task_id) == {"kept"}
        known = len(other.asked)
        runs.open(gate)
        async with asyncio.timeout(DEADLINE_S):
            while not any(hooked.told(asked.json) == hooked.story[-1] for asked in receiver.asked):
                await receiver.came(len(receiver.asked) + 1)
        ended = [asked for asked in receiver.asked if hooked.told(asked.json) == hooked.story[-1]]
        assert len(ended) == 1
        assert len(other.asked) == known or hooked.delete is None


async def ids_in(replica: Site, hooked: Hooked, task_id: str) -> set[str]:
    """The ids of a task's webhooks, as a replica lists them."""
    assert hooked.list is not None
    method, path, body = hooked.list(task_id)
    told = await replica.ask(method, path, body, **hooked.headers)
    assert told.status == 200
    return {name for name in ("kept", "left") if f'"{name}"' in told.raw.decode()}


@pytest.mark.parametrize("speaker", [each for each in CLIENTS if each is not EVOAI], ids=lambda each: each.name)
async def test_sends_that_race_on_all_replicas_make_one_task(replicas: Replicas, speaker: Client) -> None:
    params: dict[str, Any] = speaker.said("once")
    params["message"]["messageId"] = str(uuid.uuid4())
    told = await asyncio.gather(
        *(speaker.call(replica, speaker.methods[0], params) for replica in replicas for _ in range(4))
    )
    made = {task_of(each.result) for each in told}
    assert len(made) == 1
    context = (await NEW.get(replicas[0], made.pop())).result["contextId"]
    page = await replicas[1].ask("GET", f"/agents/desk/tasks?contextId={context}", a2a_version="1.0")
    assert page.body["totalSize"] == 1
