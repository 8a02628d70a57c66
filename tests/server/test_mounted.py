"""Our application under servers that nobody here wrote, alone and mounted below FastAPI."""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
from fastapi import FastAPI
from yarl import URL

from dragoman import Agent, Context
from dragoman.application import Application
from dragoman.engine.api import Runner
from tests.kit.agents import Pacer, echoing
from tests.kit.asgi_servers import ASGI_SERVERS
from tests.kit.places import V1, calling, quick, sqlite_url
from tests.kit.waiting import DEADLINE_S, until
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US
from tests.soak import SOAK

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALONE, BELOW = "alone", "below FastAPI"

PLACES = [(server, place) for server in ASGI_SERVERS for place in (ALONE, BELOW)]

everywhere = pytest.mark.parametrize(("server", "place"), PLACES)

CUTS = 1000 if SOAK else 30


@asynccontextmanager
async def mounted(server: str, place: str, *agents: Runner, **settings: object) -> AsyncIterator[aiohttp.ClientSession]:
    """The application in its place, and a session at its root."""
    app = Application(quick(**settings), agents)
    run, path = (app, "/") if place is ALONE else (below_fastapi(app), "/in/side/")
    async with ASGI_SERVERS[server](run) as url, calling(f"{url}{path}", headers=V1) as http:
        yield http


def below_fastapi(app: Application) -> FastAPI:
    """An application of FastAPI with ours in it, and with a middleware, as most have one."""
    api = FastAPI(lifespan=app.lifespan)
    api.mount("/in/side", app)
    api.mount("/.well-known", app.well_known)

    @api.middleware("http")
    async def note(request, call_next):  # type: ignore[no-untyped-def]
        answer = await call_next(request)
        answer.headers["x-noted"] = "yes"
        return answer

    return api


def message(text: str) -> dict[str, object]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}}


async def figure(http: aiohttp.ClientSession, name: str) -> float:
    """A figure of the metrics."""
    async with http.get("metrics") as answer:
        text = await answer.text()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def frames(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, object]]:
    """What the frames of a stream say."""
    async for line in answer.content:
        if line.startswith(b"data:"):
            yield json.loads(line.removeprefix(b"data:"))


@everywhere
async def test_cards_name_urls_at_which_messages_are_answered(server: str, place: str) -> None:
    async with mounted(server, place, echoing("one"), echoing("two", prefix="two: ")) as http:
        for path in ("", "agents/two/"):
            async with http.get(f"{path}.well-known/agent-card.json") as answer:
                card = await answer.json()
            urls = {
                (each["protocolBinding"], each["protocolVersion"]): each["url"] for each in card["supportedInterfaces"]
            }
            rest, rpc = urls["HTTP+JSON", "1.0"], urls["JSONRPC", "1.0"]
            async with http.post(f"{rest}/message:send", json=message("hi")) as answer:
                task = (await answer.json())["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == ("hi" if path == "" else "two: hi")
            get = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
            async with http.post(rpc, json=get) as answer:
                assert (await answer.json())["result"] == task
        if place is BELOW:
            async with (
                http.get("/.well-known/agent-card.json") as answer,
                http.get(".well-known/agent-card.json") as own,
            ):
                assert await answer.json() == await own.json()
                assert answer.headers["x-noted"] == "yes"
            async with http.get("/.well-known/jwks.json") as answer:
                assert (await answer.json())["keys"]


@everywhere
async def test_a_task_goes_on_when_its_reader_leaves(server: str, place: str) -> None:
    pacer = Pacer()
    async with mounted(server, place, pacer.agent) as http:
        pacer.put("one ")
        async with http.post("./message:stream", json=message("go")) as answer:
            async for frame in frames(answer):
                task = frame.get("task") or task  # noqa: F821  # the first frame has it
                if "artifactUpdate" in frame:
                    break
            assert await figure(http, "dragoman_streams_open") == 1
            answer.close()
        await until(lambda: closed(http), 0.01)
        pacer.put("two", None)
        assert isinstance(task, dict)

        async def ended() -> bool:
            async with http.get(f"tasks/{task['id']}") as answer:
                now = await answer.json()
            return (
                now["status"]["state"] == "TASK_STATE_COMPLETED"
                and now["artifacts"][0]["parts"][0]["text"] == "one two"
            )

        await until(ended, 0.01)
        assert not pacer.canceled.is_set()


async def closed(http: aiohttp.ClientSession) -> bool:
    return await figure(http, "dragoman_streams_open") == 0


@everywhere
async def test_a_reader_that_takes_nothing_holds_its_stream_up_and_is_cut_off(server: str, place: str) -> None:
    ended = asyncio.Event()
    flood = Agent("flood")

    @flood.skill
    async def pour(ctx: Context) -> AsyncIterator[str]:
        """Say much."""
        for _ in range(400):
            yield "x" * 100_000
        ended.set()

    async with mounted(server, place, flood, reader_pause_s=1.0, max_text=100_000_000) as http:
        assert http._base_url is not None  # noqa: SLF001
        at = urlsplit(str(http._base_url))  # noqa: SLF001
        body = json.dumps(message("go")).encode()
        head = f"POST {at.path}message:stream HTTP/1.1\r\nHost: {at.netloc}\r\nA2A-Version: 1.0\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((at.hostname or "", at.port or 0)) as reader:
            reader.sendall(head.encode() + body)
            async with asyncio.timeout(60):
                await ended.wait()

            async def cut() -> bool:
                return await figure(http, "dragoman_readers_cut") == 1

            await until(cut, 0.05)
            await until(lambda: closed(http), 0.01)


@everywhere
async def test_a_large_body_is_refused_whether_its_length_is_known_or_not(server: str, place: str) -> None:
    async with mounted(server, place, echoing(), max_body_bytes=5000) as http:
        body = json.dumps(message("x" * 6000)).encode()

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        for sent in (body, pieces()):
            async with http.post("./message:send", data=sent, headers={"content-type": "application/json"}) as answer:
                assert answer.status == 413
                assert "5000" in (await answer.json())["error"]["message"]
        async with http.post("./message:send", json=message("x" * 3000)) as answer:
            assert answer.status == 200


@everywhere
async def test_cut_streams_leave_nothing_behind(server: str, place: str) -> None:
    chance = random.Random(7)
    steady = Agent("steady")

    @steady.skill
    async def count(ctx: Context) -> AsyncIterator[str]:
        """Count."""
        for number in range(20):
            yield f"{number} "
            await asyncio.sleep(0.002)

    async with mounted(server, place, steady, access_log="off") as http:

        async def cut() -> None:
            async with http.post("./message:stream", json=message("go")) as answer:
                assert answer.status == 200
                left = chance.randrange(12)
                async for _ in frames(answer):
                    left -= 1
                    if left < 0:
                        break
                answer.close()

        for _ in range(CUTS // 10):
            await asyncio.gather(*(cut() for _ in range(10)))
        await until(lambda: closed(http), 0.01)

        async def all_completed() -> bool:
            async with http.get("tasks", params={"pageSize": "1", "status": "TASK_STATE_COMPLETED"}) as answer:
                return (await answer.json())["totalSize"] == CUTS

        await until(all_completed, 0.01)


@pytest.mark.parametrize(
    ("server", "option"), [("uvicorn", "root_path"), ("hypercorn", "root_path"), ("granian", "url_path_prefix")]
)
async def test_a_proxy_before_the_server_may_take_a_part_of_the_path_off(server: str, option: str) -> None:
    app = Application(quick(), [echoing("one"), echoing("two", prefix="two: ")])
    async with ASGI_SERVERS[server](below_fastapi(app), **{option: "/outer"}) as url, calling(url, headers=V1) as http:
        for path in ("/in/side/agents/two", "/in/side/agents/%74wo"):
            async with http.get(URL(f"{path}/.well-known/agent-card.json", encoded=True)) as answer:
                card = await answer.json()
            assert card["supportedInterfaces"][0]["url"] == f"{url}/outer/in/side/agents/two"
            async with http.post(URL(f"{path}/message:send", encoded=True), json=message("hi")) as answer:
                assert (await answer.json())["task"]["artifacts"][0]["parts"][0]["text"] == "two: hi"
        async with http.get("/.well-known/agent-card.json") as answer:
            card = await answer.json()
        assert card["supportedInterfaces"][0]["url"] == f"{url}/outer/in/side/"


@pytest.mark.parametrize("server", ["hypercorn", "granian"])  # uvicorn needs a package more for it
async def test_no_answer_names_a_connection_over_http2(server: str) -> None:
    async with (
        ASGI_SERVERS[server](Application(quick(max_body_bytes=5000), [echoing()])) as url,
        httpx.AsyncClient(http1=False, http2=True, base_url=url, headers=V1, timeout=DEADLINE_S) as http,
    ):
        refused = await http.post("/message:send", json=message("x" * 6000))
        assert (refused.http_version, refused.status_code) == ("HTTP/2", 413)
        assert "connection" not in refused.headers
        streamed = await http.post("/message:stream", json=message("hi"))
        assert "TASK_STATE_COMPLETED" in streamed.text


async def test_a_second_worker_on_sqlite_says_why_it_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(
        "from dragoman import create_app\n"
        "from dragoman.testing.agents import echo\n"
        f"app = create_app([echo], {{'store': {sqlite_url(tmp_path)!r}, 'shutdown_grace_s': 0.2}})\n"
    )
    port = kept_port()
    command = [*ENDS_WITH_US, sys.executable, "-m", "uvicorn", "served:app", "--workers", "2", "--port", str(port)]
    server = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=PIPE, start_new_session=True)
    assert server.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while b"share PostgreSQL only" not in said:
                said = await server.stderr.readline()
                assert said, "uvicorn has ended"
        assert b"is in use by another server (process " in said
        assert said.startswith(b"ERROR:    dragoman: store file ")
        async with calling(f"http://127.0.0.1:{port}", headers=V1) as http:  # the first one serves

            async def sent() -> bool:
                try:
                    async with http.post("/message:send", json=message("hi")) as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await until(sent, 0.05)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        await server.communicate()
