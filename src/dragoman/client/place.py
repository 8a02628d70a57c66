"""Where the reader of a stream stands, by the numbers that the server gives its events.

Invariant: an event that was told is not told again. Only a number that came before, with the same data, says that it
was: some servers give all events one id, and some number each stream from 1.
"""

import re

from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.updates import Update

Batch = list[tuple[str, Update]]
"""Updates, each with the id of the newest event of which all has been told with it; empty if none has one."""

KNOWN_MAX = 1024
"""Newest events that are told apart, at least: more than any server sends again from before where its reader stands."""

_NUMBER = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", re.ASCII)
"""An event's number, and that of a frame where one event is several. Longer numbers are times: the JavaScript SDK
numbers its frames by the millisecond, so that two that follow each other may seem to be next to each other."""


def succeeds(event_id: str, before: str) -> bool:
    """Whether an event comes right after another by their numbers, so that nothing can be missing in between.

    `7`, `8.1`, `8.2`, `8`, `9`: the last frame of an event has its number alone.
    """
    old, new = _NUMBER.fullmatch(before), _NUMBER.fullmatch(event_id)
    if old is None or new is None:
        return False
    number, frame = int(old[1]), int(old[2] or 0)
    if frame:
        return int(new[1]) == number and int(new[2] or frame + 1) == frame + 1
    return int(new[1]) == number + 1 and int(new[2] or 1) == 1


class Place:
    """What has been told of a stream. `id` is that of the newest event of which all has been, empty if none has one.

    `retry_ms` is when the server, which ended the stream, asks its reader to come back; None if it does not.
    """

    __slots__ = ("_known", "id", "retry_ms")

    def __init__(self, event_id: str = "") -> None:
        self.id = event_id
        self.retry_ms: int | None = None
        self._known: dict[str, int] = {}

    def repeats(self, event: ServerSentEvent) -> bool:
        """Whether the event came before; from now on it has."""
        event_id = event.id
        if not event_id:
            return False
        known, said = self._known, hash(event.data)
        if event_id in known:
            return len(known) > 1 and known[event_id] == said
        known[event_id] = said
        if len(known) >= 2 * KNOWN_MAX:
            self._known = dict(list(known.items())[KNOWN_MAX:])
        return False
