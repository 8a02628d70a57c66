"""The Poster before real sockets: what it says, whom it keeps, and what an unkind host can make of it: nothing."""

import asyncio
import gc
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.net.connection import REST_S
from dragoman.net.egress import HttpReply, Poster
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, Unreachable, Unresolved
from dragoman.net.target import target
from tests.certificates import Authority
from tests.kit.waiting import no_hang
from tests.net.lines import NO_CONTENT, Line, Lines, obliging, silent_port, speaking
from tests.net.peer import DEADLINE_S, Peer, hangs, nobody

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Names:
    """DNS as a test says: by default every name is this machine's."""

    def __init__(self, *addresses: str) -> None:
        self.says: Sequence[str] = addresses or ("127.0.0.1",)
        self.asked: list[str] = []

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if not self.says:
            raise Unresolved("does not exist, or has no address: check its name")
        return self.says


@asynccontextmanager
async def posting(names: Names | None = None, **settings: object) -> AsyncIterator[Poster]:
    poster = Poster(lambda address: None, names or Names(), **settings)  # type: ignore[arg-type]
    try:
        async with no_hang():
            yield poster
    finally:
        await poster.close()


@pytest.fixture
async def poster() -> AsyncIterator[Poster]:
    async with posting() as poster:
        yield poster


async def post(
    poster: Poster, to: Lines | str, body: bytes = b"{}", timeout_s: float = 5.0, **headers: str
) -> HttpReply:
    url = to if isinstance(to, str) else f"http://127.0.0.1:{to.port}/"
    return await poster.post(target(url), body=body, headers=headers, timeout_s=timeout_s)


# -- what is asked and answered ----------------------------------------------------------------------------------------


async def test_a_call_arrives_as_it_was_made(poster: Poster) -> None:
    heads = []

    async def talk(line: Line) -> None:
        head, body = await line.asked()
        heads.append(head)
        assert body == b"x" * 300_000
        await line.says(b"HTTP/1.1 201 Made\r\nX-Kind: Own\r\nContent-Length: 2\r\n\r\nok")

    async with speaking(talk) as lines:
        reply = await post(poster, f"http://localhost:{lines.port}/a?b=c", b"x" * 300_000, who="me")
    assert (reply.status, reply.ok, reply.body, reply.headers["x-kind"]) == (201, True, b"ok", "Own")
    assert heads[0].startswith(f"POST /a?b=c HTTP/1.1\r\nHost: localhost:{lines.port}\r\nUser-Agent: dragoman/")
    assert heads[0].endswith("Accept: */*\r\nAccept-Encoding: identity\r\nContent-Length: 300000\r\nwho: me\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 100 C\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    ],
)
async def test_an_answer_comes_whole_or_byte_by_byte(poster: Poster, answer: bytes) -> None:
    for pieces in ([answer], [bytes([byte]) for byte in answer]):

        async def talk(line: Line, pieces: list[bytes] = pieces) -> None:
            await line.asked()
            await line.says(*pieces)

        async with speaking(talk) as lines:
            reply = await post(poster, lines)
        assert (reply.status, reply.body) == (200, b"ok")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(b"HTTP/1.1 202 OK\r\nContent-Length: 200\r\n\r\n" + b"x" * 200, b"x" * 100, id="large"),
        pytest.param(b"HTTP/1.1 202 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200, b"x" * 100, id="endless"),
        pytest.param(b"HTTP/1.1 202 OK\r\nContent-Length: 9\r\n\r\nxx", b"xx", id="hangs in the middle"),
        pytest.param(b"HTTP/1.1 202 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx", b"x", id="compressed"),
    ],
)
async def test_what_was_told_is_told_once_the_status_has_come(peer: Peer, answer: bytes, body: bytes) -> None:
    async with posting(max_answer_bytes=100) as poster:
        peer.scripts["POST /"] = hangs(answer)
        reply = await post(poster, peer.url, timeout_s=DEADLINE_S, who="me")
    assert (reply.status, reply.body) == (202, body)
    assert [asked.body for asked in peer.asked] == [b"{}"]


async def test_an_answer_that_drips_once_its_status_is_there_does_not_hold_the_line(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                await line.says(b"x")
                await asyncio.sleep(0.05)

    loop = asyncio.get_running_loop()
    async with speaking(talk) as lines:
        began = loop.time()
        reply = await post(poster, lines, timeout_s=DEADLINE_S)
    assert reply.status == 200
    assert REST_S / 2 < loop.time() - began < DEADLINE_S / 2


async def test_a_status_that_comes_late_leaves_no_more_time_than_was_given(
    poster: Poster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.net.connection.REST_S", DEADLINE_S)

    async def talk(line: Line) -> None:
        await line.asked()
        await asyncio.sleep(0.2)
        await line.says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    async with speaking(talk) as lines:
        began = loop.time()
        assert (await post(poster, lines, timeout_s=2.0)).status == 200
    assert loop.time() - began < DEADLINE_S / 2


async def test_a_redirect_is_an_answer_and_a_cookie_is_not_kept(poster: Poster) -> None:
    heads = []

    async def talk(line: Line) -> None:
        while True:
            heads.append((await line.asked())[0])
            await line.says(b"HTTP/1.1 307 X\r\nLocation: /x\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")

    async with speaking(talk) as lines:
        for _ in range(2):
            assert (await post(poster, f"http://localhost:{lines.port}/")).status == 307
    assert heads[0] == heads[1]
    assert len(heads) == 2


async def test_proxies_and_passwords_of_the_environment_are_not_used(
    poster: Poster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", await nobody())
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def talk(line: Line) -> None:
        head, _ = await line.asked()
        assert "uthorization" not in head
        await line.says(OK)

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).ok


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-C: d"}, {"X-A\r\nX-C": "d"}, {"X-A": "b\0"}, {"host": "b"}])
async def test_a_header_that_would_be_two_is_not_sent(peer: Peer, poster: Poster, headers: dict[str, str]) -> None:
    with pytest.raises(BadUrl) as caught:
        await poster.post(target(peer.url), body=b"{}", headers=headers, timeout_s=60.0)
    assert not caught.value.sent
    assert peer.asked == []


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_nobody_listening_is_unreachable_and_nothing_was_sent(poster: Poster) -> None:
    with pytest.raises(Unreachable, match="is it listening there") as caught:
        await post(poster, await nobody())
    assert not caught.value.sent


async def test_a_host_without_an_address_is_unreachable() -> None:
    names = Names()
    names.says = ()
    async with posting(names) as poster:
        with pytest.raises(Unreachable, match=r"nobody\.test/: its host does not exist"):
            await post(poster, "http://nobody.test/")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="hangs up"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Len", id="hangs up in the head"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="hangs up before the answer"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="is not HTTP"),
        pytest.param(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", id="goes elsewhere"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", id="has a huge header"),
        pytest.param(b"HTTP/1.1 102 P\r\n\r\n" * 10_000, id="is on its way for ever"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", id="ends twice"),
    ],
)
async def test_an_answer_that_breaks_is_broken_and_the_call_was_sent(poster: Poster, answer: bytes) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(answer)

    async with speaking(talk) as lines:
        with pytest.raises(Broken) as caught:
            await post(poster, lines)
        assert caught.value.sent
        assert lines.came == 1


async def test_a_host_that_takes_the_call_and_says_nothing_is_a_timeout(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\n")
        await line.ended()

    async with speaking(talk) as lines:
        with pytest.raises(TimedOut, match=r"no answer within 0\.5 s") as caught:
            await post(poster, lines, timeout_s=0.5)
        assert caught.value.sent
        await lines.over(1)


async def test_a_host_that_speaks_before_it_is_asked_is_not_listened_to(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.says(OK)
        await line.asked()
        await line.ended()

    async with speaking(talk) as lines:
        try:
            assert (await post(poster, lines)).status == 200  # it came after the call, for all one can see
        except Broken:
            pass
        await post_or_not(poster, lines)


async def post_or_not(poster: Poster, lines: Lines) -> int:
    try:
        return (await post(poster, lines, timeout_s=0.5)).status
    except EgressError:
        return 0


async def test_a_call_that_is_canceled_ends_its_connection(poster: Poster) -> None:
    came = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        came.set()
        await line.ended()

    async with speaking(talk) as lines:
        call = asyncio.create_task(post(poster, lines))
        await came.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await lines.over(1)
        lines.talk = obliging
        assert (await post(poster, lines)).status == 204
        assert lines.came == 2


# -- whom it dials -----------------------------------------------------------------------------------------------------


async def test_the_policy_is_asked_about_every_address_each_time_and_refused_ones_are_not_dialled() -> None:
    asked: list[str] = []

    def policy(address: str) -> str | None:
        asked.append(address)
        return None if address == "127.0.0.1" else "a private address"

    names = Names("10.0.0.1", "127.0.0.1")
    poster = Poster(policy, names)

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    async with speaking(talk) as lines:
        for _ in range(2):
            assert (await post(poster, f"http://a.test:{lines.port}/")).ok
        names.says = ("10.0.0.1", "127.0.0.2")
        with pytest.raises(AddressRefused, match="its host stands for a private address") as caught:
            await post(poster, f"http://a.test:{lines.port}/")
        assert not caught.value.sent
        assert lines.came == 2
    assert asked == ["10.0.0.1", "127.0.0.1"] * 2 + ["10.0.0.1", "127.0.0.2"]
    assert names.asked == ["a.test"] * 3
    await poster.close()


async def test_an_address_that_refuses_leads_to_the_next() -> None:
    async with speaking(obliging) as lines, posting(Names("127.0.0.9", "127.0.0.8", "127.0.0.1")) as poster:
        assert (await post(poster, f"http://a.test:{lines.port}/")).status == 204


async def test_an_address_that_is_silent_leads_to_the_next_in_time() -> None:
    with silent_port() as port:
        names = Names("127.0.0.1", "127.0.0.2")
        async with speaking(obliging, host="127.0.0.2", port=port), posting(names, connect_timeout_s=1.5) as poster:
            assert (await post(poster, f"http://a.test:{port}/")).status == 204


async def test_a_connection_that_does_not_come_about_in_time_is_unreachable_and_nothing_was_sent() -> None:
    with silent_port() as port:
        for connect_timeout_s, timeout_s in ((0.1, 300.0), (300.0, 0.1)):
            async with posting(Names(*["127.0.0.1"] * 16), connect_timeout_s=connect_timeout_s) as poster:
                began = asyncio.get_running_loop().time()
                with pytest.raises(Unreachable, match="no connection in time") as caught:
                    await post(poster, f"http://a.test:{port}/", timeout_s=timeout_s)
                assert not caught.value.sent
                assert asyncio.get_running_loop().time() - began < DEADLINE_S / 2


# -- whom it keeps -----------------------------------------------------------------------------------------------------


async def test_a_connection_is_kept_for_the_next_call_to_the_same_host(poster: Poster) -> None:
    async with speaking(obliging) as lines:
        for _ in range(5):
            assert (await post(poster, lines)).status == 204
        assert lines.came == 1
        assert (await post(poster, f"http://localhost:{lines.port}/")).status == 204
        assert lines.came == 2


async def test_calls_at_once_have_connections_of_their_own_and_so_many_are_kept() -> None:
    async with speaking(obliging) as lines, posting(idle_per_host_max=2) as poster:
        for _ in range(2):
            await asyncio.gather(*(post(poster, lines) for _ in range(5)))
        assert lines.came == 5 + 3
        await lines.over(6)


async def test_of_many_hosts_so_many_connections_are_kept_and_the_oldest_goes_first() -> None:
    async with speaking(obliging) as lines, posting(idle_max=2) as poster:
        for name, came in (("a", 1), ("b", 2), ("a", 2), ("c", 3), ("a", 3), ("b", 4)):
            assert (await post(poster, f"http://{name}.test:{lines.port}/")).status == 204
            assert lines.came == came
        await lines.over(2)


async def test_a_connection_that_nobody_uses_is_closed_after_its_time() -> None:
    async with speaking(obliging) as lines, posting(idle_s=0.05) as poster:
        await post(poster, lines)
        await lines.over(1)
        await post(poster, lines)
        assert lines.came == 2
        await lines.over(2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"\r\n",
        OK + OK,
        OK + b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
        OK + b"HTTP/1.1 5",
    ],
)
async def test_a_connection_with_anything_left_on_it_is_not_used_again(poster: Poster, answer: bytes) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(answer)
        await line.ended()

    async with speaking(talk) as lines:
        for came in (1, 2):
            assert (await post(poster, lines)).status == 200
            await lines.over(came)
        assert lines.came == 2


@pytest.mark.parametrize("unasked", [b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", b"\r\n", b"H"])
async def test_what_comes_unasked_ends_the_connection_and_answers_no_later_call(poster: Poster, unasked: bytes) -> None:
    go = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await go.wait()
        await line.says(unasked)
        await line.ended()

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).status == 200
        go.set()
        await lines.over(1)
        lines.talk = obliging
        assert (await post(poster, lines)).status == 204
        assert lines.came == 2


async def test_an_answer_before_the_call_was_read_ends_the_connection(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.says(b"")
        head = await line.reader.readuntil(b"\r\n\r\n")
        assert head
        await line.says(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")
        with pytest.raises((ConnectionError, AssertionError)):
            await line.ended()

    async with speaking(talk) as lines:
        assert (await post(poster, lines, b"x" * 20_000_000)).status == 413
        await lines.over(1)
        lines.talk = obliging
        assert (await post(poster, lines)).status == 204
        assert lines.came == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_a_kept_connection_that_was_ended_costs_a_new_one_and_no_error(poster: Poster, reset: bool) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()  # and hangs up on it
        if reset:
            line.reset()

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).ok
        lines.talk = obliging
        assert (await post(poster, lines)).status == 204
        assert lines.came == 2


async def test_a_call_is_made_once_more_and_not_again(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        if lines.came == 1:
            await line.says(OK)
            await line.asked()

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).ok
        with pytest.raises(Broken) as caught:
            await post(poster, lines)
        assert caught.value.sent
        assert lines.came == 2


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_call_whose_answer_has_begun_is_not_made_again(poster: Poster, begun: bytes) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()
        await line.says(begun)

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).ok
        with pytest.raises(Broken):
            await post(poster, lines)
        assert lines.came == 1


async def test_a_call_that_may_have_come_through_is_sent_although_there_is_no_new_connection(poster: Poster) -> None:
    gone = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()
        server.close()
        gone.set()

    lines = Lines(talk)
    server = await asyncio.start_server(lines.take, "127.0.0.1", 0)
    lines.port = server.sockets[0].getsockname()[1]
    assert (await post(poster, lines)).ok
    with pytest.raises(Broken) as caught:
        await post(poster, lines)
    assert caught.value.sent
    assert isinstance(caught.value.__cause__, Unreachable)
    assert gone.is_set()
    await server.wait_closed()


async def test_a_timeout_on_a_kept_connection_is_not_tried_again(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()
        await line.ended()

    async with speaking(talk) as lines:
        assert (await post(poster, lines)).ok
        with pytest.raises(TimedOut):
            await post(poster, lines, timeout_s=0.1)
        assert lines.came == 1


async def test_close_ends_idle_connections_and_calls_under_way_and_a_later_call_opens_anew(poster: Poster) -> None:
    came = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.asked()
        await line.says(OK)
        await line.asked()
        came.set()
        await line.ended()

    async with speaking(talk) as lines:
        await asyncio.gather(post(poster, lines), post(poster, lines))
        call = asyncio.create_task(post(poster, lines))
        await came.wait()
        await poster.close()
        with pytest.raises(Broken):
            await call
        await lines.over(2)
        lines.talk = obliging
        assert (await post(poster, lines)).status == 204
        assert lines.came == 3


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))  # as the machine's administrator would
    return authority


async def test_a_call_through_tls_asks_for_the_host_and_keeps_its_connection(
    poster: Poster, authority: Authority
) -> None:
    asked_for: list[str | None] = []
    context = authority.server("hooks.test", "127.0.0.1")
    context.sni_callback = lambda tls, name, _: asked_for.append(name)  # type: ignore[assignment]

    async def talk(line: Line) -> None:
        assert line.tls.selected_alpn_protocol() == "http/1.1"
        await obliging(line)

    async with speaking(talk, tls=context) as lines:
        for _ in range(2):
            for host in ("hooks.test", "hooks.test.", "127.0.0.1"):
                assert (await post(poster, f"https://{host}:{lines.port}/")).status == 204
        assert lines.came == 3
        assert asked_for == ["hooks.test", "hooks.test", None]
        await poster.close()


@pytest.mark.parametrize(
    ("names", "days", "host"),
    [
        pytest.param(("other.test",), 1, "hooks.test", id="another host"),
        pytest.param(("hooks.test",), 1, "127.0.0.1", id="a name, and the address was asked for"),
        pytest.param(("127.0.0.1",), 1, "hooks.test", id="an address, and the name was asked for"),
        pytest.param(("hooks.test",), -1, "hooks.test", id="expired"),
    ],
)
async def test_a_certificate_that_is_not_the_hosts_own_is_refused(
    poster: Poster, authority: Authority, names: tuple[str, ...], days: int, host: str
) -> None:
    async with speaking(obliging, tls=authority.server(*names, days=days)) as lines:
        with pytest.raises(Unreachable, match="check its certificate") as caught:
            await post(poster, f"https://{host}:{lines.port}/")
        assert not caught.value.sent


async def test_a_certificate_of_an_unknown_authority_is_refused(
    poster: Poster, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    async with speaking(obliging, tls=stranger.server("hooks.test")) as lines:
        with pytest.raises(Unreachable, match="check its certificate"):
            await post(poster, f"https://hooks.test:{lines.port}/")


async def test_old_tls_is_refused(poster: Poster, authority: Authority) -> None:
    context = authority.server("hooks.test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with speaking(obliging, tls=context) as lines:
        with pytest.raises(Unreachable):
            await post(poster, f"https://hooks.test:{lines.port}/")


async def test_tls_with_a_host_that_has_none_is_unreachable(poster: Poster) -> None:
    async def talk(line: Line) -> None:
        await line.says(b"HTTP/1.1 400 This is not TLS\r\n\r\n")

    async with speaking(talk) as lines:
        with pytest.raises(Unreachable) as caught:
            await post(poster, f"https://127.0.0.1:{lines.port}/")
        assert not caught.value.sent


async def test_tls_that_does_not_come_about_in_time_is_unreachable() -> None:
    async def talk(line: Line) -> None:
        await line.reader.read()

    async with speaking(talk) as lines, posting(connect_timeout_s=0.2) as poster:
        with pytest.raises(Unreachable, match="no connection in time"):
            await post(poster, f"https://127.0.0.1:{lines.port}/")
        await lines.over(1)


# -- whatever comes ----------------------------------------------------------------------------------------------------

BYTES = st.binary(max_size=40) | st.sampled_from(
    [
        OK,
        OK + OK,
        OK[:-1],
        NO_CONTENT,
        NO_CONTENT + b"HTTP/1.1 500 X\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 C\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"\r\n\r\n",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BYTES, min_size=1, max_size=4), st.booleans())
def test_whatever_comes_is_an_answer_or_an_error_and_spoils_no_later_call(pieces: list[bytes], hangs_up: bool) -> None:
    async def run() -> None:
        said = asyncio.Event()

        async def talk(line: Line) -> None:
            try:
                head, _ = await line.asked()
                if first := "number: 0" in head:
                    await line.says(*pieces)
            finally:
                said.set()
            if first:
                if hangs_up:
                    return
                head, _ = await line.asked()
            while True:
                number = int(head.partition("number: ")[2].partition("\r\n")[0])
                await line.says(b"HTTP/1.1 %d X\r\nNumber: %d\r\nContent-Length: 0\r\n\r\n" % (210 + number, number))
                head, _ = await line.asked()

        async with speaking(talk) as lines, speaking(obliging) as other, posting() as poster:
            try:
                await post(poster, lines, timeout_s=0.02, number="0")
                await said.wait()
            except EgressError as error:
                if error.sent:
                    await said.wait()
            await post(poster, other)  # meanwhile all that was said has come
            for number in (1, 2):
                reply = await post(poster, lines, number=str(number))
                assert (reply.status, reply.headers["number"]) == (210 + number, str(number))

    asyncio.run(run())


# -- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_on_either_loop_nothing_is_left_open(run: Callable[[Awaitable[None]], None], authority: Authority) -> None:
    async def calls() -> None:
        context = authority.server("hooks.test")
        async with speaking(obliging) as plain, speaking(obliging, tls=context) as secret:
            poster = Poster(lambda address: None, Names(), connect_timeout_s=1.0)
            urls = (f"http://hooks.test:{plain.port}/", f"https://hooks.test:{secret.port}/")
            for url in urls:
                assert [(await post(poster, url)).status for _ in range(3)] == [204] * 3
            assert (plain.came, secret.came) == (1, 1)
            with pytest.raises(Unreachable):
                await post(poster, f"https://hooks.test:{plain.port}/")
            with pytest.raises(Unreachable):
                await post(poster, f"https://other.test:{secret.port}/")
            for turns in range(8):  # canceled wherever it is
                call = asyncio.create_task(post(poster, urls[turns % 2].replace("hooks", f"x{turns}")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            await poster.close()

    run(calls())
    gc.collect()
