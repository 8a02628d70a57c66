"""Spans of generative AI, as a server makes them: their tree, their attributes, and whether they hold content."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman import Agent, Context
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.agents.model.provider import provider_of
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import Retries
from dragoman.config import ConfigError, Model, Upstream, load
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Runner
from dragoman.model.card import Profile
from dragoman.model.errors import Unavailable
from dragoman.model.task import Task
from dragoman.server import StartError, serving
from tests.agents.model.completions import DONE, Completions, called, completions, delta, event, said, written
from tests.agents.model.test_agent import model
from tests.agents.model.test_tool_loop import ADD, Adding
from tests.kit.places import asked, connection, quick

EXECUTE, SUBMIT = "dragoman.task.execute", "dragoman.task.submit"
SECRET = "my own words"

Spans = InMemorySpanExporter


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """The spans of the servers of a test."""
    exporter, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    providers = tracers, MeterProvider(shutdown_on_exit=False)
    monkeypatch.setattr("dragoman.telemetry.opentelemetry.installed", lambda version: providers)
    return exporter


@pytest.fixture
async def api() -> AsyncIterator[Completions]:
    """The endpoint of a model that calls a tool once."""
    async with completions() as endpoint:
        endpoint.answers(called(("c1", "add", ADD), text="Let me see."), said("It is 3."))
        yield endpoint


async def ran(agent: Runner, text: str = SECRET, **settings: Any) -> Task:
    async with connection(agent, quick(**settings)) as caller:
        return await asked(caller, text)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Those of the conventions."""
    prefixes = ("gen_ai.", "server.", "error.")
    return {key: value for key, value in (span.attributes or {}).items() if key.startswith(prefixes)}


def tree(spans: Spans) -> dict[str, str]:
    """By the name of each span, that of its parent."""
    done = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in done if span.context is not None}
    return {span.name: names.get(span.parent.span_id, "") if span.parent is not None else "" for span in done}


def one(spans: Spans, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


async def test_the_span_of_an_answer_names_the_endpoint_that_gave_it(spans: Spans, api: Completions) -> None:
    cached = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    api.answers(written(event(delta("Hi", "stop")) + event({"choices": [], "usage": cached}) + DONE))
    table = Model(url="http://127.0.0.1:9/v1", model="gone")
    there = Model(url=api.url, model="there")
    pool = ModelPool([PoolEndpoint(table, "", name="eu"), PoolEndpoint(there, "", name="us", order=1)])
    profile = Profile(id="chat", name="Chat", description="Chats", version="1", skills=())
    await ran(ChatAgent(profile, table, pool), telemetry_genai=True)
    found = attributes(one(spans, "chat there"))
    assert (found["gen_ai.request.model"], found["server.address"]) == ("there", "127.0.0.1")
    assert found["server.port"] == int(api.url.split(":")[2].split("/")[0])
    assert found["gen_ai.usage.cache_read.input_tokens"] == 5


async def test_a_model_with_tools_is_an_invocation_with_chats_and_tools(spans: Spans, api: Completions) -> None:
    agent = model(api.url, tools=Adding(), temperature=0.5, max_tokens=100, stop=("END",))
    task = await ran(agent, telemetry_genai=True)
    name = agent.profile.name
    assert tree(spans) == {
        SUBMIT: "",
        EXECUTE: SUBMIT,
        f"invoke_agent {name}": EXECUTE,
        "step $model": f"invoke_agent {name}",
        "step add": f"invoke_agent {name}",
        "chat small": "step $model",
        "execute_tool add": f"invoke_agent {name}",
    }
    invocation = one(spans, f"invoke_agent {name}")
    assert invocation.kind is trace.SpanKind.INTERNAL
    assert attributes(invocation) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.id": agent.profile.id,
        "gen_ai.agent.name": name,
        "gen_ai.agent.description": agent.profile.description,
        "gen_ai.agent.version": agent.profile.version,
        "gen_ai.conversation.id": task.context_id,
        "gen_ai.usage.input_tokens": 14,
        "gen_ai.usage.output_tokens": 6,
    }
    first, second = [span for span in spans.get_finished_spans() if span.name == "chat small"]
    assert (first.kind, first.status.status_code) == (trace.SpanKind.CLIENT, trace.StatusCode.UNSET)
    port = int(api.url.split(":")[2].split("/")[0])
    assert attributes(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": task.context_id,
        "gen_ai.output.type": "text",
        "server.address": "127.0.0.1",
        "server.port": port,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("stop",)
    assert first.context is not None
    assert f"{first.context.span_id:016x}" in api.asked[0].headers["traceparent"]
    assert attributes(one(spans, "execute_tool add")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    for span in spans.get_finished_spans():
        told = span.to_json()
        assert SECRET not in told
        assert "Let me see" not in told


async def test_content_is_captured_only_on_request(spans: Spans, api: Completions) -> None:
    await ran(model(api.url, tools=Adding()), telemetry_genai=True, telemetry_capture_content=True)
    first, second = [span.attributes or {} for span in spans.get_finished_spans() if span.name == "chat small"]
    call = {"type": "tool_call", "id": "c1", "name": "add", "arguments": ADD}
    mine = {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    assert json.loads(str(first["gen_ai.input.messages"])) == [mine]
    (answer,) = json.loads(str(first["gen_ai.output.messages"]))
    assert answer["parts"] == [{"type": "text", "content": "Let me see."}, call]
    assert answer["finish_reason"] == "tool_calls"
    _, again, result = json.loads(str(second["gen_ai.input.messages"]))
    assert again == {"role": "assistant", "parts": answer["parts"]}
    assert result == {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}]}
    tool = one(spans, "execute_tool add").attributes or {}
    assert json.loads(str(tool["gen_ai.tool.call.arguments"])) == {"a": 1, "b": 2}
    assert json.loads(str(tool["gen_ai.tool.call.result"])) == "3"


async def test_without_the_setting_there_are_the_spans_of_before(
    spans: Spans, api: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {SUBMIT: "", EXECUTE: SUBMIT, "step $model": EXECUTE, "step add": EXECUTE}
    await ran(model(api.url, tools=Adding()), telemetry=True)
    assert tree(spans) == before
    spans.clear()
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, gen_ai_latest_experimental")
    api.answers(said("Hello."))
    await ran(model(api.url), telemetry=True)
    assert "chat small" in tree(spans)
    spans.clear()
    await ran(model(api.url))  # the variable alone turns nothing on
    assert tree(spans) == {}


async def test_what_fails_has_the_kind_of_its_fault(spans: Spans) -> None:
    async with completions() as api:
        api.answers(said("", finish="content_filter"))
        await ran(model(api.url), telemetry_genai=True)
        assert attributes(one(spans, "chat small"))["gen_ai.response.finish_reasons"] == ("content_filter",)
    spans.clear()
    once = Retries(attempts=1)
    async with connection(model(api.url, retries=0), quick(telemetry_genai=True), retries=once) as caller:
        with pytest.raises(Unavailable):  # nobody is there any more
            await asked(caller, "hi")
    chat = one(spans, "chat small")
    assert (attributes(chat)["error.type"], chat.status.status_code) == ("model_unreachable", trace.StatusCode.ERROR)
    invoked = next(span for span in spans.get_finished_spans() if span.name.startswith("invoke_agent"))
    assert attributes(invoked)["error.type"] == "failed"


async def test_tools_that_code_reports_are_spans_and_nonsense_is_none(spans: Spans) -> None:
    agent = Agent("desk", name="Desk")

    @agent.skill
    async def work(ctx: Context) -> str:
        """Calls tools, and says things that only look like calls."""
        await ctx.tool("search", id="1", arguments={"for": SECRET})
        await ctx.tool("lookup", id="2")
        await ctx.tool("search", id="1", result=SECRET, done=True)
        await ctx.tool("lookup", id="2", error="no", done=True)
        await ctx.tool("whole", id="3", done=True)
        await ctx.tool("open", id="4")
        for phase in ("start", "end"):  # as in 0.3
            await ctx.status("old", metadata={TOOL_CALL: {"toolCallId": "5", "name": "old", "phase": phase}})
        for nonsense in (None, "x", {}, {"toolCallId": 1, "name": "n", "phase": "started"}):
            await ctx.status("odd", metadata={TOOL_CALL: nonsense})
        return "done"

    await ran(agent, telemetry_genai=True)
    assert {name: parent for name, parent in tree(spans).items() if name.startswith("execute_tool")} == dict.fromkeys(
        (f"execute_tool {name}" for name in ("search", "lookup", "whole", "open", "old")), "invoke_agent Desk"
    )
    errors = {name: attributes(one(spans, f"execute_tool {name}")).get("error.type") for name in ("search", "lookup")}
    assert errors == {"search": None, "lookup": "tool_error"}
    assert attributes(one(spans, "execute_tool open"))["error.type"] == "interrupted"
    assert "error.type" not in attributes(one(spans, "execute_tool old"))
    assert attributes(one(spans, "invoke_agent Desk"))["gen_ai.provider.name"] == "dragoman"
    assert not any(SECRET in span.to_json() for span in spans.get_finished_spans())


async def test_an_agent_of_another_server_is_called_there(spans: Spans) -> None:
    far = Agent("far")

    @far.skill
    async def answer(ctx: Context) -> str | None:
        """Says in which trace it is called."""
        return ctx.traceparent

    async with serving(quick(), [far]) as url:
        profile = Profile(id="near", name="Near", description="", version="1", skills=())
        await ran(UpstreamAgent(profile, Upstream(url=f"{url}/agents/far")), telemetry_genai=True)
    invoked = next(span for span in spans.get_finished_spans() if span.name.startswith("invoke_agent"))
    assert invoked.kind is trace.SpanKind.CLIENT


async def test_content_without_spans_to_hold_it_is_refused() -> None:
    fault = "telemetry_capture_content is on and telemetry_genai is off: set that, too"
    with pytest.raises(StartError, match=fault):
        async with serving(quick(telemetry=True, telemetry_capture_content=True), [Agent("a")]):
            pass


def test_the_file_has_a_table_for_it(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("[telemetry]\ngenai = true\ncapture_content = true\n")
    config = load(file, {}, {})
    assert (config.telemetry_genai, config.telemetry_capture_content) == (True, True)
    file.write_text("[telemetry]\ngen_ai = true\n")
    with pytest.raises(ConfigError, match=r"telemetry\.gen_ai: no such setting; did you mean genai\?|gen_ai"):
        load(file, {}, {})


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai", "azure.ai.openai"),
        ("https://us-central1-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://example-x.air/v1", "openai"),
        ("http://127.0.0.1:8000/v1", "openai"),
    ],
)
def test_a_provider_is_told_by_the_host(url: str, provider: str) -> None:
    assert provider_of(url) == provider
