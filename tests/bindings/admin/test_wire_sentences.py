"""What the wire says of each dialect, against the bytes that a client of that dialect was sent."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from dragoman import Agent, Context, Part, Reject
from dragoman.server import serving
from tests.kit.places import bearer, calling, quick, sqlite_url

TEXT, MORE, WORDS, QUESTION, SAYING = "text-mark ", "more-mark ", "words-mark", "question-mark", "saying-mark"
LONG = " ".join(f"long-{number}" for number in range(2_000))
FILE, DATA, TOKENS = b"file-mark" * 5, {"data-mark": [1, 2]}, (40_711, 40_815)
STEPS = (31_007, 77_003)

SENT: dict[str, dict[str, Any]] = {
    "plain": {"text": TEXT},
    "chunks": {"text": MORE},
    "progress": {"progress": WORDS},
    "numbers": {"progress": STEPS[0]},
    "question": {"question": QUESTION},
    "login": {"question": QUESTION},
    "broken": {},
    "rejected": {"message": SAYING},
    "file": {"file": base64.b64encode(FILE).decode()},
    "data": {"data": "data-mark"},
    "tokens": {"tokens": TOKENS[0]},
    "long": {"text": LONG[-40:]},
}
"""What each of twelve tasks says that is found in bytes."""

NOUNS = {"files": "file", "messages": "message"}
"""The words of a sentence that are not the names of their concepts."""


class Pace:
    """Holds the agent until its caller has seen what it has said so far, if that asks again and again."""

    def __init__(self) -> None:
        self.held = False
        self.on = asyncio.Event()

    async def wait(self) -> None:
        if self.held:
            await self.on.wait()


def talking(pace: Pace) -> Agent:
    """An agent that does what the message names."""
    agent = Agent("talking")

    @agent.skill
    async def talk(ctx: Context) -> AsyncIterator[Any]:
        """Do it."""
        match ctx.text:
            case "plain":
                yield TEXT
            case "chunks":
                yield TEXT
                yield MORE
            case "progress":
                await ctx.progress(*STEPS, WORDS)
                await pace.wait()
            case "numbers":
                await ctx.progress(*STEPS)
                await pace.wait()
            case "question":
                await ctx.ask(QUESTION)
            case "login":
                await ctx.require_auth(QUESTION)
            case "broken":
                raise RuntimeError("on purpose")
            case "rejected":
                raise Reject(SAYING)
            case "file":
                yield Part(raw=FILE, filename="x.bin", media_type="application/octet-stream")
            case "data":
                yield DATA
            case "tokens":
                ctx.usage(input=TOKENS[0], output=TOKENS[1])
                yield TEXT
            case _:
                yield LONG

    return agent


class Place(NamedTuple):
    """A server of the agent, a caller of it, and the operator's headers."""

    http: aiohttp.ClientSession
    operator: dict[str, str]
    pace: Pace
    requests: dict[str, str]


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    pace, store = Pace(), sqlite_url(Path(tmp_path_factory.mktemp("wire")))
    async with serving(quick(store=store), [talking(pace)]) as url, calling(url) as http:
        message = {"messageId": "first", "role": "ROLE_USER", "parts": [{"text": "TASK"}]}
        sent = {"message": message, "configuration": {"returnImmediately": True}}
        async with http.post("/message:send", json=sent, headers={"A2A-Version": "1.0"}) as answer:
            task = (await answer.json())["task"]["id"]
        views = await summarize(http, bearer(store), task)
        yield Place(http, bearer(store), pace, {name: view["request"] for name, view in views.items()})


async def summarize(http: aiohttp.ClientSession, operator: dict[str, str], task: str, **query: str) -> dict[str, Any]:
    async with http.get(f"/admin/v1/tasks/{task}/wire/summary", params=query, headers=operator) as answer:
        assert answer.status == 200, await answer.text()
        return dict((await answer.json())["dialects"])


async def converse(place: Place, dialect: str, sent: str) -> list[Any]:
    """Send the message in the dialect, as the wire shows it; returns every frame or answer that its client is sent."""
    head, _, body = place.requests[dialect].partition("\n\n")
    request, *lines = head.splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    body = body.replace("TASK", sent).replace('"first"', f'"{dialect}-{sent}"')
    streams = "Accept" in headers
    place.pace.held = not streams
    place.pace.on.clear()
    if not streams:
        body = body.replace('"params":{', '"params":{"configuration":{"mode":"autonomous"},')
    async with place.http.post(request.split()[1], data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        raw = (await answer.read()).decode()
    if streams:
        return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: ")]
    return [frame async for frame in ask_again(place, json.loads(raw), headers)]


async def ask_again(place: Place, first: Any, headers: dict[str, str]) -> AsyncIterator[Any]:
    """Ask for the task until it has ended or waits. The agent goes on once its progress has been seen."""
    yield first
    path, state = "/", ""
    asked = {"jsonrpc": "2.0", "id": "1", "method": "GetTask", "params": {"id": first["result"]["id"]}}
    while state in ("", "submitted", "working"):
        async with place.http.post(path, json=asked, headers=headers) as answer:
            frame = await answer.json()
        state = frame["result"]["status"]["state"]
        if state == "working" and await logged(place, first["result"]["id"]) >= 3:
            place.pace.on.set()
        yield frame


async def logged(place: Place, task: str) -> int:
    async with place.http.get(f"/admin/v1/tasks/{task}/log", headers=place.operator) as answer:
        return int((await answer.json())["seq"])


def task_of(frames: list[Any]) -> str:
    """The id of the task, which each dialect names first."""
    return re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", json.dumps(frames))[0]


def at(frame: Any, path: str) -> Iterator[Any]:
    """The values at a path whose places in lists are left out."""
    if "jsonrpc" in frame:
        frame = {"error": frame["error"]} if "error" in frame else frame["result"]
    values = [frame]
    for name, quoted, many in re.findall(r'([A-Za-z_]\w*)|\["([^"]+)"\]|(\[\])', path):
        if many:
            values = [each for value in values if isinstance(value, list) for each in value]
        else:
            key = name or quoted
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
    return iter(values)


def said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "kaos", "evoai", "protoagent"])
async def test_the_sentence_says_what_the_bytes_say(place: Place, dialect: str) -> None:
    for sent in SENT:
        frames = await converse(place, dialect, sent)
        view = (await summarize(place.http, place.operator, task_of(frames), dialects=dialect))[dialect]
        compare(place, dialect, sent, frames, view)


def compare(place: Place, dialect: str, sent: str, frames: list[Any], view: dict[str, Any]) -> None:
    """Hold the sentence of a task against all that its client was sent."""
    raw = said(frames)
    clauses = view["sentence"].removesuffix(".").split("; ")
    clauses[0] = clauses[0][0].lower() + clauses[0][1:]
    lacks = [
        NOUNS.get(noun, noun)
        for clause in clauses
        if clause.startswith("no ") and "stream" not in clause
        for noun in re.split(", | or ", clause.removeprefix("no "))
    ]
    assert ("time" in lacks or "times" in lacks) == (re.search(r"20\d\d-\d\d-\d\dT", raw) is None), (sent, raw)
    assert ("context id" in lacks) == (re.search(r'"(contextId|context_id|sessionId)"', raw) is None)
    for concept, mark in SENT[sent].items():
        in_words = any(clause.startswith(f"{concept} comes in words") for clause in clauses)
        assert (concept in lacks) == (str(mark) not in raw and not in_words), (view["sentence"], raw)
    for clause in clauses:
        for path in re.findall(r" as `([^`]+)`", clause) if " comes " in clause and not clause.startswith("`") else ():
            values = said([value for frame in frames for value in at(frame, path)])
            concept = next(name for name in ("progress", "question", "text") if name in clause.split(" comes")[0])
            mark = SENT[sent].get(concept, TEXT)
            assert str(mark) in values or "Step 31007 of 77003" in values, (clause, raw)
        if changed := re.fullmatch(r"`([a-z-]+)` comes as (an error|`([^`]+)`)", clause):
            assert f'"{changed[1]}"' not in raw
            assert '"error": {' in raw if changed[2] == "an error" else f'"{changed[3]}"' in raw
    assert ("no stream, a client asks for the task again" in clauses) == (dialect == "kaos")
    assert view["streams"] == ("Accept" in place.requests[dialect])
