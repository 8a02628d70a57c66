"""The rows of calling other agents: what the client costs, and what a remote agent behind Dragoman's card does.

The other agent is bench/peer.c on the load's core, over gRPC bench/grpc_peer.py: what is measured is who calls it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from generators import Generators, Measured, message, rpc, stream_rpc
from plan import ECHO, QUESTION, Figures, Plan, answered, clocked
from servers import HERE, Broken, Kind, Server, running

PEER = "/agents/peer"
LOCAL_CHUNKS = "/agents/chunks"
CHUNKS = 100
NOTES = "3"
"""Most events of a task's log that no stream has: they note the peer's own task, and what it said last."""

CONFIG = """
[[agents]]
id = "peer"
run = "a2a:http://127.0.0.1:{port}"
"""


def client(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Processor time of a client's own process, on the servers' core, for a send and for a streamed event."""
    with load.peering() as port:
        return calling(kind, f"http://127.0.0.1:{port}", plan)


def client_over_grpc(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """The same over gRPC. The floor is grpc.aio with the generated code alone."""
    with load.peering_over_grpc() as port:
        return calling(kind, f"grpc://127.0.0.1:{port}", plan)


def calling(kind: Kind, url: str, plan: Plan) -> Figures:
    """The figures of calling.py with the client of a kind."""
    caller = "bare" if kind.name == "floor" else kind.name.partition("-")[0]
    return kind.run_program(
        kind.instead(kind.python, str(HERE / "calling.py"), caller, url, "--seconds", str(plan.seconds))
    )


@dataclass(frozen=True)
class Spent:
    """The times of some requests, and their cost to the server in processor time."""

    measured: Measured
    cpu_s: float

    @property
    def request_us(self) -> float:
        return self.cpu_s / self.measured.finished * 1e6

    @property
    def event_us(self) -> float:
        return self.cpu_s / self.measured.events * 1e6


def upstream(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """One server with the agents of the bench and the peer: sends and streams through it, in turn with local ones."""
    body = rpc("SendMessage", message(QUESTION))
    turns = max(1, round(plan.seconds))
    with load.peering() as port:
        direct = load.unary(port, "/", body, "send.lua", "deadbeef", plan.seconds).requests_per_s

        def configure(directory: Path) -> None:
            (directory / "dragoman.toml").write_text(CONFIG.format(port=port))

        with running(kind, prepare=configure) as server:
            checked(server)

            def measure() -> tuple[Measured, float]:
                return answered(
                    load.unary(server.port, PEER, body, "send.lua", f"{time.time_ns():x}"[-8:], plan.seconds)
                )

            figures = clocked(server, "rate", measure)
            local_us, send_us, ratio = compared(
                lambda path: spent(load, server, path, body, 1_500).request_us, ECHO, PEER, turns
            )
        figures |= {"direct": direct, "of_direct": figures["rate"] / direct}
        figures |= {"send": ratio, "send_us": send_us, "local_send_us": local_us}
        for pace, suffix in (("burst", ""), ("turns", "_in_turns")):
            streams = stream_rpc("SendStreamingMessage", message({"text": f"{CHUNKS} {pace}"}))

            def event_us(path: str, streams: str = streams) -> float:
                return spent(load, server, path, streams, 400, "--chunks", str(CHUNKS), "--unseen", NOTES).event_us

            with running(kind, prepare=configure) as server:
                local_us, remote_us, ratio = compared(event_us, LOCAL_CHUNKS, PEER, turns)
            figures |= {f"event{suffix}": ratio, f"event{suffix}_us": remote_us, f"local_event{suffix}_us": local_us}
    return figures


def checked(server: Server) -> None:
    """The peer's answer has to come through, and the task has to be Dragoman's own."""
    params = message(QUESTION)
    params["message"]["messageId"] = "first"
    task = server.call(PEER, "SendMessage", params)["task"]
    if task["artifacts"][0]["parts"][0]["text"] != QUESTION["text"]:
        raise Broken(f"the peer's answer came as {str(task)[:300]}")
    if server.call(PEER, "GetTask", {"id": task["id"]})["status"]["state"] != "TASK_STATE_COMPLETED":
        raise Broken("the task of a remote agent was not kept as it ended")


def spent(load: Generators, server: Server, path: str, body: str, requests: int, *options: str) -> Spent:
    """So many requests at 32 connections, all to their end and every answer checked."""
    before = server.cpu_s()
    bounds = ("--requests", str(requests), "--seconds", "60", "--warmup", "0")
    measured = load.loop(server.port, path, body, *bounds, *options)
    if measured.finished < requests:
        raise Broken(f"{measured.finished} of {requests} requests came to their end")
    return Spent(measured, server.cpu_s() - before)


def compared(cost: Callable[[str], float], local: str, remote: str, turns: int) -> tuple[float, float, float]:
    """Compare a local agent with a remote one, measured in turn, each remote one between two local ones; medians.

    The third is the median of the ratios of neighbours, so that neither the growing store nor other work on the
    machine weighs on one more than on the other.
    """
    for path in (local, remote):
        cost(path)
    locals_us, remotes_us, ratios = [cost(local)], [], []
    for _ in range(turns):
        remotes_us.append(cost(remote))
        locals_us.append(cost(local))
        ratios.append(remotes_us[-1] / statistics.mean(locals_us[-2:]))
    return statistics.median(locals_us), statistics.median(remotes_us), statistics.median(ratios)
