"""The calls of tools that are under way here, and what sessions want to be told.

Invariant: a call is found only by the principal and in the session that made it.
"""

from collections import OrderedDict

from dragoman.bindings.mcp_following import Following
from dragoman.bindings.mcp_listening import Listeners

SESSIONS_REMEMBERED = 10_000
"""Sessions of which it is known which log messages they want; the oldest are forgotten first."""

Place = tuple[str, str]
"""The principal's id, and the key of the session."""


class Underway:
    """By principal and session: calls by the raw id of their request, and the level of the logs that were asked for.

    `listeners` are those who are told what no call asked for.
    """

    def __init__(self, listeners: Listeners) -> None:
        self.listeners = listeners
        self._calls: dict[Place, dict[bytes, Following]] = {}
        self._levels: OrderedDict[Place, str] = OrderedDict()

    def add(self, place: Place, request_id: bytes, call: Following) -> None:
        """A call has begun. Outside of a session none is kept: all begin to count at 1 there."""
        if place[1]:
            self._calls.setdefault(place, {})[request_id] = call

    def remove(self, place: Place, request_id: bytes, call: Following) -> None:
        """A call has ended."""
        calls = self._calls.get(place, {})
        if calls.get(request_id) is call:
            del calls[request_id]
            if not calls:
                del self._calls[place]

    def find(self, place: Place, request_id: bytes) -> Following | None:
        """The call of that request."""
        return self._calls.get(place, {}).get(request_id)

    def of_task(self, place: Place, task_id: str) -> list[Following]:
        """The calls that wait for a task."""
        return [call for call in self._calls.get(place, {}).values() if call.task_id == task_id]

    def listen(self, place: Place, level: str) -> None:
        """A session wants log messages from that level on."""
        if not place[1]:
            return
        self._levels[place] = level
        self._levels.move_to_end(place)
        if len(self._levels) > SESSIONS_REMEMBERED:
            self._levels.popitem(last=False)

    def level(self, place: Place) -> str | None:
        """The level that a session has asked for."""
        return self._levels.get(place)

    def forget(self, place: Place) -> None:
        """A session is over. Its calls go on until whoever made them leaves."""
        self._levels.pop(place, None)
