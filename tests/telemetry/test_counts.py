"""The counters, and the page that Prometheus scrapes."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from dragoman import Agent, Context, Reject
from dragoman.config import Config
from dragoman.server import serving
from dragoman.telemetry.counts import BOUNDS_MS, Counts, RequestCounts
from dragoman.telemetry.figures import Gauges
from dragoman.telemetry.histogram import COMMIT_BOUNDS_S, REQUEST_BOUNDS_S, Histogram
from dragoman.telemetry.prometheus import MetricsPage

DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=0.1)

GAUGES = Gauges(streams=0, readers_cut=0, writes=(0, 0), commits=Histogram(COMMIT_BOUNDS_S))

worker = Agent("worker")


@worker.skill
async def work(ctx: Context) -> AsyncIterator[str]:
    """Ends as it is told."""
    match ctx.text:
        case "reject":
            raise Reject("no")
        case "fail":
            raise RuntimeError("secret")
        case "hang":
            yield "begun"
            await asyncio.Event().wait()
        case "ask":
            await ctx.ask("what?")
        case "think":
            ctx.usage(input=7, output=3)
            yield "thought"
        case _:
            yield "secret"


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, without those of the process."""
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in plain_text(text)
        for sample in family.samples
        if not sample.name.startswith(("process_", "python_")) and not sample.name.endswith("_created")
    }


class Site:
    """A server that is scraped."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url

    async def scrape(self) -> dict[str, float]:
        async with self.http.get(f"{self.url}/metrics") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            return values(await answer.text())

    async def until(self, name: str, value: float) -> dict[str, float]:
        """Scrape until it shows that."""
        async with asyncio.timeout(DEADLINE_S):
            while (shown := await self.scrape()).get(name) != value:
                pass
            return shown

    def post(self, verb: str, text: str, *, at_once: bool = False) -> "aiohttp.client._RequestContextManager":
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": message, "configuration": {"returnImmediately": at_once}}
        return self.http.post(f"{self.url}/message:{verb}", json=body, headers={"A2A-Version": "1.0"})

    async def send(self, text: str, *, at_once: bool = False) -> str:
        async with self.post("send", text, at_once=at_once) as answer:
            return str((await answer.json())["task"]["id"])


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(CONFIG, [worker]) as url, aiohttp.ClientSession() as http:
        yield Site(http, url)


async def test_tasks_are_counted_by_agent_and_state(site: Site) -> None:
    for text in ("work", "work", "fail", "reject"):
        await site.send(text)
    shown = await site.scrape()
    assert shown["dragoman_tasks_total worker submitted"] == 4
    assert shown["dragoman_tasks_total worker completed"] == 2
    assert shown["dragoman_tasks_total worker failed"] == 1
    assert shown["dragoman_tasks_total worker rejected"] == 1
    assert shown["dragoman_task_duration_milliseconds_count worker"] == 4
    assert shown["dragoman_store_writes_total"] >= 8


async def test_a_canceled_task_is_counted_as_asked_for_and_as_done(site: Site) -> None:
    task_id = await site.send("hang", at_once=True)
    await site.until("dragoman_runs_active", 1)
    async with site.http.post(f"{site.url}/tasks/{task_id}:cancel", headers={"A2A-Version": "1.0"}) as answer:
        assert answer.status == 200
    shown = await site.until("dragoman_runs_active", 0)
    assert shown["dragoman_tasks_total worker cancel_requested"] == 1
    assert shown["dragoman_tasks_total worker canceled"] == 1


async def test_a_task_that_waits_for_its_caller_has_not_ended(site: Site) -> None:
    await site.send("ask")
    shown = await site.scrape()
    assert shown["dragoman_runs_active"] == 1
    assert "dragoman_task_duration_milliseconds_count worker" not in shown


async def test_streams_are_counted_while_they_are_open(site: Site) -> None:
    assert (await site.scrape())["dragoman_streams_open"] == 0
    async with site.post("stream", "hang") as answer:
        await answer.content.readany()
        assert (await site.scrape())["dragoman_streams_open"] == 1
        answer.close()
    await site.until("dragoman_streams_open", 0)


async def test_nothing_that_callers_or_agents_say_is_on_the_page(site: Site) -> None:
    await site.send("work")
    await site.send("fail")
    async with site.http.get(f"{site.url}/metrics") as answer:
        page = await answer.text()
    assert "secret" not in page
    labels = set(re.findall(r"^dragoman_\w+\{(.*)\} ", page, re.MULTILINE))
    assert {name for label in labels for name in re.findall(r'(\w+)="', label)} <= {
        "agent",
        "state",
        "reason",
        "le",
        "version",
        "operation",
        "binding",
        "outcome",
        "kind",
        "holder",
        "job",
    }


async def test_a_scraper_that_asks_for_openmetrics_gets_it(site: Site) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with site.http.get(f"{site.url}/metrics", headers=accept) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        names = {family.name for family in openmetrics(await answer.text())}
    assert {"dragoman", "dragoman_tasks", "dragoman_task_duration_milliseconds", "process_cpu_seconds"} <= names


async def test_requests_are_counted_by_operation_binding_and_outcome(site: Site) -> None:
    await site.send("work")
    await site.send("work")
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nobody's"}}
    async with site.http.post(site.url, json=rpc, headers={"A2A-Version": "1.0"}) as answer:
        assert (await answer.json())["error"]["code"] == -32001
    for path in ("/no/such/path", "/agents/worker/.well-known/agent-card.json"):
        async with site.http.get(f"{site.url}{path}"):
            pass
    shown = await site.scrape()
    assert shown["dragoman_requests_total http SendMessage ok"] == 2
    assert shown["dragoman_requests_total jsonrpc GetTask refused"] == 1
    assert shown["dragoman_requests_total http other refused"] == 1
    assert shown["dragoman_requests_total http card ok"] == 1
    assert shown["dragoman_request_duration_seconds_count http SendMessage"] == 2
    assert shown["dragoman_request_duration_seconds_bucket http +Inf SendMessage"] == 2
    assert 0 < shown["dragoman_request_duration_seconds_sum http SendMessage"] < DEADLINE_S
    assert "dragoman_first_event_seconds_count http SendMessage" not in shown


async def test_a_stream_is_timed_to_its_first_event_and_counted_at_its_end(site: Site) -> None:
    async with site.post("stream", "work") as answer:
        await answer.read()
    shown = await site.until("dragoman_requests_total http SendStreamingMessage ok", 1)
    assert shown["dragoman_first_event_seconds_count http SendStreamingMessage"] == 1
    async with site.post("stream", "hang") as answer:
        await answer.content.readany()
        assert (await site.scrape())["dragoman_first_event_seconds_count http SendStreamingMessage"] == 2
        answer.close()
    shown = await site.until("dragoman_requests_total http SendStreamingMessage left", 1)
    assert shown["dragoman_request_duration_seconds_count http SendStreamingMessage"] == 2


async def test_open_tasks_and_their_age_are_shown_by_agent(site: Site) -> None:
    await site.send("ask")
    await site.send("hang", at_once=True)
    shown = await site.until("dragoman_agent_runs_active worker", 2)
    # The store is read at most every 5 s, so that scrapes cost it nothing: this was the first scrape of the server.
    assert shown["dragoman_open_tasks worker waiting"] == 1
    assert shown["dragoman_open_tasks worker queued"] + shown["dragoman_open_tasks worker running"] == 1
    assert shown["dragoman_oldest_open_task_seconds worker waiting"] >= 0
    assert shown["dragoman_store_size_bytes"] > 10_000
    assert shown["dragoman_store_commit_seconds_count"] >= 2


async def test_tokens_of_ended_tasks_are_counted_by_agent(site: Site) -> None:
    await site.send("think")
    await site.send("think")
    shown = await site.scrape()
    assert shown["dragoman_tokens_total worker input"] == 14
    assert shown["dragoman_tokens_total worker output"] == 6


async def test_every_family_has_a_help_text_and_a_name_of_prometheus(site: Site) -> None:
    await site.send("work")
    async with site.http.get(f"{site.url}/metrics") as answer:
        families = list(plain_text(await answer.text()))
    for family in families:
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        if family.type == "histogram" and not family.name.endswith("_milliseconds"):
            assert family.name.endswith("_seconds"), family.name


async def test_without_metrics_there_is_no_page() -> None:
    config = Config(port=0, store="memory:", metrics=False)
    async with serving(config, [worker]) as url, aiohttp.ClientSession() as http:
        assert await Site(http, url).send("work")
        async with http.get(f"{url}/metrics") as answer:
            assert answer.status == 404


def test_durations_fall_into_the_bucket_of_their_bound() -> None:
    counts = Counts()
    for duration_ms in (0, BOUNDS_MS[0], BOUNDS_MS[0] + 1, BOUNDS_MS[-1] + 1):
        counts.ended("a", "completed", duration_ms)
    shown = values(MetricsPage(counts, "kaos", "1").text("", GAUGES)[1].decode())
    bucket = "kaos_task_duration_milliseconds_bucket a"
    assert [shown[f"{bucket} {bound}"] for bound in ("5.0", "10.0", "1800000.0", "+Inf")] == [2, 3, 3, 4]
    assert shown["kaos_task_duration_milliseconds_sum a"] == 0 + 5 + 6 + 1_800_001


def test_requests_fall_into_the_bucket_of_their_bound() -> None:
    counts = Counts()
    requests = counts.requests["GetTask", "jsonrpc"] = RequestCounts()
    for took_s in (0.0, REQUEST_BOUNDS_S[0], REQUEST_BOUNDS_S[0] * 1.01, REQUEST_BOUNDS_S[-1] * 2):
        requests.answered(took_s, "ok")
    shown = values(MetricsPage(counts, "dragoman", "1").text("", GAUGES)[1].decode())
    bucket = "dragoman_request_duration_seconds_bucket jsonrpc"
    assert [shown[f"{bucket} {bound} GetTask"] for bound in ("0.001", "0.0025", "300.0", "+Inf")] == [2, 3, 3, 4]
    assert shown["dragoman_requests_total jsonrpc GetTask ok"] == 4


def test_refusals_are_counted_by_their_reason() -> None:
    counts = Counts()
    for reason in ("Forbidden", "TaskNotFound", "Forbidden"):
        counts.refused(reason)
    shown = values(MetricsPage(counts, "dragoman", "1").text("", GAUGES)[1].decode())
    assert shown["dragoman_refused_total Forbidden"] == 2
    assert shown["dragoman_refused_total TaskNotFound"] == 1


def test_webhook_calls_are_counted_by_what_became_of_them() -> None:
    counts = Counts()
    for outcome in ("delivered", "retry", "delivered", "dead", "gone"):
        counts.pushed(outcome)
    counts.pushes_waiting, counts.pushes_paused, counts.pushes_dead = 7, 3, 1
    shown = values(MetricsPage(counts, "dragoman", "1").text("", GAUGES)[1].decode())
    assert shown["dragoman_push_calls_total delivered"] == 2
    assert shown["dragoman_push_calls_total retry"] == 1
    pending = tuple(shown[f"dragoman_push_{name}"] for name in ("waiting", "paused", "dead"))
    assert pending == (7, 3, 1)


def test_neither_opentelemetry_nor_prometheus_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys, dragoman.server; "
        "print(*sorted({'opentelemetry', 'prometheus_client'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == []
