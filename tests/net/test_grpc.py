"""gRPC to other hosts: what is dialled, what an answer means, and what a hostile server can do."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.net.address import Guard, Resolver
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress, EgressRules
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, TooLarge, Unreachable
from dragoman.net.grpc import GrpcEgress, GrpcReply
from dragoman.net.grpc.dialer import CALLS_MAX, GrpcChannel
from dragoman.net.target import Target, grpc_target
from dragoman.net.tls import ClientTls
from tests.certificates import Authority
from tests.kit.waiting import until
from tests.net.grpc_peer import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEAD,
    OK,
    RST_STREAM,
    GrpcPeer,
    frame,
    headers,
    loop_of_module,
    message,
    serving_grpc,
    speaking_http2,
)
from tests.net.lines import Line, speaking
from tests.net.nameserver import answering
from tests.net.peer import DEADLINE_S
from tests.ports import kept_port

one_loop = loop_of_module
SMALL = 1000
ECHO = "/s/Echo"


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress(max_answer_bytes=SMALL)
    yield egress
    await egress.close()


@pytest.fixture
async def door(egress: Egress) -> GrpcEgress:
    return egress.grpc


@pytest.fixture
async def peer() -> AsyncIterator[GrpcPeer]:
    async with serving_grpc() as peer:
        yield peer


def at(port: int, host: str = "127.0.0.1", scheme: str = "grpc") -> Target:
    return grpc_target(f"{scheme}://{host}:{port}")


async def ask(door: GrpcEgress, to: Target, method: str = ECHO, body: bytes = b"hi", **more: Any) -> GrpcReply:
    return await door.call(to, method, body, timeout_s=DEADLINE_S, metadata=more)


@asynccontextmanager
async def opened(door: GrpcEgress, to: Target, method: str, idle_s: float = DEADLINE_S) -> AsyncIterator[Any]:
    flow = await door.stream(to, method, b"", head_timeout_s=DEADLINE_S, idle_timeout_s=idle_s, metadata={})
    try:
        yield flow
    finally:
        flow.close()


async def read_all(flow: Any) -> tuple[list[bytes], GrpcReply]:
    messages: list[bytes] = []
    while not isinstance(came := await flow.read(), GrpcReply):
        messages.append(came)
    return messages, came


# Calls


async def test_a_call_is_answered(door: GrpcEgress, peer: GrpcPeer) -> None:
    reply = await ask(door, at(peer.port), **{"A2A-Version": "1.0", "Accept": "text/html", "Host": "elsewhere"})
    assert (reply.ok, reply.body) == (True, b"hi")
    ((method, metadata),) = peer.metadata
    assert method == ECHO
    assert metadata["a2a-version"] == "1.0"
    assert not {"accept", "host"} & metadata.keys()
    assert metadata["user-agent"].startswith("dragoman/")


@pytest.mark.parametrize(("name", "value"), [("x-a", "line\nbreak"), ("x-a", "é"), ("x a", "1"), ("", "1")])
async def test_what_cannot_be_sent_is_refused_and_not_sent(
    door: GrpcEgress, peer: GrpcPeer, name: str, value: str
) -> None:
    with pytest.raises(BadUrl):
        await ask(door, at(peer.port), **{name: value})
    assert not peer.metadata


async def test_a_status_is_an_answer_with_its_details(door: GrpcEgress, peer: GrpcPeer) -> None:
    async def refuse(request: bytes, context: Any) -> bytes:
        trailers = (("grpc-status-details-bin", b"\x08\x05"), ("x-b", "2"))
        await context.abort(grpc.StatusCode.NOT_FOUND, "there is no grüne task", trailers)
        return b""

    peer.unary["/s/Refuse"] = refuse
    reply = await ask(door, at(peer.port), "/s/Refuse")
    assert (reply.code, reply.message, reply.details) == (5, "there is no grüne task", b"\x08\x05")
    assert reply.metadata["x-b"] == "2"
    assert (await ask(door, at(peer.port), "/s/No")).code == 12


async def test_one_connection_serves_many_calls(egress: Egress) -> None:
    dialled: list[str] = []

    def policy(address: str) -> None:
        dialled.append(address)

    other = Egress(policy)
    async with serving_grpc() as peer:
        await asyncio.gather(*(ask(other.grpc, at(peer.port)) for _ in range(20)))
        await ask(other.grpc, at(peer.port))
    await other.close()
    assert dialled == ["127.0.0.1"]


async def test_many_streams_take_a_further_connection(peer: GrpcPeer) -> None:
    """Envoy allows 100 streams on one; a call behind them would wait for one of them to end."""
    dialled: list[str] = []
    gate = asyncio.Event()

    async def wait(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"begun"
        await gate.wait()

    peer.streams["/s/Wait"] = wait
    egress = Egress(lambda address: dialled.append(address))
    begun = 0

    async def follow() -> None:
        nonlocal begun
        async with opened(egress.grpc, at(peer.port), "/s/Wait") as flow:
            assert await flow.read() == b"begun"
            begun += 1
            await flow.read()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for _ in range(120):
            group.create_task(follow())
        await until(lambda: begun == 120)
        assert (await ask(egress.grpc, at(peer.port))).ok
        gate.set()
    await egress.close()
    assert len(dialled) == 2


async def test_a_stream_that_is_closed_twice_gives_its_place_back_once(peer: GrpcPeer) -> None:
    """A loop that ends closes generators in any order, so that a stream may be closed by several of them."""
    dialled: list[str] = []

    async def wait(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    peer.streams["/s/Wait"] = wait
    egress = Egress(lambda address: dialled.append(address))
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        for _ in range(5):
            async with opened(egress.grpc, at(peer.port), "/s/Wait") as flow:
                assert await flow.read() == b"begun"
                flow.close()
        for _ in range(CALLS_MAX):
            assert await (await stack.enter_async_context(opened(egress.grpc, at(peer.port), "/s/Wait"))).read()
        assert len(dialled) == 1
        assert (await ask(egress.grpc, at(peer.port))).ok
        assert len(dialled) == 2
    await egress.close()


async def test_the_deadline_is_the_other_sides_too(door: GrpcEgress, peer: GrpcPeer) -> None:
    left: list[float] = []

    async def sleep(request: bytes, context: Any) -> bytes:
        left.append(context.time_remaining())
        await asyncio.Event().wait()
        return b""

    peer.unary["/s/Sleep"] = sleep
    with pytest.raises(TimedOut):
        await door.call(at(peer.port), "/s/Sleep", b"", timeout_s=1.0, metadata={})
    assert 0 < left[0] <= 1.0


async def test_a_canceled_call_is_canceled_there(door: GrpcEgress, peer: GrpcPeer) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def sleep(request: bytes, context: Any) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    peer.unary["/s/Sleep"] = sleep
    task = asyncio.create_task(ask(door, at(peer.port), "/s/Sleep"))
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


async def test_closing_the_egress_breaks_what_is_under_way(egress: Egress, peer: GrpcPeer) -> None:
    begun = asyncio.Event()

    async def wait(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    async def sleep(request: bytes, context: Any) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    peer.streams["/s/Wait"], peer.unary["/s/Sleep"] = wait, sleep
    async with asyncio.timeout(DEADLINE_S), opened(egress.grpc, at(peer.port), "/s/Wait") as flow:
        assert await flow.read() == b"begun"
        call = asyncio.create_task(ask(egress.grpc, at(peer.port), "/s/Sleep"))
        await begun.wait()
        await egress.close()
        with pytest.raises(Broken):
            await flow.read()
        with pytest.raises(Broken):
            await call
    assert (await ask(egress.grpc, at(peer.port))).ok


# Streams


async def test_a_stream_is_read_to_its_end(door: GrpcEgress, peer: GrpcPeer) -> None:
    async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("x-begun", "yes"),))
        for n in range(100):
            yield b"%d" % n

    peer.streams["/s/Count"] = count
    async with opened(door, at(peer.port), "/s/Count") as flow:
        assert flow.metadata["x-begun"] == "yes"
        messages, end = await read_all(flow)
    assert messages == [b"%d" % n for n in range(100)]
    assert end.ok


async def test_the_reader_of_an_endless_stream_slows_it_down_and_ends_it(door: GrpcEgress, peer: GrpcPeer) -> None:
    sent, ended = 0, asyncio.Event()

    async def endless(request: bytes, context: Any) -> AsyncIterator[bytes]:
        nonlocal sent
        try:
            while True:
                sent += 1
                yield bytes(SMALL)
        finally:
            ended.set()

    peer.streams["/s/Endless"] = endless
    async with asyncio.timeout(DEADLINE_S):
        async with opened(door, at(peer.port), "/s/Endless") as flow:
            for _ in range(5):
                assert await flow.read() == bytes(SMALL)
            at_rest = -1
            while at_rest != sent:  # until no more fits into the windows
                at_rest = sent
                for _ in range(20):
                    assert (await ask(door, at(peer.port))).ok
        await ended.wait()
    assert sent * SMALL < 64 * 1024 * 1024


async def test_a_quiet_stream_lives_as_long_as_its_connection(door: GrpcEgress, peer: GrpcPeer) -> None:
    gate = asyncio.Event()

    async def quiet(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b"last"

    peer.streams["/s/Quiet"] = quiet
    async with asyncio.timeout(DEADLINE_S), opened(door, at(peer.port), "/s/Quiet", idle_s=0.7) as flow:
        assert await flow.read() == b"first"
        reading = asyncio.create_task(flow.read())
        await until(lambda: peer.methods.count("/grpc.health.v1.Health/Check") >= 2)
        gate.set()
        assert await reading == b"last"


async def test_a_stream_ends_whose_connection_is_dead(door: GrpcEgress) -> None:
    def answer(stream: int) -> bytes:
        begun = headers(stream, HEAD) + frame(DATA, 0, stream, message(b"first"))
        return begun if stream == 1 else frame(DATA, 0, 1)  # the sign of life is never given

    async with speaking_http2(answer) as lines, opened(door, at(lines.port), "/s/Dead", idle_s=0.2) as flow:
        assert await flow.read() == b"first"
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(TimedOut):
                await flow.read()


async def test_a_stream_whose_reader_is_canceled_is_canceled(door: GrpcEgress, peer: GrpcPeer) -> None:
    ended = asyncio.Event()

    async def wait(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            await asyncio.Event().wait()
        finally:
            ended.set()

    peer.streams["/s/Wait"] = wait
    begun = asyncio.Event()

    async def follow() -> None:
        async with opened(door, at(peer.port), "/s/Wait") as flow:
            await flow.read()
            begun.set()
            await flow.read()

    task = asyncio.create_task(follow())
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


# Hostile servers


def replies(*pieces: bytes, trailers: dict[str, str] | None = None) -> Callable[[int], bytes]:
    """An answer of these DATA payloads, with trailers."""

    def answer(stream: int) -> bytes:
        data = b"".join(frame(DATA, 0, stream, piece) for piece in pieces)
        return headers(stream, HEAD) + data + headers(stream, OK if trailers is None else trailers, end=True)

    return answer


async def outcome(
    door: GrpcEgress, answer: Callable[[int], bytes], *, streams: bool = False, hangs_up: bool = False
) -> Any:
    """The result of a call or a stream that is answered so: the reply, or the kind of error."""
    async with asyncio.timeout(DEADLINE_S), speaking_http2(answer, hangs_up=hangs_up) as lines:
        try:
            if not streams:
                return await ask(door, at(lines.port))
            async with opened(door, at(lines.port), "/s/Stream") as flow:
                return await read_all(flow)
        except EgressError as error:
            return type(error)


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_is_too_large_is_given_up(door: GrpcEgress, streams: bool) -> None:
    assert await outcome(door, replies(message(bytes(SMALL + 1))), streams=streams) is TooLarge


async def test_a_small_answer_that_would_expand_is_not_unpacked(door: GrpcEgress) -> None:
    packed = gzip.compress(bytes(900_000), 9)
    assert len(packed) < SMALL

    def answer(stream: int) -> bytes:
        head = headers(stream, {**HEAD, "grpc-encoding": "gzip"})
        return head + frame(DATA, 0, stream, message(packed, compressed=True)) + headers(stream, OK, end=True)

    assert await outcome(door, answer) is Broken


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda stream: b"", Broken),
        (lambda stream: b"\xff" * 60, Broken),
        (lambda stream: frame(RST_STREAM, 0, stream, (8).to_bytes(4, "big")), Broken),
        (lambda stream: headers(stream, HEAD) + frame(RST_STREAM, 0, stream, (2).to_bytes(4, "big")), Broken),
        (lambda stream: headers(stream, HEAD) + frame(DATA, END_STREAM, stream, message(b"abc")), Broken),
        (lambda stream: headers(stream, HEAD) + frame(GOAWAY, 0, 0, bytes(7) + b"\x02"), Broken),
        (replies(trailers={"grpc-status": "x"}), Broken),
        (replies(trailers={"grpc-status": "5", "grpc-status-details-bin": "not base64!"}), Broken),
    ],
)
async def test_what_is_no_answer_is_a_broken_connection(
    door: GrpcEgress, answer: Callable[[int], bytes], expected: type[EgressError]
) -> None:
    assert await outcome(door, answer) is expected


@pytest.mark.parametrize("status", ["302", "404", "503"])
async def test_an_answer_in_http_is_told_by_its_status(door: GrpcEgress, status: str) -> None:
    reply = await outcome(door, lambda stream: headers(stream, {":status": status}, end=True))
    assert isinstance(reply, GrpcReply)
    assert (reply.ok, reply.http_status) == (False, int(status))


async def test_an_answer_without_a_message_has_no_body(door: GrpcEgress) -> None:
    assert (await outcome(door, replies())).body is None


@settings(suppress_health_check=list(HealthCheck), max_examples=30)
@given(data=st.binary(max_size=80), streams=st.booleans(), begun=st.booleans())
async def test_any_bytes_are_an_answer_or_an_error(door: GrpcEgress, data: bytes, streams: bool, begun: bool) -> None:
    def answer(stream: int) -> bytes:
        return (headers(stream, HEAD) if begun else b"") + (data or b"\0")

    await outcome(door, answer, streams=streams, hangs_up=True)


# Addresses


class Street:
    """A door under a guard, with a DNS that strangers fill; it never leaves this machine."""

    def __init__(self, resolver: Resolver, guard: Callable[[str], str | None]) -> None:
        self.dialled: list[str] = []
        self.guard = guard
        self.egress = Egress(self.policy, resolver=resolver)

    def policy(self, address: str) -> str | None:
        if (reason := self.guard(address)) is not None:
            return reason
        self.dialled.append(address)
        return None if address.startswith("127.") else "left alone by this test"


@asynccontextmanager
async def street(guard: Callable[[str], str | None]) -> AsyncIterator[tuple[Street, Any]]:
    async with answering() as names:
        resolver = Resolver(servers=[names.address], kept_s=0)
        found = Street(resolver, guard)
        try:
            yield found, names
        finally:
            await found.egress.close()
            await resolver.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
async def test_a_name_of_a_private_address_is_not_dialled(peer: GrpcPeer, address: str) -> None:
    async with street(Guard()) as (found, names):
        names.has("inward.test", address)
        with pytest.raises(AddressRefused):
            await ask(found.egress.grpc, at(peer.port, "inward.test"))
        assert not found.dialled
    assert not peer.metadata


async def test_an_address_that_may_not_be_called_is_not_dialled(peer: GrpcPeer) -> None:
    async with street(Guard()) as (found, _):
        with pytest.raises(AddressRefused, match="loopback"):
            await ask(found.egress.grpc, at(peer.port))
        assert not found.dialled


async def test_a_host_that_is_exempt_is_dialled_and_no_other_name_of_it(peer: GrpcPeer) -> None:
    guard = Guard(["inward.test"])
    async with answering() as names:
        resolver = Resolver(servers=[names.address], kept_s=0)
        egress = EgressRules(guard, guard.named, resolver).make_egress()
        for name in ("inward.test", "other.test"):
            names.has(name, "127.0.0.1")
        assert (await ask(egress.grpc, at(peer.port, "inward.test"))).ok
        with pytest.raises(AddressRefused):
            await ask(egress.grpc, at(peer.port, "other.test"))
        await egress.close()
        await resolver.close()


async def test_a_name_that_changes_its_address_is_dialled_where_it_was_allowed(peer: GrpcPeer) -> None:
    """127.0.0.1 stands for the open internet here, and 127.0.0.2 for what a guard protects."""

    def guard(address: str) -> str | None:
        return None if address == "127.0.0.1" else "a private address"

    async with serving_grpc("127.0.0.2", port=peer.port) as trap, street(guard) as (found, names):
        names.has("rebound.test", "127.0.0.1")
        assert (await ask(found.egress.grpc, at(peer.port, "rebound.test"))).ok
        names.has("rebound.test", "127.0.0.2")
        assert (await ask(found.egress.grpc, at(peer.port, "rebound.test"))).ok  # over the connection that there is
        await found.egress.close()
        with pytest.raises(AddressRefused):
            await ask(found.egress.grpc, at(peer.port, "rebound.test"))
        assert found.dialled == ["127.0.0.1"]
    assert not trap.metadata


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_lost_connection_is_replaced_by_one_to_the_address_of_now(
    noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not `noticed`: the call is made before C-core says that the connection is gone."""
    if not noticed:
        monkeypatch.setattr(GrpcChannel, "connected", property(lambda channel: not channel.closed))
    async with street(operator_named) as (found, names):
        names.has("moved.test", "127.0.0.1")
        async with serving_grpc() as old:
            port = old.port
            assert (await ask(found.egress.grpc, at(port, "moved.test"))).ok
        names.has("moved.test", "127.0.0.2")
        async with serving_grpc("127.0.0.2", port=port) as new:
            async with asyncio.timeout(DEADLINE_S):
                while not new.metadata:
                    try:
                        await ask(found.egress.grpc, at(port, "moved.test"))
                    except Broken:  # the server's goodbye was under way
                        await asyncio.sleep(0)
        assert found.dialled == ["127.0.0.1", "127.0.0.2"]


async def test_a_stream_is_opened_anew_if_its_connection_had_been_lost_unnoticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GrpcChannel, "connected", property(lambda channel: not channel.closed))

    async def say(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"here"

    async with street(operator_named) as (found, names):
        names.has("moved.test", "127.0.0.1")
        async with serving_grpc() as old:
            port = old.port
            assert (await ask(found.egress.grpc, at(port, "moved.test"))).ok
        names.has("moved.test", "127.0.0.2")
        async with serving_grpc("127.0.0.2", port=port) as new:
            new.streams["/s/Say"] = say
            heard: bytes | GrpcReply = b""
            async with asyncio.timeout(DEADLINE_S):
                while heard != b"here":
                    async with opened(found.egress.grpc, at(port, "moved.test"), "/s/Say") as flow:
                        try:
                            heard = await flow.read()
                        except Broken:  # the server's goodbye was under way
                            await asyncio.sleep(0)
        assert found.dialled == ["127.0.0.1", "127.0.0.2"]


async def test_a_host_that_is_gone_is_unreachable_after_its_connection_was_lost() -> None:
    async with street(operator_named) as (found, names):
        names.has("gone.test", "127.0.0.1")
        async with serving_grpc() as old:
            port = old.port
            assert (await ask(found.egress.grpc, at(port, "gone.test"))).ok
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await ask(found.egress.grpc, at(port, "gone.test"))
                except Broken:  # the server's goodbye was under way
                    await asyncio.sleep(0)
                except Unreachable:
                    break


async def test_a_host_that_moved_gets_new_calls_at_its_new_address_and_keeps_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.net.grpc.dialer.LOOKUP_S", 0.0)
    gate = asyncio.Event()

    async def wait(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"begun"
        await gate.wait()
        yield b"ended"

    async with (
        serving_grpc() as old,
        serving_grpc("127.0.0.2", port=old.port) as new,
        street(operator_named) as (found, names),
    ):
        names.has("moved.test", "127.0.0.1")
        old.streams["/s/Wait"] = wait
        async with opened(found.egress.grpc, at(old.port, "moved.test"), "/s/Wait") as flow:
            assert await flow.read() == b"begun"
            names.has("moved.test", "127.0.0.2")
            assert (await ask(found.egress.grpc, at(old.port, "moved.test"))).ok
            assert new.methods == [ECHO]
            names.names.clear()  # a host that cannot be looked up keeps its connection
            assert (await ask(found.egress.grpc, at(old.port, "moved.test"))).ok
            gate.set()
            assert (await read_all(flow))[0] == [b"ended"]
    assert ECHO not in old.methods


class NamesOnce:
    """A resolver that answers once. Later look-ups hang."""

    def __init__(self) -> None:
        self.asked = 0

    async def addresses(self, host: str) -> Sequence[str]:
        """Loopback, the first time."""
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        return ("127.0.0.1",)


async def test_a_call_does_not_wait_for_a_host_that_cannot_be_looked_up_again(
    peer: GrpcPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.net.grpc.dialer.LOOKUP_S", 0.0)
    names = NamesOnce()
    egress = Egress(resolver=names, connect_timeout_s=0.5, max_answer_bytes=SMALL)
    async with asyncio.timeout(60.0):
        for _ in range(2):
            assert (await ask(egress.grpc, at(peer.port, "slow.test"))).ok
    assert names.asked == 2
    await egress.close()


async def test_a_refused_address_is_passed_over_for_one_that_is_allowed(peer: GrpcPeer) -> None:
    def guard(address: str) -> str | None:
        return None if address == "127.0.0.1" else "a private address"

    async with street(guard) as (found, names):
        names.has("mixed.test", "127.0.0.2", "127.0.0.1")
        assert (await ask(found.egress.grpc, at(peer.port, "mixed.test"))).ok
        assert found.dialled == ["127.0.0.1"]


async def test_nothing_is_said_to_somebody_who_does_not_speak_http2() -> None:
    heard: list[bytes] = []

    async def listen(line: Line) -> None:
        while said := await line.reader.read(4096):
            heard.append(said)

    async with street(operator_named) as (found, names), speaking(listen) as lines:
        names.has("agents.test", "127.0.0.1")
        with pytest.raises(EgressError):
            await found.egress.grpc.call(
                at(lines.port, "agents.test"), ECHO, b"", timeout_s=0.5, metadata={"x-api-key": "secret"}
            )
    assert heard[0].startswith(b"PRI * HTTP/2.0")
    assert b"secret" not in b"".join(heard)


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy", "GRPC_ADDRESS_HTTP_PROXY"])
async def test_no_proxy_of_the_environment_is_used(
    door: GrpcEgress, peer: GrpcPeer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def refuse(line: Line) -> None:
        await line.reader.read(1)

    async with speaking(refuse) as proxy:
        for other in tuple(os.environ):
            if "proxy" in other.lower():
                monkeypatch.delenv(other)
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}" if "GRPC" not in name else f"127.0.0.1:{proxy.port}")
        monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", "127.0.0.0/8")
        assert (await ask(door, at(peer.port))).ok
        assert not proxy.came


async def test_nobody_listening_is_said_so(door: GrpcEgress) -> None:
    with pytest.raises(Unreachable, match="is it listening") as caught:
        await ask(door, at(kept_port()))
    assert not caught.value.sent
    with pytest.raises(Unreachable):
        await door.reach(at(kept_port()), timeout_s=DEADLINE_S)


async def test_somebody_who_speaks_http_1_is_not_reached(door: GrpcEgress) -> None:
    async def talk(line: Line) -> None:
        await line.reader.read(1)
        await line.says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with speaking(talk) as lines:
        with pytest.raises(Unreachable, match="not gRPC's"):
            await ask(door, at(lines.port))


async def test_somebody_who_says_nothing_is_given_up() -> None:
    async def talk(line: Line) -> None:
        await line.ended()

    egress = Egress(connect_timeout_s=0.3)
    async with speaking(talk) as lines:
        with pytest.raises(Unreachable, match="in time"):
            await ask(egress.grpc, at(lines.port))
    await egress.close()


# TLS


async def test_a_server_is_known_by_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("agents.test")
    trusting = ClientTls(ca_file=str(authority.path))
    async with serving_grpc(pem=tmp_path / "agents.test.pem") as peer, answering() as names:
        names.has("agents.test", "127.0.0.1")
        names.has("other.test", "127.0.0.1")
        resolver = Resolver(servers=[names.address], kept_s=0)
        egress = Egress(resolver=resolver, tls=trusting)
        assert (await ask(egress.grpc, at(peer.port, "agents.test", "grpcs"))).ok
        with pytest.raises(Unreachable, match="certificate"):
            await ask(egress.grpc, at(peer.port, "other.test", "grpcs"))
        with pytest.raises(Unreachable):
            await ask(egress.grpc, at(peer.port, "agents.test"))
        await egress.close()
        strange = Egress(resolver=resolver)
        with pytest.raises(Unreachable, match="certificate"):
            await ask(strange.grpc, at(peer.port, "agents.test", "grpcs"))
        await strange.close()
        await resolver.close()


async def test_an_address_may_be_what_is_certified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("127.0.0.1")
    egress = Egress(tls=ClientTls(ca_file=str(authority.path)))
    async with serving_grpc(pem=tmp_path / "127.0.0.1.pem") as peer:
        assert (await ask(egress.grpc, at(peer.port, scheme="grpcs"))).ok
    await egress.close()


async def test_a_certificate_is_shown_to_a_server_that_asks_for_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("127.0.0.1")
    authority.server("caller.test")
    trusted, own = str(authority.path), str(tmp_path / "caller.test.pem")
    async with serving_grpc(pem=tmp_path / "127.0.0.1.pem", client_ca=authority.path) as peer:
        shown = Egress(tls=ClientTls(ca_file=trusted, certificate_file=own))
        assert (await ask(shown.grpc, at(peer.port, scheme="grpcs"))).ok
        await shown.close()
        hidden = Egress(tls=ClientTls(ca_file=trusted))
        with pytest.raises(EgressError):
            await ask(hidden.grpc, at(peer.port, scheme="grpcs"))
        await hidden.close()


async def test_no_certificate_is_taken_unverified(peer: GrpcPeer) -> None:
    egress = Egress(tls=ClientTls(verify=False))
    with pytest.raises(Unreachable, match="ca_file"):
        await ask(egress.grpc, at(peer.port, scheme="grpcs"))
    await egress.close()
