"""The rows of the benchmark: what each does to a server, and which figures come out.

A row is a function of (generators, server kind, plan); it starts its own server and returns named figures. Those of
SendMessage are in sends.py, those of webhooks in webhooks.py, those of calling other agents in upstream.py, those of a
gateway for teams in gateway.py,
that of programs in command.py, that of the console in consoles.py, that of models in tokens.py, that of gRPC in
over_grpc.py, those of workers in workers.py, and those of durable steps and sleeps in durable.py.
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
from install import packages
from over_grpc import over_grpc
from plan import ECHO, QUESTION, Figures, Plan, Row, answered, clocked
from replicas import spread, taken_over
from sends import auth, dialects, mounted, send, tool_calls
from servers import Broken, Kind, Server, running
from tokens import answers
from upstream import client, client_over_grpc, upstream
from webhooks import live, push
from workers import waiting, words, words_at_three

CHUNKS = "/agents/chunks"
JUDGE = "/agents/judge"
GATE = "/agents/gate"
WHOLE_MB = 10


def get(load: Generators, kind: Kind, plan: Plan) -> Figures:
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


def idle(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Streams of as many tasks that say nothing: their memory, and how long a SendMessage waits beside them."""
    question = rpc("SendMessage", message(QUESTION))
    streams = stream_rpc("SendStreamingMessage", message({"text": "wait"}))
    options = ("--conns", str(plan.idle_streams), "--ready-events", "2", "--opening", "8")
    with running(kind) as server:
        load.loop(server.port, ECHO, question, "--requests", "500", "--seconds", "5", "--warmup", "0")
        before = server.rss_kb()
        with load.held("once", server.port, "/agents/idle", streams, *options):
            each_kb = (server.rss_kb() - before) / plan.idle_streams
            seconds = str(plan.seconds * 2)
            waits = load.loop(server.port, ECHO, question, "--conns", "4", "--seconds", seconds, "--warmup", "0")
    with (
        running(kind) as server,
        load.held("loop", server.port, ECHO, question, "--conns", "4") as stop,
        load.held("once", server.port, "/agents/idle", streams, *options),
    ):
        opening = stop(True)
    return {
        "each_kb": each_kb,
        "worst_ms": max(waits.max_s, opening.max_s) * 1000,
        "worst_held_ms": waits.max_s * 1000,
        "rate": waits.requests_per_s,
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
    """Median times of five listings over 1,000 tasks and over many, all with totals; the worst ratio counts."""
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
    with running(kind) as server:
        return {"seconds": server.started_s, "packages": float(packages(kind))}


ROWS = (
    Row("send", "SendMessage, blocking, at 32 connections", ("dragoman", "sdk", "sdk-sqlite", "floor"), send),
    Row("dialects", "SendMessage in each dialect, to the same in 1.0", ("dragoman",), dialects, 1),
    Row("auth", "SendMessage with a key or a token, to one that asks nobody", ("dragoman",), auth),
    Row("mounted", "SendMessage to a mounted application, to our own server", ("dragoman",), mounted),
    Row("mcp", "a tool call of MCP without a session, to one with", ("dragoman",), tool_calls),
    Row("get", "GetTask at 32 connections", ("dragoman", "sdk", "floor"), get),
    Row("page", "a page of 50 in ListTasks, to GetTasks", ("dragoman",), page, 1),
    Row("stream", "streamed events, 100 chunks a task, 32 connections", ("dragoman", "sdk", "floor"), stream),
    Row("long", "one stream of 2,000 chunks", ("dragoman", "sdk"), long),
    Row("fanout", "100 subscribers × 200 events", ("dragoman", "sdk"), fanout),
    Row("readers", "10 readers of 10 MB and one that never reads", ("dragoman", "sdk"), readers, 2),
    Row("idle", "5,000 idle streams", ("dragoman", "sdk", "floor"), idle, 2),
    Row("list", "ListTasks over 100,000 tasks against 1,000", ("dragoman", "sdk"), listing, 1),
    Row("file", "a 10 MB file part", ("dragoman", "dragoman-memory", "sdk"), file),
    Row("console", "SendMessage while ten consoles are open, to none", ("dragoman",), consoles, 2),
    Row("push", "SendMessage while webhooks are told", ("dragoman",), push, 2),
    Row("live", "a webhook beside others at dead hosts", ("dragoman",), live, 2),
    Row("client", "a client that calls a fast agent", ("dragoman", "sdk"), client),
    Row("client_grpc", "a client that calls an agent over gRPC", ("dragoman", "sdk", "floor"), client_over_grpc),
    Row("upstream", "a remote agent behind Dragoman's card, to a local one", ("dragoman",), upstream, 2),
    Row("gateway", "a pool of two, for a team with a budget, to a single upstream", ("dragoman",), gateway, 2),
    Row("failover", "a send whose first upstream is gone", ("dragoman",), failover, 1),
    Row("budget_pg", "SendMessage beside a team's budget on PostgreSQL", ("dragoman-postgres",), budget, 2),
    Row("tokens", "1,000 answers of a model at once, 50 tokens a second each", ("dragoman",), answers, 2),
    Row("command", "a program that is started for a task, to its own start", ("dragoman",), command),
    Row("send_pg", "SendMessage on PostgreSQL", ("dragoman-postgres", "sdk-postgres"), send),
    Row("get_pg", "GetTask on PostgreSQL", ("dragoman-postgres", "sdk"), get),
    Row("stream_pg", "streamed events on PostgreSQL", ("dragoman-postgres", "sdk"), stream),
    Row("list_pg", "ListTasks on PostgreSQL, 100,000 tasks against 1,000", ("dragoman-postgres",), listing, 1),
    Row("replicas", "SendMessage at three replicas, to one", ("dragoman-postgres",), spread, 1),
    Row("takeover", "kill -9 of a replica with a lease of 3 s", ("dragoman-postgres",), taken_over, 1),
    Row("words", "a worker's word, eight workers", ("dragoman", "dragoman-postgres"), words),
    Row("words_three", "a worker's word at three replicas, to one", ("dragoman-postgres",), words_at_three, 1),
    Row("waiting", "20,000 tasks that wait for workers, or that they hold", ("dragoman",), waiting, 1),
    Row("workflows", "workflows of ten steps that return at once", ("dragoman", "dbos"), workflows),
    Row("workflows_pg", "the same on PostgreSQL", ("dragoman-postgres", "dbos-postgres"), workflows),
    Row("step", "a step that returns at once, to a SendMessage", ("dragoman", "dragoman-postgres"), step),
    Row("asleep", "100,000 tasks that sleep", ("dragoman", "dragoman-postgres"), asleep, 1),
    Row("grpc", "over gRPC: SendMessage, GetTask, streamed events", ("dragoman", "sdk"), over_grpc),
    Row("start", "start to first card, packages", ("dragoman", "sdk"), start),
)
