"""The answers to the clients of a drill, as plain values: the one half of what the checker compares.

Invariant: nothing is ever taken out or changed. An answer that a client did not hear to its end is not in here.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple


class Seen(NamedTuple):
    """An event as a client saw it: its seq, its kind (`task`, `state` or `text`), and its text or state."""

    seq: int
    kind: str
    text: str


class Asked(NamedTuple):
    """A message that made a task, or was to make one."""

    message_id: str
    agent: str
    text: str


class Called(NamedTuple):
    """A call of a webhook: its `webhook-id`, its task, the event that it told, its body, and when it was under way."""

    webhook_id: str
    task_id: str
    seq: int
    state: str
    body: bytes
    began_s: float
    ended_s: float


class Executed(NamedTuple):
    """An execution of a step of a trip, as the step itself wrote it into the ledger. `at_ms` is since the epoch."""

    task_id: str
    number: int
    lot: str
    key: str
    at_ms: float


@dataclass
class Record:
    """All that clients asked and were told, and all that the steps of agents did.

    `acknowledged` are the tasks that were given for a message, by its id; `ended` the terminal states that were told of
    a task; `followed` what each follower of a task has seen, over all of its connections. `pushed` are the tasks that
    webhooks are told of. `failed` are the calls that no retry made good. `taken_over` counts the tasks that several
    runs wrote, one after the other. `executed` are the lines of the ledger. `disturbed` are the times, in
    milliseconds since the epoch, from when to when a server may have been away.
    """

    asked: dict[str, Asked] = field(default_factory=dict)
    acknowledged: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    followed: list[tuple[str, list[Seen]]] = field(default_factory=list)
    pushed: set[str] = field(default_factory=set)
    called: list[Called] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    executed: list[Executed] = field(default_factory=list)
    disturbed: list[tuple[float, float]] = field(default_factory=list)
    taken_over: int = 0
    retries: int = 0

    def counts(self) -> str:
        """How much there is of everything, for people."""
        events = sum(len(seen) for _, seen in self.followed)
        repeated = len(self.called) - len({call.webhook_id for call in self.called})
        return (
            f"{len(self.asked)} messages, {self.retries} retries, {self.taken_over} tasks taken over, "
            f"{len(self.ended)} ends told, {len(self.followed)} followers saw {events} events, {len(self.called)} "
            f"webhook calls of which {repeated} repeats, {len(self.executed)} steps executed"
        )
