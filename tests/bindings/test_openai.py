"""Chat completions: a whole server, and what an OpenAI client sends and reads."""

import asyncio
import base64
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context, Part, Reject
from dragoman.config import Config
from dragoman.dialects.sse import Parser
from dragoman.engine.api import Ended
from dragoman.model.task import TaskState
from dragoman.server import running
from tests.kit.places import server

DEADLINE_S = 60.0

poet = Agent("poet", description="Writes as it is told")


@poet.skill
async def write(ctx: Context) -> AsyncIterator[str]:
    """Writes each word, and ends as the first one says."""
    verb, *words = ctx.text.split()
    for number, word in enumerate(words, 1):
        await ctx.progress(number, len(words), "not to be seen")
        yield f"{word} "
    ctx.usage(input=3, output=len(words))
    match verb:
        case "ask":
            yield await ctx.ask("Which one?")
        case "reject":
            raise Reject("not in the mood")
        case "fail":
            raise RuntimeError("secret")
        case "stop":
            raise Ended(TaskState.COMPLETED, (Part(text="The answer is cut off."),), "model_length")
        case _:
            return


@poet.skill("everything")
async def everything(ctx: Context) -> dict[str, Any]:
    """Tells all that it was given."""
    return {
        "parts": [[part.text, part.url, part.media_type, part.filename, len(part.raw or b"")] for part in ctx.parts],
        "history": [[message.role.value, message.text, message.metadata] for message in await ctx.history()],
        "metadata": dict(ctx.metadata),
        "context": ctx.context_id,
        "traceparent": ctx.traceparent,
    }


pair = Agent("pair")


@pair.skill
async def two(ctx: Context) -> None:
    """Gives out two artifacts, a file among them."""
    await ctx.artifact("first", name="a")
    await ctx.artifact(b"\0\1", name="b")
    await ctx.artifact({"second": 2}, name="c")


at_once = Agent("at-once", direct=True)


@at_once.skill
async def reply(ctx: Context) -> str:
    """Answers with a message instead of a task."""
    return f"you said {ctx.text}"


slow = Agent("slow")


@slow.skill
async def wait(ctx: Context) -> AsyncIterator[str]:
    """Says something, and then nothing for ever."""
    yield "so far"
    await asyncio.Event().wait()


busy = Agent("busy")


@busy.skill
async def report(ctx: Context) -> None:
    """Reports its progress for ever, and writes nothing."""
    for step in itertools.count():
        await ctx.progress(step, step + 1, "not to be seen")
        await asyncio.sleep(0.1)


class Client:
    """An OpenAI client; `headers` are those of the last answer."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.headers: Any = None

    async def chat(self, text: str, *, status: int = 200, headers: dict[str, str] | None = None, **more: Any) -> Any:
        body = {"model": "poet", "messages": [{"role": "user", "content": text}], **more}
        async with self.http.post("/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == status, await answer.text()
            self.headers = answer.headers
            return await answer.json()

    async def chunks(self, text: str, **more: Any) -> list[Any]:
        """The frames of a stream; what is JSON is decoded."""
        body = {"model": "poet", "messages": [{"role": "user", "content": text}], "stream": True, **more}
        async with self.http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["Content-Type"] == "text/event-stream"
            raw = await answer.read()
        assert b"\nid:" not in raw
        return [event.data if event.data == "[DONE]" else json.loads(event.data) for event in Parser().feed(raw)]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Client]:
    async with server(poet, pair, at_once, slow, cancel_grace_s=0.1, **settings) as http:
        yield Client(http)


@pytest.fixture(scope="module")
async def place() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client


def content(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def joined(chunks: list[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks[:-1] for choice in chunk.get("choices", ()))


async def test_a_completion_has_the_text_of_the_artifacts_and_the_tokens(place: Client) -> None:
    answer = await place.chat("write one two")
    assert content(answer) == "one two "
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "poet"
    assert answer["id"] == f"chatcmpl-{place.headers['x-dragoman-task-id']}"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


async def test_an_answer_that_is_cut_off_ends_for_its_length(place: Client) -> None:
    answer = await place.chat("stop one two")
    assert (content(answer), answer["choices"][0]["finish_reason"]) == ("one two ", "length")
    *_, last, done = await place.chunks("stop one two")
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")


async def test_a_stream_begins_with_the_role_and_ends_with_done(place: Client) -> None:
    first, *deltas, last, done = await place.chunks("write one two")
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [chunk["choices"][0]["delta"] for chunk in deltas] == [{"content": "one "}, {"content": "two "}]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in (first, *deltas, last)} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in (first, *deltas, last)}) == 1
    assert "usage" not in last


async def test_a_stream_tells_the_tokens_in_a_last_chunk_when_asked(place: Client) -> None:
    *before, told, done = await place.chunks("write one two", stream_options={"include_usage": True})
    assert (told["choices"], told["usage"]["total_tokens"], done) == ([], 5, "[DONE]")
    assert all(chunk["usage"] is None for chunk in before)


async def test_progress_is_not_content(place: Client) -> None:
    assert "not to be seen" not in json.dumps(await place.chunks("write one two"))


@pytest.mark.parametrize("model", ["pair", "at-once", "poet"])
async def test_a_stream_amounts_to_the_whole_answer(place: Client, model: str) -> None:
    whole = content(await place.chat("write a b", model=model))
    assert whole
    assert joined(await place.chunks("write a b", model=model)) == whole


async def test_artifacts_are_apart_and_files_are_left_out(place: Client) -> None:
    assert content(await place.chat("x", model="pair")) == 'first\n\n{"second":2}'


async def test_a_direct_agent_answers_without_a_task(place: Client) -> None:
    answer = await place.chat("hi", model="at-once")
    assert content(answer) == "you said hi"
    assert "x-dragoman-task-id" not in place.headers
    assert (await place.chunks("hi", model="at-once"))[-1] == "[DONE]"


async def test_nobody_sees_whether_an_answer_was_a_message_or_a_task() -> None:
    either = Agent("either", direct="auto", direct_wait_s=60)

    @either.skill
    async def reply(ctx: Context) -> AsyncIterator[str]:
        """Answers with a message, and with a task if it is to report."""
        if ctx.text == "report":
            await ctx.status("reporting")
        yield ctx.text

    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with running(config, [either]) as bound, aiohttp.ClientSession(bound.url) as http:
        client = Client(http)
        for text in ("hi", "report"):
            assert content(await client.chat(text, model="either")) == text
            assert ("x-dragoman-task-id" in client.headers) == (text == "report")
            assert joined(await client.chunks(text, model="either")) == text


@pytest.mark.parametrize("model", [None, ""])
async def test_without_a_model_the_default_agent_answers(place: Client, model: str | None) -> None:
    assert (await place.chat("write x", model=model))["model"] == "poet"


async def test_an_unknown_model_is_404_in_openais_words(place: Client) -> None:
    error = (await place.chat("x", model="gpt-4", status=404))["error"]
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "invalid_request_error")
    assert "gpt-4" in error["message"]
    assert (await place.chat("x", model="gpt-4", status=404, stream=True))["error"]["code"] == "model_not_found"


async def test_a_failed_task_is_an_error_that_clients_do_not_repeat(place: Client) -> None:
    answer = await place.chat("fail x", status=500)
    assert answer["error"]["code"] == "agent_failed"
    assert "reference" in answer["error"]["message"]
    assert "secret" not in json.dumps(answer)
    assert place.headers["x-should-retry"] == "false"
    assert place.headers["x-dragoman-task-id"]


async def test_a_rejected_task_is_the_callers_error(place: Client) -> None:
    answer = await place.chat("reject x", status=400)
    assert answer["error"]["message"] == "not in the mood"


async def test_a_stream_that_fails_ends_with_the_error_and_done(place: Client) -> None:
    *before, error, done = await place.chunks("fail x")
    assert joined([*before, "[DONE]"]) == "x "
    assert (error["error"]["code"], done) == ("agent_failed", "[DONE]")


async def test_a_question_is_content_and_the_answer_goes_to_the_task_named(place: Client) -> None:
    asked = await place.chat("ask x")
    question, mark = content(asked).rsplit("\n\n", 1)
    assert question == "x \n\nWhich one?"
    assert mark.startswith("[//]: # (dragoman-question ")
    assert asked["choices"][0]["finish_reason"] == "stop"
    task = {"x-dragoman-task-id": place.headers["x-dragoman-task-id"]}
    assert content(await place.chat("the red one", headers=task)) == "x \n\nthe red one"
    assert joined(await place.chunks("ask x")).startswith(f"{question}\n\n[//]: # (dragoman-question ")


async def test_an_agent_that_takes_too_long_is_504_and_its_task_goes_on() -> None:
    async with serving(blocking_timeout_s=0.2) as place:
        answer = await place.chat("x", model="slow", status=504)
        assert answer["error"]["code"] == "timeout"
        assert place.headers["x-should-retry"] == "false"
        task_id = place.headers["x-dragoman-task-id"]
        async with place.http.post(f"/agents/slow/tasks/{task_id}:cancel", headers={"A2A-Version": "1.0"}) as canceled:
            assert (await canceled.json())["status"]["state"] == "TASK_STATE_CANCELED"


async def test_the_agent_is_given_the_conversation_and_all_parameters(place: Client) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    told = json.loads(
        content(
            await place.chat(
                "",
                headers={"traceparent": trace, "x-dragoman-context-id": "talk-7"},
                messages=[
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "one", "name": "ada"},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
                    {"role": "tool", "content": "42", "tool_call_id": "c"},
                    {"role": "assistant", "content": "two"},
                    {"role": "user", "content": [{"type": "text", "text": "three"}]},
                ],
                metadata={"skill": "everything", "k": "v"},
                user="u1",
                temperature=0.5,
            )
        )
    )
    assert told["parts"] == [["three", None, None, None, 0]]
    assert told["history"] == [
        ["ROLE_USER", "be brief", {"role": "system"}],
        ["ROLE_USER", "one", {"name": "ada"}],
        ["ROLE_AGENT", "", None],
        ["ROLE_USER", "42", {"tool_call_id": "c", "role": "tool"}],
        ["ROLE_AGENT", "two", None],
    ]
    assert told["metadata"] == {"skill": "everything", "k": "v", "user": "u1", "openai": {"temperature": 0.5}}
    assert (told["context"], told["traceparent"]) == ("talk-7", trace)


async def test_a_context_that_is_named_is_the_history_of_a_client_that_sends_only_the_last_message(
    place: Client,
) -> None:
    talk = {"x-dragoman-context-id": "talk-8"}
    await place.chat("write one", headers=talk)
    told = json.loads(content(await place.chat("and now?", headers=talk, metadata={"skill": "everything"})))
    assert [said[:2] for said in told["history"]] == [["ROLE_USER", "write one"], ["ROLE_AGENT", "one "]]


async def test_images_files_and_audio_reach_the_agent_as_parts(place: Client) -> None:
    data = base64.b64encode(b"12345").decode()
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    messages = [{"role": "user", "content": parts}]
    told = json.loads(content(await place.chat("", messages=messages, metadata={"skill": "everything"})))
    assert told["parts"] == [
        ["look", None, None, None, 0],
        [None, None, "image/jpeg", None, 5],
        [None, "https://example.org/a.png", None, None, 0],
        [None, None, "application/pdf", "a.pdf", 5],
        [None, None, "audio/wav", None, 5],
    ]


async def test_a_call_that_comes_again_under_its_key_is_the_same_task(place: Client) -> None:
    key = {"Idempotency-Key": "chat-1"}
    ids = {(await place.chat("write once", headers=key))["id"] for _ in range(2)}
    assert len(ids) == 1


async def test_a_wrong_request_is_400_and_names_the_field(place: Client) -> None:
    for more, param in (
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"n": 2}, "n"),
        ({"metadata": {"skill": "fly"}}, "metadata.skill"),
    ):
        error = (await place.chat("x", status=400, **more))["error"]
        assert (error["param"], error["type"]) == (param, "invalid_request_error")


async def test_refusals_of_the_path_are_in_openais_words_too(place: Client) -> None:
    async with place.http.get("/v1/chat/completions") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST, OPTIONS")
        assert (await answer.json())["error"]["code"] == "method_not_allowed"
    async with place.http.post("/v1/chat/completions", data=b"{", headers={"Content-Type": "text/plain"}) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (415, "unsupported_media_type")
    async with place.http.post("/v1/chat/completions", data=b"{", headers={"Content-Type": "application/json"}) as bad:
        assert (bad.status, (await bad.json())["error"]["code"]) == (400, "invalid_json")


async def test_the_models_are_the_agents(place: Client) -> None:
    async with place.http.get("/v1/models") as answer:
        listed = await answer.json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["poet", "pair", "at-once", "slow"]
    async with place.http.get("/v1/models/pair") as answer:
        one = await answer.json()
    assert one in listed["data"]
    assert (one["object"], one["owned_by"]) == ("model", "dragoman")
    async with place.http.get("/v1/models/nobody") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "model_not_found")


async def test_a_completion_is_a_task_like_any_other(place: Client) -> None:
    await place.chat("write one")
    task_id = place.headers["x-dragoman-task-id"]
    async with place.http.get(f"/agents/poet/tasks/{task_id}", headers={"A2A-Version": "1.0"}) as answer:
        task = await answer.json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["contextId"] == place.headers["x-dragoman-context-id"]


async def test_a_stream_is_kept_alive_while_its_agent_does_what_has_no_chunk() -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.0, cancel_grace_s=0.0, keepalive_s=1.0)
    body = {"stream": True, "messages": [{"role": "user", "content": "x"}]}
    async with (
        asyncio.timeout(DEADLINE_S),
        running(config, [busy]) as bound,
        aiohttp.ClientSession(bound.url) as http,
        http.post("/v1/chat/completions", json=body) as answer,
    ):
        await answer.content.readuntil(b": keepalive\n\n")


async def test_a_stopping_server_answers_that_a_task_goes_on() -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.0, cancel_grace_s=0.0)
    body = {"messages": [{"role": "user", "content": "x"}]}
    begun, patient = asyncio.Event(), Agent("patient", restartable=True)

    @patient.skill
    async def begin(ctx: Context) -> None:
        """Goes on when the server starts again."""
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
        async with running(config, [patient]) as bound:
            asking = asyncio.create_task(http.post(f"{bound.url}/v1/chat/completions", json=body))
            await begun.wait()
        async with await asking as answer:
            assert (answer.status, answer.headers["x-should-retry"]) == (504, "false")
            message = (await answer.json())["error"]["message"]
    (waited_s,) = re.findall(r"the task is not done after (\d+) s: it goes on", message)
    assert int(waited_s) <= DEADLINE_S


async def test_a_stopping_server_ends_a_stream_with_an_error() -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.0, cancel_grace_s=0.0)
    body = {"stream": True, "messages": [{"role": "user", "content": "x"}]}
    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
        async with running(config, [slow]) as bound:
            answer = await http.post(f"{bound.url}/v1/chat/completions", json=body)
            raw = b""
            while b"so far" not in raw:
                raw += await answer.content.readany()
        raw += await answer.read()
    *_, error, done = [event.data for event in Parser().feed(raw)]
    assert (json.loads(error)["error"]["code"], done) == ("unavailable", "[DONE]")
