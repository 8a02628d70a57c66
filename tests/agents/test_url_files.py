"""ctx.read of what a stranger linked to: fetched within limits, through the guard at every step, or refused."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from urllib.parse import unquote_to_bytes

import pytest

from dragoman.agents.url_files import PIECE_BYTES, REDIRECTS_MAX, FileReading
from dragoman.engine.api import Unreadable
from dragoman.net.address import Guard
from tests.net.peer import Peer, hangs, listening, says

CONTENT = b"\x00\xffcontent"
MAX_BYTES = 1000


@pytest.fixture
async def near() -> AsyncIterator[Peer]:
    async with listening() as running:
        running.scripts["GET /file"] = says(CONTENT)
        yield running


@pytest.fixture
async def allowed() -> AsyncIterator[FileReading]:
    """Loopback is allowed by its network: the guard is asked, and agrees."""
    reading = FileReading(Guard((), ["127.0.0.0/8"]), max_bytes=MAX_BYTES, timeout_s=60.0)
    yield reading
    await reading.close()


@pytest.fixture
async def roomy() -> AsyncIterator[FileReading]:
    reading = FileReading(max_bytes=1_000_000)
    yield reading
    await reading.close()


@pytest.fixture
async def strict() -> AsyncIterator[FileReading]:
    reading = FileReading(max_bytes=MAX_BYTES, timeout_s=60.0)
    yield reading
    await reading.close()


async def test_a_file_is_fetched(near: Peer, allowed: FileReading) -> None:
    assert await allowed.fetch(f"{near.url}/file#page=2") == CONTENT
    assert "authorization" not in near.asked[0].headers


async def test_a_host_that_the_operator_named_is_not_asked_about(near: Peer) -> None:
    reading = FileReading(Guard(["127.0.0.1"]), max_bytes=MAX_BYTES)
    assert await reading.fetch(f"{near.url}/file") == CONTENT
    await reading.close()


async def test_a_private_address_is_not_dialled(near: Peer, strict: FileReading) -> None:
    with pytest.raises(Unreadable, match="loopback"):
        await strict.fetch(f"{near.url}/file")
    assert near.asked == []


@pytest.mark.parametrize(
    "url", ["http://localhost:{port}/file", "http://[::ffff:127.0.0.1]:{port}/file", "http://0x7f.1:{port}/file"]
)
async def test_no_other_spelling_of_it_is(near: Peer, strict: FileReading, url: str) -> None:
    with pytest.raises(Unreadable):
        await strict.fetch(url.format(port=near.url.rpartition(":")[2]))
    assert near.asked == []


async def test_a_redirect_is_followed_and_looked_at_as_the_first_was(near: Peer) -> None:
    reading = FileReading(Guard(["127.0.0.1"]), max_bytes=MAX_BYTES)  # the name; not what it redirects to
    port = near.url.rpartition(":")[2]
    near.scripts["GET /near"] = says(b"", 302, {"Location": "/file"})
    near.scripts["GET /away"] = says(b"", 307, {"Location": f"http://localhost:{port}/file"})
    near.scripts["GET /cloud"] = says(b"", 302, {"Location": "http://169.254.169.254/latest/meta-data"})
    near.scripts["GET /disk"] = says(b"", 302, {"Location": "file:///etc/passwd"})
    assert await reading.fetch(f"{near.url}/near") == CONTENT
    asked = len(near.asked)
    for path in ("away", "cloud", "disk"):
        with pytest.raises(Unreadable):
            await reading.fetch(f"{near.url}/{path}")
    assert len(near.asked) == asked + 3
    await reading.close()


async def test_redirects_come_to_an_end(near: Peer, allowed: FileReading) -> None:
    near.scripts["GET /round"] = says(b"", 302, {"Location": "/round"})
    with pytest.raises(Unreadable, match="redirects"):
        await allowed.fetch(f"{near.url}/round")
    assert len(near.asked) == REDIRECTS_MAX + 1


async def test_what_is_too_large_is_not_read(near: Peer, allowed: FileReading) -> None:
    near.scripts["GET /large"] = says(b"x" * (MAX_BYTES + 1))
    with pytest.raises(Unreadable, match="larger than"):
        await allowed.fetch(f"{near.url}/large")


async def test_what_never_comes_is_not_waited_for(near: Peer) -> None:
    reading = FileReading(Guard(["127.0.0.1"]), timeout_s=0.1)
    near.scripts["GET /slow"] = hangs()
    async with asyncio.timeout(60):
        with pytest.raises(Unreadable, match=r"within 0\.1 s"):
            await reading.fetch(f"{near.url}/slow")
    await reading.close()


@pytest.mark.parametrize("code", [404, 401, 500, 304])
async def test_an_answer_that_is_no_file_is_said(near: Peer, allowed: FileReading, code: int) -> None:
    near.scripts["GET /file?token=hidden"] = says(b"secret" if code != 304 else b"", code)
    with pytest.raises(Unreadable, match=str(code)) as raised:
        await allowed.fetch(f"{near.url}/file?token=hidden")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://x",
        "javascript:alert(1)",
        "/etc/passwd",
        "",
        "http://",
        "http://[::1",
        "http://user:secret@example.org/x",
        "dragoman-file:x",
        "blob:x",
    ],
)
async def test_what_is_not_http_is_refused_with_what_is(strict: FileReading, url: str) -> None:
    with pytest.raises(Unreadable) as raised:
        await strict.fetch(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:,plain%20text", b"plain text"),
        ("data:text/plain;charset=utf-8,caf%C3%A9", "café".encode()),
        ("data:application/octet-stream;base64,AP8=", b"\x00\xff"),
        ("data:;base64,AP8", b"\x00\xff"),
        ("DATA:;BASE64,AP8%3D", b"\x00\xff"),
        ("data:,", b""),
    ],
)
async def test_a_data_url_is_its_own_content(strict: FileReading, url: str, content: bytes) -> None:
    assert await strict.fetch(url) == content


@pytest.mark.parametrize(
    "url", ["data:text/plain", "data:;base64,AP*8", "data:," + "x" * (MAX_BYTES + 1), "data:," + "%41" * 5000]
)
async def test_a_data_url_that_is_none_or_too_large_is_refused(strict: FileReading, url: str) -> None:
    with pytest.raises(Unreadable):
        await strict.fetch(url)


@pytest.mark.parametrize(
    "text", ["100%", "%4", "%%41%4g", "%3D=%3d41", "=41=", "%0A=\n=\r\n. _", "é%C3%A9", "%2541", "%25%34%31"]
)
@pytest.mark.parametrize("before", [0, *range(PIECE_BYTES - 4, PIECE_BYTES + 1)])
async def test_what_is_escaped_is_what_it_stands_for(roomy: FileReading, text: str, before: int) -> None:
    assert await roomy.fetch(f"data:,{'a' * before}{text}") == b"a" * before + unquote_to_bytes(text)


async def test_a_data_url_that_is_escaped_to_the_last_byte_takes_no_memory_to_speak_of(roomy: FileReading) -> None:
    url = "data:," + "%41" * 1_000_000
    tracemalloc.start()
    try:
        assert len(await roomy.fetch(url)) == 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 5 * len(url)
    finally:
        tracemalloc.stop()
