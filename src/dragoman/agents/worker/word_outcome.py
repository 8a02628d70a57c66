"""WordOutcome: the events that a worker's word adds to its task's log, and the lease after it.

Invariant: a function of log, lease and word. It reads and writes nothing, so that a word can be weighed anew when
somebody else was quicker; only the replay in the view goes on, and is read anew with it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.agents.worker.task_view import TaskView
from dragoman.agents.worker.words import SpokenWord, adds, says_anything
from dragoman.engine.lineage import child_of
from dragoman.engine.log import Log
from dragoman.engine.runs.endings import closing, mismatched
from dragoman.engine.runs.replay import ReplayMismatch, delegation_to
from dragoman.engine.runs.word_events import question, report
from dragoman.engine.words import Ask, Delegation, End, Say
from dragoman.model.events import ArtifactChunk, Event, Noted
from dragoman.model.task import Record, Usage
from dragoman.store.worker_leases import WorkerLease


class WordOutcome:
    """The `events` to write, and the `lease` after them; None for a word without one.

    `task` and `view` are as the word finds them; the lease has the number of the word, and its tokens. `content_bytes`
    bounds the size of the parts in `events`, and their types have been checked; None if that is not known.
    """

    __slots__ = ("_now_ms", "_task", "_view", "content_bytes", "events", "lease")

    def __init__(self, task: Log, view: TaskView, lease: WorkerLease | None, now_ms: int, number: int = 0) -> None:
        self.events: list[Event] = []
        self.content_bytes: int | None = None
        self.lease = None if lease is None else replace(lease, reports=max(lease.reports, number))
        self._task = task
        self._view = view
        self._now_ms = now_ms

    @property
    def _used(self) -> Usage | None:
        """The tokens of the task with this word."""
        return self._task.fold.usage if self.lease is None else self.lease.used

    def count(self, used: Usage) -> None:
        """Count tokens, unless an earlier worker's have been counted for the same words."""
        if self.lease is not None and not self._view.replay.active:
            self.lease = replace(self.lease, used=(self.lease.used or Usage()) + used)

    def add(self, word: SpokenWord, record: Callable[[], Record], *, numbered: bool, weight: int = 0) -> None:
        """Add the events of a word but a delegation's. `record` is the task as callers see it.

        `weight` is that of a chunk of nothing but text, 0 of every other word: see `Bounds.weigh_plain`.
        """
        match word:
            case Say():
                self._report(word, record, numbered=numbered)
            case ArtifactChunk():
                if not self._view.replay.active:
                    chunk = self._view.chunk(word, self._task.record)
                    self.events.append(chunk)
                    if weight and chunk.artifact is word.artifact:  # else something of an earlier worker goes before it
                        self.content_bytes = weight
            case Ask():
                self._ask(word)
            case Delegation():
                self._delegate(word)
            case End():
                self._end(word)

    def _report(self, word: Say, record: Callable[[], Record], *, numbered: bool) -> None:
        if not says_anything(word) or self._view.replay.active:
            return
        if not numbered and not adds(record(), word):
            return
        self.events.append(report(self._task.head, word, self._used, self._now_ms))

    def _ask(self, word: Ask) -> None:
        lease, view = self.lease, self._view
        place = view.answered
        if lease is not None:
            if 0 < word.number <= lease.questions:
                return  # the answer arrived while the question was repeated
            place = lease.base + lease.questions
            self.lease = replace(lease, questions=lease.questions + 1)
        if word.note:
            self.events.append(Noted(word.note))
        if lease is not None and lease.replays:
            try:
                if view.replay.answer(word.parts) is not None:
                    return
            except ReplayMismatch as mismatch:
                self.end_mismatched(mismatch)
                return
        if place < len(view.said):
            return  # a question does not overtake a message that the worker has not read
        self.events.append(question(self._task.head, word.parts, self._used, self._now_ms, auth=word.auth))

    def _delegate(self, order: Delegation) -> None:
        view, number = self._view, order.number
        if self.lease is not None and number > self.lease.delegations:
            self.lease = replace(self.lease, delegations=number)
        recorded = view.delegated.get(number)
        if recorded is not None and recorded.agent != order.agent:
            came = delegation_to(order.agent)
            self.end_mismatched(ReplayMismatch(f"delegation {number}", delegation_to(recorded.agent), came))
        else:
            view.replay.forget_passed(child_of(self._task.head.id, number))

    def _end(self, word: End) -> None:
        if self._view.replay.active:
            self.end_mismatched(self._view.replay.left())
            return
        for artifact in word.artifacts:
            self.events.append(self._view.chunk(ArtifactChunk(artifact, last_chunk=True), self._task.record))
        self._close(word)

    def end_mismatched(self, mismatch: ReplayMismatch) -> None:
        """End the task, because its worker asks or delegates otherwise than the one before."""
        self._close(mismatched(self._task.head, mismatch))

    def _close(self, end: End) -> None:
        if self.lease is not None:
            self.lease = replace(self.lease, ended="task")
        self.events.append(closing(self._task.head, end.state, self._now_ms, end.parts, end.reason, self._used))
