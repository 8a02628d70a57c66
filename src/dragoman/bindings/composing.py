"""Large results written as JSON: beside the loop, and within what may wait for readers.

Invariant: a result of some size has its room in `Unread` before it is written, and a large task before it is read, so
that results that nobody reads do not pile up on their way to the encoder.
"""

from collections.abc import Callable

from dragoman.bindings.http import Request
from dragoman.bindings.limits import Limits
from dragoman.engine.handler import Answered
from dragoman.model.message import Part
from dragoman.model.operations import Result, TaskPage
from dragoman.model.task import Record

HEAVY_BYTES = 512 * 1024
"""A result of that many bytes in texts and files is written on the thread: it takes half a millisecond or more."""


def weigh(result: Answered | Result) -> int:
    """About how many bytes of texts and files are in a result; data is not counted."""
    if isinstance(result, Record):
        return _weight_of(result)
    if isinstance(result, TaskPage):
        return sum(map(_weight_of, result.records))
    return 0


def _weight_of(record: Record) -> int:
    weight = 0
    for artifact in record.artifacts:
        weight += _weight_in(artifact.parts)
    for message in record.history:
        weight += _weight_in(message.parts)
    if record.status.message is not None:
        weight += _weight_in(record.status.message.parts)
    return weight


def _weight_in(parts: tuple[Part, ...]) -> int:
    weight = 0
    for part in parts:
        if part.text is not None:
            weight += len(part.text)
        elif part.raw is not None:
            weight += len(part.raw) * 4 // 3  # base64
    return weight


async def compose(request: Request, limits: Limits, result: Answered | Result, encode: Callable[[], bytes]) -> bytes:
    """What `encode` makes of `result`. Raises TooManyRequests or Unavailable if there is no room for it."""
    weight = weigh(result)
    if weight < HEAVY_BYTES:
        return encode()
    if not request.reserved and not isinstance(result, TaskPage):  # which has its room: see `Unread.listing`
        request.reserve(weight)
    return await limits.offload.run(encode)
