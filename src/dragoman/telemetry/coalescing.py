"""Coalescing: log lines that repeat themselves about one subject become one line an interval, with a count.

A record takes part if it was logged with `extra=about(subject)`. Records are the same if their logger, their format and
their subject are.

Invariant: the first of them is written at once, the newest of those that follow at the end of each interval, and each
is counted in exactly one line. Memory is bounded, however many subjects there are.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TextIO

INTERVAL_S = 60.0
"""Time between two lines about one subject: long enough to read, short enough to see that it goes on."""

SUBJECTS_MAX = 256
"""Subjects that are told apart at a time; further ones share a line for each format of a logger."""


class Pending(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Make the call no more."""
        ...


Later = Callable[[float, Callable[[], None]], Pending]
"""Makes a call after so many seconds."""


def about(subject: str, **fields: str) -> dict[str, object]:
    """Return the `extra` of a record that may come often: those about one `subject` are written once an interval.

    The subject is what an operator looks at next, such as a host or an agent, never a task. `fields` become members of
    a line in JSON.
    """
    return {"subject": subject, "fields": fields}


class Repeats:
    """The records of one kind about one subject within an interval."""

    __slots__ = ("count", "newest", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.count = 0
        """How many were held back."""
        self.newest: logging.LogRecord | None = None


class CoalescingHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, and holds back those that repeat themselves. May be called by any thread.

    Records that were held back are written when their interval ends, at the latest by `close`. `clock` counts seconds.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        later: Later | None = None,
    ) -> None:
        super().__init__(stream)
        self._interval_s = interval_s
        self._clock = clock
        self._later = later or _start_timer
        self._repeats: dict[tuple[str, object, str], Repeats] = {}
        self._timer: Pending | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or hold it back because one about its subject was written a moment ago."""
        subject = getattr(record, "subject", None)
        if subject is None:
            super().emit(record)
            return
        key = record.name, record.msg, subject
        repeats = self._repeats.get(key)
        if repeats is None and len(self._repeats) >= SUBJECTS_MAX:
            key = record.name, record.msg, ""
            repeats = self._repeats.get(key)
        if repeats is None:
            self._repeats[key] = Repeats(self._clock() + self._interval_s)
            super().emit(record)
            if self._timer is None:
                self._timer = self._later(self._interval_s, self.write_due)
            return
        repeats.count += 1
        repeats.newest = record

    def write_due(self) -> None:
        """Write what was held back and is due, and forget subjects about which nothing more came."""
        self.acquire()
        try:
            self._stop_timer()
            now_s = self._clock()
            for key, repeats in tuple(self._repeats.items()):
                if repeats.until_s > now_s:
                    continue
                if repeats.newest is None:
                    del self._repeats[key]
                    continue
                self._write(repeats, now_s)
                repeats.until_s = now_s + self._interval_s
            if self._repeats:
                next_s = min(repeats.until_s for repeats in self._repeats.values())
                self._timer = self._later(next_s - now_s, self.write_due)
        finally:
            self.release()

    def close(self) -> None:
        """Write everything that was held back, and hold back nothing more."""
        self.acquire()
        try:
            self._stop_timer()
            now_s = self._clock()
            for repeats in self._repeats.values():
                self._write(repeats, now_s)
            self._repeats.clear()
        finally:
            self.release()
        super().close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self, repeats: Repeats, now_s: float) -> None:
        """Write the newest record that was held back, if there is one, and how many came before it."""
        past_s = self._interval_s + now_s - repeats.until_s
        newest, more = repeats.newest, repeats.count - 1
        repeats.newest, repeats.count = None, 0
        if newest is None:
            return
        record = copy.copy(newest)
        record.created = time.time()
        if more:
            record.msg, record.args = "%s … and %d more in the last %.0f s", (newest.getMessage(), more, past_s)
            record.fields = getattr(newest, "fields", {}) | {"more": str(more)}
        super().emit(record)


def _start_timer(after_s: float, call: Callable[[], None]) -> Pending:
    timer = threading.Timer(after_s, call)
    timer.daemon = True
    timer.start()
    return timer
