"""Large files on a whole server: kept apart, given out as links in every dialect, read back by agents as bytes."""

import asyncio
import base64
import errno
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman import Agent, Context, Part, SyncContext, Unreadable
from dragoman.client import connect
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.model.message import Artifact, Message
from dragoman.model.task import Task
from dragoman.server import serving
from dragoman.server.errors import StartError
from dragoman.server.files import sweep_once
from dragoman.store.blobs.api import OWNER, BlobAddress
from dragoman.store.open import blob_store, open_store
from tests.net.peer import listening, says
from tests.push.receiver import receiving
from tests.spec.agents import Gates
from tests.store.blobs.bucket import moto, rclone
from tests.systems import hooks
from tests.systems.conftest import DEADLINE_S, Json, Site
from tests.systems.speakers import ALL, NEW, Speaker

ABOVE = 1000
LARGE = bytes(range(256)) * 40
SMALL = b"s" * ABOVE
NAME = 'bericht "ü" 1.html'
URL = re.compile(r"http://[^\"\s]+/files/[^\"\s]+")


def desk(gates: Gates) -> Agent:
    """Does what the text says; the default agent."""
    agent = Agent("desk")

    @agent.skill
    async def obey(ctx: Context) -> AsyncIterator[object]:
        verb, _, rest = ctx.text.partition(" ")
        match verb:
            case "file":
                yield Part(raw=LARGE, filename=NAME, media_type="text/html")
            case "small":
                yield Part(raw=SMALL, filename="s.bin")
            case "held":
                yield Part(raw=LARGE, filename=NAME)
                gates.reached[rest].set()
                await gates.open[rest].wait()
                yield "done"
            case "status":
                await ctx.status(Part(raw=LARGE, filename=NAME))
            case "back":
                for part in ctx.files:
                    assert await ctx.read(part) == part.raw
                    yield part
            case "ask":
                answer = await ctx.ask(Part(raw=LARGE, filename=NAME))
                yield f"{len(answer.files[0].raw or b'')} bytes"
            case "recall":
                sizes = [len(part.raw or b"") for message in await ctx.history() for part in message.parts]
                sizes += [
                    len(part.raw or b"")
                    for record in await ctx.references()
                    for a in record.artifacts
                    for part in a.parts
                ]
                yield f"{sizes}"
            case "delegate":
                done = await ctx.delegate("desk2", "file")
                yield Artifact(artifact_id="given", parts=done.files)
                yield f"{len(done.files[0].raw or b'')} bytes"
            case "read":
                try:
                    yield f"{len(await ctx.read(Part(url=rest)))} bytes"
                except Unreadable as error:
                    yield f"unreadable: {error}"
            case _:
                yield "said"

    return agent


def desk2() -> Agent:
    agent = Agent("desk2")

    @agent.skill
    def plain(ctx: SyncContext) -> object:
        if ctx.text.startswith("read "):
            return f"{len(ctx.read(Part(url=ctx.text[5:])))} bytes"
        return Part(raw=LARGE, filename=NAME)

    return agent


def again(gates: Gates) -> Agent:
    agent = Agent("again", restartable=True)

    @agent.skill
    async def go_on(ctx: Context) -> None:
        await ctx.artifact(Part(raw=LARGE, filename=NAME), id="a", last=False)
        await ctx.ask("Shall I?")
        await ctx.artifact("more", id="a", append=True)
        gates.reached["again"].set()
        await gates.open["again"].wait()

    return agent


class Served:
    """A server with files on, and where they are."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder

    @property
    def kept(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name != OWNER]

    async def got(self, url: str, **headers: str) -> tuple[int, Any, bytes]:
        async with self.site.http.get(url, headers={n.replace("_", "-"): v for n, v in headers.items()}) as answer:
            return answer.status, answer.headers, await answer.read()

    async def sent(self, text: str, *parts: Json, **more: Any) -> Json:
        """The task of a message in 1.0, as it ended."""
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": text}, *parts], **more}
        told = await self.site.rpc("/agents/desk", "SendMessage", {"message": message}, a2a_version="1.0")
        task: Json = told.result["task"]
        return task


def config(folder: Path, **changes: Any) -> Config:
    given: Json = {
        "port": 0,
        "store": f"sqlite:///{folder}/store.db",
        "files": f"folder:{folder}/files",
        "files_above": ABOVE,
        "shutdown_grace_s": 0.1,
        "push_allowed_hosts": ("127.0.0.1",),
        **changes,
    }
    return Config(**given)


class Server:
    """Starts servers, one after the other, on the same folder."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self._config = config(folder, **changes)
        self._folder = folder

    async def __aenter__(self) -> Served:
        gates = Gates()
        self._serving = serving(self._config, [desk(gates), desk2(), again(gates)])
        url = await self._serving.__aenter__()
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S), auto_decompress=False)
        return Served(Site(url, self._http, gates), self._folder / "files")

    async def __aexit__(self, *error: Any) -> None:
        await self._http.close()
        await self._serving.__aexit__(*error)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with Server(tmp_path_factory.mktemp("served")) as running:
        yield running


def raw(content: bytes, **more: Any) -> Json:
    return {"raw": base64.b64encode(content).decode(), **more}


def links(value: Any) -> list[str]:
    return [url.rstrip("\\") for url in URL.findall(json.dumps(value))]


def artifact(task: Json) -> list[Json]:
    return [part for artifact in task["artifacts"] for part in artifact["parts"]]


# -- callers see links -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)
async def test_a_large_file_is_a_link_in_every_dialect(served: Served, speaker: Speaker) -> None:
    site = served.site
    told = await speaker.call(site, speaker.methods[0], speaker.said("file"))
    task_id = str(told.result.get("task", told.result)["id"])
    for answer in (told.result, (await speaker.get(site, task_id)).result):
        text = json.dumps(answer)
        assert base64.b64encode(LARGE).decode()[:100] not in text
        assert '"file": "' not in text
        (url,) = set(links(answer))
        status, headers, body = await served.got(url)
        assert (status, body) == (200, LARGE)
        assert headers["content-type"] == "text/html"
        assert url.startswith(f"{site.url}/files/{task_id}/")
        assert json.dumps(NAME)[1:-1] in text or speaker.name == "kaos"


async def test_1_0_has_url_media_type_and_filename_and_nothing_else(served: Served) -> None:
    (part,) = artifact(await served.sent("file"))
    assert set(part) == {"url", "mediaType", "filename"}
    assert (part["mediaType"], part["filename"]) == ("text/html", NAME)


async def test_0_3_has_a_file_with_a_uri(served: Served) -> None:
    old = next(speaker for speaker in ALL if speaker.name == "0.3")
    task = (await old.call(served.site, old.methods[0], old.said("file"))).result
    ((part,),) = (each["parts"] for each in task["artifacts"])
    assert part["kind"] == "file"
    assert set(part["file"]) == {"uri", "mimeType", "name"}
    assert (part["file"]["mimeType"], part["file"]["name"]) == ("text/html", NAME)


async def test_a_small_file_stays_in_its_part(served: Served) -> None:
    (part,) = artifact(await served.sent("small"))
    assert base64.b64decode(part["raw"]) == SMALL
    assert "url" not in part


async def test_chat_completions_have_the_link(served: Served) -> None:
    body = {"model": "desk", "messages": [{"role": "user", "content": "file"}]}
    told = (await served.site.post("/v1/chat/completions", body)).body
    (url,) = links(told)
    assert (await served.got(url))[2] == LARGE
    frames = await served.site.stream("/v1/chat/completions", {**body, "stream": True})
    assert any("/files/" in frame.text for frame in frames)


async def test_links_lead_to_where_the_caller_came(served: Served) -> None:
    path = "/agents/desk/message:send"
    message = {"messageId": "m-host", "role": "ROLE_USER", "parts": [{"text": "file"}]}
    told = await served.site.ask("POST", path, {"message": message}, a2a_version="1.0", host="localhost:1234")
    assert urlsplit(links(told.body)[0]).netloc == "localhost:1234"


async def test_a_status_has_a_link_too(served: Served) -> None:
    task = await served.sent("status")
    path = f"/agents/desk/tasks/{task['id']}:subscribe"
    frames = await served.site.stream(path, None, verb="GET", a2a_version="1.0", last_event_id="1")
    (url,) = links([frame.body for frame in frames])
    assert (await served.got(url))[2] == LARGE


async def test_a_list_has_links_too(served: Served) -> None:
    task = await served.sent("file")
    params = {"includeArtifacts": True, "contextId": task["contextId"]}
    listed = await served.site.rpc("/agents/desk", "ListTasks", params, a2a_version="1.0")
    (url,) = links(listed.result)
    assert (await served.got(url))[2] == LARGE


@pytest.mark.parametrize("speaker", [speaker for speaker in ALL if speaker.name != "kaos"], ids=lambda each: each.name)
async def test_a_stream_has_links_and_so_has_one_that_begins_later(served: Served, speaker: Speaker) -> None:
    site, gate = served.site, f"held-{speaker.name}"
    told = await speaker.call(site, speaker.methods[0], {**speaker.said(f"held {gate}", wait=False)})
    task_id = str(told.result.get("task", told.result)["id"])
    async with asyncio.timeout(DEADLINE_S):
        await site.gates.reached[gate].wait()
    async with speaker.followed(site, task_id) as first, speaker.followed(site, task_id) as second:
        site.open(gate)
        for flow in (first, second):
            text = json.dumps([frame.body for frame in await flow.rest()])
            assert '"file": "' not in text
            for url in links(text.replace("\\", "")):
                assert (await served.got(url))[2] == LARGE
    final = (await speaker.get(site, task_id)).result
    assert len(set(links(final))) == 1


async def test_a_resumed_stream_has_fresh_links(served: Served) -> None:
    task = await served.sent("file")
    path = f"/agents/desk/tasks/{task['id']}:subscribe"
    frames = await served.site.stream(path, None, verb="GET", a2a_version="1.0", last_event_id="1")
    urls = links([frame.body for frame in frames])
    assert urls
    assert (await served.got(urls[0]))[2] == LARGE


@pytest.mark.parametrize("hooked", hooks.ALL, ids=lambda hooked: hooked.name)
async def test_a_webhook_is_told_a_link(served: Served, hooked: hooks.Hooked) -> None:
    async with receiving() as receiver:
        await hooked.task(served.site, "file", {"url": f"{receiver.url}/hook"})
        async with asyncio.timeout(DEADLINE_S):
            while not any(b"/files/" in body for body in receiver.bodies):
                await receiver.came(len(receiver.asked) + 1)
        for body in receiver.bodies:
            assert b'"file":"' not in body
            assert base64.b64encode(LARGE)[:100] not in body
        url = links(json.loads(next(body for body in receiver.bodies if b"/files/" in body)))[0]
        assert url.startswith(served.site.url)
        assert (await served.got(url))[2] == LARGE


# -- agents see bytes --------------------------------------------------------------------------------------------------


async def test_what_a_caller_sends_is_kept_apart_and_seen_by_the_agent(served: Served) -> None:
    task = await served.sent("back", raw(LARGE, filename="in.bin", mediaType="application/x-in"))
    (part,) = artifact(task)
    assert (part["filename"], part["mediaType"]) == ("in.bin", "application/x-in")
    (asked,) = (each for message in task["history"] for each in message["parts"] if "url" in each)
    assert urlsplit(asked["url"]).path == urlsplit(part["url"]).path  # equal bytes of a task are kept once
    assert (await served.got(asked["url"]))[2] == LARGE


async def test_questions_and_answers_have_files(served: Served) -> None:
    task = await served.sent("ask")
    (url,) = links(task["status"])
    assert (await served.got(url))[2] == LARGE
    answered = await served.sent("here", raw(LARGE + b"more"), taskId=task["id"])
    assert artifact(answered)[0]["text"] == f"{len(LARGE) + 4} bytes"


async def test_history_and_references_have_bytes(served: Served) -> None:
    first = await served.sent("file")
    more = {"contextId": first["contextId"], "referenceTaskIds": [first["id"]]}
    told = await served.sent("recall", **more)
    assert artifact(told)[0]["text"].count(str(len(LARGE))) == 2


async def test_what_was_delegated_has_bytes_and_is_kept_with_the_task_that_gives_it_out(served: Served) -> None:
    task = await served.sent("delegate")
    file, said = artifact(task)
    assert said["text"] == f"{len(LARGE)} bytes"
    assert task["id"] in file["url"]
    assert (await served.got(file["url"]))[2] == LARGE


async def test_after_a_restart_a_run_sees_the_files_again_and_old_links_still_lead_there(tmp_path: Path) -> None:
    async with Server(tmp_path) as before:
        asked = await before.sent("ask", raw(LARGE))
        (old,) = links(asked["status"])
    async with Server(tmp_path) as after:
        moved = old.replace(urlsplit(old).netloc, urlsplit(after.site.url).netloc)
        assert (await after.got(moved))[2] == LARGE
        answered = await after.sent("here", raw(LARGE), taskId=asked["id"])
        assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
        assert artifact(answered)[0]["text"] == f"{len(LARGE)} bytes"


async def test_what_a_run_gave_out_before_a_crash_stays_a_link_when_it_goes_on(tmp_path: Path) -> None:
    async def sent(served: Served, **more: Any) -> Json:
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": "x"}], **more}
        params = {"message": message, "configuration": {"returnImmediately": "taskId" in more}}
        task: Json = (await served.site.rpc("/agents/again", "SendMessage", params, a2a_version="1.0")).result["task"]
        return task

    async with Server(tmp_path) as before:
        task_id = (await sent(before))["id"]
        await sent(before, taskId=task_id)
        async with asyncio.timeout(DEADLINE_S):
            await before.site.gates.reached["again"].wait()
    async with Server(tmp_path) as after:
        async with asyncio.timeout(DEADLINE_S):
            await after.site.gates.reached["again"].wait()
        path = f"/agents/again/tasks/{task_id}:subscribe"
        async with after.site.flow(path, None, verb="GET", a2a_version="1.0") as flow:
            after.site.open("again")
            await flow.rest()
        task = (await NEW.get(after.site, task_id, "again")).result
        file, more = artifact(task)
        assert (await after.got(file["url"]))[2] == LARGE
        assert more["text"] == "more"


async def test_a_run_whose_files_are_gone_fails_rather_than_waits_for_ever(tmp_path: Path) -> None:
    async with Server(tmp_path) as before:
        asked = await before.sent("ask", raw(LARGE))
        for path in before.kept:
            path.unlink()
    async with Server(tmp_path) as after:
        answered = await after.sent("here", taskId=asked["id"])
        assert answered["status"]["state"] == "TASK_STATE_FAILED"
        (url,) = links(asked["status"])
        gone = await after.got(url.replace(urlsplit(url).netloc, urlsplit(after.site.url).netloc))
        assert gone[0] == 404
        assert b"gone" in gone[2]


async def test_a_server_without_the_setting_keeps_files_with_their_task(tmp_path: Path) -> None:
    async with Server(tmp_path, files=None) as served:
        (part,) = artifact(await served.sent("file"))
        assert base64.b64decode(part["raw"]) == LARGE
        assert served.kept == []
        assert (await served.got(f"{served.site.url}/files/a/b"))[0] == 404


# -- ctx.read ----------------------------------------------------------------------------------------------------------


async def said(served: Served, url: str) -> str:
    return str(artifact(await served.sent(f"read {url}"))[0]["text"])


async def test_an_agent_reads_our_own_links_although_they_are_on_loopback(served: Served) -> None:
    (part,) = artifact(await served.sent("file"))
    assert await said(served, part["url"]) == f"{len(LARGE)} bytes"
    tampered = part["url"].replace("signature=", "signature=A")
    assert (await said(served, tampered)).startswith("unreadable: ")


async def test_an_agent_reads_data_urls_and_nothing_of_this_machine(served: Served) -> None:
    assert await said(served, "data:;base64,AAAA") == "3 bytes"
    async with listening() as near:
        near.scripts["GET /file"] = says(b"secret")
        assert "loopback" in await said(served, f"{near.url}/file")
        assert near.asked == []
    assert "unreadable" in await said(served, "file:///etc/passwd")


async def test_hosts_that_the_operator_allows_are_read_within_the_limit(tmp_path: Path) -> None:
    changes = {"fetch_allowed_hosts": ("127.0.0.1",), "fetch_max_bytes": 2000}
    async with Server(tmp_path, **changes) as served, listening() as near:
        near.scripts["GET /file"] = says(b"x" * 2000)
        near.scripts["GET /large"] = says(b"x" * 2001)
        assert await said(served, f"{near.url}/file") == "2000 bytes"
        assert "larger than" in await said(served, f"{near.url}/large")
        told = await served.site.rpc(
            "/agents/desk2",
            "SendMessage",
            {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": f"read {near.url}/file"}]}},
            a2a_version="1.0",
        )
        assert artifact(told.result["task"])[0]["text"] == "2000 bytes"


# -- the link ----------------------------------------------------------------------------------------------------------


async def test_a_link_is_a_download_that_nothing_runs_of(served: Served) -> None:
    (part,) = artifact(await served.sent("file"))
    status, headers, _ = await served.got(part["url"])
    assert status == 200
    assert headers["content-disposition"].startswith('attachment; filename="bericht ')
    assert "filename*=UTF-8''bericht%20%22%C3%BC%22%201.html" in headers["content-disposition"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-length"] == str(len(LARGE))


@pytest.mark.parametrize(
    ("asked", "status", "start", "stop"),
    [
        ("bytes=0-", 206, 0, len(LARGE)),
        ("bytes=0-0", 206, 0, 1),
        ("bytes=5-9", 206, 5, 10),
        ("bytes=10000-99999999", 206, 10000, len(LARGE)),
        ("bytes=-7", 206, len(LARGE) - 7, len(LARGE)),
        ("bytes=-99999999", 206, 0, len(LARGE)),
        (f"bytes={len(LARGE)}-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=9-5", 200, 0, len(LARGE)),
        ("bytes=0-1,3-4", 200, 0, len(LARGE)),
        ("bytes=x", 200, 0, len(LARGE)),
        ("items=0-1", 200, 0, len(LARGE)),
    ],
)
async def test_a_part_of_it_can_be_had(served: Served, asked: str, status: int, start: int, stop: int) -> None:
    (part,) = artifact(await served.sent("file"))
    got, headers, body = await served.got(part["url"], range=asked)
    assert (got, body) == (status, LARGE[start:stop])
    if status == 206:
        assert headers["content-range"] == f"bytes {start}-{stop - 1}/{len(LARGE)}"
    if status == 416:
        assert headers["content-range"] == f"bytes */{len(LARGE)}"
        assert headers["cache-control"] == "no-store"  # or whoever asks for all of it next is given this


async def test_head_and_conditions(served: Served) -> None:
    (part,) = artifact(await served.sent("file"))
    url = part["url"]
    async with served.site.http.head(url) as answer:
        assert (answer.status, answer.headers["content-length"]) == (200, str(len(LARGE)))
        etag = answer.headers["etag"]
    assert (await served.got(url, if_none_match=etag))[0] == 304
    assert (await served.got(url, if_none_match='"x"'))[0] == 200
    assert (await served.got(url, range="bytes=0-1", if_range=etag))[0] == 206
    assert (await served.got(url, range="bytes=0-1", if_range='"x"'))[0] == 200
    async with served.site.http.post(url) as answer:
        assert answer.status == 405


async def test_a_link_needs_no_key_and_a_wrong_one_is_refused_alike(tmp_path: Path) -> None:
    async with Server(tmp_path, api_key="of-all") as served:
        (part,) = artifact(await Served(served.site.by("of-all"), served.folder).sent("file"))
        url = part["url"]
        assert (await served.got(url))[2] == LARGE
        there = await served.got(url.replace("signature=", "signature=A"))
        absent = await served.got(re.sub(r"/[0-9a-f]{40}\?", f"/{'0' * 40}?", url))
        assert (there[0], there[2]) == (absent[0], absent[2])
        assert there[0] == 403


async def test_an_expired_link_says_how_to_get_a_fresh_one(tmp_path: Path) -> None:
    async with Server(tmp_path, files_expire_s=1) as served:
        task = await served.sent("file")
        (part,) = artifact(task)
        async with asyncio.timeout(DEADLINE_S):
            while (got := await served.got(part["url"]))[0] == 200:
                await asyncio.sleep(0.05)  # time is what is waited for
        assert got[0] == 403
        assert b"read the task again" in got[2]
        async with asyncio.timeout(DEADLINE_S):
            while got[0] != 200:  # on a busy machine that one may be late as well
                again = (await NEW.get(served.site, task["id"])).result
                got = await served.got(artifact(again)[0]["url"])


async def test_a_large_file_is_sent_in_pieces_to_one_who_leaves_or_stays(tmp_path: Path) -> None:
    size = 30_000_000
    agent = Agent("big")

    @agent.skill
    async def give(ctx: Context) -> Part:
        return Part(raw=b"x" * size)

    async with serving(config(tmp_path), [agent]) as url, aiohttp.ClientSession() as http:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
        async with http.post(
            f"{url}/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
        ) as answer:
            (part,) = artifact((await answer.json(content_type=None))["task"])
        async with http.get(part["url"]) as answer:
            assert len(await answer.content.readexactly(1000)) == 1000
        async with http.get(part["url"]) as answer:
            assert len(await answer.read()) == size


async def test_a_download_that_cannot_go_on_breaks_off_with_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.systems.test_files.LARGE", b"x" * 30_000_000)
    async with Server(tmp_path) as served:
        (part,) = artifact(await served.sent("file"))
        async with served.site.http.get(part["url"]) as answer:
            await answer.content.readexactly(1000)
            os.truncate(served.kept[0], 1000)
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
    assert "shorter than it was" in caplog.text
    assert "Traceback" not in caplog.text


# -- what is left over -------------------------------------------------------------------------------------------------


async def test_bytes_go_with_their_task_and_those_of_no_task_after_a_while(tmp_path: Path) -> None:
    async with Server(tmp_path) as served:
        kept = await served.sent("file")
    folder = tmp_path / "files"
    orphan = (
        folder / "99" / "01a1f92a-3e47-7761-82d7-000000000099"
    )  # as a process leaves it that dies before the commit
    orphan.mkdir(parents=True)
    (orphan / ("0" * 40)).write_bytes(b"x")
    clock = SystemClock()
    store, blobs = open_store(f"sqlite:///{tmp_path}/store.db", clock), blob_store(f"folder:{folder}")
    await store.open("test")
    now_ms = clock.now_ms()
    assert await sweep_once(blobs, store, now_ms - 3_600_000) == 0
    assert orphan.exists()
    assert await sweep_once(blobs, store, now_ms + 10_000) == 1
    assert not orphan.exists()
    assert (folder / kept["id"][-2:] / kept["id"]).exists()
    while await store.sweep(clock.now_ms() + 1, 0, 0, 0):
        pass
    assert await sweep_once(blobs, store, now_ms + 10_000) == 1
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [OWNER]
    await store.close()


async def test_what_cannot_be_deleted_keeps_nothing_else_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_ids = [f"01a1f92a-3e47-7761-82d7-00000000009{number}" for number in range(3)]
    rmtree = shutil.rmtree

    def stuck(folder: Path) -> None:
        if folder.name == task_ids[1]:
            raise PermissionError(errno.EACCES, "Permission denied")
        rmtree(folder)

    monkeypatch.setattr(shutil, "rmtree", stuck)
    store, blobs = open_store("memory:", SystemClock()), blob_store(f"folder:{tmp_path}")
    await store.open("test")
    for task_id in task_ids:
        await blobs.put(BlobAddress.of(task_id, b"x"), b"x")
    assert await sweep_once(blobs, store, SystemClock().now_ms() + 10_000) == 2
    assert [path.name for path in tmp_path.glob("*/*")] == [task_ids[1]]
    await store.close()


async def test_a_server_on_another_store_does_not_start_on_the_same_folder(tmp_path: Path) -> None:
    async with Server(tmp_path):
        pass
    with pytest.raises(StartError, match="another folder or prefix"):
        async with Server(tmp_path, store=f"sqlite:///{tmp_path}/other.db"):
            pass


async def test_a_message_that_is_over_a_quota_leaves_nothing(tmp_path: Path) -> None:
    async with Server(tmp_path, max_daily_tasks=1) as served:
        await served.sent("small")
        message = {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "back"}, raw(LARGE)]}
        told = await served.site.rpc("/agents/desk", "SendMessage", {"message": message}, a2a_version="1.0")
        assert "max_daily_tasks" in json.dumps(told.error)
        assert served.kept == []


async def test_a_repeated_call_is_answered_again_and_keeps_nothing_more(served: Served) -> None:
    message = {
        "messageId": "0192f92a-3e47-7761-82d7-4cc7178158f7",
        "role": "ROLE_USER",
        "parts": [{"text": "back"}, raw(LARGE)],
    }
    ask = {"message": message}
    first = (await served.site.rpc("/agents/desk", "SendMessage", ask, a2a_version="1.0")).result["task"]
    kept = len(served.kept)
    again = (await served.site.rpc("/agents/desk", "SendMessage", ask, a2a_version="1.0")).result["task"]
    assert again["id"] == first["id"]
    assert len(served.kept) == kept


async def test_a_folder_that_cannot_be_written_to_is_said_to_the_caller_and_mends(tmp_path: Path) -> None:
    async with Server(tmp_path) as served:
        folder = tmp_path / "files"
        (folder / OWNER).unlink()
        folder.rmdir()
        folder.write_text("in the way")
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "back"}, raw(LARGE)]}
        told = await served.site.rpc("/agents/desk", "SendMessage", {"message": message}, a2a_version="1.0")
        assert "try again" in json.dumps(told.error)
        folder.unlink()
        assert (await served.sent("back", raw(LARGE)))["status"]["state"] == "TASK_STATE_COMPLETED"


# -- a bucket ----------------------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.slow
async def test_the_same_with_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with moto() as bucket:
        bucket.as_owner(monkeypatch)
        async with Server(tmp_path, files=bucket.files) as served:
            task = await served.sent("back", raw(LARGE))
            (part,) = artifact(task)
            assert (await served.got(part["url"]))[2] == LARGE
            status, _, body = await served.got(part["url"], range="bytes=5-9")
            assert (status, body) == (206, LARGE[5:10])
            assert await said(served, part["url"]) == f"{len(LARGE)} bytes"
            asked = await served.sent("ask")
        async with Server(tmp_path, files=bucket.files) as served:
            answered = await served.sent("here", raw(LARGE), taskId=asked["id"])
            assert artifact(answered)[0]["text"] == f"{len(LARGE)} bytes"


@pytest.mark.peer
@pytest.mark.slow
async def test_readers_are_sent_on_to_a_bucket_that_they_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rclone(tmp_path / "s3") as bucket:
        bucket.as_owner(monkeypatch)
        async with Server(tmp_path, files=bucket.files, files_redirect=True) as served:
            (part,) = artifact(await served.sent("file"))
            async with served.site.http.get(part["url"], allow_redirects=False) as answer:
                assert answer.status == 307
                assert answer.headers["location"].startswith(f"{bucket.endpoint}/files/some/prefix/")
                assert answer.headers["cache-control"] == "no-store"
            assert (await served.got(part["url"]))[2] == LARGE


# -- profiles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["beeos", "kaos", "protoagent"])
async def test_links_are_served_under_every_profile(tmp_path: Path, profile: str) -> None:
    speaker = next(speaker for speaker in ALL if speaker.name == profile)
    async with Server(tmp_path, profile=profile) as served:
        told = await speaker.call(served.site, speaker.methods[0], speaker.said("file"))
        (url,) = set(links(told.result))
        assert (await served.got(url))[2] == LARGE
        assert (await served.got(url.partition("&signature")[0]))[0] == 403


async def test_a_file_that_is_kept_apart_makes_a_task(tmp_path: Path) -> None:
    """Large files belong to tasks, so an agent that may answer with a message has a task for them."""
    either = Agent("either", direct="auto", direct_wait_s=60)

    @either.skill
    async def give(ctx: Context) -> Part | None:
        """Give a file, as the text says."""
        file = Part(raw=SMALL if "small" in ctx.text else LARGE, filename="a.bin")
        if "reply" in ctx.text:
            await ctx.message_reply(file)
        return None if ctx.files else file

    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, files=f"folder:{tmp_path}", files_above=ABOVE)
    async with serving(config, [either]) as url, connect(url) as agent:
        for text in ("small", "small reply"):
            answer = await agent.send(text)
            assert isinstance(answer, Message)
            assert answer.parts[0].raw == SMALL
        for text in ("large", "large reply"):
            task = await agent.send(text)
            assert isinstance(task, Task)
            (part,) = task.artifacts[0].parts if text == "large" else task.status.message.parts  # type: ignore[union-attr]
            assert part.url is not None
            assert part.url.startswith(f"{url}/files/{task.id}/")
        assert isinstance(await agent.send(Part(raw=LARGE)), Task)
        assert isinstance(await agent.send(Part(raw=SMALL)), Message)
