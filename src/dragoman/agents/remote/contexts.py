"""The upstream's own ids of our tasks' conversations, where they differ from ours.

Invariant: a cache of what each task's log holds. Losing it loses nothing.
"""

from collections import OrderedDict

from dragoman.model.task import TaskHead

CONTEXTS_MAX = 10_000
"""The most conversations whose upstream ids are kept in memory; the store has all."""


class Contexts:
    """The conversations with one upstream. `kept`: it adopts the ids that it is given, as far as is known."""

    def __init__(self) -> None:
        self.kept = False
        self._names: OrderedDict[tuple[str, str], str] = OrderedDict()

    def of(self, head: TaskHead) -> str:
        """The upstream's own id of the task's conversation, if it has one and that is in memory, else empty."""
        return self._names.get((head.owner, head.context_id), "")

    def keep(self, head: TaskHead, asked: str, given: str) -> None:
        """Record that the upstream answered with the id `given` for the conversation that we called `asked`."""
        self.kept = asked == given
        if asked != given:
            self._names[head.owner, head.context_id] = given
            while len(self._names) > CONTEXTS_MAX:
                self._names.popitem(last=False)
