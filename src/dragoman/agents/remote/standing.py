"""The standing of the upstream's task: the state that it last told, noted in the log of ours for operators.

Invariant: nothing is noted before the upstream has named its task. A note costs no write of its own: it goes with the
note of the task's id, with the event that ends our task or asks its caller, or waits briefly for another event. Only a
lost connection is written at once.
"""

from collections.abc import Sequence

from dragoman.agents.remote.failures import Unfound
from dragoman.engine.api import Run
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.errors import A2AError
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import SETTLED, SPELLED
from dragoman.model.task import CancelOutcome, Task, TaskStatus
from dragoman.model.updates import StatusUpdate, Update


class UpstreamStanding:
    """The statuses that the upstream has told of its task: `status` is the last one heard by this run.

    `clock` is ours; the times of statuses are the upstream's.
    """

    __slots__ = ("_clock", "_first_at", "_known", "_last_at", "_lost_at", "_noted", "_run", "_said", "status")

    def __init__(self, run: Run, clock: Clock) -> None:
        self.status: TaskStatus | None = None
        self._run = run
        self._clock = clock
        self._known = False
        self._said = ""
        self._first_at = ""
        self._last_at = ""
        self._lost_at = ""
        self._noted = ("", "")

    def load(self, notes: UpstreamNotes) -> None:
        """Load what an earlier run noted."""
        self._known = bool(notes.task)
        self._first_at, self._lost_at = notes.first, notes.lost
        self._noted = self._said, self._last_at = notes.said, notes.last

    def begin(self, batch: Sequence[Update]) -> dict[str, str]:
        """Return the notes for the moment at which the upstream names its task, with a `batch` of updates."""
        self._known = True
        for update in batch:
            if type(update) is StatusUpdate or type(update) is Task:
                self._take(update.status)
        return self._take_notes()

    def hear(self, status: TaskStatus) -> None:
        """Take a status that the upstream has told."""
        before = self._said
        self._take(status)
        if self._lost_at:
            self.set_link(up=True)
        elif self._said != before and status.state not in SETTLED:
            self._write(soon=True)

    def record(self) -> None:
        """Note what is new, in the write of the event that is put next: the end of our task, or a question."""
        if self._noted != (self._said, self._last_at):
            self._write()

    def set_link(self, up: bool) -> None:
        """Note that the connection broke, or that the upstream is heard again."""
        if not self._known or up is not bool(self._lost_at):
            return
        self._lost_at = "" if up else timestamp(self._clock.now_ms())
        self._write(soon=up, lost=self._lost_at)

    def record_cancel(self, answer: Task | A2AError | Unfound | None) -> None:
        """Note what the upstream answered to a cancel that followed ours."""
        outcome: CancelOutcome = "unanswered"
        if isinstance(answer, Task):
            outcome = "accepted"
            self.hear(answer.status)
        elif isinstance(answer, A2AError):
            outcome = "refused"
        self._write(cancel=outcome)

    def _take(self, status: TaskStatus) -> None:
        self.status = status
        self._said = SPELLED[status.state]
        if status.timestamp:
            self._last_at = status.timestamp
        if not self._first_at:
            self._first_at = self._last_at

    def _take_notes(self) -> dict[str, str]:
        """Return what is to be noted of the last status."""
        first = self._noted == ("", "")
        self._noted = (self._said, self._last_at)
        notes = {"said": self._said} if self._said else {}
        if self._last_at:
            notes["last"] = self._last_at
        if first and self._first_at:
            notes["first"] = self._first_at
        return notes

    def _write(self, *, soon: bool = False, **more: str) -> None:
        """Note the last status, and `more`."""
        if not self._known:
            return
        notes = self._take_notes() | more
        if soon:
            self._run.note_soon(**notes)
        else:
            self._run.note(**notes)
