"""Sleeps of Python agents: what `ctx.sleep` and `ctx.sleep_until` may be given, as words.

Invariant: a time that cannot be slept is refused with an error that names the argument, before anything is recorded.
"""

import re
from datetime import UTC, datetime, timedelta

from dragoman.engine import bounds
from dragoman.engine.words import SLEEP_MS_MAX, Sleep

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""The units of a time in text, in milliseconds."""

SPELLED = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,3})?(?:ms|[smhdw])", re.ASCII)

HOW = 'use seconds, a timedelta, or a text like "90s", "2h" or "1d 12h"'


def sleep_for(duration: object, *, wake_on_message: object) -> Sleep:
    """The word that the task sleeps for a time. Raises TypeError or ValueError, which names the argument."""
    return Sleep(for_ms=_read_ms(duration), wake_on_message=bounds.flag("wake_on_message", wake_on_message))


def sleep_until(when: object, *, wake_on_message: object) -> Sleep:
    """The word that the task sleeps until a time. Raises TypeError or ValueError, which names the argument."""
    if not isinstance(when, datetime):
        raise TypeError(f"when must be a datetime, not {bounds.type_name(when)}")
    if when.tzinfo is None or when.utcoffset() is None:
        raise ValueError(f"when={when.isoformat()}: has no time zone; use datetime.now(UTC), or add tzinfo=")
    if when - datetime.now(UTC) > timedelta(milliseconds=SLEEP_MS_MAX):
        raise ValueError(f"when={when.isoformat()}: a task sleeps for ten years at most")
    until_ms = -((EPOCH - when) // timedelta(milliseconds=1))  # rounded up: a task never wakes early
    return Sleep(until_ms=until_ms, wake_on_message=bounds.flag("wake_on_message", wake_on_message))


def _read_ms(duration: object) -> int:
    """A time in milliseconds, rounded up."""
    shown = bounds.shown(duration)
    if isinstance(duration, timedelta):
        exact: float = duration / timedelta(milliseconds=1)
    elif isinstance(duration, str):
        words = duration.split()
        if not words or not all(SPELLED.fullmatch(word) for word in words):
            raise ValueError(f"duration={shown}: {HOW}")
        exact = sum(map(_read_word, words))
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        exact = duration * 1000
    else:
        raise TypeError(f"duration must be a time, not {bounds.type_name(duration)}: {HOW}")
    if not 0 < exact <= SLEEP_MS_MAX:
        raise ValueError(f"duration={shown}: must be more than 0, and at most ten years")
    return -int(-exact // 1)


def _read_word(word: str) -> float:
    number = word.rstrip("mshdw")
    return float(number) * UNITS[word.removeprefix(number)]
