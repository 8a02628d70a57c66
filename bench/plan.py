"""The plan that all rows of the benchmark share: their length and size, and the shape of a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from generators import Generators, Measured
from servers import Kind, Server

Figures = dict[str, float]

QUESTION = {"text": "What is the weather in Lyon tomorrow?"}
ECHO = "/agents/echo"


@dataclass(frozen=True)
class Plan:
    """How long and how large: the full sizes are those that the required values are for."""

    seconds: float = 5
    idle_streams: int = 5_000
    listed_tasks: int = 100_000
    dead_deliveries: int = 100_000
    waiting_tasks: int = 20_000
    sleeping_tasks: int = 100_000


@dataclass(frozen=True)
class Row:
    """One row; `kinds` are measured in turn, `rounds_max` bounds the dear ones."""

    name: str
    title: str
    kinds: tuple[str, ...]
    measure: Callable[[Generators, Kind, Plan], Figures]
    rounds_max: int = 99


def clocked(server: Server, rate: str, measure: Callable[[], tuple[Measured, float]]) -> Figures:
    """Runs a measurement, and says beside its rate how much of their cores the generator and the server used.

    A server that waits for nothing and used less than nine tenths of its core had to share it with a stranger: then
    `per_cpu_s`, the rate to a second of its own processor time, says more than the rate.
    """
    before, began = server.cpu_s(), time.monotonic()
    measured, value = measure()
    used = (server.cpu_s() - before) / (time.monotonic() - began)
    return {rate: value, "busy": measured.busy, "server_cpu": used, "per_cpu_s": value / used}


def answered(measured: Measured) -> tuple[Measured, float]:
    return measured, measured.requests_per_s
