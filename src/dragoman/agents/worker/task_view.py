"""TaskView: what a task's log says to the words of one worker: the answers, outcomes and artifacts before them.

Invariant: a function of the log and the lease. A replica that has read both makes the same of a word as any other.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from dragoman.agents.worker.words import SpokenWord
from dragoman.engine.lineage import child_of
from dragoman.engine.runs.replay import RecordedSleep, RecordedSteps, replay_of
from dragoman.engine.words import Say
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, Record, TaskHead
from dragoman.store.worker_leases import WorkerLease


class TaskView:
    """The log until `seq`.

    `message` made the task. `said` are the caller's further messages, but those that answered the question of a
    delegated task: these are `passed`, by that task. The first `answered` of `said` came until the last answered
    question, or were taken by questions. `asked` is the open question. `delegated` are the outcomes of delegations, by
    number, and `steps` those of steps, and the sleeps: all of them, for nothing is taken out. The `replay` has what the
    worker has still to tell again.
    """

    __slots__ = (
        "_since",
        "_written",
        "answered",
        "asked",
        "delegated",
        "message",
        "passed",
        "replay",
        "said",
        "seq",
        "steps",
    )

    def __init__(self, head: TaskHead, log: Sequence[Logged], lease: WorkerLease | None, *, delivered: int) -> None:
        """`lease` is that of the worker; without one a word is told while the task is queued.

        `delivered` counts the leases of workers that came before.
        """
        self._since = log[-1].seq if lease is None else lease.since
        before = [logged for logged in log if logged.seq <= self._since]
        self.message, self.replay = replay_of(head, before, crashed=delivered > 0)
        self.said: list[Message] = []
        self.passed: dict[str, list[Message]] = {}
        self.answered = 0
        self.asked: Message | None = None
        self.delegated: dict[int, Delegated] = {}
        self.steps = RecordedSteps()
        self._written: set[str] = set()
        self.seq = answered = 0
        for logged in log:
            self.add(logged)
            if logged.seq <= self._since:
                answered = self.answered
        if lease is not None and lease.replays:
            self.replay.skip(min(lease.questions, answered))
            for number in range(lease.delegations if self.replay.active else 0):
                self.replay.forget_passed(child_of(head.id, number + 1))
            for number in range(lease.steps if self.replay.active else 0):
                self.replay.forget_step(str(number + 1))
        else:
            self.replay.drop()

    def add(self, logged: Logged) -> None:
        """Take in the next event."""
        self.seq, event = logged.seq, logged.event
        match event:
            case ArtifactChunk():  # as almost every one
                if self.seq > self._since:
                    self._written.add(event.artifact.artifact_id)
            case MessageReceived(message, _):
                asked = self.asked
                if asked is not None and asked.reference_task_ids:
                    self.passed.setdefault(asked.reference_task_ids[0], []).append(message)
                else:
                    self.said.append(message)
                    if asked is None:
                        self.steps.add_message()
                    else:
                        self.answered = len(self.said)
            case StatusChanged(state=state, message=said, placed=placed):
                self.asked = said if state in INTERRUPTED else None
                if placed is not None and placed.wakes_ms is not None:
                    self.steps.add_sleep(placed.place, RecordedSleep(placed.wakes_ms, placed.wakes_on_message))
            case Delegated():
                self.delegated[event.number] = event
            case StepBegun() | Stepped():
                self.steps.add_event(event)
            case Noted(placed=placed):
                taken = {each.message_id for each in (() if placed is None else placed.taken)}
                for number, message in enumerate(self.said[self.answered :] if taken else (), self.answered + 1):
                    if message.message_id in taken:
                        self.answered = number
            case Submitted() | Intervened():
                pass
            case _:
                assert_never(event)

    @property
    def passed_on(self) -> str | None:
        """The delegated task whose question is open; None if none is."""
        return self.asked.reference_task_ids[0] if self.asked is not None and self.asked.reference_task_ids else None

    def recorded_step(self, place: str) -> Stepped | None:
        """The outcome of the step at a place; None if there is none."""
        known = self.steps.at(place)
        return known if isinstance(known, Stepped) else None

    def times_begun(self, place: str) -> int:
        """How often earlier workers have begun the step at a place that has no outcome: see `StepBegun`."""
        return self.replay.times_begun(place)

    def begun_here(self, place: str) -> bool:
        """Whether this worker has begun the step at a place that has no outcome."""
        return self.steps.times_begun(place) > self.times_begun(place)

    def stands_alone(self, word: SpokenWord, number: int) -> bool:
        """Whether a word says the same, whatever its worker has told other replicas since `seq`: see
        `WorkerLeaseChange.number`.
        """
        if self.replay.active:
            return False
        if isinstance(word, ArtifactChunk):
            return word.artifact.artifact_id in self._written or not (word.append or self.replay.crashed)
        return isinstance(word, Say) and number > 0

    def chunk(self, word: ArtifactChunk, record: Callable[[], Record]) -> ArtifactChunk:
        """An artifact or a chunk of one as it is written. The first one replaces what an earlier worker left of it.

        `record` joins all chunks: it is called for the first one alone, else a task of many would cost their square.
        """
        return word if word.artifact.artifact_id in self._written else self.replay.begin(word, record)
