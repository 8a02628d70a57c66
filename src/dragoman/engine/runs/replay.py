"""Replay: the recorded answers and outcomes with which a task's agent is run again from its start.

Invariant: pure. Until the last recorded answer is consumed the agent repeats itself, so nothing that it says counts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    Submitted,
)
from dragoman.model.ids import timestamp_ms
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, TaskHead, TaskState, Usage

DELIVERED = ".delivered"
"""The note with which a runner marks that a worker begins with the task. Each worker gets one."""

USED = ".used"
"""The note with the tokens used since the task was last given to a worker, and before that: see `spell_usage`."""


class ReplayMismatch(Exception):
    """The agent asked something else than in an earlier run: its recorded answers do not fit."""


class Replay:
    """The answers a task has received, in order, each with the question it answers.

    `late` are messages that came after the last answered question, while the agent worked; its next `ask` gets them. A
    message that came while the agent worked answers whatever it asked next. `usage` holds the tokens used up to the
    last answered question; a run that replaces one that `crashed`, which died while it worked, counts on from there.
    `delegated` holds the outcomes of delegations by number, `passed` the answers that were passed on to delegated
    tasks, by task. `delivered` are the artifacts written since the task was last given to a worker (`DELIVERED`). The
    replay is `active` as long as recorded answers are left, including those passed on. `began_ms` is when the task was
    taken on after its last question, or at all; None if it has not been.
    """

    __slots__ = (
        "_answers",
        "_baseline",
        "_delegated",
        "_passed",
        "active",
        "began_ms",
        "crashed",
        "delivered",
        "late",
        "usage",
    )

    def __init__(
        self,
        answers: Iterable[tuple[Message | None, Message]] = (),
        late: Iterable[Message] = (),
        baseline: dict[str, Artifact] | None = None,
        usage: Usage | None = None,
        delegated: Iterable[Delegated] = (),
        passed: Iterable[tuple[str, Message]] = (),
        delivered: Iterable[str] = (),
        began_ms: int | None = None,
    ) -> None:
        self.usage = usage
        self.began_ms = began_ms
        self.delivered = frozenset(delivered)
        self._delegated: dict[int, Delegated] = {}
        for each in delegated:
            self._delegated[each.number] = each
        self._passed: dict[str, deque[Message]] = {}
        for child_id, answer in passed:
            self._passed.setdefault(child_id, deque()).append(answer)
        self._answers = deque(answers)
        self._baseline = baseline
        self.crashed = baseline is not None
        self.late = tuple(late)
        self.active = bool(self._answers or self._passed)

    @property
    def answers(self) -> bool:
        """Whether recorded answers are left to the agent's own questions."""
        return bool(self._answers)

    def answer(self, question: Sequence[Part]) -> Message:
        """Take the recorded answer to the agent's next question. Raises ReplayMismatch if the question has changed."""
        asked, answer = self._answers[0]
        if asked is not None and _spelled(asked.parts) != _spelled(question):
            raise ReplayMismatch  # the replay stays active: if the agent goes on nevertheless, its words do not count
        self._answers.popleft()
        self.active = bool(self._answers or self._passed)
        return answer

    def skip(self, count: int | None = None) -> tuple[Message, ...]:
        """Take the next `count` recorded answers, or all, whatever was asked."""
        size = len(self._answers) if count is None else min(count, len(self._answers))
        taken = tuple(self._answers.popleft()[1] for _ in range(size))
        if taken:  # nothing changes NOTHING
            self.active = bool(self._answers or self._passed)
        return taken

    def skip_delegated(self, count: int) -> None:
        """Discard the recorded answers that were passed on to the first `count` delegations and led to an outcome."""
        for number, known in self._delegated.items():
            if number <= count:
                self.forget_passed(known.task_id)

    def drop(self) -> None:
        """Discard all recorded answers."""
        self._answers.clear()
        self._passed.clear()
        self.active = False

    def delegated(self, number: int, agent: str) -> Delegated | None:
        """The recorded outcome of a delegation, or None. Raises ReplayMismatch if it went to another agent."""
        known = self._delegated.get(number)
        if known is None:
            return None
        if known.agent != agent:
            raise ReplayMismatch
        self.forget_passed(known.task_id)
        return known

    def next_passed(self, child_id: str) -> Message | None:
        """Take the next recorded answer that was passed on to a delegated task without an outcome; None: no more."""
        answers = self._passed.get(child_id)
        if not answers:
            return None
        answer = answers.popleft()
        if not answers:
            self.forget_passed(child_id)
        return answer

    def forget_passed(self, child_id: str) -> None:
        """Discard the recorded answers that were passed on to a delegated task."""
        self._passed.pop(child_id, None)
        self.active = bool(self._answers or self._passed)

    def keep(self) -> None:
        """Keep what a dead run emitted: nothing replaces it."""
        self._baseline = None

    def replaces(self, artifact_id: str) -> tuple[Part, ...] | None:
        """The parts with which the first chunk of this artifact must begin, because it replaces what a dead run left.

        None when there is nothing to replace. To be called once for each artifact.
        """
        if self._baseline is None:
            return None
        artifact = self._baseline.get(artifact_id)
        return () if artifact is None else artifact.parts


NOTHING = Replay()
"""The replay of a task that was just made. Nothing is recorded in it, so that no method changes it."""


def replay_of(head: TaskHead, log: Iterable[Logged], *, crashed: bool) -> tuple[Message, Replay]:
    """Read from the whole log the message that made the task, and what a new run of it must replay.

    `crashed` says that the last run died while it worked; then its events after the last answer are to be replaced.
    """
    first: Message | None = None
    fold = Fold(head)
    answers: list[tuple[Message | None, Message]] = []
    answered = 0
    baseline: dict[str, Artifact] = {}
    usage: Usage | None = None
    delegated: list[Delegated] = []
    passed: list[tuple[str, Message]] = []
    written: set[str] = set()
    began: str | None = None
    for logged in log:
        event = logged.event
        match event:
            case Submitted(message, _):
                first = message
            case MessageReceived(message, _):
                status = fold.status
                asked = status.message if status is not None and status.state in INTERRUPTED else None
                if asked is not None and asked.reference_task_ids:
                    passed.append((asked.reference_task_ids[0], message))
                else:
                    answers.append((asked, message))
                    answered = answered if asked is None else len(answers)
                if asked is not None:
                    usage = fold.usage
                    baseline = {artifact.artifact_id: artifact for artifact in fold.record().artifacts}
            case Delegated():
                delegated.append(event)
            case Noted(note):
                if DELIVERED in note:
                    written.clear()
            case ArtifactChunk(artifact):
                written.add(artifact.artifact_id)
            case StatusChanged():
                if event.state in INTERRUPTED:
                    began = None
                elif event.state is TaskState.WORKING:
                    began = began or event.timestamp
            case Intervened():
                pass
        fold.add(logged.seq, event)
    if first is None:
        raise ValueError("a log begins with Submitted")
    late = (message for _, message in answers[answered:])
    began_ms = None if began is None else timestamp_ms(began)
    replay = Replay(
        answers[:answered], late, baseline if crashed else None, usage, delegated, passed, written, began_ms
    )
    return first, replay


def spell_usage(usage: Usage) -> str:
    """The text of a note with the tokens."""
    return msgspec.json.encode(usage).decode()


def noted_usage(note: Mapping[str, str] | None) -> Usage | None:
    """The tokens in the notes of a task; None if a worker that has just begun has used none."""
    spelled = (note or {}).get(USED)
    if not spelled:
        return None
    if spelled.startswith("["):
        return msgspec.json.decode(spelled, type=Usage)
    given, made, total = map(int, spelled.split(":"))  # as earlier releases spelled it, without models
    return Usage(given, made, total)


def _spelled(parts: Sequence[Part]) -> bytes:
    """A question in a comparable form. JSON, because a tuple in a data part is a list once it has been stored."""
    return msgspec.json.encode(parts)
