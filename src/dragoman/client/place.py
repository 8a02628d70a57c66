"""The position of a stream's reader, by the ids that the server gives its events.

Invariant: no event is reported twice. An event counts as a repeat only if both its id and its data came before: some
servers give all events one id, and some number each stream from 1.
"""

import re

from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.updates import Update

Batch = list[tuple[str, Update]]
"""Updates, each with an event id: the id of the newest event that is complete with this update, empty if it has none.
"""

KNOWN_MAX = 1024
"""How many of the newest events are remembered, at least. No server repeats more than this from before its reader's
position.
"""

_NUMBER = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", re.ASCII)
"""An event's number, and the number of the frame where one event is several. Longer numbers are timestamps: the
JavaScript SDK numbers its frames by the millisecond, so that two in a row can look like direct successors.
"""


def succeeds(event_id: str, before: str) -> bool:
    """Whether one event directly follows another by number, so that nothing can be missing between them.

    The order is `7`, `8.1`, `8.2`, `8`, `9`: the last frame of an event has the event's number alone.
    """
    old, new = _NUMBER.fullmatch(before), _NUMBER.fullmatch(event_id)
    if old is None or new is None:
        return False
    number, frame = int(old[1]), int(old[2] or 0)
    if frame:
        return int(new[1]) == number and int(new[2] or frame + 1) == frame + 1
    return int(new[1]) == number + 1 and int(new[2] or 1) == 1


class Place:
    """The events of a stream reported so far. `id` is the id of the newest complete event, empty if none has one.

    `retry_ms` is the reconnection delay that a server asked for when it ended the stream, None if it did not.
    """

    __slots__ = ("_known", "id", "retry_ms")

    def __init__(self, event_id: str = "") -> None:
        self.id = event_id
        self.retry_ms: int | None = None
        self._known: dict[str, int] = {}

    def repeats(self, event: ServerSentEvent) -> bool:
        """Record an event, and return whether it came before."""
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
