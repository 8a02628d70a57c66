"""The door through which answers of other agents come in, and the scalars in them, in any spelling.

Invariant: whatever the bytes, a value or InvalidAgentResponse. Readers of decoded JSON raise Unfit, which says what was
expected; `heard` turns it into InvalidAgentResponse, which shows what came instead.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dragoman.dialects import json_bounds
from dragoman.dialects.json_fields import timestamp_ms
from dragoman.model import ids
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.task import TaskState

T = TypeVar("T")

Json = dict[str, Any]

SHOWN = 200
"""How many bytes of an answer that nobody understands are shown."""

MAX_DEPTH = 256
"""Deepest nesting of an answer: what is read is written again, from further down the stack."""

MAX_VALUES = 2_000_000
"""Most values in an answer; how many bytes it has is bounded before. Servers that an operator has named may say more
than strangers."""

_STATES = {state.removeprefix("TASK_STATE_"): state for state in TaskState} | {
    "CANCELLED": TaskState.CANCELED,
    # A task of which the server does not know more has not ended: it is asked for again.
    "UNKNOWN": TaskState.WORKING,
    "UNSPECIFIED": TaskState.WORKING,
    # BeeOS's own, which should not leave it.
    "DELIVERED": TaskState.SUBMITTED,
    "TIMEOUT": TaskState.FAILED,
}

_YEAR_10000_MS = 253_402_300_800_000

_NUMBERED = (
    TaskState.WORKING,
    TaskState.SUBMITTED,
    TaskState.WORKING,
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.CANCELED,
    TaskState.INPUT_REQUIRED,
    TaskState.REJECTED,
    TaskState.AUTH_REQUIRED,
)
"""States by their number in the proto (A2A 1.0 §4.1.3), the unspecified one first."""


class Unfit(Exception):
    """What was read is not what was expected; `expected` says what that is."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def heard(body: bytes, read: Callable[[Any], T]) -> T:
    """What `read` makes of the JSON in `body`. Raises InvalidAgentResponse and nothing else."""
    try:
        json_bounds.check(body, MAX_DEPTH, MAX_VALUES)
        return read(msgspec.json.decode(body))
    except Unfit as unfit:
        raise unreadable(unfit.expected, body) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise unreadable("JSON", body) from None
    except (A2AError, RecursionError):
        raise unreadable(f"JSON in UTF-8, nested no deeper than {MAX_DEPTH} levels", body) from None


def unreadable(expected: str, body: bytes) -> InvalidAgentResponse:
    """The error for an answer that is not what was expected."""
    shown = body[:SHOWN].decode("utf-8", "replace") if body else "nothing"
    return InvalidAgentResponse(f"expected {expected}, got {shown}{'…' if len(body) > SHOWN else ''}")


def members(value: object, expected: str) -> Json:
    """An object, or Unfit."""
    if isinstance(value, dict):
        return value
    raise Unfit(expected)


def text_in(given: Json, *names: str) -> str | None:
    """The first string that is there and not empty; numbers count as strings, for ids."""
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def flag_in(given: Json, *names: str) -> bool:
    """Whether one of them is true."""
    return any(given.get(name) is True for name in names)


def items_in(given: Json, name: str) -> list[Any]:
    """A list; null and what is not there are empty."""
    value = given.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise Unfit(f"a list as {name}")


def metadata_in(given: Json) -> Json | None:
    """The metadata; None if there is none."""
    value = given.get("metadata")
    return value if isinstance(value, dict) and value else None


def texts_in(given: Json, *names: str) -> tuple[str, ...]:
    """The strings of a list; what is not one is passed over."""
    value: list[Any] = next((given[name] for name in names if isinstance(given.get(name), list)), [])
    return tuple([each for each in value if isinstance(each, str)])


def context_of(given: Json) -> str | None:
    """The id of the context, by any of its names."""
    return text_in(given, "contextId", "context_id", "sessionId", "session_id")


def state(value: object) -> TaskState:
    """A state in any spelling: `completed`, `input_required`, `TASK_STATE_CANCELLED`, 3."""
    if isinstance(value, str):
        known = _STATES.get(value.upper().replace("-", "_").removeprefix("TASK_STATE_"))
        if known is not None:
            return known
    elif isinstance(value, int) and 0 <= value < len(_NUMBERED) and not isinstance(value, bool):
        return _NUMBERED[value]
    raise Unfit("the state of a task, as completed or TASK_STATE_COMPLETED")


def timestamp(value: object) -> str:
    """A time stamp as ours are, in UTC with milliseconds; one without an offset is UTC; empty if it is none."""
    if not isinstance(value, str) or not value:
        return ""
    if len(value) == 24 and value[10] == "T" and value[19] == "." and value[23] == "Z" and value.isascii():
        try:
            datetime.fromisoformat(value)  # what is ours is not taken apart: that takes four times as long
            return value
        except ValueError:
            return ""
    for spelled in (value, value + "Z"):
        moment = timestamp_ms(spelled.replace(" ", "T", 1))
        if moment is not None and 0 <= moment < _YEAR_10000_MS:
            return ids.timestamp(moment)
    return ""
