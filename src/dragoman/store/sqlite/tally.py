"""Tally: the changes to the counters of tasks within one transaction.

Invariant: the counts of a scope (an owner with an agent) are the sums over its contexts.
"""


class Tally:
    """The changes to the counters within one transaction, written once at its end."""

    def __init__(self) -> None:
        self.contexts: dict[tuple[int, str], list[int]] = {}
        self.days: dict[tuple[int, str], int] = {}
        """Tasks made, by day and owner, for owners with a daily limit."""

    def move(self, scope: int, context: str, old: int | None, new: int | None) -> None:
        """Count one task from state `old` to `new`; None means that the task does not exist."""
        if old == new:
            return
        counts = self.contexts.setdefault((scope, context), [0] * 8)
        if old is not None:
            counts[old] -= 1
        if new is not None:
            counts[new] += 1

    def scopes(self) -> dict[int, list[int]]:
        """The changes summed over the contexts of each scope."""
        sums: dict[int, list[int]] = {}
        for (scope, _), counts in self.contexts.items():
            total = sums.setdefault(scope, [0] * 8)
            for state, count in enumerate(counts):
                total[state] += count
        return sums
