"""Egress before real sockets: what it sends, what it refuses, and what it says of what went wrong."""

import asyncio
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from dragoman.net.address import Guard, Resolver
from dragoman.net.egress import Egress, EgressRules, checked
from dragoman.net.errors import AddressRefused, BadUrl, Broken, TimedOut, TooLarge, Unreachable
from tests.net.peer import DEADLINE_S, Peer, hangs, nobody, raw, says, status


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress(max_answer_bytes=1000)
    yield egress
    await egress.close()


async def test_a_request_arrives_as_it_was_made_and_the_answer_comes_whole(peer: Peer, egress: Egress) -> None:
    peer.scripts["POST /x"] = says({"a": 1}, 201, {"X-Kind": "Own"})
    reply = await egress.request("POST", peer.url + "/x", body=b"[1]", headers={"X-Told": "yes"}, timeout_s=60.0)
    assert (reply.status, reply.ok, reply.body, reply.headers["x-kind"]) == (201, True, b'{"a": 1}', "Own")
    (asked,) = peer.asked
    assert (asked.body, asked.headers["x-told"]) == (b"[1]", "yes")
    assert asked.headers["user-agent"].startswith("dragoman/")
    assert asked.headers["accept-encoding"] == "identity"


async def test_a_redirect_is_an_answer_and_is_not_followed(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(b"", 302, {"Location": "/other"})
    peer.scripts["GET /other"] = says({})
    reply = await egress.request("GET", peer.url + "/", timeout_s=60.0)
    assert (reply.status, reply.ok) == (302, False)
    assert peer.paths == ["GET /"]


async def test_cookies_are_not_kept(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says({}, headers={"Set-Cookie": "a=b; Path=/"})
    url = peer.url.replace("127.0.0.1", "localhost")  # of a bare address nobody keeps cookies
    for _ in range(2):
        await egress.request("GET", url + "/", timeout_s=60.0)
    assert [asked.headers.get("cookie") for asked in peer.asked] == [None, None]


async def test_proxies_and_passwords_of_the_environment_are_not_used(
    peer: Peer, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", await nobody())
    peer.scripts["GET /"] = says({})
    assert (await egress.request("GET", peer.url + "/", timeout_s=60.0)).ok


async def test_nobody_listening_is_unreachable_and_nothing_was_sent(egress: Egress) -> None:
    with pytest.raises(Unreachable, match="is it listening there") as caught:
        await egress.request("POST", await nobody() + "/", body=b"{}", timeout_s=60.0)
    assert not caught.value.sent


@pytest.mark.parametrize("host", ["does-not-exist.invalid", "a" * 64 + ".invalid", "a..invalid"])
async def test_a_host_that_does_not_exist_is_an_error_and_nothing_was_sent(egress: Egress, host: str) -> None:
    with pytest.raises((Unreachable, BadUrl)) as caught:
        await egress.request("GET", f"http://{host}/", timeout_s=60.0)
    assert not caught.value.sent


async def test_tls_with_a_server_that_has_none_is_unreachable(egress: Egress) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 This is not TLS\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable) as caught:
            await egress.request("GET", f"https://127.0.0.1:{port}/", timeout_s=60.0)
        assert not caught.value.sent


async def test_an_answer_that_does_not_come_is_a_timeout_and_the_request_was_sent(peer: Peer, egress: Egress) -> None:
    peer.scripts["POST /"] = hangs()
    with pytest.raises(TimedOut, match=r"no answer within 0\.5 s") as caught:
        await egress.request("POST", peer.url + "/", body=b"{}", timeout_s=0.5)
    assert caught.value.sent
    assert peer.paths == ["POST /"]


async def test_an_answer_that_stops_in_the_middle_is_a_timeout(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = hangs(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    with pytest.raises(TimedOut):
        await egress.request("GET", peer.url + "/", timeout_s=0.5)


async def test_a_connection_for_which_there_was_no_room_in_time_sent_nothing(peer: Peer) -> None:
    egress = Egress(connections_max=1)
    peer.scripts["GET /"] = hangs()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(egress.request("GET", peer.url + "/", timeout_s=DEADLINE_S))
        await peer.came.wait()
        with pytest.raises(Unreachable, match="no connection in time") as caught:
            await egress.request("GET", peer.url + "/", timeout_s=0.5)
        assert not caught.value.sent
        first.cancel()
    await egress.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="hangs up"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", id="hangs up in the middle"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="is not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", id="has a huge header"),
    ],
)
async def test_an_answer_that_breaks_is_broken_and_the_request_was_sent(
    peer: Peer, egress: Egress, answer: bytes
) -> None:
    peer.scripts["POST /"] = raw(answer)
    with pytest.raises(Broken) as caught:
        await egress.request("POST", peer.url + "/", body=b"{}", timeout_s=60.0)
    assert caught.value.sent


async def test_an_answer_that_says_it_is_too_large_is_not_read(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = hangs(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
    with pytest.raises(TooLarge, match="1000 bytes allowed"):
        await egress.request("GET", peer.url + "/", timeout_s=60.0)


async def test_an_answer_that_does_not_end_is_cut_off_at_the_limit(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = hangs(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000)
    with pytest.raises(TooLarge):
        await egress.request("GET", peer.url + "/", timeout_s=60.0)


async def test_an_answer_of_exactly_the_limit_is_read(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(b"x" * 1000)
    assert len((await egress.request("GET", peer.url + "/", timeout_s=60.0)).body) == 1000


async def test_a_compressed_answer_is_not_unpacked(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = says(gzip.compress(b"0" * 1_000_000), headers={"Content-Encoding": "gzip"})
    with pytest.raises(Broken, match="identity"):
        await egress.request("GET", peer.url + "/", timeout_s=60.0)


async def test_the_policy_is_asked_about_every_address_before_it_is_dialled(peer: Peer) -> None:
    asked: list[str] = []

    def policy(address: str) -> str | None:
        asked.append(address)
        return "loopback" if address != "127.0.0.2" else None

    egress = Egress(policy)
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(AddressRefused) as caught:
            await egress.request("GET", peer.url.replace("127.0.0.1", host) + "/", timeout_s=60.0)
        assert not caught.value.sent
    await egress.close()
    assert asked[0] == "127.0.0.1"
    assert len(asked) >= 2
    assert peer.asked == []


async def test_a_host_that_is_exempt_from_the_policy_is_dialled_and_no_other_name_of_it(peer: Peer) -> None:
    guard, resolver = Guard(["LocalHost."]), Resolver()
    egress = EgressRules(guard, guard.named, resolver).make_egress()
    peer.scripts["GET /"] = says({})
    assert (await egress.request("GET", peer.url.replace("127.0.0.1", "localhost") + "/", timeout_s=60.0)).ok
    with pytest.raises(AddressRefused):
        await egress.request("GET", peer.url + "/", timeout_s=60.0)
    assert len(peer.asked) == 1
    await egress.close()
    await resolver.close()


class SilentNames:
    """A resolver whose look-ups hang."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Never answers."""
        await asyncio.Event().wait()
        return ()


async def test_a_name_that_is_looked_up_for_too_long_is_a_connection_that_is_not_made() -> None:
    egress = Egress(resolver=SilentNames(), connect_timeout_s=0.05)
    with pytest.raises(Unreachable, match="no connection in time") as caught:
        async with asyncio.timeout(60.0):
            await egress.request("POST", "http://agent.example/", body=b"{}", timeout_s=60.0)
    assert not caught.value.sent
    await egress.close()


@pytest.mark.parametrize(
    "url", ["", "example.org", "ftp://example.org/", "file:///etc/passwd", "http://", "http://h:99999/", "http://[::1/"]
)
async def test_what_is_not_an_http_url_is_refused(egress: Egress, url: str) -> None:
    with pytest.raises(BadUrl):
        await egress.request("GET", url, timeout_s=60.0)


def test_a_url_is_shown_without_its_secrets() -> None:
    assert checked("http://me:secret@[::1]:80/a?token=b#c") == "http://[::1]:80/a"


async def test_after_close_a_request_opens_anew(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /"] = status(204)
    for _ in range(2):
        assert (await egress.request("GET", peer.url + "/", timeout_s=60.0)).status == 204
        await egress.close()


def test_the_core_has_its_own_http_client() -> None:
    script = "import sys, dragoman.server, dragoman.cli.serve, dragoman.kaos; print('aiohttp' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "False"
