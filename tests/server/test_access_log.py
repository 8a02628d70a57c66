"""The access log of a server: one line for each request, whatever it came over."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from msgspec.structs import replace
from yarl import URL

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import StartError, serving
from tests.bindings.mcp_client import BOTH
from tests.grpc_callers import CONFIG, drain, grpc_served, one_loop, refusal
from tests.kit.waiting import no_hang

__all__ = ["one_loop"]

DEADLINE_S = 60.0
KEY = "open-sesame-0123456789"
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"x-api-key": KEY, "A2A-Version": "1.0", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}

poet = Agent("poet", description="Writes")


@poet.skill
async def write(ctx: Context) -> AsyncIterator[str]:
    """Writes; on request it fails, hangs, or writes much and hangs then."""
    if ctx.text == "fail":
        raise RuntimeError("secret words")
    yield "secret words"
    if ctx.text.startswith("flood"):
        for _ in range(200):
            yield "more secret words"
    if ctx.text.startswith(("flood", "hang")):
        await asyncio.Event().wait()


class Lines:
    """The lines of the log at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    async def one(self, **wanted: Any) -> dict[str, Any]:
        """The line that has these values, once it is written."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = [line for line in self.read() if wanted.items() <= line.items()]
                if found:
                    (line,) = found
                    return line
                await asyncio.sleep(0.02)


@asynccontextmanager
async def site(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[aiohttp.ClientSession, Lines]]:
    """A server that asks for a key, a client that has it, and the server's access log."""
    path = tmp_path / "access.log"
    config = replace(CONFIG, access_log="json", access_log_file=str(path), api_key=KEY, **settings)
    async with (
        no_hang(),
        serving(config, [poet]) as url,
        aiohttp.ClientSession(url, headers=HEADERS) as http,
    ):
        yield http, Lines(path)
    assert KEY not in path.read_text()
    assert "secret words" not in path.read_text()


def said(text: str = "hi") -> dict[str, Any]:
    return {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_a_call_over_json_rpc_has_a_line_with_everything(tmp_path: Path) -> None:
    async with site(tmp_path) as (http, lines):
        async with http.post("/", json=rpc("SendMessage", message=said())) as answer:
            body = await answer.read()
        task_id = json.loads(body)["result"]["task"]["id"]
        line = await lines.one(operation="SendMessage")
    assert line["time"].endswith("Z")
    assert 0 < line["duration_ms"] < DEADLINE_S * 1000
    assert (line["bytes_in"], line["bytes_out"]) == (len(json.dumps(rpc("SendMessage", message=said()))), len(body))
    told = {name: line[name] for name in line if name not in {"time", "duration_ms", "bytes_in", "bytes_out"}}
    assert told == {
        "remote": "127.0.0.1",
        "principal": "shared",
        "binding": "jsonrpc",
        "operation": "SendMessage",
        "status": 200,
        "outcome": "ok",
        "dialect": "1.0",
        "agent": "poet",
        "task": task_id,
        "method": "POST",
        "trace": TRACE,
    }


async def test_refused_calls_have_lines_with_their_errors(tmp_path: Path) -> None:
    async with site(tmp_path) as (http, lines):
        async with http.post("/", json=rpc("GetTask", id="nobody's")):
            pass
        line = await lines.one(operation="GetTask")
        assert (line["status"], line["outcome"], line["error"]) == (200, "refused", "TaskNotFound")
        async with http.get("/tasks/nobodys", headers={"x-api-key": "wrong"}):
            pass
        line = await lines.one(status=401)
        assert (line["outcome"], line["error"], line["principal"]) == ("refused", "Unauthorized", "anonymous")
        assert (line["operation"], line["path"]) == ("GetTask", "/tasks/nobodys")
        async with http.get(URL("/no/such%0Apath?token=tell-nobody", encoded=True)):
            pass
        line = await lines.one(status=404)
        assert (line["operation"], line["path"]) == ("other", "/no/such\npath")
        async with http.post("/", data="{", headers={"content-type": "application/json"}):
            pass
        assert (await lines.one(error="ParseError"))["outcome"] == "refused"
        assert "tell-nobody" not in lines.path.read_text()


async def test_a_stream_has_its_line_at_its_end(tmp_path: Path) -> None:
    async with site(tmp_path) as (http, lines):
        async with http.post("/message:stream", json={"message": said("hang")}) as answer:
            got = len(await answer.content.readany())
            async with http.get("/health"):
                pass
            await lines.one(operation="health")
            assert all(line["operation"] == "health" for line in lines.read())
            answer.close()
        line = await lines.one(operation="SendStreamingMessage")
        assert (line["binding"], line["status"], line["outcome"]) == ("http", 200, "left")
        assert line["bytes_out"] >= got > 0
        async with http.post("/message:stream", json={"message": said("hi")}) as answer:
            body = await answer.read()
        line = await lines.one(operation="SendStreamingMessage", outcome="ok")
        assert (line["bytes_out"], line["agent"]) == (len(body), "poet")
        assert line["task"]


async def test_a_caller_who_leaves_before_the_answer_has_a_line(tmp_path: Path) -> None:
    async with site(tmp_path) as (http, lines):
        waiting = asyncio.create_task(_read(http, rpc("SendMessage", message=said("hang"))))
        async with asyncio.timeout(DEADLINE_S):
            while not (await _working(http)):
                await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with http.post("/message:stream", json={"message": said("hi")}) as answer:
            await answer.read()
        await lines.one(operation="SendStreamingMessage")  # the server goes on, and so does the task


async def _read(http: aiohttp.ClientSession, body: dict[str, Any]) -> bytes:
    async with http.post("/", json=body) as answer:
        return await answer.read()


async def _working(http: aiohttp.ClientSession) -> bool:
    async with http.get("/tasks") as answer:
        return bool((await answer.json())["tasks"])


async def test_chat_completions_and_tools_of_mcp_have_lines(tmp_path: Path) -> None:
    async with site(tmp_path) as (http, lines):
        chat = {"model": "poet", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post("/v1/chat/completions", json=chat) as answer:
            task_id = answer.headers["x-dragoman-task-id"]
        line = await lines.one(binding="chat")
        assert (line["operation"], line["agent"], line["task"]) == ("SendMessage", "poet", task_id)
        call = rpc("tools/call", name="poet", arguments={"message": "hi"})
        async with http.post("/mcp", json=call, headers={"Accept": BOTH}) as answer:
            assert not (await answer.json())["result"].get("isError")
        line = await lines.one(binding="mcp")
        assert (line["operation"], line["agent"], line["outcome"]) == ("SendStreamingMessage", "poet", "ok")
        assert line["task"]


async def test_calls_over_grpc_have_lines(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "access.log")
    config = replace(CONFIG, access_log="json", access_log_file=str(lines.path))
    async with asyncio.timeout(DEADLINE_S), grpc_served(poet, config=config) as caller:
        task = await caller.send("hi")
        line = await lines.one(binding="grpc", operation="SendMessage")
        assert (line["status"], line["outcome"], line["agent"], line["task"]) == (0, "ok", "poet", task.id)
        assert line["bytes_in"] > 0 < line["bytes_out"]
        code, _ = await refusal(caller.get("nobody's"))
        assert code is grpc.StatusCode.NOT_FOUND
        line = await lines.one(binding="grpc", operation="GetTask")
        assert (line["status"], line["outcome"], line["error"]) == (5, "refused", "TaskNotFound")
        items = await drain(caller.stream("there"))
        line = await lines.one(binding="grpc", operation="SendStreamingMessage")
        assert (line["status"], line["outcome"]) == (0, "ok")
        assert line["bytes_out"] >= sum(item.ByteSize() for item in items)
        stream = caller.stream("hang")
        async for _ in stream:
            stream.cancel()
            break
        line = await lines.one(binding="grpc", operation="SendStreamingMessage", outcome="left")
        assert line["status"] == 1


async def test_readers_over_grpc_who_leave_in_the_middle_of_a_write_have_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(tmp_path / "access.log")
    config = replace(CONFIG, access_log="json", access_log_file=str(lines.path))
    async with asyncio.timeout(DEADLINE_S), grpc_served(poet, config=config) as caller:
        for count in range(8):
            stream = caller.stream(f"flood {count}", message_id=f"m{count}")
            task = (await stream.read()).task
            await stream.read()
            stream.cancel()
            line = await lines.one(operation="SendStreamingMessage", task=task.id)
            assert (line["status"], line["outcome"]) == (1, "left")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("trusted", "remote"), [("127.0.0.0/8", "192.0.2.7"), ("10.0.0.0/8", "127.0.0.1")])
async def test_a_trusted_proxy_names_the_client(tmp_path: Path, trusted: str, remote: str) -> None:
    """And the scheme under which it was called, over HTTP and gRPC."""
    lines = Lines(tmp_path / "access.log")
    config = replace(CONFIG, access_log="json", access_log_file=str(lines.path), trusted_proxies=(trusted,))
    forwarded = {"X-Forwarded-For": "198.51.100.1, 192.0.2.7", "X-Forwarded-Proto": "https"}
    async with (
        asyncio.timeout(DEADLINE_S),
        grpc_served(poet, config=config) as caller,
        aiohttp.ClientSession(caller.url, headers=forwarded) as http,
    ):
        async with http.get("/.well-known/agent-card.json") as answer:
            url = (await answer.json())["url"]
        assert (await lines.one(operation="card"))["remote"] == remote
        task = await caller.send("hi", ("x-forwarded-for", forwarded["X-Forwarded-For"]))
        assert (await lines.one(binding="grpc", task=task.id))["remote"] == remote
    assert url.startswith("https://" if remote == "192.0.2.7" else "http://")


async def test_without_the_setting_nothing_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(CONFIG, [poet]) as url, aiohttp.ClientSession(url) as http, http.get("/health"):
        pass
    assert "operation=" not in capfd.readouterr().err


async def test_text_lines_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        serving(replace(CONFIG, access_log="text"), [poet]) as url,
        aiohttp.ClientSession(url) as http,
        http.get("/health"),
    ):
        pass
    shown = capfd.readouterr()
    assert "binding=http operation=health status=200 outcome=ok" in shown.err
    assert "operation=" not in shown.out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            lambda folder: {"access_log": "json", "access_log_file": f"{folder}/none/access.log"},
            "No such file or directory: name a file in a folder that this user may write to",
        ),
        (
            lambda folder: {"access_log_file": f"{folder}/access.log"},
            "access_log_file is set and access_log is off: set access_log to text or json",
        ),
    ],
    ids=["folder", "off"],
)
async def test_a_log_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, settings: Callable[[Path], dict[str, Any]], said: str
) -> None:
    config = Config(port=0, store="memory:", **settings(tmp_path))
    with pytest.raises(StartError) as refused:
        async with serving(config, [poet]):
            pass
    assert said in str(refused.value)
