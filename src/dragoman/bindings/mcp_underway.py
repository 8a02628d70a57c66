"""The tool calls under way here, and the log levels that sessions have set.

Invariant: a call is found only by the principal and in the session that made it.
"""

from collections import OrderedDict

from dragoman.bindings.mcp_following import Following
from dragoman.bindings.mcp_listening import Listeners

SESSIONS_REMEMBERED = 10_000
"""How many sessions' log levels are remembered; the oldest are forgotten first."""

Place = tuple[str, str]
"""The principal's id, and the key of the session."""


class Underway:
    """Calls by the raw id of their request, and log levels, for each principal and session.

    `listeners` holds the streams for notifications outside of calls.
    """

    def __init__(self, listeners: Listeners) -> None:
        self.listeners = listeners
        self._calls: dict[Place, dict[bytes, Following]] = {}
        self._levels: OrderedDict[Place, str] = OrderedDict()

    def add(self, place: Place, request_id: bytes, call: Following) -> None:
        """Add a call that has begun. Without a session none is kept, because such clients all count ids from 1."""
        if place[1]:
            self._calls.setdefault(place, {})[request_id] = call

    def remove(self, place: Place, request_id: bytes, call: Following) -> None:
        """Remove a call that has ended."""
        calls = self._calls.get(place, {})
        if calls.get(request_id) is call:
            del calls[request_id]
            if not calls:
                del self._calls[place]

    def find(self, place: Place, request_id: bytes) -> Following | None:
        """Find the call of a request."""
        return self._calls.get(place, {}).get(request_id)

    def of_task(self, place: Place, task_id: str) -> list[Following]:
        """Find the calls that wait for a task."""
        return [call for call in self._calls.get(place, {}).values() if call.task_id == task_id]

    def listen(self, place: Place, level: str) -> None:
        """Set the lowest level of the log messages that a session wants."""
        if not place[1]:
            return
        self._levels[place] = level
        self._levels.move_to_end(place)
        if len(self._levels) > SESSIONS_REMEMBERED:
            self._levels.popitem(last=False)

    def level(self, place: Place) -> str | None:
        """The level that a session has set; None if it wants no log messages."""
        return self._levels.get(place)

    def forget(self, place: Place) -> None:
        """End a session. Its calls go on until their callers leave."""
        self._levels.pop(place, None)
