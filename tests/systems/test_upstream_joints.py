"""Streams of other servers that were joined late, or tell of more than their task: what is stored of them in front."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from dragoman.client import Connection, connect
from dragoman.config import Config
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.model.updates import ArtifactUpdate
from dragoman.server import serving
from tests.client.test_stream import (
    TASK,
    answering,
    begun,
    grown,
    methods,
    refusal,
    result,
    shown,
    stands,
    streaming,
)
from tests.kit.places import asked
from tests.kit.values import text_of, told_by
from tests.net.peer import Peer, says
from tests.systems.test_upstream import CONFIG, fronted, partner


@pytest.fixture
async def connection(peer: Peer) -> AsyncIterator[Connection]:
    async with fronted(partner(peer.url, dialect="1.0")) as connection:
        yield connection


async def ended(connection: Connection) -> tuple[TaskState, str, dict[str, tuple[Part, ...]]]:
    """The state, what it says, and the parts by artifact, of a task as it is stored."""
    task = await connection.get((await asked(connection, "hello")).id)
    return task.status.state, told_by(task), {each.artifact_id: each.parts for each in task.artifacts}


async def test_a_chunk_that_comes_again_after_the_task_is_taken_back(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"])), result(shown("COMPLETED", a=["1", "2", "3"]))],
        SubscribeToTask=[
            streaming({"task": shown("WORKING", a=["1", "2"])}, grown("2"), grown("3"), stands("COMPLETED"))
        ],
    )
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="123"),)})


async def test_chunks_that_no_snapshot_holds_come_with_the_end(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("COMPLETED", a=["1", "2", "3"], b=[{"data": 7}, "x"]))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("3"), stands("COMPLETED"))],
    )
    expected = {"a": (Part(text="123"),), "b": (Part(data=7), Part(text="x"))}
    assert await ended(connection) == (TaskState.COMPLETED, "", expected)


async def test_artifacts_that_the_upstream_does_not_keep_stay(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("COMPLETED"))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("2"), stands("COMPLETED"))],
    )
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})


async def test_a_question_after_a_joint_comes_after_what_was_missed(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING")), result(shown("INPUT_REQUIRED", "Which?", a=["1", "2"]))],
        SubscribeToTask=[streaming({"task": shown("WORKING")}, grown("1"), stands("INPUT_REQUIRED", "Which?"))],
    )
    assert await ended(connection) == (TaskState.INPUT_REQUIRED, "Which?", {"a": (Part(text="12"),)})


async def test_an_answer_to_an_upstream_that_was_late_has_an_id_of_its_own(peer: Peer, connection: Connection) -> None:
    late = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "a2a-protocol.org"}
    late |= {"reason": "TASK_TIMEOUT", "metadata": {"taskId": "t"}}
    error = {"code": -32000, "message": "task timeout", "data": [late]}
    answering(
        peer,
        SendStreamingMessage=[
            says({"jsonrpc": "2.0", "id": None, "error": error}),
            streaming({"task": shown("WORKING")}, stands("COMPLETED", "Thanks")),
        ],
        GetTask=[result(shown("INPUT_REQUIRED", "Which?"))],
    )
    task = await asked(connection, "hello")
    assert (task.status.state, told_by(task)) == (TaskState.INPUT_REQUIRED, "Which?")
    assert text_of(await asked(connection, "this one", task_id=task.id)) == "Thanks"
    calls = [call.json for call in peer.asked if call.body]
    sent = [call["params"]["message"] for call in calls if call["method"] == "SendStreamingMessage"]
    assert [message["parts"][0]["text"] for message in sent] == ["hello", "this one"]
    assert sent[0]["messageId"] != sent[1]["messageId"]


async def test_an_answer_after_one_that_got_an_empty_stream_has_an_id_of_its_own(
    peer: Peer, connection: Connection
) -> None:
    """The upstream may have taken the one before."""
    answering(
        peer,
        SendStreamingMessage=[
            streaming({"task": shown("INPUT_REQUIRED", "Which?")}),
            streaming(),
            streaming({"task": shown("WORKING")}, stands("COMPLETED", "Thanks")),
        ],
        GetTask=[result(shown("INPUT_REQUIRED", "Which?"))],
    )
    task = await asked(connection, "hello")
    again = await asked(connection, "this one", task_id=task.id)
    assert (again.status.state, told_by(again)) == (TaskState.INPUT_REQUIRED, "Which?")
    assert text_of(await asked(connection, "that one", task_id=task.id)) == "Thanks"
    calls = [call.json for call in peer.asked if call.body]
    sent = [call["params"]["message"] for call in calls if call["method"] == "SendStreamingMessage"]
    assert [message["parts"][0]["text"] for message in sent] == ["hello", "this one", "that one"]
    assert len({message["messageId"] for message in sent}) == 3


async def test_an_end_that_cannot_be_compared_is_no_success(peer: Peer) -> None:
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", append=False))],
        GetTask=[result(shown("WORKING", a=["1"])), refusal(-32603)],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1"])}, grown("2"), stands("COMPLETED"))],
    )
    async with fronted(partner(peer.url, dialect="1.0", wait_s=0.2)) as connection:
        state, _, _ = await ended(connection)
    assert state is TaskState.FAILED


async def test_a_stream_that_was_not_joined_is_not_compared(peer: Peer, connection: Connection) -> None:
    answering(peer, SendStreamingMessage=[streaming({"task": TASK}, grown("1", append=False), stands("COMPLETED"))])
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="1"),)})
    assert methods(peer) == ["SendStreamingMessage"]


async def test_frames_of_another_task_are_not_taken_in(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[
            streaming(
                {"task": TASK},
                grown("1", append=False),
                grown("x", task_id="other"),
                stands("FAILED", task_id="other"),
                grown("2"),
                stands("COMPLETED"),
            )
        ],
    )
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="12"),)})


async def test_what_an_upstream_has_completed_it_does_not_fail(peer: Peer, connection: Connection) -> None:
    answering(
        peer,
        SendStreamingMessage=[
            streaming({"task": TASK}, grown("1", append=False), stands("COMPLETED"), stands("FAILED", "No"))
        ],
    )
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="1"),)})


LEARNED: dict[str, dict[str, list[Any]]] = {
    "chunks": {
        "SendStreamingMessage": [
            streaming({"task": TASK}, grown("Good", append=False), grown(" day"), grown(" to you"), stands("COMPLETED"))
        ]
    },
    "the task": {"SendStreamingMessage": [streaming({"task": shown("COMPLETED", a=["Good", " day", " to you"])})]},
    "the task, asked for": {
        "SendStreamingMessage": [begun()],
        "GetTask": [result(shown("COMPLETED", a=["Good", " day", " to you"]))],
    },
    "the task, after a chunk": {
        "SendStreamingMessage": [begun(grown("Good", append=False))],
        "GetTask": [result(shown("COMPLETED", a=["Good", " day", " to you"]))],
    },
}
MESSAGE = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
NEW_MESSAGE = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hello"}]}
CALL = {"jsonrpc": "2.0", "id": 1}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mcp": ("/mcp", {**CALL, "method": "tools/call", "params": {"name": "partner", "arguments": {"message": "hello"}}}),
    "openai": ("/v1/chat/completions", {"model": "partner", "messages": [{"role": "user", "content": "hello"}]}),
    "kaos": ("/", {**CALL, "method": "SendMessage", "params": {"message": MESSAGE}}),
    "evoai": ("/api/v1/a2a/partner", {**CALL, "method": "message/send", "params": {"message": MESSAGE}}),
    "beeos": ("/partner", {**CALL, "method": "message/send", "params": {"message": MESSAGE}}),
    "1.0": ("/agents/partner", {**CALL, "method": "SendMessage", "params": {"message": NEW_MESSAGE}}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learned", LEARNED)
async def test_a_text_is_one_text_however_it_was_learned(peer: Peer, learned: str, form: str) -> None:
    answering(peer, **LEARNED[learned])
    path, body = FORMS[form]
    headers = {"Accept": "application/json, text/event-stream"}
    if form == "1.0":
        headers["A2A-Version"] = "1.0"
    async with (
        serving(CONFIG, [partner(peer.url, dialect="1.0")]) as url,
        aiohttp.ClientSession() as http,
        http.post(url + path, json=body, headers=headers) as answer,
    ):
        told = await answer.text()
    texts = [each for each in _texts(json.loads(told)) if "day" in each]
    assert texts, told
    assert set(texts) == {"Good day to you"}


def _texts(value: Any) -> list[str]:
    """All strings in JSON."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _texts(each)]


NO_TEXT = "partner sent content that cannot be read, which is left out: a text part without a text."
DEEP: list[Any] = []
for _ in range(70):
    DEEP = [DEEP]
BAD: dict[str, Any] = {
    "no text": {"kind": "text"},
    "no text, read by another rule": {"type": "text", "text": None},
    "an integer that not every reader keeps": {"data": 2**60},
    "nested too deeply": {"data": DEEP},
    "a long file name": {"raw": "AA==", "filename": "n" * 1025},
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("way", ["stream", "snapshot", "message", "status"])
async def test_an_answer_of_which_nothing_can_be_read_fails_and_says_so(
    peer: Peer, connection: Connection, bad: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = BAD[bad]
    spoken = {"messageId": "s", "role": "ROLE_AGENT", "parts": [part]}
    end = stands("COMPLETED")
    if way == "status":
        end["statusUpdate"]["status"]["message"] = spoken
    frames = {
        "stream": ({"task": TASK}, grown(part, append=False), end),
        "snapshot": ({"task": shown("COMPLETED", a=[part])},),
        "message": ({"message": spoken},),
        "status": ({"task": TASK}, end),
    }[way]
    answering(peer, SendStreamingMessage=[streaming(*frames)], GetTask=[result(shown("COMPLETED"))])
    task = await connection.get((await asked(connection, "hello")).id)
    assert task.status.state is TaskState.FAILED
    assert told_by(task).startswith("partner sent content that cannot be read, which is left out: ")
    assert task.status.message is not None
    assert task.status.message.metadata == {"reason": "upstream_unreadable"}
    if bad.startswith("no text"):
        assert told_by(task) == NO_TEXT
    (line,) = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert line.startswith(f"upstream partner: task {task.id}: content that cannot be read is left out: ")


async def test_the_rest_of_an_answer_is_passed_on_with_word_of_what_was_left_out(
    peer: Peer, connection: Connection
) -> None:
    answering(
        peer,
        SendStreamingMessage=[
            streaming(
                {"task": TASK},
                grown("1", {"kind": "text"}, append=False),
                grown({"data": 2**60}, "2"),
                stands("COMPLETED", "Done."),
            )
        ],
    )
    state, text, artifacts = await ended(connection)
    assert state is TaskState.COMPLETED
    assert text.startswith(f"Done.\n{NO_TEXT[:-1]}; part.data: integers must be within ±2^53")
    assert artifacts == {"a": (Part(text="12"),)}


async def test_what_was_left_out_of_a_stream_makes_nothing_come_twice(peer: Peer, connection: Connection) -> None:
    bad = {"data": 2**60}
    answering(
        peer,
        SendStreamingMessage=[begun(grown("1", bad, "2", append=False))],
        GetTask=[result(shown("WORKING", a=["1", bad, "2"])), result(shown("COMPLETED", a=["1", bad, "2", "3"]))],
        SubscribeToTask=[streaming({"task": shown("WORKING", a=["1", bad, "2"])}, grown("3"), stands("COMPLETED"))],
    )
    texts: list[str] = []
    async with asyncio.timeout(60):
        async for update in connection.stream("hello"):
            if isinstance(update, ArtifactUpdate):
                texts += [part.text or "" for part in update.artifact.parts]
    assert "".join(texts) == "123"


async def test_an_artifact_whose_name_breaks_a_bound_is_passed_on_without_it(
    peer: Peer, connection: Connection
) -> None:
    named = grown("1", {"data": 2**60}, append=False)
    named["artifactUpdate"]["artifact"]["name"] = "n" * 1025
    answering(peer, SendStreamingMessage=[streaming({"task": TASK}, named, stands("COMPLETED"))])
    state, text, artifacts = await ended(connection)
    assert (state, artifacts) == (TaskState.COMPLETED, {"a": (Part(text="1"),)})
    assert "part.data: integers" in text
    assert "artifact.name has 1025 characters: at most 1024 are allowed" in text


@pytest.mark.parametrize("unkept", ["n" * 1025, "a\0b"])
async def test_an_artifact_whose_id_cannot_be_kept_is_passed_on_under_another(
    peer: Peer, connection: Connection, unkept: str
) -> None:
    chunks = [grown("1", append=False), grown("2")]
    for chunk in chunks:
        chunk["artifactUpdate"]["artifact"]["artifactId"] = unkept
    whole = shown("COMPLETED", a=["1", "2", "3"])
    whole["artifacts"][0]["artifactId"] = unkept
    answering(peer, SendStreamingMessage=[streaming({"task": TASK}, *chunks, {"task": whole})])
    state, text, artifacts = await ended(connection)
    assert (state, list(artifacts.values())) == (TaskState.COMPLETED, [(Part(text="123"),)])
    assert "which is left out: the id of an artifact, which is longer than 1024 characters" in text


@pytest.mark.parametrize("id_of", ["id", "contextId"])
async def test_a_task_whose_ids_cannot_be_kept_fails_and_says_so(peer: Peer, id_of: str) -> None:
    begun_as = {**TASK, id_of: "n" * 1025}
    answering(peer, SendStreamingMessage=[streaming({"task": begun_as}, stands("COMPLETED"))])
    config = Config(port=0, store="memory:", shutdown_grace_s=0.2, max_text=1024)
    async with serving(config, [partner(peer.url, dialect="1.0")]) as url, connect(f"{url}/agents/partner") as here:
        task = await asked(here, "hello")
        assert task.status.state is TaskState.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "upstream_unreadable"}
        assert "has 1025 characters: at most 1024 are allowed (max_text)" in told_by(task)


async def test_a_chunk_after_the_end_is_not_part_of_the_result(
    peer: Peer, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    answering(
        peer,
        SendStreamingMessage=[
            streaming({"task": TASK}, grown("1", append=False), stands("COMPLETED"), grown("2"), stands("COMPLETED"))
        ],
    )
    assert await ended(connection) == (TaskState.COMPLETED, "", {"a": (Part(text="1"),)})
    assert "a chunk came after TASK_STATE_COMPLETED, which is final: ignored" in caplog.text
