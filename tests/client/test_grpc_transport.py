"""Agents over gRPC: what is sent to them, what their answers are, and to whom credentials go."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from dragoman import Agent, Context
from dragoman.client import (
    ApiKey,
    CallBroken,
    CallTimedOut,
    HttpRefusal,
    NoCard,
    NotInstalled,
    NotReached,
    Retries,
    Task,
    Timeouts,
    connect,
)
from dragoman.client.connection import Connection
from dragoman.client.conversation import make_message
from dragoman.config import Config
from dragoman.dialects.extensions import DEDUPE, EVENT_ID
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotFound,
    PayloadTooLarge,
    TaskNotCancelable,
    TaskNotFound,
    Unauthorized,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.operations import StreamMessage
from dragoman.model.task import TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate
from dragoman.server import serving
from tests.client.cutting import cutting
from tests.client.test_transport import CARD_PATH, Time
from tests.kit.waiting import no_hang
from tests.net.grpc_peer import GrpcPeer, headers, loop_of_module, serving_grpc, speaking_http2
from tests.net.peer import DEADLINE_S, Peer, Script, listening, says
from tests.ports import kept_port

one_loop = loop_of_module

SEND = "/lf.a2a.v1.A2AService/SendMessage"
STREAM = "/lf.a2a.v1.A2AService/SendStreamingMessage"
GET = "/lf.a2a.v1.A2AService/GetTask"
CANCEL = "/lf.a2a.v1.A2AService/CancelTask"
SUBSCRIBE = "/lf.a2a.v1.A2AService/SubscribeToTask"

DONE = pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))
ANSWER = pb.SendMessageResponse(task=DONE).SerializeToString()
WORKING = pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING))


@pytest.fixture
async def peer() -> AsyncIterator[GrpcPeer]:
    async with no_hang(), serving_grpc() as peer:
        yield peer


@asynccontextmanager
async def speaking(peer: GrpcPeer, **more: Any) -> AsyncIterator[Connection]:
    """A connection to the peer, without a card."""
    async with connect(f"grpc://127.0.0.1:{peer.port}", dialect="1.0", **more) as agent:
        yield agent


def says_message(data: bytes) -> Callable[[bytes, Any], Any]:
    async def unary(request: bytes, context: Any) -> bytes:
        return data

    return unary


def refuses(code: grpc.StatusCode, text: str = "", retry_s: int | None = None, times: int = 1000) -> Any:
    """Refuses so many times, and then answers with a task."""
    left = times

    async def unary(request: bytes, context: Any) -> bytes:
        nonlocal left
        left -= 1
        if left >= 0:
            status = Status(code=code.value[0], message=text)
            if retry_s is not None:
                retry = RetryInfo()
                retry.retry_delay.seconds = retry_s
                status.details.add().Pack(retry)
            trailers = (("grpc-status-details-bin", status.SerializeToString()),) if retry_s is not None else ()
            await context.abort(code, text, trailers)
        return ANSWER

    return unary


# Requests


async def test_a_call_has_the_metadata_that_a_request_over_http_has(peer: GrpcPeer) -> None:
    peer.unary[SEND] = says_message(ANSWER)
    extensions = ["urn:one", "urn:two"]
    traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    async with speaking(peer, credentials=ApiKey("key"), headers={"X-Own": "1"}, extensions=extensions) as agent:
        task = await agent.send("hi", message_id="m1", traceparent=traceparent)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    ((method, metadata),) = peer.metadata
    assert method == SEND
    expected = {
        "a2a-version": "1.0",
        "a2a-extensions": "urn:one, urn:two",
        "idempotency-key": "m1",
        "traceparent": traceparent,
        "x-api-key": "key",
        "x-own": "1",
    }
    assert {name: metadata.get(name) for name in expected} == expected


async def test_the_tenant_of_a_card_goes_with_every_call(peer: GrpcPeer) -> None:
    tenants: list[str] = []

    async def unary(request: bytes, context: Any) -> bytes:
        tenants.append(pb.SendMessageRequest.FromString(request).tenant)
        return ANSWER

    peer.unary[SEND] = unary
    async with listening() as web:
        entry = {"url": f"127.0.0.1:{peer.port}", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "far"}
        web.scripts[CARD_PATH] = says({"name": "a", "supportedInterfaces": [entry]})
        async with connect(web.url) as agent:
            await agent.send("hi")
    assert tenants == ["far"]


async def test_credentials_are_renewed_once_after_a_refusal(peer: GrpcPeer) -> None:
    class Keys(ApiKey):
        async def renewed(self, refused: Any) -> Any:
            return {"x-api-key": "new"} if refused == {"x-api-key": "old"} else None

    async def unary(request: bytes, context: Any) -> bytes:
        if dict(context.invocation_metadata())["x-api-key"] != "new":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who?")
        return ANSWER

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.StreamResponse(task=DONE).SerializeToString() if await unary(request, context) else b""

    peer.unary[SEND], peer.streams[STREAM] = unary, stream
    async with speaking(peer, credentials=Keys("old")) as agent:
        assert isinstance(await agent.send("hi"), Task)
        assert [type(update) async for update in agent.stream("hi")] == [Task]
    async with speaking(peer, credentials=ApiKey("other")) as agent:
        with pytest.raises(Unauthorized):
            await agent.send("hi")
    assert [metadata["x-api-key"] for _, metadata in peer.metadata] == ["old", "new", "old", "new", "other"]


# To whom credentials go


def lists(*endpoints: tuple[str, str]) -> Script:
    """A card with these endpoints, each an address and a binding."""
    listed = [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"} for url, binding in endpoints]
    return says({"name": "a", "supportedInterfaces": listed})


@asynccontextmanager
async def named(peer: GrpcPeer, address: str) -> AsyncIterator[Peer]:
    """A server over HTTP whose card names a gRPC endpoint at this address."""
    async with listening() as web:
        web.scripts[CARD_PATH] = lists((address.format(port=peer.port), "GRPC"))
        yield web


async def test_an_endpoint_on_the_host_of_the_url_gets_the_credentials(peer: GrpcPeer) -> None:
    peer.unary[SEND] = says_message(ANSWER)
    async with named(peer, "0.0.0.0:{port}") as web, connect(web.url, credentials=ApiKey("key")) as agent:
        assert agent.interface.binding == "GRPC"
        await agent.send("hi")
        assert web.asked[0].headers["x-api-key"] == "key"
    assert peer.metadata[0][1]["x-api-key"] == "key"


async def test_an_endpoint_elsewhere_is_dialled_only_on_the_public_internet_and_gets_no_credentials() -> None:
    async with serving_grpc("127.0.0.2") as thief, named(thief, "127.0.0.2:{port}") as web:
        thief.unary[SEND] = says_message(ANSWER)
        async with connect(web.url, credentials=ApiKey("key"), headers={"X-Own": "1"}) as agent:
            with pytest.raises(NotReached, match=r"loopback address.*origins="):
                await agent.send("hi")
        assert not thief.metadata
        origins = [f"grpc://127.0.0.2:{thief.port}"]
        async with connect(web.url, credentials=ApiKey("key"), origins=origins) as agent:
            await agent.send("hi")
        assert thief.metadata[0][1]["x-api-key"] == "key"


async def test_tls_is_not_given_up_for_an_address_without_a_scheme(peer: GrpcPeer) -> None:
    """The call fails rather than goes out in the clear."""
    async with (
        named(peer, "127.0.0.1:{port}") as web,
        connect(web.url, credentials=ApiKey("key"), grpc_tls=True) as agent,
    ):
        assert agent.interface.url == f"grpcs://127.0.0.1:{peer.port}"
        with pytest.raises(NotReached):
            await agent.send("hi")
    assert not peer.metadata


async def test_an_endpoint_that_takes_no_connection_is_passed_over_for_another(peer: GrpcPeer) -> None:
    dead, live = (f"127.0.0.1:{kept_port()}", "GRPC"), (f"127.0.0.1:{peer.port}", "GRPC")
    async with listening() as web:
        for other, chosen in ((("/rpc", "JSONRPC"), f"{web.url}/rpc"), (live, f"grpc://{live[0]}")):
            web.scripts[CARD_PATH] = lists(dead, other)
            async with connect(web.url) as agent:
                assert agent.interface.url == chosen
        for card, more in ((lists(dead), {}), (lists(dead, ("/rpc", "JSONRPC")), {"binding": "GRPC"})):
            web.scripts[CARD_PATH] = card
            async with connect(web.url, **more) as agent:
                assert agent.interface.url == f"grpc://{dead[0]}"


# Answers


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, "", A2AError),
        (grpc.StatusCode.UNAUTHENTICATED, "", Unauthorized),
        (grpc.StatusCode.UNAVAILABLE, "busy", Unavailable),
        (grpc.StatusCode.INVALID_ARGUMENT, "", InvalidParams),
        (grpc.StatusCode.INTERNAL, "", InternalError),
        (grpc.StatusCode.UNKNOWN, "Unexpected <class 'ValueError'>: x", InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, "no such thing", UnsupportedOperation),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", MethodNotFound),
        (grpc.StatusCode.UNIMPLEMENTED, "unknown service lf.a2a.v1.A2AService", MethodNotFound),
    ],
)
async def test_a_status_is_an_error_of_a_class_of_its_own(
    peer: GrpcPeer, code: grpc.StatusCode, text: str, kind: type[Exception]
) -> None:
    peer.unary[GET] = refuses(code, text)
    async with speaking(peer, retries=Time().again(attempts=1)) as agent:
        with pytest.raises(kind):
            await agent.get("t")


@pytest.mark.parametrize(
    "text",
    [
        "SERVER: Received message larger than max (5000 vs. 4000)",
        "grpc: received message larger than max (5000 vs. 4000)",
        "gRPC message exceeds maximum size 4000: 5000",
    ],
)
async def test_a_request_over_the_limit_of_the_agent_is_said_so_and_not_repeated(peer: GrpcPeer, text: str) -> None:
    peer.unary[SEND] = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    async with speaking(peer, retries=Time().again(dedupes=True)) as agent:
        with pytest.raises(PayloadTooLarge, match="max"):
            await agent.send("hi")
    assert peer.methods == [SEND]


async def test_a_task_that_has_ended_is_not_canceled_whatever_else_the_code_means(peer: GrpcPeer) -> None:
    peer.unary[CANCEL] = refuses(grpc.StatusCode.FAILED_PRECONDITION, "no")
    async with speaking(peer) as agent:
        with pytest.raises(TaskNotCancelable):
            await agent.cancel("t")


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x05ab", pb.Task(id="other").SerializeToString()])
async def test_bytes_that_are_no_answer_are_told_with_the_address(peer: GrpcPeer, data: bytes) -> None:
    peer.unary[GET] = says_message(data)
    async with speaking(peer) as agent:
        with pytest.raises(InvalidAgentResponse, match=r"grpc://127\.0\.0\.1|the task other|'other'"):
            await agent.get("t")


async def test_details_that_are_none_leave_the_status(peer: GrpcPeer) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INTERNAL, "it broke", (("grpc-status-details-bin", b"\xff\xff\xff"),))
        return b""

    peer.unary[GET] = unary
    async with speaking(peer) as agent:
        with pytest.raises(InternalError):
            await agent.get("t")


async def test_a_refusal_for_now_is_repeated_when_it_says_so(peer: GrpcPeer) -> None:
    time = Time()
    peer.unary[SEND] = refuses(grpc.StatusCode.UNAVAILABLE, "busy", retry_s=7, times=2)
    async with speaking(peer, retries=time.again()) as agent:
        assert isinstance(await agent.send("hi"), Task)
    assert time.pauses == [7.0, 7.0]
    assert len({metadata["idempotency-key"] for _, metadata in peer.metadata}) == 1


async def test_a_message_that_may_have_arrived_is_not_sent_again(peer: GrpcPeer) -> None:
    time = Time()
    peer.unary[SEND] = refuses(grpc.StatusCode.UNAVAILABLE, "busy", times=1)
    async with speaking(peer, retries=time.again()) as agent:
        with pytest.raises(Unavailable):
            await agent.send("hi")
    peer.unary[SEND] = refuses(grpc.StatusCode.UNAVAILABLE, "busy", times=1)
    async with speaking(peer, retries=time.again(dedupes=True)) as agent:
        assert isinstance(await agent.send("hi"), Task)
    assert len(peer.metadata) == 3


async def test_a_broken_call_says_whether_it_was_sent(peer: GrpcPeer) -> None:
    begun, cuts = asyncio.Event(), iter([200])

    async def unary(request: bytes, context: Any) -> bytes:
        begun.set()
        return pb.SendMessageResponse(
            message=pb.Message(message_id="m", parts=[pb.Part(text="x" * 500)])
        ).SerializeToString()

    peer.unary[SEND] = unary
    async with (
        cutting(peer.port, lambda: next(cuts, None)) as proxy,
        connect(f"grpc://127.0.0.1:{proxy.port}", dialect="1.0") as agent,
    ):
        with pytest.raises(CallBroken, match="not known whether") as caught:
            await agent.send("hi", message_id="m1")
    assert begun.is_set()
    assert (caught.value.sent, caught.value.message_id) == (True, "m1")
    async with connect(f"grpc://127.0.0.1:{kept_port()}", dialect="1.0", retries=Retries(attempts=1)) as agent:
        with pytest.raises(NotReached) as unreached:
            await agent.send("hi")
    assert not unreached.value.sent


async def test_a_wait_that_is_over_is_said_so(peer: GrpcPeer) -> None:
    async def sleep(request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def silent(request: bytes, context: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    peer.unary[SEND], peer.streams[STREAM] = sleep, silent
    async with speaking(peer, timeouts=Timeouts(answer_s=0.2)) as agent:
        with pytest.raises(CallTimedOut) as caught:
            await agent.send("hi")
        assert caught.value.timeout == "answer_s"
        with pytest.raises(CallTimedOut):
            _ = [update async for update in agent.stream("hi")]


async def test_a_proxy_that_answers_in_http_is_a_refusal(peer: GrpcPeer) -> None:
    async with (
        speaking_http2(lambda stream: headers(stream, {":status": "403"}, end=True)) as lines,
        connect(f"grpc://127.0.0.1:{lines.port}", dialect="1.0") as agent,
    ):
        with pytest.raises(HttpRefusal) as caught:
            await agent.send("hi")
    assert caught.value.status == 403


# Streams


async def test_a_stream_that_its_server_stops_goes_on(peer: GrpcPeer) -> None:
    """UNAVAILABLE in a stream is a server that stops, and says nothing about the task."""

    async def cut(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.StreamResponse(task=WORKING).SerializeToString()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    async def rest(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.StreamResponse(task=DONE).SerializeToString()

    peer.streams[STREAM], peer.streams[SUBSCRIBE] = cut, rest
    peer.unary[GET] = says_message(WORKING.SerializeToString())
    async with speaking(peer, retries=Time().again()) as agent:
        updates = [update async for update in agent.stream("hi")]
    last = updates[-1]
    assert isinstance(last, Task | StatusUpdate)
    assert last.status.state is TaskState.COMPLETED


async def test_an_error_inside_a_stream_is_the_agents_own_word(peer: GrpcPeer) -> None:
    async def broken(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.StreamResponse(task=WORKING).SerializeToString()
        await context.abort(grpc.StatusCode.INTERNAL, "it broke")

    peer.streams[STREAM] = broken
    async with speaking(peer) as agent:
        with pytest.raises(InternalError):
            _ = [update async for update in agent.stream("hi")]


async def test_a_frame_that_cannot_be_read_is_told(peer: GrpcPeer) -> None:
    async def garbage(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.StreamResponse(task=WORKING).SerializeToString()
        yield b"\xff\xff"

    peer.streams[STREAM] = garbage
    async with speaking(peer) as agent:
        with pytest.raises(InvalidAgentResponse):
            _ = [update async for update in agent.stream("hi")]


# Where there is no card, or no gRPC


async def test_an_address_without_a_card_needs_a_dialect() -> None:
    with pytest.raises(NoCard, match="dialect="):
        async with connect("grpc://127.0.0.1:9"):
            pass
    with pytest.raises(ValueError, match="not spoken over GRPC"):
        async with connect("grpc://127.0.0.1:9", dialect="kaos"):
            pass


async def test_without_the_package_another_endpoint_is_called_or_the_extra_is_named(
    peer: GrpcPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.client.endpoint.grpc_installed", lambda: False)
    async with named(peer, "127.0.0.1:{port}") as web:
        with pytest.raises(NotInstalled, match=r"pip install '.*\[grpc\]'"):
            async with connect(web.url):
                pass
        web.scripts[CARD_PATH] = lists((f"127.0.0.1:{peer.port}", "GRPC"), ("/rpc", "JSONRPC"))
        async with connect(web.url) as agent:
            assert agent.interface.binding == "JSONRPC"
        with pytest.raises(NotInstalled):
            async with connect(web.url, binding="GRPC"):
                pass


# Dragoman itself


def writer() -> Agent:
    agent = Agent("writer")

    @agent.skill
    async def write(ctx: Context) -> AsyncIterator[str]:
        """Writes numbers."""
        for n in range(int(ctx.text)):
            yield f"{n} "
            await asyncio.sleep(0)

    return agent


@pytest.fixture
async def dragoman() -> AsyncIterator[tuple[str, int]]:
    port = kept_port()
    config = Config(port=0, grpc_port=port, store="memory:", shutdown_grace_s=0.1)
    async with serving(config, [writer()]) as url:
        yield url, port


@pytest.mark.parametrize("word", ["binding", "transport"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_dragoman_is_called_over_every_version(dragoman: tuple[str, int], version: str, word: str) -> None:
    url, port = dragoman
    chosen = {"version": version, word: "GRPC"}
    async with asyncio.timeout(DEADLINE_S), connect(url, **chosen) as agent:
        assert agent.interface.url == f"grpc://127.0.0.1:{port}"
        assert agent.repeats_s > 0
        task = await agent.send("3")
        assert isinstance(task, Task)
        assert (await agent.get(task.id)).status.state is TaskState.COMPLETED
        updates = [update async for update in agent.stream("50")]
        text = "".join(
            part.text or "" for each in updates if isinstance(each, ArtifactUpdate) for part in each.artifact.parts
        )
        assert text == "".join(f"{n} " for n in range(50))
        with pytest.raises(TaskNotFound):
            await agent.get("nobodys")
        with pytest.raises(TaskNotCancelable):
            await agent.cancel(task.id)


async def test_an_agent_that_is_not_there_is_not_found(dragoman: tuple[str, int]) -> None:
    _, port = dragoman
    async with connect(f"grpc://127.0.0.1:{port}", dialect="0.3", headers={"x-dragoman-agent": "nobody"}) as agent:
        with pytest.raises((AgentNotFound, TaskNotFound)):
            await agent.get("x")


@pytest.mark.parametrize("seed", range(5))
async def test_a_stream_that_broke_goes_on_with_exactly_what_follows(dragoman: tuple[str, int], seed: int) -> None:
    _, port = dragoman
    chance, cuts = Random(seed), 3

    def some_bytes() -> int | None:
        nonlocal cuts
        cuts -= 1
        return None if cuts < 0 else 2000 + chance.randrange(8000)

    async with (
        asyncio.timeout(DEADLINE_S),
        cutting(port, some_bytes) as proxy,
        connect(f"grpc://127.0.0.1:{proxy.port}", dialect="1.0", retries=Time().again(dedupes=True)) as agent,
    ):
        stream = agent.task_stream(StreamMessage(message=make_message("300")))
        updates = [update async for update in stream.updates()]
    assert chunks_of(updates) == [f"{n} " for n in range(300)]
    assert stream.resumptions >= 1
    assert stream.final is None  # nothing had to be compared: no item was missing, and none came twice
    assert all(EVENT_ID not in (update.metadata or {}) for update in updates)


async def test_extensions_are_declared_together(dragoman: tuple[str, int]) -> None:
    _, port = dragoman
    place = f"grpc://127.0.0.1:{port}"
    passed_on = ApiKey("urn:other", "A2A-Extensions")  # as a gateway passes on those of its caller
    async with connect(place, dialect="1.0", extensions=[DEDUPE], credentials=passed_on) as agent:
        stream = agent.task_stream(StreamMessage(message=make_message("1")))
        assert [update async for update in stream.updates()]
        assert stream.position.id


def chunks_of(updates: list[Any]) -> list[str]:
    """The texts of the chunks, one by one."""
    chunks = [update for update in updates if isinstance(update, ArtifactUpdate)]
    joined = "".join(part.text or "" for chunk in chunks for part in chunk.artifact.parts)
    return [f"{word} " for word in joined.split()]
