"""The table that the benchmark prints: medians, ratios, what is required, and whether it is met.

Pure: medians in, text out. The required values are Dragoman's own; changing one here changes what it promises.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from servers import AGAINST

# row → kind → figure → one value a round
Results = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


@dataclass(frozen=True)
class Requirement:
    """A bound on a figure of Dragoman, or on its ratio to the same figure of another kind.

    With `beside` that ratio is shown, though the bound is on the figure.
    """

    row: str
    title: str
    figure: str
    bound: float
    at_least: bool = True
    against: str = ""
    beside: str = ""
    kind: str = "dragoman"
    unit: str = ""


GATEWAY_PER_S = 185
"""Messages a second that LiteLLM's A2A gateway, which keeps nothing, passed on, on a machine of two cores."""

_on_postgres = partial(Requirement, kind="dragoman-postgres")

REQUIRED = (
    Requirement("send", "SendMessage, durable, to the SDK in memory", "rate", 8, against="sdk", unit="/s"),
    Requirement("send", "SendMessage, durable, to the SDK on SQLite WAL", "rate", 35, against="sdk-sqlite", unit="/s"),
    Requirement("dialects", "SendMessage by BeeOS, to 1.0", "beeos", 1.1, at_least=False, unit=" ×"),
    Requirement("dialects", "SendMessage by KAOS, to 1.0", "kaos", 1.1, at_least=False, unit=" ×"),
    Requirement("dialects", "SendMessage by Evo AI, to 1.0", "evoai", 1.1, at_least=False, unit=" ×"),
    Requirement("dialects", "SendMessage by protoAgent, to 1.0", "protoagent", 1.1, at_least=False, unit=" ×"),
    Requirement("auth", "SendMessage with an API key, to without", "key", 1.1, at_least=False, unit=" ×"),
    Requirement("auth", "SendMessage with a JWT, to without", "jwt", 1.1, at_least=False, unit=" ×"),
    Requirement("mounted", "SendMessage to an application under uvicorn", "alone", 1.3, at_least=False, unit=" ×"),
    Requirement("mounted", "SendMessage to one below FastAPI", "below", 1.3, at_least=False, unit=" ×"),
    Requirement("mcp", "a tool call without a session, to one with", "stateless", 1.0, at_least=False, unit=" ×"),
    Requirement("get", "GetTask, to the SDK", "rate", 3, against="sdk", unit="/s"),
    Requirement("page", "a page of 50 in ListTasks, to a GetTask", "gets", 25, at_least=False, unit=" ×"),
    Requirement("stream", "streamed events, 100 chunks a task, durable", "events", 6, against="sdk", unit="/s"),
    Requirement("long", "cost of an event, 2,000 chunks to 100", "growth", 1.2, at_least=False, unit=" ×"),
    Requirement("fanout", "100 subscribers × 200 events", "events", 4, against="sdk", unit="/s"),
    Requirement("readers", "one of 11 never reads: memory growth", "growth_mb", 50, at_least=False, unit=" MB"),
    Requirement("readers", "one of 11 never reads: time of the others", "slower", 1.2, at_least=False, unit=" ×"),
    Requirement("idle", "idle streams: memory of each", "each_kb", 25, at_least=False, unit=" KB"),
    Requirement("idle", "idle streams: worst SendMessage wait", "worst_ms", 100, at_least=False, unit=" ms"),
    Requirement("list", "ListTasks, 100,000 tasks to 1,000, worst query", "worst", 2, at_least=False, unit=" ×"),
    Requirement("file", "10 MB file part, durable", "mb_s", 0.5, against="sdk", unit=" MB/s"),
    Requirement("file", "10 MB file part, memory:", "mb_s", 1, against="sdk", kind="dragoman-memory", unit=" MB/s"),
    Requirement("console", "SendMessage beside ten consoles, to none", "kept", 0.9, unit=" ×"),
    Requirement("push", "webhook calls while messages are sent", "deliveries_per_s", 1_000, unit="/s"),
    Requirement("push", "SendMessage beside these calls, to alone", "kept", 0.8, unit=" ×"),
    Requirement("live", "a webhook beside dead hosts, to without", "slower", 1.5, at_least=False, unit=" ×"),
    Requirement("live", "SendMessage beside dead hosts, to without", "kept", 0.8, unit=" ×"),
    Requirement("client", "client: a send", "send_us", 150, at_least=False, beside="sdk", unit=" µs"),
    Requirement("client", "client: a streamed event", "event_us", 10, at_least=False, beside="sdk", unit=" µs"),
    Requirement("upstream", "SendMessage through a2a:, durable", "rate", 15 * GATEWAY_PER_S, unit="/s"),
    Requirement(
        "upstream", "a streamed event through a2a:, to a local agent's", "event", 1.5, at_least=False, unit=" ×"
    ),
    Requirement(
        "gateway", "a pool of two, team and budget: a send, to without", "dearer", 1.1, at_least=False, unit=" ×"
    ),
    Requirement("gateway", "the same: SendMessage, durable", "rate", 18 * GATEWAY_PER_S, unit="/s"),
    Requirement(
        "failover", "the first upstream refuses: until the answer", "refused_ms", 50, at_least=False, unit=" ms"
    ),
    Requirement(
        "failover", "it does not accept: beyond connect_timeout_s", "silent_more_ms", 50, at_least=False, unit=" ms"
    ),
    _on_postgres("budget_pg", "SendMessage beside a team's budget, to without", "kept", 0.9, unit=" ×"),
    Requirement("tokens", "1,000 answers at once: tokens that came", "kept", 1.0, unit=" ×"),
    Requirement("tokens", "the same: a token on its way, p99", "p99_ms", 150, at_least=False, unit=" ms"),
    Requirement("tokens", "the same: memory of each", "each_kb", 200, at_least=False, unit=" KB"),
    Requirement("command", "a program: what its task adds to its own start", "adds_ms", 15, at_least=False, unit=" ms"),
    Requirement("grpc", "SendMessage over gRPC, durable, to the SDK's", "send", 3, against="sdk", unit="/s"),
    Requirement("grpc", "streamed events over gRPC, durable, to the SDK's", "events", 3, against="sdk", unit="/s"),
    Requirement("grpc", "GetTask over gRPC, to the SDK's", "get", 1, against="sdk", unit="/s"),
    _on_postgres(
        "send_pg", "SendMessage on PostgreSQL, to the SDK there", "rate", 25, against="sdk-postgres", unit="/s"
    ),
    _on_postgres("get_pg", "GetTask on PostgreSQL, to the SDK in memory", "rate", 0.5, against="sdk", unit="/s"),
    _on_postgres(
        "stream_pg", "streamed events on PostgreSQL, to the SDK in memory", "events", 6, against="sdk", unit="/s"
    ),
    _on_postgres("list_pg", "ListTasks on PostgreSQL, 100,000 to 1,000, worst", "worst", 2, at_least=False, unit=" ×"),
    _on_postgres("replicas", "a SendMessage at three replicas, to one", "dearer", 1.25, at_least=False, unit=" ×"),
    _on_postgres("replicas", "the same, 32 connections to each", "dearer_busy", 1.25, at_least=False, unit=" ×"),
    _on_postgres("takeover", "a task of a killed replica runs again", "seconds", 5, at_least=False, unit=" s"),
    Requirement("waiting", "a task that waits for a worker: memory", "queued_kb", 1, at_least=False, unit=" KB"),
    Requirement("waiting", "a task that a worker holds: memory", "held_kb", 1, at_least=False, unit=" KB"),
    _on_postgres("words_three", "a worker's word at three replicas, to one", "dearer", 1.6, at_least=False, unit=" ×"),
    _on_postgres("words_three", "a word of 10,000, to one of 100", "longer", 1.2, at_least=False, unit=" ×"),
    Requirement("workflows", "workflows of ten steps, 32 at once, to DBOS", "rate", 2, against="dbos", unit="/s"),
    Requirement("workflows", "the same, one after the other", "alone", 2, against="dbos", unit="/s"),
    _on_postgres("workflows_pg", "the same on PostgreSQL, 32 at once", "rate", 2, against="dbos-postgres", unit="/s"),
    _on_postgres("workflows_pg", "the same, one after the other", "alone", 2, against="dbos-postgres", unit="/s"),
    Requirement("step", "a step, to a SendMessage", "sends", 0.3, at_least=False, unit=" ×"),
    _on_postgres("step", "a step on PostgreSQL, to a SendMessage there", "sends", 0.3, at_least=False, unit=" ×"),
    Requirement("asleep", "a task that sleeps: memory", "each_kb", 1, at_least=False, unit=" KB"),
    Requirement("asleep", "a start with 100,000 of them, later than without", "later_s", 1, at_least=False, unit=" s"),
    Requirement("start", "start to first card", "seconds", 0.5, at_least=False, unit=" s"),
    Requirement("start", "packages of the core install", "packages", 40, at_least=False),
)

# Shares of its core above which the load generator, not the server, may be what the figure shows.
BUSY_LIMIT = 0.9


def median(results: Results, row: str, kind: str, figure: str) -> float | None:
    values = results.get(row, {}).get(kind, {}).get(figure, ())
    return statistics.median(values) if values else None


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}") + unit


def verdict(required: Requirement, value: float | None) -> str:
    if value is None:
        return "not measured"
    met = value >= required.bound if required.at_least else value <= required.bound
    return "pass" if met else "MISS"


def lines(results: Results) -> list[tuple[str, ...]]:
    """One tuple a requirement whose row was measured."""
    found = []
    for required in REQUIRED:
        if required.row not in results:
            continue
        ours = median(results, required.row, required.kind, required.figure)
        theirs = {name: median(results, required.row, name, required.figure) for name in OTHERS}
        other = theirs.get(required.against)
        value = ours if not required.against else ours / other if ours is not None and other else None
        sign = "≥" if required.at_least else "≤"
        bound = f"{sign} {required.bound:g}" + (" ×" if required.against else required.unit)
        compared = theirs.get(required.against or required.beside)
        ratio = number(ours / compared, " ×") if ours is not None and compared else ""
        shown = (number(theirs[name], required.unit) for name in OTHERS)
        found.append((required.title, number(ours, required.unit), *shown, ratio, bound, verdict(required, value)))
    return found


OTHERS = ("sdk", "sdk-sqlite", "sdk-postgres", "dbos", "dbos-postgres", "floor")
HEAD = (
    *("row", "Dragoman", "SDK, memory", "SDK, SQLite", "SDK, PostgreSQL", "DBOS, SQLite", "DBOS, PostgreSQL", "floor"),
    *("ratio", "required", ""),
)


def markdown(results: Results) -> str:
    table = [HEAD, *lines(results)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    rows = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    rows.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(rows)


def changes(results: Results) -> list[str]:
    """Each figure of Dragoman to that of the other tree: the ratio of the medians, and of each round."""
    told = []
    for row, kinds in results.items():
        for kind, figures in kinds.items():
            others = kinds.get(kind + AGAINST, {})
            for figure in (name for name in figures if others.get(name)):
                pairs = zip(figures[figure], others[figure], strict=False)
                ratios = " ".join(number(ours / theirs) for ours, theirs in pairs if theirs)
                ours, theirs = statistics.median(figures[figure]), statistics.median(others[figure])
                ratio = number(ours / theirs if theirs else None, " ×")
                told.append(f"{row:12} {kind:18} {figure:16} {number(ours)} to {number(theirs)}: {ratio} ({ratios})")
    return told


def details(results: Results) -> list[str]:
    """Every figure of every row with its spread, for reading behind the table."""
    told = []
    for row, kinds in results.items():
        for kind, figures in kinds.items():
            parts = []
            for figure, values in figures.items():
                spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
                parts.append(f"{figure} {number(statistics.median(values))}{spread}")
            warning = "  ← the generator was the limit" if max(figures.get("busy", (0,))) > BUSY_LIMIT else ""
            told.append(f"{row:8} {kind:16} " + ", ".join(parts) + warning)
    return told
