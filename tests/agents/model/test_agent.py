"""A model behind a card: against a real endpoint over HTTP, without a server of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.model import endpoint
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.endpoint import completions_url, models_url
from dragoman.agents.model.failures import after_s
from dragoman.agents.model.pool import ModelPool, PoolEndpoint, RetryPolicy
from dragoman.agents.model.request import limit_name
from dragoman.cli.entries import make_agent
from dragoman.config import Model, load
from dragoman.config.upstreams import UpstreamCredentials
from dragoman.engine.api import CheckResult, Runner
from dragoman.model.card import Profile
from dragoman.model.errors import Unavailable
from dragoman.model.events import ArtifactChunk
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TaskState, Usage
from dragoman.telemetry.job_group import JobGroup
from dragoman.testing import Ran, run
from dragoman.testing.run import FakeRun
from tests.agents.model.completions import (
    DONE,
    Completions,
    completions,
    delta,
    event,
    refused,
    said,
    silent,
    told,
    usage,
    written,
)

DEADLINE_S = 60.0
KEY = "sk-very-secret-1234"


@pytest.fixture
async def api() -> AsyncIterator[Completions]:
    async with completions() as endpoint_:
        yield endpoint_


@pytest.fixture
async def site_of_pages() -> AsyncIterator[str]:
    """The URL below which every GET is answered with a page."""

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\nconnection: close\r\n\r\n<!DOCTYPE html>\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(page, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ui"


def model(url: str, **keys: Any) -> ChatAgent:
    """The agent; keys are those of a model's table, RetryPolicy and ChatAgent, and the `header` of its credentials."""

    def those(kind: Any) -> dict[str, Any]:
        return {name: keys[name] for name in list(keys) if name in kind.__struct_fields__}

    async def soon(_: float) -> None:
        """Waits for nothing."""

    tools = keys.pop("tools", None)
    table: dict[str, Any] = {"url": url, "model": "small", "idle_s": 5.0}
    if "header" in keys:
        table["credentials"] = UpstreamCredentials(env="KEY", header=keys["header"])
    described = Model(**(table | those(Model)))
    return ChatAgent(
        Profile(id="chat", name="Chat", description="Chats", version="1", skills=()),
        described,
        ModelPool([PoolEndpoint(described, keys.get("key", KEY))]),
        tools=tools,
        retry=RetryPolicy(**({"pause": soon} | those(RetryPolicy))),
    )


async def asked(agent: ChatAgent, content: Any = "Hi", **how: Any) -> Ran:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await run(agent, content, **how)
    finally:
        await agent.close()


async def ending(agent: ChatAgent, content: Any = "Hi") -> tuple[TaskState, str, str]:
    """How a task ends that does not complete: its state, its text, its reason."""
    status = (await asked(agent, content)).record.status
    assert status.message is not None
    assert status.message.metadata is not None
    return status.state, status.message.text, status.message.metadata["reason"]


# -- an answer ---------------------------------------------------------------------------------------------------------


async def test_it_is_what_a_server_opens_and_checks() -> None:
    agent = model("http://127.0.0.1:9/v1")
    assert isinstance(agent, Runner)
    async with asyncio.TaskGroup() as group:
        await agent.open(JobGroup(group))
        assert not (await checked(agent))[0].ok, "there is no endpoint"
        await agent.close()


async def test_an_answer_is_one_artifact_and_its_usage_is_usage(api: Completions) -> None:
    api.answers(said("Hel", "lo."))
    ran = await asked(model(api.url))
    assert (ran.state, ran.text, ran.usage) == (TaskState.COMPLETED, "Hello.", Usage.of(7, 3, model="small"))
    assert [artifact.artifact_id for artifact in ran.artifacts] == ["result"]


async def test_the_request_is_the_callers_message_with_the_key(api: Completions) -> None:
    await asked(model(api.url, system="Be brief."))
    assert api.asked[0].path == "/v1/chat/completions"
    assert api.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert api.body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (api.body["stream"], api.body["stream_options"]) == (True, {"include_usage": True})


async def test_a_key_goes_in_the_header_that_is_named(api: Completions) -> None:
    await asked(model(api.url, header="api-key"))
    assert api.asked[0].headers["api-key"] == KEY
    assert "authorization" not in api.asked[0].headers


async def test_tokens_are_given_out_as_they_come(api: Completions) -> None:
    agent = model(api.url)
    api.answers(written(event(delta("one ")), event(delta("two")) + event(delta(finish="stop")) + DONE))
    ran = await asked(agent)
    assert ran.text == "one two"
    assert [chunk.append for chunk in ran.chunks] == [False, *[True] * (len(ran.chunks) - 1)]


async def test_tokens_within_a_window_are_one_chunk(api: Completions) -> None:
    api.answers(written(*(event(delta(text)) for text in "abcdefgh"), event(delta(finish="stop")), DONE))
    ran = await asked(model(api.url, coalesce_ms=2_000))
    assert [chunk.artifact.parts[0].text for chunk in ran.chunks] == ["abcdefgh"]


async def test_tokens_that_come_within_coalesce_ms_are_one_chunk_and_later_ones_another(
    api: Completions, tmp_path: Path
) -> None:
    heard = Heard()

    async def script(answering: Any) -> None:
        await answering.head()
        for text in "abc":
            await answering.events(delta(text))
            await asyncio.sleep(0.01)
        await answering.events(delta("d"))
        await heard.heard.wait()
        await answering.events(delta("e"), delta(finish="stop"))
        await answering.end()

    api.answers(script)
    file = tmp_path / "dragoman.toml"
    file.write_text(f'[[agents]]\nid = "chat"\nrun = "openai:{api.url}"\nmodel = "small"\ncoalesce_ms = 1000\n')
    (entry,) = load(file, {}, {}).agents
    agent = make_agent(entry)
    assert isinstance(agent, ChatAgent)
    async with asyncio.timeout(DEADLINE_S):
        await agent.run(heard)
    assert heard.texts == ["abcd", "e"]
    await agent.close()


class Heard(FakeRun):
    """A run that says when something was given out."""

    def __init__(self) -> None:
        super().__init__(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))
        self.heard = asyncio.Event()

    def emit(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> Awaitable[None] | None:
        waits = super().emit(artifact, append=append, last_chunk=last_chunk)
        self.heard.set()
        return waits

    @property
    def texts(self) -> list[str | None]:
        """The events that were given out."""
        return [event.artifact.parts[0].text for event in self.events if isinstance(event, ArtifactChunk)]


async def test_without_a_window_each_piece_is_a_chunk(api: Completions) -> None:
    heard = Heard()

    async def script(answering: Any) -> None:
        await answering.head()
        await answering.events(delta("a"), delta("b"))
        await heard.heard.wait()
        await answering.events(delta("c"), delta(finish="stop"))
        await answering.end()

    api.answers(script)
    agent = model(api.url, coalesce_ms=0)
    async with asyncio.timeout(DEADLINE_S):
        await agent.run(heard)
    assert heard.texts == ["ab", "c"]
    await agent.close()


async def test_what_is_on_its_way_is_given_out_before_the_answer_goes_on(api: Completions) -> None:
    """A token waits for its window, and not for the next token."""
    agent = model(api.url, coalesce_ms=20)
    api.answers(silent("first"))
    heard = Heard()
    task = asyncio.create_task(agent.run(heard))
    async with asyncio.timeout(DEADLINE_S):
        await heard.heard.wait()
    assert heard.texts == ["first"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(DEADLINE_S):
        await api.left.wait()
    await agent.close()


async def test_an_answer_larger_than_what_is_held_at_once_comes_whole(api: Completions) -> None:
    words = [f"{number:07d} " * 20 for number in range(2_000)]
    api.answers(written(told(words)))
    assert (await asked(model(api.url, coalesce_ms=200))).text == "".join(words)


async def test_a_cancel_closes_the_connection_at_once(api: Completions) -> None:
    api.answers(silent())
    agent = model(api.url)
    task = asyncio.create_task(run(agent, "Hi"))
    await asyncio.wait_for(api.arrived.wait(), DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(DEADLINE_S):
        await api.left.wait()
    await agent.close()


async def test_a_connection_is_used_again(api: Completions) -> None:
    agent = model(api.url)
    api.answers(said("one"), said("two"))
    assert (await run(agent, "1")).text == "one"
    assert (await run(agent, "2")).text == "two"
    assert not api.left.is_set()
    await agent.close()


@pytest.mark.parametrize("coalesce_s", [0.0, 0.02])
async def test_a_connection_is_used_again_though_its_answer_ended_a_moment_after_its_last_word(
    api: Completions, coalesce_s: float
) -> None:
    async def script(answering: Any) -> None:
        await answering.head()
        for chunk in (delta("o"), delta("ne"), delta(finish="stop")):
            await answering.events(chunk)
            await asyncio.sleep(coalesce_s)
        await answering.write(DONE)
        await asyncio.sleep(0.05)
        await answering.end()

    agent = model(api.url, coalesce_ms=coalesce_s * 1000)
    api.answers(script, said("two"))
    assert (await run(agent, "1")).text == "one"
    assert (await run(agent, "2")).text == "two"
    assert not api.left.is_set()
    await agent.close()


async def test_an_answer_that_is_no_stream_is_taken(api: Completions) -> None:
    body = b'{"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}'
    api.answers(written(body[:20], body[20:], kind="application/json"))
    ran = await asked(model(api.url))
    assert (ran.text, ran.usage) == ("Hello.", Usage())


async def test_an_answer_with_a_schema_is_data(api: Completions) -> None:
    api.answers(said('{"city": ', '"Bern"}'))
    ran = await asked(model(api.url, schema={"type": "object"}))
    assert ran.data == [{"city": "Bern"}]
    assert ran.text == ""


async def test_json_in_a_fence_is_data(api: Completions) -> None:
    api.answers(said('```json\n{"a": 1}\n```'))
    assert (await asked(model(api.url, schema={"type": "object"}))).data == [{"a": 1}]


async def test_an_answer_that_is_not_the_data_asked_for_fails(api: Completions) -> None:
    api.answers(said("Bern, I think"))
    assert (await ending(model(api.url, schema={})))[::2] == (TaskState.FAILED, "model_not_json")


async def test_the_conversation_goes_along(api: Completions) -> None:
    history = [
        Message(message_id="1", role=Role.USER, parts=(Part(text="I am Ada"),)),
        Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
    ]
    agent = model(api.url)
    await asked(agent, "Who am I?", history=history)
    assert [(each["role"], each["content"]) for each in api.body["messages"]] == [
        ("user", "I am Ada"),
        ("assistant", "Hello Ada"),
        ("user", "Who am I?"),
    ]


async def test_a_part_that_cannot_be_sent_rejects_the_task(api: Completions) -> None:
    state, text, reason = await ending(model(api.url), [Part(raw=b"", media_type="video/mp4")])
    assert (state, reason) == (TaskState.REJECTED, "model_part_unsupported")
    assert text.startswith("parts[0] (video/mp4): ")
    assert not api.asked


async def test_a_file_by_its_url_is_fetched_and_sent(api: Completions) -> None:
    url = "https://example.org/a.csv"
    await asked(model(api.url), [Part(text="Sum"), Part(url=url)], files={url: b"1,2"})
    assert api.body["messages"][0]["content"] == "Sum\n\n1,2"


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_a_call_that_may_do_better_is_made_again(api: Completions, status: int) -> None:
    api.answers(refused(status), said("Hello."))
    assert (await asked(model(api.url))).text == "Hello."
    assert len(api.asked) == 2


async def test_retry_after_is_kept_to(api: Completions) -> None:
    waited: list[float] = []

    async def pause(wait_s: float) -> None:
        waited.append(wait_s)

    api.answers(
        refused(429, headers={"Retry-After": "3"}), refused(429, headers={"retry-after-ms": "250"}), said("Hello.")
    )
    assert (await asked(model(api.url, pause=pause))).text == "Hello."
    assert waited == [3.0, 0.25]


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "Fri, 20 Nov 2026 07:00:05 GMT"}, 5.0),
        ({"retry-after": "Fri, 20 Nov 2020 07:00:05 GMT"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "40", "retry-after": "9"}, 0.04),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_every_spelling_of_retry_after_is_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert after_s(headers, 1_795_158_000.0) == wait_s


async def test_a_wait_that_is_too_long_is_not_waited(api: Completions) -> None:
    api.answers(refused(429, headers={"Retry-After": "300"}))
    state, text, reason = await ending(model(api.url))
    assert (state, reason, len(api.asked)) == (TaskState.FAILED, "model_busy", 1)
    assert "300 s" in text


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (401, {"message": f"Incorrect API key provided: {KEY}"}, "model_refused_server"),
        (403, {"message": "no"}, "model_refused_server"),
        (404, {"message": "The model does not exist", "code": "model_not_found"}, "model_not_found"),
        (429, {"message": "pay", "code": "insufficient_quota"}, "model_spent"),
        (400, {"message": "too long", "code": "context_length_exceeded"}, "model_context_too_long"),
        (400, {"message": f"Bad image; see https://x.example/{KEY} sk-abc123456"}, "model_bad_request"),
        (302, {"message": "elsewhere"}, "model_moved"),
    ],
)
async def test_a_refusal_is_told_in_words_without_secrets(
    api: Completions, status: int, error: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    api.answers(refused(status, error))
    state, text, found = await ending(model(api.url))
    assert (state, found, len(api.asked)) == (TaskState.FAILED, reason, 1)
    assert text
    for secret in (KEY, "127.0.0.1", "sk-abc"):
        assert secret not in text
    assert KEY not in caplog.text


@pytest.mark.parametrize("ends", [True, False])
async def test_an_answer_that_breaks_off_is_begun_anew_in_its_place(api: Completions, ends: bool) -> None:
    api.answers(written(event(delta("Hal")), ends=ends), said("Hello."))
    ran = await asked(model(api.url, coalesce_ms=0))
    assert ran.text == "Hello."
    assert len(api.asked) == 2


async def test_an_answer_that_breaks_off_again_and_again_fails(api: Completions) -> None:
    api.answers(written(event(delta("Hal")), ends=False))
    state, _, reason = await ending(model(api.url, retries=1))
    assert (state, reason, len(api.asked)) == (TaskState.FAILED, "model_broken", 2)


async def test_data_that_is_too_deep_for_callers_is_none(api: Completions) -> None:
    api.answers(said("[" * 100 + "]" * 100))
    assert (await ending(model(api.url, schema={})))[2] == "model_not_json"


@pytest.mark.parametrize("ends", [True, False])
async def test_an_answer_that_the_model_has_ended_is_whole_though_its_stream_is_not(
    api: Completions, ends: bool
) -> None:
    api.answers(written(event(delta("Hello.")) + event(delta(finish="stop")), event(usage()), ends=ends))
    ran = await asked(model(api.url, retries=1))
    assert (ran.state, ran.text, ran.usage, len(api.asked)) == (
        TaskState.COMPLETED,
        "Hello.",
        Usage.of(7, 3, model="small"),
        1,
    )


async def test_an_error_in_the_middle_of_a_stream_is_one(api: Completions) -> None:
    api.answers(written(event(delta("Hal")) + event({"error": {"message": "overloaded", "code": 503}})), said("Hello."))
    assert (await asked(model(api.url))).text == "Hello."


async def test_an_endpoint_that_is_not_there_fails_and_then_keeps_calls_away() -> None:
    agent = model("http://127.0.0.1:9/v1", retries=0, failures=1)
    assert (await ending(agent))[::2] == (TaskState.FAILED, "model_unreachable")
    assert agent.offline
    assert "try again" in str(agent.refusal())
    assert "does not answer" in (agent.degraded or "")


async def test_a_caller_is_told_to_come_back_when_a_call_may_be_made() -> None:
    agent = model("http://127.0.0.1:9/v1", retries=0, failures=1, pause_s=0.1)
    await ending(agent)
    refusal = agent.refusal()
    assert isinstance(refusal, Unavailable)
    assert refusal.retry_after_s == 1, "whole seconds, of which the pause takes a part"


async def test_what_is_no_answer_is_in_the_log_without_the_key(
    api: Completions, caplog: pytest.LogCaptureFixture
) -> None:
    api.answers(written(f'data: {{"choices": "{KEY}"}}\n\n'.encode()))
    assert (await ending(model(api.url, retries=0)))[2] == "model_unreadable"
    assert "expected a chat completion" in caplog.text
    assert KEY not in caplog.text


async def test_a_page_in_place_of_an_answer_is_in_the_log_with_what_may_be_wrong(
    api: Completions, caplog: pytest.LogCaptureFixture
) -> None:
    base = api.url.removesuffix("/v1")
    for url, hint in ((f"{base}/ui", f"Most end in /v1: try openai:{base}/ui/v1"), (api.url, api.url)):
        api.answers(written(b"<!DOCTYPE html><title>Welcome</title>", kind="text/html"))
        assert (await ending(model(url)))[2] == "model_unreadable"
        assert "got b'<!DOCTYPE html><title>Welcome</title>'" in caplog.text
        assert hint in caplog.text.splitlines()[-1]
    assert len(api.asked) == 2


async def test_an_endpoint_that_says_nothing_is_too_late(api: Completions) -> None:
    api.answers(silent("Hal"))
    agent = model(api.url, idle_s=0.1, retries=0)
    assert (await ending(agent))[::2] == (TaskState.FAILED, "model_timeout")


@pytest.mark.parametrize(
    ("script", "reason", "helps"),
    [
        (refused(500), "model_failed", "again"),
        (refused(429), "model_busy", "again"),
        (silent("Hal"), "model_timeout", "again"),
        (written(event(delta("Hal")), ends=False), "model_broken", "again"),
        (written(event(delta("Hal"))), "model_broken", "again"),
        (written(b"<html>no</html>"), "model_unreadable", "operator"),
        (written(b"<!DOCTYPE html>\n<p>data: no</p>\n", kind="text/html"), "model_unreadable", "operator"),
        (written(b"", kind="text/plain"), "model_broken", "again"),
        (written(b": still here\n\n"), "model_broken", "again"),
        (written(b'data: {"choices": 5}\n\n'), "model_unreadable", "operator"),
        (refused(401), "model_refused_server", "operator"),
        (refused(404), "model_not_found", "operator"),
    ],
)
async def test_a_failure_says_what_may_help(api: Completions, script: Any, reason: str, helps: str) -> None:
    api.answers(script)
    state, text, found = await ending(model(api.url, retries=0, idle_s=0.3 if reason == "model_timeout" else 60.0))
    assert (state, found) == (TaskState.FAILED, reason)
    assert helps in text


@pytest.mark.parametrize("body", [b"<html>no</html>", b'data: {"choices": 5}\n\n', b"{}", b"data: {\n\n"])
async def test_what_is_no_answer_fails(api: Completions, body: bytes) -> None:
    api.answers(written(body))
    state, _, reason = await ending(model(api.url, retries=0))
    assert state is TaskState.FAILED
    assert reason in ("model_unreadable", "model_broken")


REFUSAL = event(delta(refusal="I can")) + event(delta(refusal="not.")) + event(delta(finish="stop")) + DONE


@pytest.mark.parametrize(("on_refusal", "state"), [("reject", TaskState.REJECTED), ("fail", TaskState.FAILED)])
async def test_a_refusal_of_the_model_ends_the_task_as_set(api: Completions, on_refusal: str, state: TaskState) -> None:
    api.answers(written(REFUSAL))
    assert await ending(model(api.url, on_refusal=on_refusal)) == (state, "I cannot.", "model_refused")


async def test_a_refusal_may_be_an_answer(api: Completions) -> None:
    api.answers(written(REFUSAL))
    assert (await asked(model(api.url, on_refusal="answer"))).text == "I cannot."


@pytest.mark.parametrize(
    "script",
    [
        written(event(delta("Well, ")) + event(delta(finish="content_filter")) + DONE),
        refused(400, {"message": "filtered", "code": "content_filter"}),
    ],
)
async def test_a_content_filter_rejects(api: Completions, script: Any) -> None:
    api.answers(script)
    state, text, reason = await ending(model(api.url))
    assert (state, reason) == (TaskState.REJECTED, "model_refused")
    assert "filter" in text


async def test_an_answer_that_is_cut_at_its_length_says_so(api: Completions) -> None:
    api.answers(said("Once upon", finish="length"))
    text = "The answer is cut off: it has reached its maximum length."
    assert await ending(model(api.url)) == (TaskState.COMPLETED, text, "model_length")


@pytest.mark.parametrize(("keys", "texts"), [({"on_length": "fail"}, ("Once",)), ({}, ())])
async def test_an_answer_that_is_cut_may_fail(api: Completions, keys: dict[str, Any], texts: tuple[str, ...]) -> None:
    api.answers(said(*texts, finish="length"))
    assert (await ending(model(api.url, **keys)))[::2] == (TaskState.FAILED, "model_length")


async def test_an_answer_begun_anew_that_says_nothing_leaves_nothing(api: Completions) -> None:
    api.answers(written(event(delta("Hal")), ends=False), written(event(delta(finish="stop")), event(usage()), DONE))
    assert (await asked(model(api.url, coalesce_ms=0))).text == ""


async def test_the_bytes_of_a_stream_in_one_piece_are_one_chunk(api: Completions) -> None:
    api.answers(written(told(["a", "b", "c"])))
    assert [chunk.artifact.parts[0].text for chunk in (await asked(model(api.url))).chunks] == ["abc"]


# -- where it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "completions_", "models"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1/chat/completions", "http://localhost:11434/v1/models"),
        ("http://localhost:11434/", "http://localhost:11434/v1/chat/completions", "http://localhost:11434/v1/models"),
        ("https://a.b/v1", "https://a.b/v1/chat/completions", "https://a.b/v1/models"),
        ("https://a.b/v1/", "https://a.b/v1/chat/completions", "https://a.b/v1/models"),
        ("https://a.b/chat/completions", "https://a.b/chat/completions", "https://a.b/models"),
        (
            "https://a.b/openai/deployments/d?api-version=1",
            "https://a.b/openai/deployments/d/chat/completions?api-version=1",
            "https://a.b/openai/deployments/d/models?api-version=1",
        ),
    ],
)
def test_the_base_url_is_understood_with_a_version_and_without(url: str, completions_: str, models: str) -> None:
    assert (completions_url(url), models_url(url)) == (completions_, models)


def test_the_bound_of_an_answer_has_the_name_that_the_endpoint_knows() -> None:
    assert limit_name("https://api.openai.com/v1") == "max_completion_tokens"
    assert limit_name("http://localhost:11434/v1") == "max_tokens"


# -- the check ---------------------------------------------------------------------------------------------------------


async def checked(agent: ChatAgent) -> list[CheckResult]:
    return [finding async for finding in agent.check()]


async def test_a_check_finds_the_model(api: Completions) -> None:
    assert [finding.ok for finding in await checked(model(api.url))] == [True, True]
    assert not api.asked


async def test_a_check_names_the_models_there_are(api: Completions) -> None:
    api.models = {"data": [{"id": "large"}, {"id": "huge"}]}
    *_, last = await checked(model(api.url))
    assert not last.ok
    assert "huge, large" in last.fix


@pytest.mark.parametrize(("key", "word"), [(KEY, "does not take the key"), ("", "asks for a key")])
async def test_a_check_says_that_the_key_is_not_taken(api: Completions, key: str, word: str) -> None:
    api.model_status = 401
    (finding,) = await checked(model(api.url, key=key))
    assert not finding.ok
    assert word in finding.what
    assert KEY not in finding.what + finding.fix


async def test_a_check_finds_a_key_that_is_not_taken_though_the_models_are_shown_to_everybody(
    api: Completions,
) -> None:
    api.completion_status = 401
    (finding,) = await checked(model(api.url))
    assert (finding.ok, "does not take the key" in finding.what) == (False, True)
    api.models = {"error": {"message": "Missing scopes: model.read"}}
    assert all(finding.ok for finding in await checked(model(api.url)))
    assert api.asked == [], "no completion was asked for"


async def test_a_check_says_that_a_page_is_there_in_place_of_models(site_of_pages: str) -> None:
    (_, finding) = await checked(model(site_of_pages))
    assert (finding.ok, "is a page" in finding.what) == (False, True)
    assert f"try openai:{site_of_pages}/v1" in finding.fix


async def test_a_check_says_that_nobody_is_there() -> None:
    (finding,) = await checked(model("http://127.0.0.1:9/v1"))
    assert not finding.ok


async def test_a_check_tells_an_endpoint_that_is_slow_from_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "LOOK_S", 0.01)

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1") as server:
        (finding,) = await checked(model(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
    assert (finding.ok, "loading the model" in finding.fix) == (False, True)


async def test_a_check_says_that_the_version_is_missing(api: Completions) -> None:
    api.model_status = 404
    api.models = None
    (_, finding) = await checked(model(api.url.replace("/v1", "/api")))
    assert not finding.ok
    assert "/api/v1" in finding.fix


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_check_says_that_the_endpoint_takes_nothing_at_present(api: Completions, status: int) -> None:
    api.model_status = status
    (finding,) = await checked(model(api.url))
    assert (finding.ok, f"(status {status})" in finding.what) == (False, True)


async def test_an_endpoint_without_a_list_is_not_held_against_it(api: Completions) -> None:
    api.model_status = 404
    assert [finding.ok for finding in await checked(model(api.url))] == [True, True]
