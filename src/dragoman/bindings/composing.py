"""Encoding of large results: on a thread, and only with room reserved in `Unread`.

Invariant: a large result has room in `Unread` before it is encoded, and a large task before it is read, so that results
that nobody reads do not pile up in front of the encoder.
"""

from collections.abc import Callable

from dragoman.bindings.http import Request
from dragoman.bindings.limits import Limits
from dragoman.engine.handler import Answered
from dragoman.model.message import Part
from dragoman.model.operations import Result, TaskPage
from dragoman.model.task import Record

HEAVY_BYTES = 512 * 1024
"""Results with at least this many bytes of texts and files are encoded on the thread: it takes 0.5 ms or more."""


def weigh(result: Answered | Result) -> int:
    """Estimate the bytes of texts and files in a result; data parts are not counted."""
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
    """Return `encode()`, run on the thread if `result` is large. Raises TooManyRequests or Unavailable without room."""
    weight = weigh(result)
    if weight < HEAVY_BYTES:
        return encode()
    if not request.reserved and not isinstance(result, TaskPage):  # a page has its room: see `Unread.listing`
        request.reserve(weight)
    return await limits.offload.run(encode)
