"""LocalTaskManager with OpenTelemetry: KAOS's spans and metrics if this process has set it up, and nothing if not."""

import subprocess
import sys
from typing import Any

import msgspec

OBSERVED = """
import asyncio, json

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman.kaos import LocalTaskManager

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracers)
metrics.set_meter_provider(MeterProvider([reader]))


async def main():
    hanging = asyncio.get_running_loop().create_future()

    async def answer(text):
        if text == "fail":
            raise ValueError("broken")
        if text == "hang":
            hanging.set_result(trace.get_current_span().attributes["task.id"])
            await asyncio.Event().wait()
        return text

    async with asyncio.timeout(60), LocalTaskManager(answer) as manager:
        await manager.send_message("hi", session_id="s1")
        await manager.send_message("fail")
        sending = asyncio.create_task(manager.send_message("hang", session_id="s2"))
        await manager.cancel_task(await hanging)
        await sending


with tracers.get_tracer("caller").start_as_current_span("caller") as caller:
    asyncio.run(main())
trace_id = caller.get_span_context().trace_id
told = [
    {"name": span.name, "traced": span.context.trace_id == trace_id, "attributes": dict(span.attributes)}
    for span in spans.get_finished_spans()
    if span is not caller
]
counts = {}
for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
    for metric in scope.metrics:
        for point in metric.data.data_points:
            name = f"{metric.name} {metric.unit} {point.attributes.get('state', '')}".strip()
            counts[name] = getattr(point, "count", None) or point.value
print(json.dumps({"spans": told[:-1], "counts": counts}))
"""

UNOBSERVED = """
import asyncio, sys

from dragoman.kaos import LocalTaskManager


async def main():
    async with LocalTaskManager(lambda text: text) as manager:
        assert (await manager.send_message("hi")).output == "hi"


asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def run(program: str) -> bytes:
    """In a process of its own: providers are set once for a whole process."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_spans_and_metrics_have_kaos_names_and_the_callers_trace() -> None:
    told: dict[str, Any] = msgspec.json.decode(run(OBSERVED))
    spans = told["spans"]
    assert sorted(span["name"] for span in spans) == [
        "kaos.task.cancel",
        *["kaos.task.execute"] * 3,
        *["kaos.task.submit"] * 3,
    ]
    assert all(span["traced"] for span in spans)
    states = {span["attributes"]["task.state"] for span in spans if span["name"] == "kaos.task.execute"}
    assert states == {"completed", "failed", "canceled"}
    sessions = {span["attributes"]["task.session_id"] for span in spans if span["name"] == "kaos.task.submit"}
    assert {"s1", "s2"} < sessions
    (cancel,) = (span["attributes"] for span in spans if span["name"] == "kaos.task.cancel")
    assert cancel["task.session_id"] == "s2"
    assert told["counts"] == {
        "kaos.tasks 1 submitted": 3,
        "kaos.tasks 1 completed": 1,
        "kaos.tasks 1 failed": 1,
        "kaos.tasks 1 cancel_requested": 1,
        "kaos.tasks 1 canceled": 1,
        "kaos.task.duration ms": 3,
    }


def test_nothing_of_opentelemetry_is_loaded_where_nobody_has_set_it_up() -> None:
    assert run(UNOBSERVED) == b"[]\n"
