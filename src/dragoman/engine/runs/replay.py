"""Replay: the recorded answers and outcomes with which a task's agent is run again from its start.

Invariant: pure, a function of log and word; its only state is which recorded words have been told again.

A numbered word (a question, a delegation) is found by its place (`engine/runs/places.py`) and compared by its kind and
its name: the parts of a question, the agent of a delegation. Until a branch has told its last recorded word again it
repeats itself, so that nothing else that it says counts. In a log of an earlier version words have no places: they are
taken in their order.

Where a run has branches, one may say something after its own last recorded word that stands in the log before the last
one of another branch. That does not count if the log holds the same there. Else it is written: once too often is better
than lost. If another branch says the same as well before its last recorded word, the log held that, and one is written.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.runs.places import Branch, in_first_branch
from dragoman.engine.words import Say
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
    Submitted,
    TakenMessage,
)
from dragoman.model.ids import timestamp_ms
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.parts import beginning
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState, Usage

SHOWN_CHARACTERS = 60
"""How much of a question the text about a difference shows."""


class ReplayMismatch(Exception):
    """The agent asked something else than in an earlier run: its recorded answers do not fit.

    `place` names the place of the numbered word, or its number. `recorded` says what an earlier run told there, and
    `came` what this one did.
    """

    def __init__(self, place: str, recorded: str, came: str) -> None:
        super().__init__(f"{place}: {recorded} is recorded, but {came} came")
        self.place = place
        self.recorded = recorded
        self.came = came


class RecordedAnswer(Struct, frozen=True):
    """An answer of the caller, and the question that it answers. `asked` is None if it had come before the question.

    `place` is that of the question; empty if it was only counted.
    """

    asked: Message | None
    answer: Message
    place: str = ""


class Replay:
    """The answers a task has received, in order, each with the question it answers.

    `taken` are messages that questions took after the last answered question, `late` those that nobody has taken: the
    next `ask` gets them. `usage` holds the tokens used up to the last answered question; a run that replaces one that
    `crashed`, which died while it worked, counts on from there. `delegated` holds the outcomes of delegations, `passed`
    the answers that were passed on to delegated tasks, by task. The replay is `active` as long as recorded answers are
    left, including those passed on. `began_ms` is when the task was taken on after its last question, or at all; None
    if it has not been. With `places` numbered words have places; without they are counted. `said` are the events up to
    the last recorded answer, of a log with branches; None of any other. `until` is the seq of that answer.
    """

    __slots__ = (
        "_answers",
        "_at",
        "_baseline",
        "_claimed",
        "_delegated",
        "_passed",
        "_said",
        "_taken",
        "_unplaced",
        "active",
        "began_ms",
        "crashed",
        "late",
        "places",
        "repeats",
        "until",
        "usage",
    )

    def __init__(
        self,
        answers: Iterable[RecordedAnswer] = (),
        late: Iterable[Message] = (),
        baseline: dict[str, Artifact] | None = None,
        usage: Usage | None = None,
        delegated: Iterable[Delegated] = (),
        passed: Iterable[tuple[str, Message]] = (),
        began_ms: int | None = None,
        taken: Iterable[RecordedAnswer] = (),
        places: bool = True,
        said: Iterable[Event] | None = None,
        until: int = 0,
    ) -> None:
        self.usage = usage
        self.began_ms = began_ms
        self.places = places
        self._delegated: dict[int, Delegated] = {}
        for each in delegated:
            self._delegated[each.number] = each
        self._passed: dict[str, deque[Message]] = {}
        for child_id, answer in passed:
            self._passed.setdefault(child_id, deque()).append(answer)
        self._answers = dict(enumerate(answers, 1))
        """By their number, in the order of the log."""
        self._at = {recorded.place: number for number, recorded in self._answers.items() if recorded.place}
        self._unplaced = len(self._answers) - len(self._at)
        """How many of them have no place."""
        self._taken = {recorded.place: recorded for recorded in taken}
        self._said = None if said is None else Counter(filter(None, map(_spelled_word, said)))
        """How often the log says what, as far as it has not been said again."""
        self._claimed: Counter[bytes] = Counter()
        """How often branches have said what the log holds after their own last recorded words: it may be another's."""
        self.until = until
        self._baseline = baseline
        self.crashed = baseline is not None
        self.late = tuple(late)
        self.active = False
        self.repeats = False
        """Whether anything that the agent says may be a repetition: see `drops`."""
        self._look()

    def _look(self) -> None:
        """Look whether recorded answers are left."""
        self.active = bool(self._answers or self._passed)
        self.repeats = self.active or bool(self._said)

    def answer(self, question: Sequence[Part], place: str = "") -> Message | None:
        """Take the recorded answer to a question at that place, or to the next one that was counted, if there is one.

        Raises ReplayMismatch if something else is recorded there. The replay stays active then: if the agent goes on
        nevertheless, its words do not count.
        """
        if not (self._answers or self._taken or self._delegated):
            return None
        if (taken := self._taken.pop(place, None)) is not None:
            return taken.answer
        if place and (outcome := self._outcome_at(place)) is not None:
            raise ReplayMismatch(f"place {place}", delegation_to(outcome.agent), question_of(question))
        number = self._at.get(place) or self._next_unplaced(question, place)
        if number is None:
            return None
        recorded = self._answers[number]
        if recorded.asked is not None and _spelled(recorded.asked.parts) != _spelled(question):
            raise ReplayMismatch(_named(recorded, number), question_of(recorded.asked.parts), question_of(question))
        self._forget(number)
        self._look()
        return recorded.answer

    def _next_unplaced(self, question: Sequence[Part], place: str) -> int | None:
        """The number of the next answer that was counted. A word in a branch has no turn, so it takes what fits it."""
        if self._unplaced:
            unplaced = (number for number, recorded in self._answers.items() if not recorded.place)
            if in_first_branch(place):
                return next(unplaced)
            spelled = _spelled(question)
            return next((number for number in unplaced if self._asks(number, spelled)), None)
        if place:
            return None
        return next((number for number, recorded in self._answers.items() if in_first_branch(recorded.place)), None)

    def _asks(self, number: int, spelled: bytes) -> bool:
        asked = self._answers[number].asked
        return asked is None or _spelled(asked.parts) == spelled

    def _forget(self, number: int) -> None:
        recorded = self._answers.pop(number)
        if recorded.place:
            del self._at[recorded.place]
        else:
            self._unplaced -= 1

    def left(self) -> ReplayMismatch:
        """The first recorded word that the run has not told again by its end. For an active replay."""
        for number, recorded in self._answers.items():
            asked = "a message" if recorded.asked is None else question_of(recorded.asked.parts)
            return ReplayMismatch(_named(recorded, number), asked, "the end of the run")
        child_id = next(iter(self._passed))
        return ReplayMismatch(f"task {child_id}", "a question of another agent", "the end of the run")

    def skip(self, count: int) -> None:
        """Take the next `count` recorded answers, whatever was asked."""
        for number in list(self._answers)[:count]:
            self._forget(number)
        self._look()

    def drop(self) -> None:
        """Discard all recorded answers."""
        if self.repeats:  # nothing changes NOTHING
            self._answers.clear()
            self._at.clear()
            self._unplaced = 0
            self._passed.clear()
            self._said = None
            self._look()

    def delegated(self, number: int, agent: str, place: str = "") -> Delegated | None:
        """The recorded outcome of a delegation, or None. Raises ReplayMismatch if something else is recorded."""
        if place and (asked := self._question_at(place)) is not None:
            raise ReplayMismatch(f"place {place}", asked, delegation_to(agent))
        known = self._delegated.get(number)
        if known is None:
            return None
        recorded_at = place_of(known)
        if known.agent != agent or (place and recorded_at and place != recorded_at):
            raise ReplayMismatch(
                f"place {recorded_at}" if recorded_at else f"delegation {number}",
                delegation_to(known.agent),
                delegation_to(agent) + (f" at place {place}" if known.agent == agent else ""),
            )
        self.forget_passed(known.task_id)
        return known

    def _outcome_at(self, place: str) -> Delegated | None:
        return next((known for known in self._delegated.values() if place_of(known) == place), None)

    def _question_at(self, place: str) -> str | None:
        number = self._at.get(place)
        recorded = self._taken.get(place) if number is None else self._answers[number]
        if recorded is None:
            return None
        return "a question" if recorded.asked is None else question_of(recorded.asked.parts)

    def precedes(self, branch: Branch | None) -> bool:
        """Whether that branch has yet to tell a recorded word again, so that all it says until then is a repetition."""
        if self._said is None:
            return self.active
        return self.active and branch is not None and any(map(branch.precedes, self._at))

    def drops(self, branch: Branch | None, word: Say | ArtifactChunk) -> bool:
        """Whether what a branch says does not count, because an earlier run has said it."""
        if self._said is None:
            return self.active
        spelled = _spelled_word(word)
        held = self._said[spelled] > 0
        if held:
            self._said[spelled] -= 1
        if not self.precedes(branch):
            self._claimed[spelled] += held
            return held
        if held or not self._claimed[spelled]:
            return True
        self._claimed[spelled] -= 1  # it was this branch's: what the other one said was new
        return False

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
        if self._passed.pop(child_id, None) is not None:
            self._look()

    def keep(self) -> None:
        """Keep what a dead run emitted: nothing replaces it."""
        self._baseline = None

    def begin(self, chunk: ArtifactChunk, record: Callable[[], Record]) -> ArtifactChunk:
        """The first chunk of an artifact in a run as it is written; `record` is the task as it stands.

        It replaces what a dead run left of the artifact since the last answer, and goes on after what was there before
        if it is to append. It never appends to an artifact that there is not. To be called once for each artifact.
        """
        artifact, append = chunk.artifact, chunk.append
        if self._baseline is None:
            begun = not append or any(known.artifact_id == artifact.artifact_id for known in record().artifacts)
            return chunk if begun else replace(chunk, append=False)
        before = self._baseline.get(artifact.artifact_id)
        kept = before.parts if before is not None and append else ()
        if kept:
            artifact = replace(artifact, parts=(*kept, *artifact.parts))
        return ArtifactChunk(artifact, False, chunk.last_chunk, Placed(replaces=self.until, kept=len(kept)))


NOTHING = Replay()
"""The replay of a task that was just made. Nothing is recorded in it, so that no method changes it."""


def replay_of(head: TaskHead, log: Iterable[Logged], *, crashed: bool) -> tuple[Message, Replay]:
    """Read from the whole log the message that made the task, and what a new run of it must replay.

    `crashed` says that the last run died while it worked; then its events after the last answer are to be replaced.
    """
    first: Message | None = None
    places = False
    fold = Fold(head)
    answers: list[RecordedAnswer] = []
    unasked: list[RecordedAnswer] = []
    until = 0
    baseline: dict[str, Artifact] = {}
    usage: Usage | None = None
    delegated: list[Delegated] = []
    passed: list[tuple[str, Message]] = []
    began: str | None = None
    branched, place = False, ""
    said: list[Logged] = []
    for logged in log:
        event = logged.event
        match event:
            case Submitted(message):
                first, places = message, event.places
            case MessageReceived(message, _):
                status = fold.status
                asked = status.message if status is not None and status.state in INTERRUPTED else None
                if asked is None:
                    unasked.append(RecordedAnswer(None, message))
                elif asked.reference_task_ids:
                    passed.append((asked.reference_task_ids[0], message))
                else:
                    earlier = [each for each in unasked if each.place or not place]
                    unasked = [each for each in unasked if not each.place and place]
                    answers += [*earlier, RecordedAnswer(asked, message, place)]
                if asked is not None:
                    until = logged.seq
                    usage = fold.usage
                    baseline = {artifact.artifact_id: artifact for artifact in fold.record().artifacts}
            case Delegated():
                delegated.append(event)
            case Noted() | ArtifactChunk():
                pass
            case StatusChanged():
                if event.state in INTERRUPTED:
                    began = None
                    place = place_of(event)
                elif event.state is TaskState.WORKING:
                    began = began or event.timestamp
            case Intervened():
                pass
        if not isinstance(event, Submitted | MessageReceived | Intervened) and (placed := event.placed) is not None:
            branched = branched or not in_first_branch(placed.place)
            for taken in placed.taken:
                branched = branched or not in_first_branch(taken.place)
                _take(unasked, taken)
        said.append(logged)
        fold.add(logged.seq, logged.event)
    if first is None:
        raise ValueError("a log begins with Submitted")
    return first, Replay(
        answers,
        (each.answer for each in unasked if not each.place),
        baseline if crashed else None,
        usage,
        delegated,
        passed,
        None if began is None else timestamp_ms(began),
        (each for each in unasked if each.place),
        places,
        _still_said(said if not crashed else [each for each in said if each.seq < until]) if branched else None,
        until,
    )


def _still_said(log: Iterable[Logged]) -> list[Event]:
    """The events of a log, without what a later run has replaced, and without what it repeated with its first chunk."""
    said: list[Logged] = []
    for logged in log:
        event = logged.event
        if isinstance(event, ArtifactChunk) and event.placed is not None and event.placed.replaces is not None:
            artifact, since = event.artifact, event.placed.replaces
            said = [each for each in said if each.seq <= since or not _of_artifact(each.event, artifact)]
            event = replace(event, artifact=replace(artifact, parts=artifact.parts[event.placed.kept :]))
        said.append(Logged(logged.seq, event))
    return [logged.event for logged in said]


def _of_artifact(event: Event, artifact: Artifact) -> bool:
    return isinstance(event, ArtifactChunk) and event.artifact.artifact_id == artifact.artifact_id


def _take(unasked: list[RecordedAnswer], taken: TakenMessage) -> None:
    """Note which question took the oldest message with that id that no other one has taken."""
    for at, each in enumerate(unasked):
        if not each.place and each.answer.message_id == taken.message_id:
            unasked[at] = RecordedAnswer(None, each.answer, taken.place)
            return


def place_of(event: StatusChanged | Delegated) -> str:
    """The place of the numbered word that an event records; empty if it was only counted."""
    return "" if event.placed is None else event.placed.place


def _named(recorded: RecordedAnswer, number: int) -> str:
    return f"place {recorded.place}" if recorded.place else f"question {number}"


def question_of(parts: Sequence[Part]) -> str:
    """A question as a text for people, shortened."""
    text = beginning(parts)
    return f"the question “{shortened(text)}”" if text else "a question without text"


def delegation_to(agent: str) -> str:
    """A delegation as a text for people."""
    return f"a delegation to {agent}"


def shortened(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _spelled_word(said: Event | Say) -> bytes:
    """A digest of what an agent says, without what differs when it is said again; empty for other events."""
    match said:
        case ArtifactChunk(artifact):
            word: tuple[object, ...] = (artifact.artifact_id, artifact.parts)
        case Say(parts, progress):
            word = ("", parts, progress)
        case StatusChanged(TaskState.WORKING, _, message, progress) if message is not None or progress is not None:
            steps = None if progress is None else (progress.current, progress.total)
            word = ("", () if message is None else message.parts, steps)
        case _:
            return b""
    return _digest(word)


def question_name(parts: Sequence[Part]) -> str:
    """The name of a question that has no place of its own."""
    return _digest(parts).hex()


def _digest(value: object) -> bytes:
    return blake2b(msgspec.json.encode(value), digest_size=16).digest()


def _spelled(parts: Sequence[Part]) -> bytes:
    """A question in a comparable form. JSON, because a tuple in a data part is a list once it has been stored."""
    return msgspec.json.encode(parts)
