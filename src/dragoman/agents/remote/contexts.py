"""What an upstream calls the conversations of our tasks, where it calls them otherwise than we do.

Invariant: a cache of what is in the log of each task; losing it loses nothing.
"""

from collections import OrderedDict

from dragoman.model.task import TaskHead

CONTEXTS_MAX = 10_000
"""Conversations whose names at an upstream are kept in memory; the store has all."""


class Contexts:
    """The conversations with one upstream. `kept`: it keeps to the names that it is given, as far as is known."""

    def __init__(self) -> None:
        self.kept = False
        self._names: OrderedDict[tuple[str, str], str] = OrderedDict()

    def of(self, head: TaskHead) -> str:
        """The upstream's own id of the conversation of a task, if it has one and that is in memory, else empty."""
        return self._names.get((head.owner, head.context_id), "")

    def keep(self, head: TaskHead, asked: str, given: str) -> None:
        """The upstream calls a conversation `given` that was called `asked` to it."""
        self.kept = asked == given
        if asked != given:
            self._names[head.owner, head.context_id] = given
            while len(self._names) > CONTEXTS_MAX:
                self._names.popitem(last=False)
