"""Servers of the official MCP SDK as tools: over standard input and output, and over HTTP in the ways it has."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.link import Reach
from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.client import BearerToken
from tests.agents.mcp.peer import DEADLINE_S, at, call, fake_run, listening, program, tools
from tests.kit.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WAYS = ("stdio", "stream", "json", "stateless")


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with listening("pages") as stream, listening("json") as json_, listening("stateless") as stateless:
        yield {"stream": stream, "json": json_, "stateless": stateless}


def reached(way: str, urls: dict[str, str]) -> Reach:
    return program("pages") if way == "stdio" else at(urls[way])


@pytest.fixture
async def peer(way: str, urls: dict[str, str]) -> AsyncIterator[McpTools]:
    async with tools(McpGrant(name="peer", reach=reached(way, urls), start_s=DEADLINE_S, call_s=DEADLINE_S)) as made:
        await made.list_tools()
        yield made


def ways(*chosen: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", chosen or WAYS)


@ways()
async def test_its_tools_are_offered_and_called(peer: McpTools) -> None:
    offered = {tool.name: tool for tool in await peer.list_tools()}
    assert len(offered) >= 14, "all pages"
    assert offered["echo"].description == "Says the same."
    assert offered["echo"].parameters["required"] == ["text"]
    assert [name for name in offered if peer.at_most_once(name)] == ["die"]
    echoed = await call(peer, "echo", text="hé")
    assert (echoed.text, echoed.error, echoed.parts) == ("hé", False, ())
    assert json.loads((await call(peer, "add", a=1, b=2)).text) == {"total": 3, "of": [1, 2]}


@ways()
async def test_a_tool_that_fails_says_why(peer: McpTools) -> None:
    failed = await call(peer, "fail")
    assert failed.error
    assert "the disk is full" in failed.text
    assert (await call(peer, "echo")).error, "arguments are missing"
    assert (await call(peer, "invented")).error


@ways("stdio", "stream")
async def test_every_kind_of_content_reaches_model_and_caller(peer: McpTools) -> None:
    result = await call(peer, "everything")
    for words in ("words", "image/png", "audio/wav", "# A memo", "file:///a.bin", "https://host/report.pdf"):
        assert words in result.text
    image, audio, blob, link = result.parts
    assert (image.media_type, audio.media_type, blob.raw) == ("image/png", "audio/wav", b"\0\1")
    assert (link.url, link.filename) == ("https://host/report.pdf", "report")
    assert image.raw is not None
    assert image.raw.startswith(b"\x89PNG")


@ways("stdio", "stream")
async def test_the_caller_is_told_of_progress(peer: McpTools) -> None:
    run = fake_run()
    calling = asyncio.create_task(call(peer, "steps", run, n=400))
    result = await calling
    assert result.text == "arrived"
    progress = [event.progress for event in run.events if getattr(event, "progress", None) is not None]
    assert progress
    assert progress[0].total == 400


@ways("stdio", "stream", "json")
async def test_what_a_server_asks_of_its_client_is_declined(peer: McpTools) -> None:
    told = (await call(peer, "ask")).text
    assert "ping EmptyResult" in told
    assert "elicit Method not found" in told
    assert "sample Method not found" in told


@ways("stdio", "stream")
async def test_tools_that_change_are_listed_anew(peer: McpTools) -> None:
    before = {tool.name for tool in await peer.list_tools()}
    await call(peer, "grow")

    async def has_grown() -> bool:
        return "grown" in {tool.name for tool in await peer.list_tools()}

    await until(has_grown)
    assert "grown" not in before
    assert (await call(peer, "grown")).text == "new"


@ways("stdio", "stream")
async def test_cancelation_is_told_to_the_server(peer: McpTools) -> None:
    async def saw(what: str) -> int:
        return int(json.loads((await call(peer, "saw")).text)[what])

    begun, canceled = await saw("begun"), await saw("canceled")

    async def begins() -> bool:
        return await saw("begun") > begun

    async def has_heard() -> bool:
        return await saw("canceled") > canceled

    calling = asyncio.create_task(call(peer, "slow"))
    await until(begins)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(has_heard)


@ways("stdio", "stream")
async def test_a_call_that_takes_too_long_is_given_up(way: str, urls: dict[str, str]) -> None:
    grant = McpGrant(name="peer", reach=reached(way, urls), start_s=DEADLINE_S, call_s=0.5)
    async with tools(grant) as made:
        await made.list_tools()
        result = await call(made, "slow")
        assert (result.text, result.error) == ("The tool failed: its server gave no answer within 0.5 s.", True)

        async def has_heard() -> bool:
            told = await call(made, "saw")  # it may take too long as well
            return not told.error and bool(json.loads(told.text)["canceled"])

        await until(has_heard)


async def test_a_server_that_ends_in_a_call_fails_that_call_alone_when_it_is_a_program() -> None:
    async with tools(McpGrant(name="peer", reach=program(), start_s=DEADLINE_S)) as made:
        await made.list_tools()
        died, other = await asyncio.gather(call(made, "die"), call(made, "slow"))
        assert (died.error, other.error) == (True, True), "nobody waits for a server that is gone"
        assert "has ended" in died.text
        assert (await call(made, "echo", text="again")).text == "again"


async def test_a_server_that_ends_in_a_call_fails_it_over_http() -> None:
    with listening() as url:
        async with tools(McpGrant(name="peer", reach=at(url))) as made:
            await made.list_tools()
            died = await call(made, "die")
            assert died.error
            assert "broke off" in died.text
            assert url not in died.text

            async def is_gone() -> bool:
                return (await call(made, "echo", text="x")).text.endswith("cannot be reached at present.")

            await until(is_gone)
            assert await made.list_tools() == ()


async def test_credentials_are_shown(urls: dict[str, str]) -> None:
    reach = HttpReach(urls["stream"], lambda egress: BearerToken("key"))
    async with tools(McpGrant(name="peer", reach=reach)) as made:
        await made.list_tools()
        assert (await call(made, "shown")).text == "Bearer key"


async def test_a_program_sees_no_more_of_the_environment_than_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    async with tools(McpGrant(name="peer", reach=program(), start_s=DEADLINE_S)) as made:
        await made.list_tools()
        assert set((await call(made, "environment")).text.split()) <= {"PATH", "LC_CTYPE"}


@pytest.mark.parametrize("words", [(), ("deaf",)])
async def test_nothing_of_a_program_is_left_when_it_is_closed(words: tuple[str, ...]) -> None:
    async with tools(McpGrant(name="peer", reach=program(*words), start_s=DEADLINE_S)) as made:
        await made.list_tools()
        child = int((await call(made, "child")).text)
        os.kill(child, 0)

    async def is_gone() -> bool:
        state = Path(f"/proc/{child}/stat")
        try:
            return state.read_text().rpartition(")")[2].split()[0] == "Z"  # nobody waits for it in a container
        except FileNotFoundError:
            return True

    try:
        await until(is_gone)
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        raise


async def test_a_program_that_cannot_be_started_offers_nothing() -> None:
    grants = [
        McpGrant(name="gone", reach=ProgramReach("gone", ("/nowhere/at-all",), {})),
        McpGrant(name="peer", reach=program()),
    ]
    async with tools(*grants) as made:
        offered = [tool.name for tool in await made.list_tools()]
        assert offered
        assert all(name.startswith("peer__") for name in offered)
        assert (await call(made, "peer__echo", text="x")).text == "x"


async def test_a_program_that_is_no_server_is_given_up_in_time() -> None:
    async with tools(McpGrant(name="cat", reach=ProgramReach("cat", ("/bin/sleep", "600"), {}), start_s=0.3)) as made:
        assert await made.list_tools() == ()


async def test_only_what_is_allowed_is_offered_and_some_of_it_is_asked_about(urls: dict[str, str]) -> None:
    grant = McpGrant(name="peer", reach=at(urls["json"]), allow=frozenset({"echo", "die"}), approve=frozenset({"die"}))
    async with tools(grant) as made:
        assert [tool.name for tool in await made.list_tools()] == ["echo", "die"]
        assert [made.needs_approval(name) for name in ("echo", "die", "add")] == [False, True, False]
        assert (await call(made, "add", a=1, b=1)).error, "it is not allowed"


async def test_a_check_finds_what_is_there_and_what_is_not(urls: dict[str, str]) -> None:
    grants = [
        McpGrant(name="good", reach=at(urls["json"]), allow=frozenset({"echo"}), approve="always"),
        McpGrant(name="misspelled", reach=program(), allow=frozenset({"echo", "ecko"}), approve=frozenset({"delete"})),
        McpGrant(name="nowhere", reach=at("http://127.0.0.1:9/mcp")),
        McpGrant(name="program", reach=ProgramReach("program", ("/nowhere/at-all",), {})),
    ]
    found = [finding async for finding in McpTools(grants).check()]
    assert [finding.ok for finding in found] == [True, True, False, False, False, False]
    assert "tools echo" in found[0].what
    assert ("ecko" in found[2].what, "delete" in found[3].what) == (True, True)
    assert "is it listening there" in found[4].what
    assert "cannot be started" in found[5].what
    assert all(finding.fix for finding in found if not finding.ok)
