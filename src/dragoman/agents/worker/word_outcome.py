"""WordOutcome: the events that a worker's word adds to its task's log, and the lease after it.

Invariant: a function of log, lease and word. It reads and writes nothing, so that a word can be weighed anew when
somebody else was quicker; only the replay in the view goes on, and is read anew with it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.agents.worker.task_view import TaskView
from dragoman.agents.worker.words import SpokenWord, ToldSleep, ToldStep, adds, says_anything
from dragoman.engine.lineage import child_of
from dragoman.engine.log import Log
from dragoman.engine.runs.endings import NOBODY_TO_ASK, closing, mismatched, too_many_steps, uncertain_step
from dragoman.engine.runs.places import NUMBERS_FROM
from dragoman.engine.runs.replay import (
    A_SLEEP,
    RecordedSleep,
    ReplayMismatch,
    delegation_to,
    is_step,
    recorded_text,
    step_of,
)
from dragoman.engine.runs.word_events import asleep, question, report
from dragoman.engine.words import Ask, Delegation, End, Note, Say, StepDone
from dragoman.model.events import ArtifactChunk, Event, Noted, Placed, StepBegun, Stepped, TakenMessage
from dragoman.model.ids import timestamp
from dragoman.model.task import Record, TaskState, Usage
from dragoman.store.worker_leases import WorkerLease


class WordOutcome:
    """The `events` to write, and the `lease` after them; None for a word without one.

    `task` and `view` are as the word finds them; the lease has the number of the word, and its tokens. `content_bytes`
    bounds the size of the parts in `events`, and their types have been checked; None if that is not known. The task
    records at most `max_steps` steps and sleeps. With `wakes_ms` it sleeps until then, and the lease is over.
    """

    __slots__ = ("_max_steps", "_now_ms", "_task", "_view", "content_bytes", "events", "lease", "wakes_ms")

    def __init__(
        self,
        task: Log,
        view: TaskView,
        lease: WorkerLease | None,
        now_ms: int,
        number: int = 0,
        max_steps: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self.content_bytes: int | None = None
        self.wakes_ms: int | None = None
        self.lease = None if lease is None else replace(lease, reports=max(lease.reports, number))
        self._task = task
        self._view = view
        self._now_ms = now_ms
        self._max_steps = max_steps

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
            case Note(note):
                if not self._view.replay.active and any(
                    self._task.fold.note_of(name) != text for name, text in note.items()
                ):
                    self.events.append(Noted(note))
            case Ask():
                self._ask(word)
            case Delegation():
                self._delegate(word)
            case ToldStep():
                self._step(word)
            case ToldSleep():
                self._sleep(word)
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
        if place < len(view.said):  # a question does not overtake a message that the worker has not read
            if word.place:
                taken = TakenMessage(word.place, view.said[place].message_id)
                self.events.append(Noted({}, Placed(taken=(taken,))))
            return
        if self._task.head.unattended:
            self._close(End(TaskState.COMPLETED, word.parts, NOBODY_TO_ASK))
            return
        self.events.append(
            question(self._task.head, word.parts, self._used, self._now_ms, auth=word.auth, place=word.place or "")
        )

    def _delegate(self, order: Delegation) -> None:
        view, number = self._view, order.number
        if self.lease is not None and self.lease.delegations < number < NUMBERS_FROM:
            self.lease = replace(self.lease, delegations=number)
        recorded = view.delegated.get(number)
        if recorded is not None and recorded.agent != order.agent:
            came = delegation_to(order.agent)
            self.end_mismatched(ReplayMismatch(f"delegation {number}", delegation_to(recorded.agent), came))
        else:
            view.replay.forget_passed(child_of(self._task.head.id, number))

    def _step(self, told: ToldStep) -> None:
        view, word, place = self._view, told.step, told.place
        if self.lease is not None and told.number > self.lease.steps:
            self.lease = replace(self.lease, steps=told.number)
        known = view.steps.at(place)
        if known is not None and not is_step(known, word):
            self.end_mismatched(ReplayMismatch(f"place {place}", recorded_text(known), step_of(word.name, word.key)))
        elif isinstance(known, Stepped):
            view.replay.forget_step(place)
        elif self._task.fold.steps >= self._max_steps:
            self._close(too_many_steps(self._max_steps))
        elif told.done is not None:
            self._record_step(told, told.done)
        elif word.at_most_once:
            if told.uncertain is None and view.times_begun(place):
                self._close(uncertain_step(word.name))
            elif view.times_begun(place) <= (told.uncertain or 0) and not view.begun_here(place):
                self.events.append(StepBegun(word.name, timestamp(self._now_ms), Placed(place)))

    def _sleep(self, told: ToldSleep) -> None:
        view, word, place, lease = self._view, told.sleep, told.place, self.lease
        assert lease is not None, "a worker without a lease does not sleep"
        if told.number > lease.steps:
            lease = self.lease = replace(lease, steps=told.number)
        known = view.steps.at(place)
        hears, now_ms = word.wake_on_message, self._now_ms
        if known is not None and not isinstance(known, RecordedSleep):
            self.end_mismatched(ReplayMismatch(f"place {place}", recorded_text(known), A_SLEEP))
            return
        if known is None:
            if self._task.fold.steps >= self._max_steps:
                self._close(too_many_steps(self._max_steps))
                return
            wakes_ms = word.until_ms if word.for_ms is None else now_ms + word.for_ms
            assert wakes_ms is not None
            if wakes_ms <= now_ms or (hears and len(view.said) > lease.base + lease.questions):
                wakes_ms, hears = min(wakes_ms, now_ms), False  # a message that it has not read ends it at once
        else:
            view.replay.forget_step(place)
            if known.over or known.wakes_ms <= now_ms or told.keeps:
                return
            wakes_ms, hears = known.wakes_ms, known.wakes_on_message
        self.events.append(asleep(wakes_ms, self._used, now_ms, place=place, wakes_on_message=hears))
        if wakes_ms > now_ms and not told.keeps:
            self.wakes_ms, self.lease = wakes_ms, replace(lease, ended="lease")

    def _record_step(self, told: ToldStep, done: StepDone) -> None:
        word, now = told.step, timestamp(self._now_ms)
        self.events.append(
            Stepped(
                word.name,
                word.key,
                timestamp(self._now_ms - told.took_ms),
                now,
                Placed(told.place),
                done.attempts,
                done.form,
                done.result,
                done.failure,
                self._used,
            )
        )

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
