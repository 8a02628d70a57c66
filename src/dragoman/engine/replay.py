"""Replay: what a run that is taken up again, by running its agent anew, must not do twice.

Invariant: pure. Until the last recorded answer is consumed, the agent is where it already was: nothing it says counts.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from dragoman.model.events import ArtifactChunk, Delegated, Logged, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, TaskHead, Usage


class ReplayMismatch(Exception):
    """The agent asked something else than it had asked before: its recorded answers do not fit (DESIGN §5)."""


class Replay:
    """The answers a task has received, in order, each with the question it answers.

    `late` are messages that came after the last answered question, while the agent worked; its next `ask` gets them. A
    message that came while the agent worked answers whatever it asked next. `usage` is what had been used up to the
    last answered question; a run that takes the place of one that `crashed` counts on from there. `delegated` is what
    delegations came to, by number; `passed` the answers that were handed on to tasks that had been delegated, by task.
    """

    __slots__ = ("_answers", "_baseline", "_delegated", "_passed", "late", "usage")

    def __init__(
        self,
        answers: Iterable[tuple[Message | None, Message]] = (),
        late: Iterable[Message] = (),
        baseline: dict[str, Artifact] | None = None,
        usage: Usage | None = None,
        delegated: Iterable[Delegated] = (),
        passed: Iterable[tuple[str, Message]] = (),
    ) -> None:
        self.usage = usage
        self._delegated = {each.number: each for each in delegated}
        self._passed: dict[str, deque[Message]] = {}
        for child_id, answer in passed:
            self._passed.setdefault(child_id, deque()).append(answer)
        self._answers = deque(answers)
        self._baseline = baseline
        self.late = deque(late)

    @property
    def active(self) -> bool:
        """Whether recorded answers are left, be they passed on."""
        return bool(self._answers) or any(self._passed.values())

    @property
    def answers(self) -> bool:
        """Whether recorded answers are left to the agent's own questions."""
        return bool(self._answers)

    @property
    def crashed(self) -> bool:
        """Whether the run before this one died while it worked."""
        return self._baseline is not None

    def answer(self, question: Sequence[Part]) -> Message:
        """The recorded answer to the agent's next question. Raises ReplayMismatch if that was another one."""
        asked, answer = self._answers[0]
        if asked is not None and _spelled(asked.parts) != _spelled(question):
            raise ReplayMismatch  # and stays active: what an agent says that goes on nevertheless does not count
        self._answers.popleft()
        return answer

    def drop(self) -> None:
        """Replay no answers."""
        self._answers.clear()
        self._passed.clear()

    def delegated(self, number: int, agent: str) -> Delegated | None:
        """What the delegation of that number came to, if it did. Raises ReplayMismatch if it was to another agent."""
        known = self._delegated.get(number)
        if known is None:
            return None
        if known.agent != agent:
            raise ReplayMismatch
        self._passed.pop(known.task_id, None)
        return known

    def passed(self, child_id: str) -> deque[Message]:
        """The answers that were handed on to a task that has not come to anything yet; what is taken is taken out."""
        return self._passed.setdefault(child_id, deque())

    def keep(self) -> None:
        """What a dead run left stands: nothing replaces it."""
        self._baseline = None

    def replaces(self, artifact_id: str) -> tuple[Part, ...] | None:
        """The parts that a first chunk of this artifact must begin with, because it replaces what a dead run left.

        None when there is nothing to replace. Asked once for each artifact.
        """
        if self._baseline is None:
            return None
        artifact = self._baseline.get(artifact_id)
        return () if artifact is None else artifact.parts


def replay_of(head: TaskHead, log: Iterable[Logged], *, crashed: bool) -> tuple[Message, Replay]:
    """The message that made the task, and what a new run of it must replay, from the whole log.

    With `crashed` the last run died while it worked: what it wrote after the last answer is to be replaced.
    """
    first: Message | None = None
    fold = Fold(head)
    answers: list[tuple[Message | None, Message]] = []
    answered = 0
    baseline: dict[str, Artifact] = {}
    usage: Usage | None = None
    delegated: list[Delegated] = []
    passed: list[tuple[str, Message]] = []
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
            case StatusChanged() | ArtifactChunk() | Noted():
                pass
        fold.add(logged.seq, event)
    if first is None:
        raise ValueError("a log begins with Submitted")
    late = (message for _, message in answers[answered:])
    replay = Replay(answers[:answered], late, baseline if crashed else None, usage, delegated, passed)
    return first, replay


def _spelled(parts: Sequence[Part]) -> bytes:
    """What two equal questions have in common: a tuple is a list once it was written."""
    return msgspec.json.encode(parts)
