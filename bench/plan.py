"""The plan that all rows of the benchmark share: their length and size, the shape of a row, and that of a promise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
    expired_tasks: int = 150_000


@dataclass(frozen=True)
class Promise:
    """A figure of a row that the table shows, and the bound that Dragoman promises for it, if any.

    With `to` the ratio to the same figure of that kind is shown and bounded. With `beside` that kind's figure is
    shown next to ours. `kind` is ours; empty for the first of the row.
    """

    figure: str
    bound: float | None = None
    least: bool = True
    unit: str = "×"
    to: str = ""
    beside: str = ""
    kind: str = ""

    def met(self, value: float) -> bool:
        """Whether the value is within the bound. True without a bound."""
        return self.bound is None or (value >= self.bound if self.least else value <= self.bound)


at_least = partial(Promise, least=True)
at_most = partial(Promise, least=False)


@dataclass(frozen=True)
class Row:
    """One row; `kinds` are measured in turn, `rounds_max` bounds the dear ones.

    `title` says what is measured, and with semicolons what each promise is about, in their order.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    measure: Callable[[Generators, Kind, Plan], Figures]
    rounds_max: int = 99
    promises: tuple[Promise, ...] = ()

    def __post_init__(self) -> None:
        for promise in self.promises:
            for kind in (promise.kind, promise.to, promise.beside):
                if kind and kind not in self.kinds:
                    raise ValueError(f"row {self.name}: a promise names {kind}, which the row does not measure")


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
