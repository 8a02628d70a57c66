"""The rows of a gateway for teams: what pool, team and budget add to a send, and how soon another upstream has it.

The upstreams are bench/peer.c on the load's core: what is measured is the gateway.
"""

from __future__ import annotations

import socket
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import postgres
from generators import Generators, message, rpc
from plan import ECHO, QUESTION, Figures, Plan
from sends import compared, cost_us, key_header, refused
from servers import Broken, Kind, Server, running
from upstream import CONFIG as SINGLE
from upstream import PEER, checked

TEAM = "team"
CONNECT_TIMEOUT_S = 0.3

POOL = """
[[agents]]
id = "peer"
run = ["a2a:http://127.0.0.1:{0}", "a2a:http://127.0.0.1:{1}"]
strategy = "{strategy}"
failures = 1000
connect_timeout_s = {timeout_s}
"""

BUDGET = """
[[teams]]
id = "{team}"

[prices]
currency = "EUR"

[prices.agents.{agent}]
per_task = "0.01"

[[budgets]]
id = "all"
team = "{team}"
money = "1000000"
"""


class Place:
    """The directory of a server: its configuration, and a key for its callers."""

    def __init__(self, kind: Kind, config: str, team: str = "", store: str = "") -> None:
        self.header = ""
        self._kind = kind
        self._config = config
        self._team = team
        self._store = store

    def prepare(self, directory: Path) -> None:
        """Write the configuration, and make a key in the store that the server will have."""
        (directory / "dragoman.toml").write_text(self._config)
        team = ("--team", self._team) if self._team else ()
        self.header = key_header(self._kind, directory, self._store, *team)


@contextmanager
def placed(kind: Kind, place: Place, database: str = "") -> Iterator[Server]:
    """A server at that place. It must ask who is calling, or the figure means nothing."""
    with running(kind, prepare=place.prepare, database=database) as server:
        refused(server)
        yield server


def gateway(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Compare the cost of a send through a pool of two, by a team with a budget, with that of one to a single upstream.

    Both servers ask for keys. They run at once, and are measured in turn. `rate` is that of the former alone.
    """
    body = rpc("SendMessage", message(QUESTION))
    with load.peering() as first, load.peering() as second, ExitStack() as stack:
        plain = Place(kind, SINGLE.format(port=first))
        pool = POOL.format(first, second, strategy="round_robin", timeout_s=5)
        whole = Place(kind, pool + BUDGET.format(team=TEAM, agent="peer"), TEAM)
        single = stack.enter_context(placed(kind, plain))
        teams = stack.enter_context(placed(replace(kind, name="dragoman-teams"), whole))
        costs = compared(
            plan,
            {
                "single": partial(cost_us, load, single, body, plain.header, PEER),
                "dearer": partial(cost_us, load, teams, body, whole.header, PEER),
            },
        )
        options = ("--seconds", str(plan.seconds), "--header", whole.header)
        return costs | {"rate": load.loop(teams.port, PEER, body, *options).requests_per_s}


def failover(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The time of the first send after its upstream has gone, until the answer of another is there: the median, and the
    longest (`_max`).

    Its port refuses connections, or leaves them waiting. Each send has a server of its own, which has called the
    upstream before.
    """
    figures: Figures = {}
    for name, gone in (("refused", refusing), ("silent", silent)):
        times_s: list[float] = []
        for _ in range(max(3, round(plan.seconds))):
            with ExitStack() as stack:
                second = stack.enter_context(load.peering())
                before = stack.enter_context(ExitStack())
                first = before.enter_context(load.peering())
                config = POOL.format(first, second, strategy="failover", timeout_s=CONNECT_TIMEOUT_S)
                server = stack.enter_context(running(kind, prepare=partial(_configure, config)))
                checked(server)
                before.close()
                stack.enter_context(gone(first))
                times_s.append(timed(server))
        figures |= {f"{name}_ms": statistics.median(times_s) * 1000, f"{name}_max_ms": max(times_s) * 1000}
    figures["silent_more_ms"] = figures["silent_ms"] - CONNECT_TIMEOUT_S * 1000
    return figures


def _configure(config: str, directory: Path) -> None:
    (directory / "dragoman.toml").write_text(config)


@contextmanager
def refusing(port: int) -> Iterator[None]:
    """Nobody listens at the port, and nobody else gets it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        yield


@contextmanager
def silent(port: int) -> Iterator[None]:
    """Connections to the port never come about: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(3):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(("127.0.0.1", port))
        yield


def timed(server: Server) -> float:
    """How long a send takes, from its first byte to its answer."""
    params = message(QUESTION)
    params["message"]["messageId"] = str(uuid.uuid4())
    began = time.monotonic()
    task = server.call(PEER, "SendMessage", params)["task"]
    if task["status"]["state"] != "TASK_STATE_COMPLETED":
        raise Broken(f"the send did not reach the second upstream: {str(task)[:300]}")
    return time.monotonic() - began


def budget(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The rate of sends to the echo by a key of a team with a budget, to that of a key without a team, in turn.

    Each of the two servers has a database of its own on one PostgreSQL.
    """
    body = rpc("SendMessage", message(QUESTION))
    with ExitStack() as stack:
        urls = [stack.enter_context(postgres.database()) for _ in range(2)]
        without = Place(kind, "", store=urls[0])
        beside = Place(kind, BUDGET.format(team=TEAM, agent="echo"), TEAM, urls[1])
        plain = stack.enter_context(placed(kind, without, urls[0]))
        limited = stack.enter_context(placed(kind, beside, urls[1]))
        options = ("--seconds", "1", "--warmup", "0.2", "--header")

        def rate(server: Server, place: Place) -> tuple[float, float]:
            """How many a second, and the server's processor time for each."""
            before = server.cpu_s()
            measured = load.loop(server.port, ECHO, body, *options, place.header)
            return measured.requests_per_s, (server.cpu_s() - before) / measured.finished

        first, kept, dearer, rates = rate(plain, without), [], [], []
        for _ in range(max(3, round(plan.seconds))):
            ours, then = rate(limited, beside), rate(plain, without)
            kept.append(2 * ours[0] / (first[0] + then[0]))
            dearer.append(2 * ours[1] / (first[1] + then[1]))
            rates.append(ours[0])
            first = then
    return {"kept": statistics.median(kept), "rate": statistics.median(rates), "dearer": statistics.median(dearer)}
