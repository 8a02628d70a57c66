"""Log lines that repeat themselves: the first at once, then one an interval with the number of the others."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from dragoman.telemetry.coalescing import SUBJECTS_MAX, CoalescingHandler, Pending, about
from dragoman.telemetry.logs import JsonFormatter, TextFormatter


class Timer:
    """A call that is due at a time."""

    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s, self.call, self.canceled = at_s, call, False

    def cancel(self) -> None:
        self.canceled = True


class Time:
    """A clock that stands until it is moved, and the timers that it rings."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def later(self, after_s: float, call: Callable[[], None]) -> Pending:
        self.timers.append(Timer(self.now_s + after_s, call))
        return self.timers[-1]

    def move_to(self, at_s: float) -> None:
        """Ring all timers that are due until then, each at its time."""
        while due := [timer for timer in self.timers if not timer.canceled and timer.at_s <= at_s]:
            first = min(due, key=lambda timer: timer.at_s)
            self.timers.remove(first)
            self.now_s = first.at_s
            first.call()
        self.now_s = at_s

    @property
    def pending(self) -> int:
        return sum(not timer.canceled for timer in self.timers)


class Log:
    """A logger whose lines go to a text, by a clock that the test moves."""

    def __init__(self) -> None:
        self.time = Time()
        self.text = io.StringIO()
        self.handler = CoalescingHandler(self.text, clock=lambda: self.time.now_s, later=self.time.later)
        self.handler.setFormatter(TextFormatter())
        self.logger = logging.getLogger("dragoman.tests.coalescing")
        self.logger.propagate = False
        self.logger.setLevel("INFO")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return [line.partition(": ")[2] for line in self.text.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.logger.removeHandler(made.handler)
    made.handler.close()
    made.logger.propagate = True


def fail(log: Log, host: str, status: int = 503) -> None:
    log.logger.warning("webhook of %s: HTTP %d", host, status, extra=about(host, host=host))


def test_the_first_is_written_at_once_and_the_rest_is_counted_at_the_end_of_the_interval(log: Log) -> None:
    for _ in range(42):
        fail(log, "a")
    assert log.lines == ["webhook of a: HTTP 503"]
    log.time.move_to(59.9)
    assert len(log.lines) == 1
    log.time.move_to(60.0)
    assert log.lines[1:] == ["webhook of a: HTTP 503 … and 40 more in the last 60 s"]


def test_the_line_at_the_end_of_an_interval_shows_the_newest_record(log: Log) -> None:
    fail(log, "a", 500)
    fail(log, "a", 502)
    fail(log, "a", 504)
    log.time.move_to(60.0)
    assert log.lines == ["webhook of a: HTTP 500", "webhook of a: HTTP 504 … and 1 more in the last 60 s"]


def test_a_single_repetition_has_no_count(log: Log) -> None:
    fail(log, "a", 500)
    fail(log, "a", 501)
    log.time.move_to(60.0)
    assert log.lines == ["webhook of a: HTTP 500", "webhook of a: HTTP 501"]


def test_each_subject_and_each_kind_of_line_is_counted_by_itself(log: Log) -> None:
    fail(log, "a")
    fail(log, "b")
    log.logger.info("webhook of %s answers again", "a", extra=about("a"))
    assert log.lines == ["webhook of a: HTTP 503", "webhook of b: HTTP 503", "webhook of a answers again"]


def test_every_record_is_counted_once_while_it_goes_on(log: Log) -> None:
    for second in range(300):
        log.time.move_to(float(second))
        fail(log, "a")
    log.handler.close()
    told = 0
    for line in log.lines:
        told += 1 + (int(line.split(" … and ")[1].split()[0]) if " … and " in line else 0)
    assert told == 300
    assert len(log.lines) == 6  # one a minute, the first at once, and what was left at the end


def test_a_subject_of_which_nothing_more_comes_is_forgotten(log: Log) -> None:
    fail(log, "a")
    log.time.move_to(60.0)
    assert log.time.pending == 0
    fail(log, "a")
    assert log.lines == ["webhook of a: HTTP 503"] * 2


def test_what_is_held_back_is_written_when_the_log_closes(log: Log) -> None:
    for _ in range(3):
        fail(log, "a")
    log.time.move_to(10.0)
    log.handler.close()
    assert log.lines[1:] == ["webhook of a: HTTP 503 … and 1 more in the last 10 s"]


def test_many_subjects_share_a_line_and_take_no_more_memory(log: Log) -> None:
    for number in range(SUBJECTS_MAX + 500):
        fail(log, f"host-{number}")
    assert len(log.lines) == SUBJECTS_MAX + 1
    log.time.move_to(60.0)
    assert log.lines[-1].endswith("HTTP 503 … and 498 more in the last 60 s")


def test_records_without_a_subject_are_all_written(log: Log) -> None:
    for _ in range(3):
        log.logger.info("ready")
    assert log.lines == ["ready"] * 3
    assert log.time.pending == 0


def test_json_has_the_fields_and_the_count(log: Log) -> None:
    log.handler.setFormatter(JsonFormatter())
    for _ in range(3):
        fail(log, "a\n")
    log.time.move_to(60.0)
    first, second = map(json.loads, log.text.getvalue().splitlines())
    assert (first["host"], "more" in first) == ("a\n", False)
    assert (second["host"], second["more"]) == ("a\n", "1")


def test_a_repeated_message_cannot_forge_a_line(log: Log) -> None:
    for _ in range(3):
        fail(log, "a\n%s\x1b[2J")
    log.time.move_to(60.0)
    assert log.lines == [
        "webhook of a\\x0a%s\\x1b[2J: HTTP 503",
        "webhook of a\\x0a%s\\x1b[2J: HTTP 503 … and 1 more in the last 60 s",
    ]
