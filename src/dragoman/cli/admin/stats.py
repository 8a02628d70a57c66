"""`dragoman admin stats`: how much a running server has to do, once or as a screen that refreshes.

Invariant: it changes nothing. Only a terminal gets control sequences, and it is left as it was.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.command import Command
from dragoman.cli.listing import repeat, repeat_in_place, watch_options
from dragoman.cli.tables import output, print_json, table

if TYPE_CHECKING:
    from dragoman.admin.overview import Stats

ENDS = ("completed", "failed", "canceled", "rejected")

BARS = " ▁▂▃▄▅▆▇█"
"""The heights of a minute in a row of minutes."""

Row = tuple[str, str]


@click.command(cls=Command)
@watch_options
@output
@with_server
def stats(place: TaskPlace, watch: bool, interval_s: float | None, form: str) -> None:
    """Show how much work there is and how fast it goes.

    The numbers are those of tasks, rates, times, streams, tokens, webhook deliveries and the store. In a pipe, --watch
    prints one line each time. `dragoman admin status` says what is wrong.

    Examples:
      dragoman admin stats
      dragoman admin stats --watch --interval 5
    """
    from dragoman.admin.overview import SHOW_STATS

    if interval_s is not None and not watch:
        raise click.UsageError("--interval: goes with --watch")
    if not watch:
        found = place.ask(SHOW_STATS, None)
        if form == "json":
            print_json(found)
        else:
            click.echo(table(("WHAT", "NOW"), _rows(found, None, 0.0)))
        return
    before: Stats | None = None
    read_s = 0.0

    def look(rows: Callable[["Stats", "Stats | None", float], str]) -> str:
        """The numbers of this moment, and what has changed since the last ones."""
        nonlocal before, read_s
        now_s, last = monotonic(), before
        before = place.ask(SHOW_STATS, None)
        took_s, read_s = now_s - read_s, now_s
        return rows(before, last, took_s)

    if form == "json":
        repeat(lambda: click.echo(look(_as_json)), interval_s)
    elif sys.stdout.isatty():
        repeat_in_place(lambda: look(_as_screen), interval_s)
    else:
        repeat(lambda: click.echo(look(_as_line)), interval_s)


def _as_json(now: "Stats", before: "Stats | None", took_s: float) -> str:
    import msgspec

    return msgspec.json.encode(now).decode()


def _as_screen(now: "Stats", before: "Stats | None", took_s: float) -> str:
    return table(("WHAT", "NOW"), _joined_rows(now, before, took_s))


def _as_line(now: "Stats", before: "Stats | None", took_s: float) -> str:
    return ", ".join(f"{name} {value}" for name, value in _rows(now, before, took_s))


def _rows(now: "Stats", before: "Stats | None", took_s: float) -> list[Row]:
    """Each number on a row of its own."""
    return [
        *((f"tasks {phase}", str(count)) for phase, count in _open(now).items()),
        *((f"tasks {state}", str(now.tasks[state])) for state in ENDS),
        *([] if before is None else [("tasks ended", _ended(now, before, took_s))]),
        ("writes", _writes(now, before, took_s)),
        *_times(now),
        ("open streams", _streams(now)),
        ("tokens today", _tokens(now)),
        ("webhook calls", _outcomes(now.webhook_calls)),
        ("webhook deliveries pending", str(now.webhook_calls_pending)),
        ("webhook deliveries paused", str(now.webhook_calls_paused)),
        ("webhook deliveries dead", str(now.webhook_calls_dead)),
        ("replicas", str(now.replicas)),
        ("failed writes", str(now.failed_writes)),
        ("store size", _size(now)),
        ("store", _store(now)),
        *_state(now),
        *((f"job {name}", standing) for name, standing in now.jobs.items()),
    ]


def _joined_rows(now: "Stats", before: "Stats | None", took_s: float) -> list[Row]:
    """The same numbers on fewer rows, so that a terminal shows all of them."""
    rate = [] if before is None else [_ended(now, before, took_s)]
    deliveries = {
        "pending": now.webhook_calls_pending,
        "paused": now.webhook_calls_paused,
        "dead": now.webhook_calls_dead,
    }
    return [
        ("tasks open", _counts(_open(now))),
        ("tasks ended", ", ".join((_counts({state: now.tasks[state] for state in ENDS}), *rate))),
        ("writes", f"{_writes(now, before, took_s)}, {now.failed_writes} failed"),
        *_times(now),
        ("open streams", _streams(now)),
        ("tokens today", _tokens(now)),
        ("webhook calls", _outcomes(now.webhook_calls)),
        ("webhook deliveries", _counts(deliveries)),
        ("replicas", str(now.replicas)),
        ("store", f"{_size(now)}, {_store(now)}"),
        *_state(now),
        *((f"job {name}", standing) for name, standing in now.jobs.items()),
    ]


def _state(now: "Stats") -> list[Row]:
    """The state of agents, a row for each kind that there is."""
    return [
        (f"state {kind}", f"{line.entries} entries in {line.scopes} scopes, {line.bytes / 1e6:.1f} MB")
        for kind, line in now.state.items()
    ]


def _open(now: "Stats") -> dict[str, int]:
    """The tasks that have not ended, by phase."""
    return {"queued": now.queued, "running": now.running, "sleeping": now.sleeping, "waiting": now.waiting}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _ended(now: "Stats", before: "Stats", took_s: float) -> str:
    """How many tasks end in a second."""
    ended = sum(now.tasks[state] - before.tasks[state] for state in ENDS)
    return f"{max(0, ended) / took_s:.1f}/s"


def _writes(now: "Stats", before: "Stats | None", took_s: float) -> str:
    """The writes since the server began, or in a second."""
    return str(now.writes) if before is None else f"{max(0, now.writes - before.writes) / took_s:.1f}/s"


def _times(now: "Stats") -> list[Row]:
    """The tasks of each minute, and how long things took."""
    rows: list[Row] = []
    for state, minutes in now.tasks_a_minute.items():
        if any(minutes):
            rows.append((f"{state} a minute", f"{minutes[-1]} {_bars(minutes)}"))
    for name, times in (
        ("first event", now.first_event),
        ("completion", now.completion),
        ("commit", now.commit),
    ):
        rows.append((name, "-" if times is None else f"p50 {times.p50_s:g}s p95 {times.p95_s:g}s"))
    return rows


def _streams(now: "Stats") -> str:
    return "-" if now.streams is None else str(now.streams)


def _size(now: "Stats") -> str:
    return f"{now.store_bytes / 1e6:.1f} MB"


def _store(now: "Stats") -> str:
    return "can be written" if now.outage is None else now.outage


def _outcomes(calls: Mapping[str, int]) -> str:
    """The outcomes of the last hour; `-` if no call was made."""
    return ", ".join(f"{count} {outcome}" for outcome, count in calls.items() if count) or "-"


def _tokens(now: "Stats") -> str:
    """The tokens of today; `-` if nobody reported any."""
    if now.input_tokens_today is None:
        return "-"
    return f"{now.input_tokens_today} in {now.output_tokens_today} out"


def _bars(minutes: Sequence[int]) -> str:
    """The minutes as a row of bars, the highest as high as a line."""
    most = max(minutes)
    return "".join(BARS[-(-minute * (len(BARS) - 1) // most)] for minute in minutes)
