"""The rows of webhooks: what deliveries cost those who send messages, and what dead hosts cost a live one."""

from __future__ import annotations

import errno
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import servers
from generators import ID_SLOT, Generators, message, rpc
from hooks import Hooks, receiving, to_server
from plan import ECHO, QUESTION, Figures, Plan
from servers import HERE, Broken, Kind, Server, running

ALLOWED = ("PUSH_NOTIFICATION_ALLOWED_CIDRS", "127.0.0.0/8")
"""Webhooks may be on this machine."""

TELLING = {"all": 250, "ends": 1_020}
"""Messages a second with a webhook: one that is told of every change, up to four, or of the end alone."""

SETTLING_S = 0.7
"""For so long webhooks are told before anything is measured with them, and none came before anything without."""

LIVE_PER_S = 100
DEAD_HOSTS = 1_000
CLOSED_PORT = 9
ENDED = "TASK_STATE_COMPLETED"
FIRST_WITHIN_S = 120.0


def body_of(url: str, *events: str) -> str:
    config: dict[str, Any] = {"url": url} | ({"events": list(events)} if events else {})
    return rpc("SendMessage", message(QUESTION, taskPushNotificationConfig=config))


def push(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """All messages a second, those with webhooks included, while webhooks are told, to messages without any webhook.

    As many connections as `send` has never wait; beside them messages with a webhook are sent at a fixed rate. Measured
    between two measurements without, each in turn.
    """
    figures: Figures = {}
    for name, per_s in TELLING.items():
        with running(kind.asked(kind.name, ALLOWED)) as server:
            port = servers.free_port()
            events = ("completed",) if name == "ends" else ()
            options = to_server(load, server, ECHO, body_of(f"http://127.0.0.1:{port}/", *events))
            with receiving(load, port, *options) as hooks:
                found = beside(load, server, hooks, per_s, plan)
        figures |= found if name == "all" else {f"{figure}_{name}": value for figure, value in found.items()}
    return figures


@dataclass(frozen=True)
class Sent:
    """How many messages a second, and to a second of the server's own processor time."""

    per_s: float
    per_cpu_s: float

    def to(self, others: list[Sent]) -> Sent:
        """Its ratios to the means of others."""
        return Sent(
            self.per_s / statistics.mean(other.per_s for other in others),
            self.per_cpu_s / statistics.mean(other.per_cpu_s for other in others),
        )


def beside(load: Generators, server: Server, hooks: Hooks, per_s: int, plan: Plan) -> Figures:
    """A second without, a second with, and so on: what is kept is the median of each with to those around it."""
    load.loop(server.port, ECHO, rpc("SendMessage", message(QUESTION)), "--seconds", "1")
    rates, kept, arriving, unsent = [sent(load, server, hooks)], [], [], []
    for _ in range(max(2, round(plan.seconds))):
        hooks.pace(per_s)
        time.sleep(SETTLING_S)
        before = hooks.tell()
        found = sent(load, server, hooks)
        after = hooks.tell()
        arriving.append((after.arrived - before.arrived) / (after.at_s - before.at_s))
        unsent.append(float(after.behind))
        hooks.quiet(for_s=SETTLING_S)
        rates.append(sent(load, server, hooks))
        kept.append(found.to(rates[-2:]))
    return {
        "kept": statistics.median(each.per_s for each in kept),
        "kept_per_cpu": statistics.median(each.per_cpu_s for each in kept),
        "deliveries_per_s": statistics.median(arriving),
        "alone": statistics.median(each.per_s for each in rates),
        "unsent": max(unsent),
    }


def sent(load: Generators, server: Server, hooks: Hooks) -> Sent:
    """Messages of those who never wait and of those with webhooks together, for a second."""
    cpu_s, before = server.cpu_s(), hooks.tell()
    plain = load.loop(server.port, ECHO, rpc("SendMessage", message(QUESTION)), "--seconds", "1", "--warmup", "0")
    cpu_s, after = server.cpu_s() - cpu_s, hooks.tell()
    hooked = after.answered - before.answered
    return Sent(plain.requests_per_s + hooked / (after.at_s - before.at_s), (plain.finished + hooked) / cpu_s)


def live(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """From a message to the arrival of its webhook, while many are owed to dead hosts, to the same while none is.

    Half of the hosts refuse every connection, half let it hang. They are due when the server starts, and the server
    has never called one of them, nor the live one.
    """
    found: dict[str, Figures] = {}
    with black_hole() as hung_port:
        hosts = [f"http://127.{1 + (i & 1)}.{i >> 8}.{i & 255}" for i in range(2, DEAD_HOSTS + 2)]
        origins = [f"{host}:{hung_port if host.startswith('http://127.2.') else CLOSED_PORT}" for host in hosts]

        def owe(directory: Path) -> None:
            command = [kind.python, HERE / "owing.py", f"sqlite:///{directory}/bench.db"]
            done = subprocess.run(
                [*command, str(plan.dead_deliveries), *origins], capture_output=True, env=kind.environment()
            )
            if done.returncode or int(done.stdout or b"0") != plan.dead_deliveries:
                raise Broken(f"the store was not filled: {done.stderr[-300:].decode()}")

        for name in ("without", "with"):
            with running(kind.asked(kind.name, ALLOWED), prepare=owe if name == "with" else None) as server:
                found[name] = arrivals(load, server, plan)
    without, beside_dead = found["without"], found["with"]
    return {
        "slower": beside_dead["p50_ms"] / without["p50_ms"],
        "p99_slower": beside_dead["p99_ms"] / without["p99_ms"],
        "kept": beside_dead["rate"] / without["rate"],
        "kept_per_cpu": beside_dead["per_cpu_s"] / without["per_cpu_s"],
        **beside_dead,
        **{f"{figure}_without": value for figure, value in without.items()},
    }


def arrivals(load: Generators, server: Server, plan: Plan) -> Figures:
    """Latencies of webhooks at a live host, and the rate of messages without any."""
    port, began = servers.free_port(), time.monotonic()
    options = to_server(load, server, ECHO, body_of(f"http://127.0.0.1:{port}/{ID_SLOT}", "completed"))
    with receiving(load, port, *options, "--end", ENDED) as hooks:
        hooks.pace(LIVE_PER_S)
        while not hooks.tell().told:
            if time.monotonic() - began > FIRST_WITHIN_S:
                raise Broken(f"no webhook arrived within {FIRST_WITHIN_S:g} s")
            time.sleep(0.02)
        first_s = time.monotonic() - began
        while (now := hooks.tell()).told < now.answered - LIVE_PER_S // 10:
            if time.monotonic() - began > FIRST_WITHIN_S:
                raise Broken(f"{now.answered - now.told} webhooks wait {FIRST_WITHIN_S:g} s after the start")
            time.sleep(0.05)
        time.sleep(0.5)
        before = hooks.tell()
        time.sleep(max(2.0, plan.seconds))
        measured = hooks.tell()
        if measured.latencies < LIVE_PER_S * (measured.at_s - before.at_s) / 2:
            raise Broken(f"{measured.latencies} webhooks in {measured.at_s - before.at_s:.1f} s")
        end = hooks.quiet()
        if end.told != end.sent:
            raise Broken(f"{end.sent - end.told} webhooks of {end.sent} did not come")
    cpu_s = server.cpu_s()
    plain = load.loop(server.port, ECHO, rpc("SendMessage", message(QUESTION)), "--seconds", str(plan.seconds))
    cpu_s = server.cpu_s() - cpu_s
    return {
        "p50_ms": measured.p50_s * 1000,
        "p99_ms": measured.p99_s * 1000,
        "max_ms": measured.max_s * 1000,
        "first_s": first_s,
        "rate": plain.requests_per_s,
        "per_cpu_s": plain.finished / cpu_s,
    }


@contextmanager
def black_hole() -> Iterator[int]:
    """A port of every address of this machine at which a connection never comes about: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        queued = []
        try:
            for _ in range(3):
                one = socket.socket()
                queued.append(one)
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.settimeout(0.3)
                if probe.connect_ex(("127.2.0.1", port)) != errno.EAGAIN:
                    raise Broken("a listener whose queue is full takes connections nevertheless")
            yield port
        finally:
            for one in queued:
                one.close()
