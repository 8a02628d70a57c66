"""The rows of the benchmark: what each does to a server, which figures come out, and what is promised of them.

`ROWS`, at the end, is the table of all rows and all promises: changing a bound there changes what Dragoman promises.
A row is a function of (generators, server kind, plan); it starts its own server and returns named figures. Those of
SendMessage are in sends.py, those of webhooks in webhooks.py, those of calling other agents in upstream.py, those of a
gateway for teams in gateway.py, that beside LiteLLM in litellm_gateway.py, those of whatever waits in idle.py, that of
programs in command.py, that of the console in consoles.py, that of models in tokens.py, that of gRPC in over_grpc.py,
those of workers in workers.py, and those of durable steps and sleeps in durable.py.
"""

from __future__ import annotations

import base64
import os
import statistics
import time
import uuid
from dataclasses import dataclass

from command import command
from consoles import consoles
from durable import asleep, step, workflows
from gateway import budget, failover, gateway
from generators import ID_SLOT, Generators, Measured, ids_of, message, rpc, stream_rpc
from idle import beside_parked, idle, waiting_readers
from install import packages
from litellm_gateway import beside_litellm
from over_grpc import over_grpc
from plan import ECHO, Figures, Plan, Promise, Row, answered, at_least, at_most, clocked
from replicas import spread, taken_over
from sends import auth, dialects, mounted, send, tool_calls
from servers import Broken, Kind, Server, running
from sweeping import sweep
from tokens import answers
from upstream import client, client_over_grpc, upstream
from webhooks import live, push
from workers import waiting, words, words_at_three

CHUNKS = "/agents/chunks"
JUDGE = "/agents/judge"
GATE = "/agents/gate"
WHOLE_MB = 10


def get(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """GetTask over 200 finished tasks, at 32 connections."""
    body, ids = rpc("GetTask", {"id": ID_SLOT}), load.directory / "ids"
    with running(kind) as server:
        ids.write_text("".join(f"{task_id}\n" for task_id in ids_of(server, ECHO, 200)))

        def measure() -> tuple[Measured, float]:
            return answered(load.unary(server.port, ECHO, body, "get.lua", str(ids), plan.seconds))

        return clocked(server, "rate", measure)


def page(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """A page of 50 finished tasks in ListTasks, to one GetTask of them: the server's processor time, in pairs."""
    get_one, get_page = rpc("GetTask", {"id": ID_SLOT}), rpc("ListTasks", {"pageSize": 50})
    ids, ratios, page_us = load.directory / "ids", [], []
    with running(kind) as server:
        ids.write_text("".join(f"{task_id}\n" for task_id in ids_of(server, ECHO, 200)))

        def one() -> float:
            return (
                1e6
                / clocked(
                    server,
                    "rate",
                    lambda: answered(load.unary(server.port, ECHO, get_one, "get.lua", str(ids), plan.seconds / 2)),
                )["per_cpu_s"]
            )

        def fifty() -> float:
            options = ("--conns", "4", "--seconds", str(plan.seconds / 2), "--warmup", "0")
            return (
                1e6
                / clocked(server, "rate", lambda: answered(load.loop(server.port, ECHO, get_page, *options)))[
                    "per_cpu_s"
                ]
            )

        for _ in range(5):
            before, listed, after = one(), fifty(), one()
            ratios.append(2 * listed / (before + after))
            page_us.append(listed)
    return {"gets": statistics.median(ratios), "page_us": statistics.median(page_us)}


def streamed(
    load: Generators, server: Server, chunks: int, connections: int, seconds: float, pace: str = "burst"
) -> Measured:
    body = stream_rpc("SendStreamingMessage", message({"text": f"{chunks} {pace}"}))
    options = ("--chunks", str(chunks), "--conns", str(connections), "--seconds", str(seconds))
    return load.loop(server.port, CHUNKS, body, *options)


def stream(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Streams of 100 chunks at 32 connections: the agent never waits, or pauses for a turn of the loop (`in_turns`)."""
    with running(kind) as server:

        def measure() -> tuple[Measured, float]:
            measured = streamed(load, server, 100, 32, plan.seconds)
            return measured, measured.events_per_s

        figures = clocked(server, "events", measure)
    with running(kind) as server:
        turns = streamed(load, server, 100, 32, plan.seconds / 2, "turns")
        return figures | {"events_in_turns": turns.events_per_s}


def long(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """One connection, streams of 100 and then of 2,000 chunks: what an event costs in each."""
    cost = {}
    for chunks in (100, 2_000):
        with running(kind) as server:
            measured = streamed(load, server, chunks, 1, plan.seconds)
            if not measured.requests:
                raise Broken(f"no stream of {chunks} chunks ended in {plan.seconds:g} s")
            cost[chunks] = 1e6 / measured.events_per_s
    return {"short_us": cost[100], "long_us": cost[2_000], "growth": cost[2_000] / cost[100]}


@dataclass(frozen=True)
class Gated:
    """One gated task: the time from its release to the last chunk at the last reader, and the growth of memory."""

    seconds: float
    growth_mb: float
    busy: float


def gated(
    load: Generators, server: Server, chunks: int, size: int, readers: int, stalled: int = 0, pace: str = "burst"
) -> Gated:
    """One task that waits until all its subscribers are there, and then yields at once."""
    name = uuid.uuid4().hex[:8]
    params = message({"text": f"{name} {chunks} {size} {pace}"}, returnImmediately=True)
    params["message"]["messageId"] = str(uuid.uuid4())
    task_id = server.call(GATE, "SendMessage", params)["task"]["id"]
    server.forget_peak()
    before = server.rss_kb()
    body = stream_rpc("SubscribeToTask", {"id": task_id})
    options = ("--chunks", str(chunks), "--conns", str(readers + stalled), "--stall", str(stalled))
    with load.held("once", server.port, GATE, body, *options) as finish:
        release = message({"text": name})
        release["message"]["messageId"] = str(uuid.uuid4())
        began = time.monotonic()
        server.call("/agents/release", "SendMessage", release)
        measured = finish(False)
        if measured.finished != readers:
            raise Broken(f"{measured.finished} of {readers} readers came to the end of their stream")
        return Gated(measured.last_chunk_at - began, (server.rss_kb("VmHWM") - before) / 1000, measured.busy)


def fanout(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Subscribers of one task, from its release to the last event at the last of them; `in_turns` as in `stream`."""
    with running(kind) as server:
        gated(load, server, 20, 20, 10)
        found = gated(load, server, 200, 20, 100)
        turns = gated(load, server, 200, 20, 100, pace="turns")
        return {"events": 20_000 / found.seconds, "busy": found.busy, "events_in_turns": 20_000 / turns.seconds}


def readers(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Ten readers of a 10 MB artifact in chunks of 16 KB, first alone, then beside one that never reads."""
    size = 16_384
    found = {}
    for stalled in (0, 1):
        with running(kind) as server:
            gated(load, server, 20, 20, 10)
            found[stalled] = gated(load, server, WHOLE_MB * 1_000_000 // size, size, 10, stalled)
    alone, beside = found[0], found[1]
    return {
        "growth_mb": beside.growth_mb,
        "growth_alone_mb": alone.growth_mb,
        "alone_s": alone.seconds,
        "beside_s": beside.seconds,
        "slower": beside.seconds / alone.seconds,
    }


def fill(load: Generators, server: Server, count: int, contexts: list[str]) -> None:
    """Makes finished tasks through the front door: nine in ten completed, one rejected, spread over the contexts."""
    each = count // len(contexts)
    for context_id in contexts:
        for text, share in (("42", each - each // 10), ("reject", each // 10)):
            body = rpc("SendMessage", message({"text": text}, context_id=context_id))
            options = ("--requests", str(share), "--conns", str(min(32, share)), "--seconds", "300", "--warmup", "0")
            load.loop(server.port, JUDGE, body, *options)


def tokens(server: Server, pages_max: int) -> list[str]:
    """Page tokens from the first page on; a full walk also checks that every task comes once."""
    found: list[str] = []
    seen: set[str] = set()
    while True:
        params = {"pageSize": 100} | ({"pageToken": found[-1]} if found else {})
        page = server.call(JUDGE, "ListTasks", params)
        ids = {task["id"] for task in page.get("tasks", [])}
        if ids & seen:
            raise Broken("ListTasks gave a task twice")
        seen |= ids
        if not page.get("nextPageToken"):
            if len(seen) != page["totalSize"]:
                raise Broken(f"ListTasks gave {len(seen)} tasks of {page['totalSize']}")
            return found
        found.append(page["nextPageToken"])
        if len(found) >= pages_max:
            return found


def listing(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Median times of five listings over 1,000 tasks and over many, all with totals; the worst ratio counts.

    A walk over all pages first checks that every task comes once. A tenth of the tasks is rejected.
    """
    times: dict[str, list[float]] = {}
    for count in (1_000, plan.listed_tasks):
        contexts = [str(uuid.uuid4()) for _ in range(10)]
        in_process = kind.name.startswith("sdk")
        more = ("--fill", str(count), "--contexts", ",".join(contexts)) if in_process else ()
        with running(kind, more, timeout_s=120) as server:
            if not in_process:
                fill(load, server, count, contexts)
            cursors = tokens(server, 9 if in_process else 100_000)
            queries = {
                "all": {},
                "context": {"contextId": contexts[3]},
                "state": {"status": "TASK_STATE_REJECTED"},
                "middle page": {"pageToken": cursors[len(cursors) // 2]},
                "last page": {"pageToken": cursors[-2]},
            }
            for name, query in queries.items():
                page = server.call(JUDGE, "ListTasks", {"pageSize": 50} | query)
                expected = count // 10 if name in ("context", "state") else count
                if page["totalSize"] != expected or len(page["tasks"]) != 50:
                    raise Broken(f"{name}: {len(page['tasks'])} tasks of {page['totalSize']}, expected {expected}")
                body = rpc("ListTasks", {"pageSize": 50} | query)
                options = ("--conns", "1", "--requests", "200", "--seconds", "2", "--warmup", "0")
                times.setdefault(name, []).append(load.loop(server.port, JUDGE, body, *options).p50_s * 1000)
    figures = {
        f"{name} ms at {size}": t for name, (few, many) in times.items() for size, t in (("1k", few), ("full", many))
    }
    return figures | {"worst": max(many / few for few, many in times.values())}


def file(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """A 10 MB file part to the echo and back (without history) on four connections: megabytes of file in a second."""
    raw = os.urandom(WHOLE_MB * 1_000_000)
    part = {"raw": base64.b64encode(raw).decode(), "filename": "random.bin", "mediaType": "application/octet-stream"}
    with running(kind) as server:
        params = message(part, historyLength=0)
        params["message"]["messageId"] = str(uuid.uuid4())
        back = server.call(ECHO, "SendMessage", params)["task"]["artifacts"][0]["parts"][0]["raw"]
        if base64.b64decode(back) != raw:
            raise Broken("the echo gave back other bytes")
        options = ("--conns", "4", "--seconds", str(plan.seconds * 2), "--warmup", "1")
        body = rpc("SendMessage", message(part, historyLength=0))

        def measure() -> tuple[Measured, float]:
            measured = load.loop(server.port, ECHO, body, *options)
            return measured, measured.requests_per_s * WHOLE_MB

        return clocked(server, "mb_s", measure)


def start(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """From the start of the process to the first card; how many packages are installed."""
    with running(kind) as server:
        return {"seconds": server.started_s, "packages": float(packages(kind))}


MEMORY_STORE = "dragoman-memory"
POSTGRES = "dragoman-postgres"

# One entry is one row of the table, of the page of promises, and of `--only`.
ROWS = (
    Row(
        "send",
        "SendMessage, durable, 32 callers: to the SDK in memory; to the SDK on SQLite",
        ("dragoman", "sdk", "sdk-sqlite", "floor"),
        send,
        promises=(at_least("rate", 8, unit="/s", to="sdk"), at_least("rate", 35, unit="/s", to="sdk-sqlite")),
    ),
    Row(
        "dialects",
        "the same in the dialect of BeeOS; KAOS; Evo AI; protoAgent, to 1.0",
        ("dragoman",),
        dialects,
        1,
        tuple(at_most(name, 1.1) for name in ("beeos", "kaos", "evoai", "protoagent")),
    ),
    Row(
        "auth",
        "the same with an API key; with a JWT, audit included, to neither",
        ("dragoman",),
        auth,
        promises=(at_most("key", 1.1), at_most("jwt", 1.1)),
    ),
    Row(
        "mounted",
        "the same to an application under uvicorn; below FastAPI, to our own server",
        ("dragoman",),
        mounted,
        promises=(at_most("alone", 1.3), at_most("below", 1.3)),
    ),
    Row(
        "mcp",
        "a tool call of MCP without a session, to one with",
        ("dragoman",),
        tool_calls,
        promises=(at_most("stateless", 1.0),),
    ),
    Row(
        "get",
        "GetTask, 32 callers, to the SDK",
        ("dragoman", "sdk", "floor"),
        get,
        promises=(at_least("rate", 3, unit="/s", to="sdk"),),
    ),
    Row(
        "page",
        "a page of 50 in ListTasks, to a GetTask",
        ("dragoman",),
        page,
        1,
        (at_most("gets", 25),),
    ),
    Row(
        "stream",
        "streamed events, 100 a task, durable, to the SDK: in bursts; in turns",
        ("dragoman", "sdk", "floor"),
        stream,
        promises=(at_least("events", 6, unit="/s", to="sdk"), Promise("events_in_turns", unit="/s", to="sdk")),
    ),
    Row(
        "long",
        "an event in a stream of 2,000, to one of 100",
        ("dragoman", "sdk"),
        long,
        promises=(at_most("growth", 1.2, beside="sdk"),),
    ),
    Row(
        "fanout",
        "100 subscribers × 200 events, to the SDK",
        ("dragoman", "sdk"),
        fanout,
        promises=(at_least("events", 4, unit="/s", to="sdk"),),
    ),
    Row(
        "readers",
        "ten readers of 10 MB and one that never reads: memory; time of the ten, to without that one",
        ("dragoman", "sdk"),
        readers,
        2,
        (at_most("growth_mb", 50, unit="MB", beside="sdk"), at_most("slower", 1.2, beside="sdk")),
    ),
    Row(
        "idle",
        "5,000 idle streams: memory of each; longest SendMessage",
        ("dragoman", "sdk", "floor"),
        idle,
        2,
        (
            at_most("each_kb", 12, unit="KB", beside="sdk"),
            at_most("worst_ms", 100, unit="ms", beside="sdk"),
        ),
    ),
    Row(
        "subscribers",
        "memory of one more subscriber; of an idle connection",
        ("dragoman",),
        waiting_readers,
        2,
        (at_most("subscriber_kb", 4, unit="KB"), at_most("connection_kb", 2.5, unit="KB")),
    ),
    Row(
        "parked",
        "SendMessage beside 20,000 silent streams, to none: p99; processor time",
        ("dragoman",),
        beside_parked,
        2,
        (at_most("p99", 1.1), at_most("cpu", 1.1)),
    ),
    Row(
        "list",
        "ListTasks, 100,000 tasks to 1,000, slowest query",
        ("dragoman", "sdk"),
        listing,
        1,
        (at_most("worst", 2, beside="sdk"),),
    ),
    Row(
        "file",
        "a 10 MB file part, to the SDK: durable; in memory",
        ("dragoman", MEMORY_STORE, "sdk"),
        file,
        promises=(
            at_least("mb_s", 0.5, unit="MB/s", to="sdk"),
            at_least("mb_s", 1, unit="MB/s", to="sdk", kind=MEMORY_STORE),
        ),
    ),
    Row(
        "console",
        "SendMessage beside ten consoles, to none",
        ("dragoman",),
        consoles,
        2,
        (at_least("kept", 0.9),),
    ),
    Row(
        "push",
        "webhook calls; messages beside them, to messages alone",
        ("dragoman",),
        push,
        2,
        (at_least("deliveries_per_s", 1_000, unit="/s"), at_least("kept", 0.8)),
    ),
    Row(
        "live",
        "a webhook; messages beside 100,000 calls to dead hosts, to none",
        ("dragoman",),
        live,
        2,
        (at_most("slower", 1.5), at_least("kept", 0.8)),
    ),
    Row(
        "client",
        "our client, processor time: a send; a streamed event",
        ("dragoman", "sdk"),
        client,
        promises=(
            at_most("send_us", 150, unit="µs", beside="sdk"),
            at_most("event_us", 10, unit="µs", beside="sdk"),
        ),
    ),
    Row(
        "client_grpc",
        "the same over gRPC",
        ("dragoman", "sdk", "floor"),
        client_over_grpc,
        promises=(Promise("send_us", unit="µs", beside="sdk"), Promise("event_us", unit="µs", beside="sdk")),
    ),
    Row(
        "upstream",
        "through a remote agent: SendMessage; a streamed event, to a local agent's",
        ("dragoman",),
        upstream,
        2,
        (at_most("send", 1.5), at_most("event", 1.3)),
    ),
    Row(
        "gateway",
        "a pool, team and budget: a send, to one without",
        ("dragoman",),
        gateway,
        2,
        (at_most("dearer", 1.1),),
    ),
    Row(
        "litellm",
        "through a remote agent: SendMessage, durable; with a pool, team and budget, to LiteLLM",
        ("dragoman",),
        beside_litellm,
        2,
        (at_least("hop", 27), at_least("teams", 18)),
    ),
    Row(
        "failover",
        "answer from the pool if the first member refuses; if it is silent, beyond connect_timeout_s",
        ("dragoman",),
        failover,
        1,
        (at_most("refused_ms", 50, unit="ms"), at_most("silent_more_ms", 50, unit="ms")),
    ),
    Row(
        "budget_pg",
        "SendMessage with a team's budget on PostgreSQL, to without",
        (POSTGRES,),
        budget,
        2,
        (at_least("kept", 0.9),),
    ),
    Row(
        "tokens",
        "1,000 answers of a model, 50 tokens a second each: tokens that came; p99 of a token; memory of each",
        ("dragoman",),
        answers,
        2,
        (at_least("kept", 1.0), at_most("p99_ms", 150, unit="ms"), at_most("each_kb", 200, unit="KB")),
    ),
    Row(
        "command",
        "a program for each task, beyond its own start",
        ("dragoman",),
        command,
        promises=(at_most("adds_ms", 15, unit="ms"),),
    ),
    Row(
        "send_pg",
        "SendMessage on PostgreSQL, to the SDK there",
        (POSTGRES, "sdk-postgres"),
        send,
        promises=(at_least("rate", 25, unit="/s", to="sdk-postgres"),),
    ),
    Row(
        "get_pg",
        "GetTask on PostgreSQL, to the SDK in memory",
        (POSTGRES, "sdk"),
        get,
        promises=(at_least("rate", 0.5, unit="/s", to="sdk"),),
    ),
    Row(
        "stream_pg",
        "streamed events on PostgreSQL, to the SDK in memory",
        (POSTGRES, "sdk"),
        stream,
        promises=(at_least("events", 6, unit="/s", to="sdk"),),
    ),
    Row(
        "list_pg",
        "ListTasks on PostgreSQL, 100,000 tasks to 1,000, slowest query",
        (POSTGRES,),
        listing,
        1,
        (at_most("worst", 2),),
    ),
    Row(
        "replicas",
        "SendMessage at three replicas, to one: 32 callers in all; 32 each; the first in PostgreSQL",
        (POSTGRES,),
        spread,
        1,
        (at_most("dearer", 1.25), at_most("dearer_busy", 1.25), at_most("pg_dearer", 1.5)),
    ),
    Row(
        "sweep",
        "expired tasks deleted to messages beside them; these to messages alone: SQLite; PostgreSQL",
        ("dragoman", POSTGRES),
        sweep,
        2,
        (
            Promise("times"),
            Promise("kept"),
            at_least("times", 3, kind=POSTGRES),
            at_least("kept", 0.9, kind=POSTGRES),
        ),
    ),
    Row(
        "takeover",
        "a task of a killed replica runs again, lease 3 s",
        (POSTGRES,),
        taken_over,
        1,
        (at_most("seconds", 5, unit="s"),),
    ),
    Row(
        "words",
        "a worker's word, eight workers, processor time: SQLite; PostgreSQL",
        ("dragoman", POSTGRES),
        words,
        promises=(Promise("word_us", unit="µs"), Promise("word_us", unit="µs", kind=POSTGRES)),
    ),
    Row(
        "words_three",
        "a worker's word at three replicas, to one; in a task of 10,000 words, to 100",
        (POSTGRES,),
        words_at_three,
        1,
        (at_most("dearer", 1.6), at_most("longer", 1.2)),
    ),
    Row(
        "waiting",
        "memory of a task that waits for a worker; that one holds",
        ("dragoman",),
        waiting,
        1,
        (at_most("queued_kb", 1, unit="KB"), at_most("held_kb", 1, unit="KB")),
    ),
    Row(
        "workflows",
        "workflows of ten steps, to DBOS: 32 at once; one after the other",
        ("dragoman", "dbos"),
        workflows,
        promises=(at_least("rate", 2, unit="/s", to="dbos"), at_least("alone", 2, unit="/s", to="dbos")),
    ),
    Row(
        "workflows_pg",
        "the same on PostgreSQL",
        (POSTGRES, "dbos-postgres"),
        workflows,
        promises=(
            at_least("rate", 2, unit="/s", to="dbos-postgres"),
            at_least("alone", 2, unit="/s", to="dbos-postgres"),
        ),
    ),
    Row(
        "step",
        "a step, to a SendMessage: SQLite; PostgreSQL",
        ("dragoman", POSTGRES),
        step,
        promises=(at_most("sends", 0.3), at_most("sends", 0.3, kind=POSTGRES)),
    ),
    Row(
        "asleep",
        "100,000 tasks that sleep: memory of each; start, later than without",
        ("dragoman", POSTGRES),
        asleep,
        1,
        (at_most("each_kb", 1, unit="KB"), at_most("later_s", 1, unit="s")),
    ),
    Row(
        "grpc",
        "over gRPC, to the SDK's, durable: SendMessage; streamed events; GetTask",
        ("dragoman", "sdk"),
        over_grpc,
        promises=(
            at_least("send", 3, unit="/s", to="sdk"),
            at_least("events", 3, unit="/s", to="sdk"),
            at_least("get", 1, unit="/s", to="sdk"),
        ),
    ),
    Row(
        "start",
        "start to first card; packages",
        ("dragoman", "sdk"),
        start,
        promises=(
            at_most("seconds", 0.5, unit="s", beside="sdk"),
            at_most("packages", 40, unit="", beside="sdk"),
        ),
    ),
)
