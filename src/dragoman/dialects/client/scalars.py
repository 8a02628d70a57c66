"""Decodes answers of other agents, and reads the scalars in them in any spelling.

Invariant: any bytes give a value or InvalidAgentResponse. Readers of decoded JSON raise Unfit, which says what was
expected; `decode_answer` turns it into an InvalidAgentResponse that also shows what came.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dragoman.dialects import json_bounds
from dragoman.dialects.json_fields import utc_text
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.task import TaskState

T = TypeVar("T")

Json = dict[str, Any]

SHOWN = 200
"""How many bytes of an unreadable answer are shown."""

MAX_DEPTH = 256
"""Deepest nesting of an answer. It is encoded again later, from deeper in the call stack."""

MAX_VALUES = 2_000_000
"""Most values in an answer; its size in bytes is bounded earlier. Servers that an operator has named may send more than
strangers.
"""

_STATES = {state.removeprefix("TASK_STATE_"): state for state in TaskState} | {
    "CANCELLED": TaskState.CANCELED,
    "UNKNOWN": TaskState.UNSPECIFIED,  # A2A 0.3 §6.3
    # BeeOS's internal states, which should not leave it.
    "DELIVERED": TaskState.SUBMITTED,
    "TIMEOUT": TaskState.FAILED,
}


_NUMBERED = (
    TaskState.UNSPECIFIED,
    TaskState.SUBMITTED,
    TaskState.WORKING,
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.CANCELED,
    TaskState.INPUT_REQUIRED,
    TaskState.REJECTED,
    TaskState.AUTH_REQUIRED,
)
"""States by their number in the proto (A2A 1.0 §4.1.3), with the unspecified one first."""


class Unfit(Exception):
    """A value is not what the reader expected; `expected` describes that."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def decode_answer(body: bytes, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the JSON in `body`. Raises InvalidAgentResponse and nothing else."""
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
    """Return the error for an answer that is not what was expected."""
    shown = body[:SHOWN].decode("utf-8", "replace") if body else "nothing"
    return InvalidAgentResponse(f"expected {expected}, got {shown}{'…' if len(body) > SHOWN else ''}")


def members(value: object, expected: str) -> Json:
    """Return the value if it is an object. Raises Unfit."""
    if isinstance(value, dict):
        return value
    raise Unfit(expected)


def text_in(given: Json, *names: str) -> str | None:
    """Return the first string that is present and not empty; numbers count as strings, for ids."""
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def flag_in(given: Json, *names: str) -> bool:
    """Whether one of the named members is true."""
    return any(given.get(name) is True for name in names)


def items_in(given: Json, name: str) -> list[Any]:
    """Return a list; null or a missing member is empty. Raises Unfit for any other value."""
    value = given.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise Unfit(f"a list as {name}")


def metadata_in(given: Json) -> Json | None:
    """Return the metadata; None if there is none."""
    value = given.get("metadata")
    return value if isinstance(value, dict) and value else None


def texts_in(given: Json, *names: str) -> tuple[str, ...]:
    """Return the strings of a list; other items are skipped."""
    value: list[Any] = next((given[name] for name in names if isinstance(given.get(name), list)), [])
    return tuple([each for each in value if isinstance(each, str)])


def context_of(given: Json) -> str | None:
    """Return the id of the context, under any of its names."""
    return text_in(given, "contextId", "context_id", "sessionId", "session_id")


def state(value: object) -> TaskState:
    """Read a state in any spelling: `completed`, `input_required`, `TASK_STATE_CANCELLED`, 3."""
    if isinstance(value, str):
        known = _STATES.get(value.upper().replace("-", "_").removeprefix("TASK_STATE_"))
        if known is not None:
            return known
    elif isinstance(value, int) and 0 <= value < len(_NUMBERED) and not isinstance(value, bool):
        return _NUMBERED[value]
    raise Unfit("the state of a task, such as completed or TASK_STATE_COMPLETED")


USUAL_TIME = re.compile(
    r"(?:19[7-9]|20[0-9])[0-9]-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30))"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)
"""Matches times in our own form: all of its matches are times, and all but a few of these times match."""


def timestamp(value: object) -> str:
    """Read a time stamp, which is in UTC then; empty if it is not one. Without an offset it is UTC.

    One that is spelled as A2A 1.0 §5.6.1 asks stays as it came, with all of its digits.
    """
    if not isinstance(value, str) or not value:
        return ""
    if len(value) == 24 and value[10] == "T" and value[19] == "." and value[23] == "Z" and value.isascii():
        try:
            datetime.fromisoformat(value)  # our own form needs no full parse, which takes four times as long
            return value
        except ValueError:
            return ""
    for spelled in (value, value + "Z"):
        if (found := utc_text(spelled.replace(" ", "T", 1))) is not None:
            return value if value.endswith("Z") and value[10] == "T" else found
    return ""
