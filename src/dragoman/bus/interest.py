"""Interest: what the other replicas follow, as far as they say so, and the hints that nobody needed so far.

Invariant: a hint is withheld only while every other replica that was heard of late has said that it does not receive
the hint's subject. It is kept for some seconds, and handed out as soon as one says that it does. So a hint that crosses
the word of a new follower on its way comes late, but is not lost.
"""

SUBJECTS = 256
"""How many subjects the tasks are spread over: the number of one is a byte."""

ALL = frozenset(range(SUBJECTS))

FORGET_S = 10.0
"""A replica that has not been heard for so long is gone. For so long after the beginning, some may not be known yet."""

KEPT_S = 3.0
"""How long a withheld hint is kept at least. A lost word of a follower is repeated within a second."""

KEPT_MAX = 10_000
"""The most hints kept in that time: of more, the oldest go earlier. There are up to twice as many in all."""

Kept = dict[int, dict[str, int]]
"""The newest seq of tasks, by their subject."""


class Interest:
    """The subjects that others receive. Times are those of the loop."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[frozenset[int], float]] = {}
        """The subjects that each replica last said it receives, and when it said so."""
        self._wanted = ALL
        self._known_s = 0.0
        self._older: Kept = {}
        self._newer: Kept = {}
        self._count = 0
        self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """Forget everything: until all may have been heard, everything is wanted."""
        self._said.clear()
        self._wanted = ALL
        self._known_s = now_s + FORGET_S
        self._since_s = now_s
        self._turn()
        self._turn()

    def is_wanted(self, subject: int) -> bool:
        """Whether somebody else may receive this subject."""
        return subject in self._wanted

    def withhold(self, subject: int, task_id: str, seq: int) -> None:
        """Keep a hint that nobody needs for those who may yet come."""
        if self._count >= KEPT_MAX:
            self._turn()
        self._newer.setdefault(subject, {})[task_id] = seq
        self._count += 1

    def hear(self, sender: str, said: bytes | None, now_s: float) -> list[tuple[str, int]]:
        """Note what another replica receives, one byte a subject; None if it is of a release that does not say it.

        Returns the withheld hints that somebody wants now, as task and seq.
        """
        self._said[sender] = ALL if said is None else frozenset(said), now_s
        before = self._wanted
        self.age(now_s)
        return [
            hint
            for subject in self._wanted - before
            for kept in (self._older, self._newer)
            for hint in kept.pop(subject, {}).items()
        ]

    def age(self, now_s: float) -> None:
        """Forget replicas that are gone, and hints that were kept long enough."""
        self._said = {name: said for name, said in self._said.items() if now_s - said[1] <= FORGET_S}
        if now_s >= self._known_s:
            self._wanted = frozenset[int]().union(*(subjects for subjects, _ in self._said.values()))
        if now_s - self._since_s >= KEPT_S:
            self._since_s = now_s
            self._turn()

    def _turn(self) -> None:
        self._older, self._newer, self._count = self._newer, {}, 0
