"""The rows of whatever waits: silent streams, more subscribers of a task, and connections between two requests."""

from __future__ import annotations

import resource
import statistics
import time
import uuid
from contextlib import ExitStack

from generators import Generators, message, rpc, stream_rpc
from limits import connected
from plan import ECHO, QUESTION, Figures, Plan
from servers import Kind, Server, running

SILENT_S = 2.0
"""After a silence of so long everything that waits has been parked."""

SPARE_FILES = 500
"""Descriptors for everything else: a process may have few."""

PARKED_MAX = 20_000
ROUNDS = 2
"""How often the callers beside the parked streams are measured with them and without, in turn."""


def idle(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Streams of as many tasks that say nothing: their memory, and how long a SendMessage waits beside them."""
    question = rpc("SendMessage", message(QUESTION))
    streams = stream_rpc("SendStreamingMessage", message({"text": "wait"}))
    options = ("--conns", str(plan.idle_streams), "--ready-events", "2", "--opening", "8")
    with running(kind) as server:
        load.loop(server.port, ECHO, question, "--requests", "500", "--seconds", "5", "--warmup", "0")
        before = server.rss_kb()
        with load.held("once", server.port, "/agents/idle", streams, *options):
            time.sleep(SILENT_S)
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


def quiet_task(server: Server) -> str:
    """The id of a task that says nothing."""
    params = message({"text": "wait"}, returnImmediately=True)
    params["message"]["messageId"] = str(uuid.uuid4())
    task_id: str = server.call("/agents/idle", "SendMessage", params)["task"]["id"]
    return task_id


def waiting_readers(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """As many subscribers of one silent task, and as many connections that have been answered: the memory of each."""
    many, question = plan.idle_streams, rpc("SendMessage", message(QUESTION))
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found: Figures = {}
    for figure in ("subscriber_kb", "connection_kb"):
        with running(kind) as server, ExitStack() as held:
            load.loop(server.port, ECHO, question, "--requests", "500", "--seconds", "5", "--warmup", "0")
            body = stream_rpc("SubscribeToTask", {"id": quiet_task(server)})
            before = server.rss_kb()
            if figure == "subscriber_kb":
                options = ("--conns", str(many), "--ready-events", "1", "--opening", "8")
                held.enter_context(load.held("once", server.port, "/agents/idle", body, *options))
            else:
                held.enter_context(connected(server, many, get, b"HTTP/1.1 200 "))
            time.sleep(SILENT_S)
            found[figure] = (server.rss_kb() - before) / many
    return found


def beside_parked(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Messages of 32 callers with and without so many silent subscribers, in turn: medians of the ratios."""
    many = min(PARKED_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE_FILES)
    open_wide = kind.asked(kind.name, ("DRAGOMAN_MAX_STREAMS", "0"), ("DRAGOMAN_MAX_CONNECTIONS", "0"))
    question = rpc("SendMessage", message(QUESTION))
    with running(open_wide) as server:
        body = stream_rpc("SubscribeToTask", {"id": quiet_task(server)})

        def measure() -> tuple[float, float]:
            began_s = server.cpu_s()
            options = ("--conns", "32", "--seconds", str(plan.seconds), "--warmup", "0.5")
            measured = load.loop(server.port, ECHO, question, *options)
            return measured.p99_s, (server.cpu_s() - began_s) / measured.requests

        p99s, cpus = [], []
        for _ in range(ROUNDS):
            alone = measure()
            options = ("--conns", str(many), "--ready-events", "1", "--opening", "32")
            with load.held("once", server.port, "/agents/idle", body, *options):
                time.sleep(SILENT_S)
                beside = measure()
            p99s.append(beside[0] / alone[0])
            cpus.append(beside[1] / alone[1])
    return {"p99": statistics.median(p99s), "cpu": statistics.median(cpus), "streams": float(many)}
