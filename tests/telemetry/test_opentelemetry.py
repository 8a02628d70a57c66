"""Spans and metrics as OpenTelemetry gets them, from a real engine."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman import Agent, Context, Reject, StepFailed
from dragoman.bindings.request import Request
from dragoman.bindings.routes import Route
from dragoman.bindings.traffic import Traffic
from dragoman.client import connect
from dragoman.config import Config
from dragoman.engine.api import Run, Runner, Traits
from dragoman.engine.engine import Engine
from dragoman.engine.handlers.tracing import Traced
from dragoman.engine.observer import Observers
from dragoman.engine.policy import EngineSettings
from dragoman.model.acting_chain import NOTE, ActingLink, spell_chain, with_link
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, MethodNotAllowed, TaskNotFound
from dragoman.model.ids import SystemClock
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, CancelTask, GetTask, Operation, SendMessage, StreamMessage
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import Record, TaskHead
from dragoman.server import StartError, serving
from dragoman.store.open import open_store
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.histogram import REQUEST_BOUNDS_S
from dragoman.telemetry.job_group import JobGroup
from dragoman.telemetry.opentelemetry import FLUSH_S, OpenTelemetry
from tests.ports import kept_port

DEADLINE_S = 60.0
HTTP_DURATION, RPC_DURATION = "http.server.request.duration", "rpc.server.call.duration"
TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{CALLER}-01"

SLEEP_S = 0.3

agent = Agent("agent")
executed: list[str] = []
"""The executions of steps; of `charge` the span that was current."""


async def charge() -> str:
    """Works the second time."""
    executed.append(f"{trace.get_current_span().get_span_context().span_id:016x}")
    if len(executed) == 1:
        raise ConnectionError("secret")
    return "receipt"


def ship() -> str:
    raise ValueError("secret")


async def hang() -> None:
    executed.append("hang")
    await asyncio.Event().wait()


async def order(ctx: Context) -> None:
    """Take a step that succeeds in the end, sleep, and take one that fails."""
    await ctx.now()
    await ctx.step("charge", charge, key="invoice 7", retries=1, backoff_s=0)
    await ctx.sleep(SLEEP_S)
    with suppress(StepFailed):
        await ctx.step("ship", ship)


@agent.skill
async def work(ctx: Context) -> str | None:
    """Ends as it is told, and says in which trace it is."""
    match ctx.text:
        case "reject":
            raise Reject("no")
        case "fail":
            raise RuntimeError("broken")
        case "hang":
            await asyncio.Event().wait()
        case "ask":
            await ctx.ask("what?")
        case "order":
            await order(ctx)
        case "stop":
            await ctx.step("hang", hang)
    span = trace.get_current_span().get_span_context()
    return f"{ctx.traceparent} {span.span_id:016x}"


class House:
    """An engine that is observed."""

    def __init__(
        self,
        engine: Engine,
        spans: InMemorySpanExporter,
        reader: InMemoryMetricReader,
        tracer: Any,
        counts: Counts,
    ) -> None:
        self.counts = counts
        self.tracer = tracer
        self.handler = Traced(engine.operations, tracer)
        self.exporter = spans
        self._reader = reader

    async def call(self, operation: Operation, traceparent: str | None = TRACEPARENT) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await self.handler.call(call(operation, traceparent))

    async def span(self, name: str) -> ReadableSpan:
        """The one span of that name, once it has ended."""
        (found,) = await self.spans(name, 1)
        return found

    async def spans(self, name: str, count: int) -> list[ReadableSpan]:
        """The spans of that name, once so many have ended."""
        async with asyncio.timeout(DEADLINE_S):
            while len(found := [span for span in self.exporter.get_finished_spans() if span.name == name]) < count:
                await asyncio.sleep(0)
        assert len(found) == count
        return found

    def metrics(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """The points of every metric, by the values of their attributes."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: {
                tuple((point.attributes or {})[name] for name in sorted(point.attributes or {})): point
                for point in metric.data.data_points
            }
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


class Actor(Runner):
    """Notes two exchanges, and something of its own."""

    traits = Traits()
    profile = Profile(id="actor", name="Actor", description="Acts", version="1", skills=())

    async def run(self, run: Run) -> None:
        chain: tuple[ActingLink, ...] = ()
        for audience in ("https://back", "https://far"):
            chain = with_link(chain, ActingLink(subject="ann", actors=("us", "app"), audience=audience, issuer="i"))
            run.note_soon(**{NOTE: spell_chain(chain)})
        run.note_soon(mine="x")


def call(operation: Operation, traceparent: str | None = TRACEPARENT) -> Call:
    return Call(
        operation=operation, principal=ANONYMOUS, agent="agent", dialect="1.0", mount="/", traceparent=traceparent
    )


def sending(text: str, **fields: Any) -> SendMessage:
    return SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Part(text=text),)), **fields)


def head_of(task_id: str, traceparent: str | None = None) -> TaskHead:
    return TaskHead(
        id=task_id,
        context_id="c",
        agent="agent",
        owner="anonymous",
        dialect="1.0",
        mount="",
        created_at="2026-01-01T00:00:00.000Z",
        traceparent=traceparent,
    )


@pytest.fixture
async def house() -> AsyncIterator[House]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    telemetry, counts = OpenTelemetry(tracers, meters, "kaos", "1"), Counts()
    clock = SystemClock()
    store = open_store("memory:", clock)
    await store.open("test")
    engine = Engine(
        store,
        {"agent": agent, "actor": Actor()},
        clock=clock,
        settings=EngineSettings(cancel_grace_s=0.1, suspend_max_s=0.0, suspend_after_s=0.0),
        holder="test",
        observer=Observers((counts, telemetry)),
    )
    async with asyncio.TaskGroup() as group:
        await engine.start(JobGroup(group))
        yield House(engine, exporter, reader, telemetry, counts)
        await engine.drain(0.1)
    await store.close()
    tracers.shutdown()
    meters.shutdown()


def answer_of(record: Record) -> list[str]:
    return str(record.artifacts[0].parts[0].text).split()


def parent_of(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_submit_and_execute_are_children_of_the_callers_span(house: House) -> None:
    record = await house.call(sending("work"))
    submit, execute = await house.span("kaos.task.submit"), await house.span("kaos.task.execute")
    assert {trace_of(submit), trace_of(execute)} == {TRACE_ID}
    assert {parent_of(submit), parent_of(execute)} == {CALLER}
    assert dict(submit.attributes or {}) == {
        "agent": "agent",
        "task.id": record.head.id,
        "task.session_id": record.head.context_id,
    }
    assert dict(execute.attributes or {}) == {"agent": "agent", "task.id": record.head.id, "task.state": "completed"}


async def test_the_agent_runs_in_the_span_of_its_run_and_passes_it_on(house: House) -> None:
    traceparent, current = answer_of(await house.call(sending("work")))
    execute = await house.span("kaos.task.execute")
    assert execute.context is not None
    assert traceparent == f"00-{TRACE_ID}-{execute.context.span_id:016x}-01"
    assert current == f"{execute.context.span_id:016x}"


async def test_what_the_task_came_with_is_stored_with_it(house: House) -> None:
    record = await house.call(sending("work"))
    assert record.head.traceparent == TRACEPARENT


async def test_without_a_callers_trace_the_run_belongs_to_the_message_that_made_the_task(house: House) -> None:
    await house.call(sending("work"), None)
    submit, execute = await house.span("kaos.task.submit"), await house.span("kaos.task.execute")
    assert submit.parent is None
    assert submit.context is not None
    assert (trace_of(execute), parent_of(execute)) == (trace_of(submit), f"{submit.context.span_id:016x}")


async def test_a_run_that_is_taken_up_again_is_in_the_trace_of_its_task(house: House) -> None:
    asked = await house.call(sending("ask"))
    first = await house.span("kaos.task.execute")
    assert (first.attributes or {})["task.state"] == "input-required"
    house.exporter.clear()
    reply = Message(message_id="r", role=Role.USER, parts=(Part(text="that"),), task_id=asked.head.id)
    await house.call(SendMessage(message=reply), None)
    execute = await house.span("kaos.task.execute")
    assert (trace_of(execute), parent_of(execute)) == (TRACE_ID, CALLER)


async def test_each_executed_step_has_one_span_in_the_run_that_executed_it(house: House) -> None:
    executed.clear()
    await house.call(sending("order"))
    first, second = await house.spans("kaos.task.execute", 2)
    assert {trace_of(first), trace_of(second)} == {TRACE_ID}
    assert {parent_of(first), parent_of(second)} == {CALLER}
    charged, shipped = await house.span("step charge"), await house.span("step ship")
    assert (parent_of(charged), parent_of(shipped)) == (id_of(first), id_of(second))
    assert executed == [id_of(charged)] * 2
    assert dict(charged.attributes or {}) == {
        "agent": "agent", "step.name": "charge", "step.key": "invoice 7", "step.attempts": 2, "step.failed": False
    }  # fmt: skip
    assert dict(shipped.attributes or {}) == {
        "agent": "agent", "step.name": "ship", "step.attempts": 1, "step.failed": True, "error.type": "ValueError"
    }  # fmt: skip
    assert shipped.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in charged.to_json() + shipped.to_json()
    names = [span.name for span in house.exporter.get_finished_spans() if span.name.startswith("step ")]
    assert sorted(names) == ["step charge", "step ship"], "neither a replayed step has a span, nor a time that is drawn"


async def test_a_step_of_a_worker_has_the_times_of_its_execution(house: House) -> None:
    execution = house.tracer.executing(head_of("t", TRACEPARENT), None)
    execution.step_told("charge", "", 1_000, 3_500, 2, "Declined")
    execution.finished("working")
    step = await house.span("step charge")
    assert (step.start_time, step.end_time) == (1_000_000_000, 3_500_000_000)
    assert parent_of(step) == id_of(await house.span("kaos.task.execute"))
    assert (step.attributes or {})["error.type"] == "Declined"
    assert house.metrics()["kaos.steps"][("agent", "failed")].value == 1


async def test_each_exchange_of_a_token_is_an_event_of_the_run(house: House) -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="act"),))
    async with asyncio.timeout(DEADLINE_S):
        await house.handler.call(replace(call(SendMessage(message=message)), agent="actor"))
    run = await house.span("kaos.task.execute")
    assert [event.name for event in run.events] == ["token.exchanged"] * 2
    assert [dict(event.attributes or {}) for event in run.events] == [
        {"acting.subject": "ann", "acting.actors": ("us", "app"), "acting.audience": audience, "acting.issuer": "i"}
        for audience in ("https://back", "https://far")
    ]


async def test_a_sleep_is_an_event_of_the_run_that_it_ends(house: House) -> None:
    executed.clear()
    await house.call(sending("order"))
    first, second = await house.spans("kaos.task.execute", 2)
    (slept,) = first.events
    assert (slept.name, second.events) == ("sleep", ())
    until_s = datetime.fromisoformat(str((slept.attributes or {})["sleep.until"])).timestamp()
    assert until_s - SLEEP_S <= slept.timestamp / 1e9 <= until_s
    assert (first.attributes or {})["task.state"] == "working"


async def test_steps_are_counted_by_outcome(house: House) -> None:
    executed.clear()
    await house.call(sending("order"))
    await house.spans("kaos.task.execute", 2)
    counted = {outcome: point.value for (_, outcome), point in house.metrics()["kaos.steps"].items()}
    assert counted == {"succeeded": 1, "failed": 1, "replayed": 1}
    assert house.counts.runs["agent"].steps == counted


async def test_a_step_that_is_cut_short_ends_its_span_and_is_not_counted(house: House) -> None:
    executed.clear()
    task_id = (await house.call(sending("stop", return_immediately=True))).head.id
    async with asyncio.timeout(DEADLINE_S):
        while not executed:
            await asyncio.sleep(0)
    await house.call(CancelTask(id=task_id))
    step = await house.span("step hang")
    assert dict(step.attributes or {}) == {"agent": "agent", "step.name": "hang", "step.interrupted": True}
    assert "kaos.steps" not in house.metrics()


async def test_cancel_has_a_span_of_its_own(house: House) -> None:
    task_id = (await house.call(sending("hang", return_immediately=True))).head.id
    await house.call(CancelTask(id=task_id))
    cancel, execute = await house.span("kaos.task.cancel"), await house.span("kaos.task.execute")
    assert (cancel.attributes or {})["task.id"] == task_id
    assert (execute.attributes or {})["task.state"] == "canceled"


async def test_what_is_refused_ends_its_span_with_the_kind_of_error(house: House) -> None:
    with pytest.raises(TaskNotFound):
        await house.call(CancelTask(id="nothing"))
    cancel = await house.span("kaos.task.cancel")
    assert (cancel.attributes or {})["error.type"] == "TaskNotFound"
    assert cancel.status.status_code is trace.StatusCode.ERROR


async def test_a_failed_run_is_an_error_without_the_exceptions_text(house: House) -> None:
    await house.call(sending("fail"))
    execute = await house.span("kaos.task.execute")
    assert execute.status.status_code is trace.StatusCode.ERROR
    assert "broken" not in execute.to_json()


async def test_a_stream_is_submitted_too(house: House) -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="work"),))
    stream = await house.handler.stream(call(StreamMessage(message=message)))
    async with asyncio.timeout(DEADLINE_S):
        while await stream.next() is not None:
            pass
    submit = await house.span("kaos.task.submit")
    assert stream.head is not None
    assert (submit.attributes or {})["task.session_id"] == stream.head.context_id


async def test_reading_makes_no_span(house: House) -> None:
    record = await house.call(sending("work"))
    await house.span("kaos.task.execute")
    house.exporter.clear()
    await house.call(GetTask(id=record.head.id))
    assert house.exporter.get_finished_spans() == ()


async def test_tasks_are_counted_by_state_and_their_durations_in_milliseconds(house: House) -> None:
    for text in ("work", "work", "fail", "reject"):
        await house.call(sending(text))
    task_id = (await house.call(sending("hang", return_immediately=True))).head.id
    await house.call(CancelTask(id=task_id))
    shown = house.metrics()
    counted = {state: point.value for (_, state), point in shown["kaos.tasks"].items()}
    assert counted == {
        "submitted": 5, "completed": 2, "failed": 1, "rejected": 1, "cancel_requested": 1, "canceled": 1
    }  # fmt: skip
    assert shown["kaos.task.duration"][("agent",)].count == 5


async def test_a_server_that_lacks_opentelemetry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "dragoman.telemetry.opentelemetry")
    with pytest.raises(StartError, match=r"pip install '\.\[otel\]'"):
        async with serving(Config(port=0, store="memory:", telemetry=True), [agent]):
            pass


def points_of(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    (metrics,) = [scope.metrics for resource in data.resource_metrics for scope in resource.scope_metrics]
    return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


def test_requests_are_measured_by_kind_of_answer_and_no_caller_chooses_a_series() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = OpenTelemetry(TracerProvider(shutdown_on_exit=False), meters, "dragoman", "1")
    traffic = Traffic(None, None, SystemClock(), telemetry)
    route = Route("health", {"GET": ""})

    def note(method: str, status: int, refusal: type[A2AError] | None = None, **fields: Any) -> None:
        request = Request(method=method, headers={}, header_list=(), route=route, refusal=refusal)
        traffic.answered(request, time.perf_counter(), status, 0, **fields)

    note("GET", 200)
    note("BREW", 405, MethodNotAllowed)
    note("GET", 503)
    note("GET", 499, left=True)
    assert {tuple(sorted((point.attributes or {}).items())) for point in points_of(reader, HTTP_DURATION)} == {
        tuple(sorted({"operation": "health", "binding": "http", "url.scheme": "http", **each}.items()))
        for each in (
            {"http.request.method": "GET", "http.response.status_code": 200},
            {"http.request.method": "_OTHER", "http.response.status_code": 405, "error.type": "MethodNotAllowed"},
            {"http.request.method": "GET", "http.response.status_code": 503, "error.type": "503"},
            {"http.request.method": "GET", "error.type": "left"},
        )
    }
    assert {point.explicit_bounds for point in points_of(reader, HTTP_DURATION)} == {REQUEST_BOUNDS_S}


@pytest.mark.slow
def test_a_collector_that_does_not_answer_holds_up_the_end_for_a_moment_only() -> None:
    class Stuck(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            never.wait()
            return SpanExportResult.FAILURE

    never = threading.Event()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Stuck()))
    telemetry = OpenTelemetry(tracers, MeterProvider(shutdown_on_exit=False), "dragoman", "1")
    telemetry.executing(head_of("t"), None).finished("completed")
    begun = time.monotonic()
    try:
        telemetry.flush()
    finally:
        never.set()
    assert time.monotonic() - begun < FLUSH_S + DEADLINE_S / 4, "OpenTelemetry itself waits for 30 s"
    tracers.shutdown()


def histograms_of(sent: bytes) -> dict[str, list[tuple[tuple[float, ...], dict[str, Any]]]]:
    """Bounds and attributes of the histograms in seconds that were exported, by name. Metrics sent twice are joined."""
    found: dict[str, list[tuple[tuple[float, ...], dict[str, Any]]]] = {}
    for resource in ExportMetricsServiceRequest.FromString(sent).resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics if metric.unit == "s"):
            for point in metric.histogram.data_points:
                values = {each.key: each.value for each in point.attributes}
                attributes = {key: value.string_value or value.int_value for key, value in values.items()}
                found.setdefault(metric.name, []).append((tuple(point.explicit_bounds), attributes))
    return found


@pytest.mark.slow
async def test_a_server_sends_what_it_recorded_before_it_ends(tmp_path: Path) -> None:
    """To a collector, by OTLP over HTTP, as the variables of OpenTelemetry say."""
    received: dict[str, bytes] = {}

    async def collect(request: web.Request) -> web.Response:
        assert request.headers["Content-Type"] == "application/x-protobuf"
        received[request.path] = received.get(request.path, b"") + await request.read()
        return web.Response(content_type="application/x-protobuf")

    collector = web.Application()
    collector.router.add_post("/v1/{signal}", collect)
    runner = web.AppRunner(collector)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (tmp_path / "agents.py").write_text(
        "from dragoman import Agent, Context\n\nagent = Agent('echo')\n\n\n@agent.skill\n"
        "async def echo(ctx: Context) -> str:\n    '''Says it again.'''\n    return ctx.text\n"
    )
    host, port = runner.addresses[0][:2]
    environ = {
        **os.environ,
        "DRAGOMAN_TELEMETRY": "true",
        "DRAGOMAN_TELEMETRY_PREFIX": "kaos",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:{port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_SERVICE_NAME": "somebody",
    }
    grpc_port = kept_port()
    command = [Path(sys.executable).parent / "dragoman", "serve", "agents.py", "--port", "0", "--store", "memory:"]
    command += ["--grpc-port", str(grpc_port)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().split("listens on ")[1].split("/ ")[0]
            body = {"messages": [{"role": "user", "content": "my words"}]}
            async with ClientSession() as http, http.post(f"{url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200
            async with connect(url) as echo, connect(f"grpc://127.0.0.1:{grpc_port}", dialect="1.0") as by_grpc:
                async for _ in echo.stream("my words"):
                    pass
                await by_grpc.send("my words")
                with pytest.raises(TaskNotFound):
                    await by_grpc.get("unknown")
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
            assert process.returncode == 0, errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await runner.cleanup()
    assert b"kaos.task.execute" in received["/v1/traces"]
    assert b"kaos.task.submit" in received["/v1/traces"]
    assert b"kaos.tasks" in received["/v1/metrics"]
    assert b"somebody" in received["/v1/traces"]
    assert b"my words" not in received["/v1/traces"] + received["/v1/metrics"]
    histograms = histograms_of(received["/v1/metrics"])
    assert {bounds for points in histograms.values() for bounds, _ in points} == {REQUEST_BOUNDS_S}
    (streamed,) = [each for _, each in histograms[HTTP_DURATION] if each["operation"] == "SendStreamingMessage"]
    assert streamed == {
        "operation": "SendStreamingMessage",
        "binding": "jsonrpc",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    begun = {"operation": "SendStreamingMessage", "binding": "jsonrpc"}
    assert [each for _, each in histograms["kaos.first_event"]] == [begun]
    called = {(each["rpc.method"], each["rpc.response.status_code"]): each for _, each in histograms[RPC_DURATION]}
    service = "lf.a2a.v1.A2AService"
    assert called.keys() == {(f"{service}/SendMessage", "OK"), (f"{service}/GetTask", "NOT_FOUND")}
    assert called[f"{service}/GetTask", "NOT_FOUND"]["error.type"] == "TaskNotFound"
