"""Replay: the recorded answers and outcomes with which a task's agent is run again from its start.

Invariant: pure, a function of log and word; its only state is which recorded words have been told again.

A numbered word (a question, a delegation, a step, a sleep) is found by its place (`engine/runs/places.py`) and compared
by its kind and its name: the parts of a question, the agent of a delegation, the name and the key of a step. The time
of a sleep is not compared: the recorded one holds. Until a branch has told its last recorded word again it repeats
itself, so that nothing else that it says counts. In a log of an earlier version words have no places: they are taken
in their order.

The words of named branches stay, since such a branch may be run again in one run, and may be left out by a later one:
they are never missed, and nothing is dropped because of them. The framework that names a branch says everything again
that was said since the last word outside of such branches.

Where a run has branches, one may say something after its own last recorded word that stands in the log before the last
one of another branch. That does not count if the log holds the same there. Else it is written: once too often is better
than lost. If another branch says the same as well before its last recorded word, the log held that, and one is written.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import takewhile

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.runs.places import Branch, in_first_branch, in_named_branch, in_other_branch
from dragoman.engine.words import PATCHED, Say, Step
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
    StepBegun,
    Stepped,
    Submitted,
    TakenMessage,
)
from dragoman.model.ids import timestamp_ms
from dragoman.model.lifecycle import Fold, fold, is_plain_text
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.parts import beginning
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState, Usage

A_SLEEP = "a sleep"

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


class RecordedSleep(Struct, frozen=True):
    """A sleep until `wakes_ms`, or until a message comes, if `wakes_on_message`; `over` says that one has come."""

    wakes_ms: int
    wakes_on_message: bool = False
    over: bool = False


class RecordedSteps:
    """The recorded steps and sleeps by place, and the steps of which only the beginning is recorded.

    `patches` are the changes of the agent's code that the task knows. They have no places among the words: code of
    before a change does not name it, and code long after may not name it any more. These, and the words of named
    branches, stay when they are taken, and do not count as left.
    """

    __slots__ = ("_begun", "_hearing", "_lasting", "_outcomes", "patches")

    def __init__(self) -> None:
        self.patches: set[str] = set()
        self._outcomes: dict[str, Stepped | RecordedSleep] = {}
        self._lasting: dict[str, Stepped | RecordedSleep] = {}
        """Those that stay when they are taken."""
        self._begun: dict[str, list[StepBegun]] = {}
        self._hearing: list[str] = []
        """The places of sleeps that the next message of the caller ends."""

    def __len__(self) -> int:
        return len(self._outcomes)

    def add_event(self, event: StepBegun | Stepped) -> None:
        """Take in the next event of the log that is about a step."""
        place = event.placed.place
        if isinstance(event, StepBegun):
            self._begun.setdefault(place, []).append(event)
            return
        if event.name == PATCHED:
            self.patches.add(event.key)
        self._outcomes_like(place)[place] = event
        self._begun.pop(place, None)

    def add_sleep(self, place: str, sleep: RecordedSleep) -> None:
        """Take in the next sleep of the log."""
        self._outcomes_like(place)[place] = sleep
        if sleep.wakes_on_message:
            self._hearing.append(place)

    def add_message(self) -> None:
        """Take in a message of the caller, which ends the sleeps that it is to end."""
        for place in self._hearing:
            outcomes = self._outcomes_like(place)
            if isinstance(sleep := outcomes.get(place), RecordedSleep):
                outcomes[place] = replace(sleep, over=True)
        self._hearing.clear()

    def _outcomes_like(self, place: str) -> dict[str, Stepped | RecordedSleep]:
        return self._lasting if in_named_branch(place) or place.startswith(PATCHED) else self._outcomes

    @property
    def places(self) -> Iterable[str]:
        """The places of the outcomes that were not taken."""
        return self._outcomes

    @property
    def named_places(self) -> Iterable[str]:
        """The places of the outcomes in named branches."""
        return filter(in_named_branch, self._lasting)

    def at(self, place: str) -> Stepped | RecordedSleep | StepBegun | None:
        """The outcome at a place, or else the beginning of the step there; None if there is neither."""
        begun = self._begun.get(place)
        return self._outcomes_like(place).get(place) or (begun[0] if begun else None)

    def times_begun(self, place: str) -> int:
        """How often the step at a place was begun that has no outcome."""
        return len(self._begun.get(place, ()))

    def take_outcome(self, place: str) -> bool:
        """Take the outcome at a place. Returns whether there was one."""
        return place in self._lasting or self._outcomes.pop(place, None) is not None

    def drop(self) -> None:
        """Discard all outcomes."""
        self._outcomes.clear()
        self._lasting.clear()
        self._hearing.clear()


class PlacesLeft:
    """The last places of recorded words in each branch, to say whether a branch has yet to come to one.

    A word that was told again is not taken out: its branch has gone past it.
    """

    __slots__ = ("_last",)

    def __init__(self, places: Iterable[str]) -> None:
        self._last: dict[str, tuple[int, dict[str, int]]] = {}
        """By the path of a branch: the count of its last word, and the tasks started after that, which have others."""
        for place in places:
            self._add_place(place)

    def _add_place(self, place: str) -> None:
        path, rest = "", place
        while True:
            count, deeper, rest = rest.partition("/")
            if count.isdecimal():  # else the path so far was too long to be written out
                last, starts = self._last.get(path, (0, {}))
                if int(count) > last:
                    last, starts = int(count), {}
                    self._last[path] = last, starts
                if deeper and int(count) == last:
                    name, _, number = rest.partition("/")[0].rpartition("#")
                    starts[name] = max(starts.get(name, 0), int(number))
            if not deeper:
                return
            path += f"{count}/"

    def are_after(self, branch: Branch) -> bool:
        """Whether a recorded word is yet to be told by that branch, or by one that it has yet to start."""
        last, starts = self._last.get(branch.path, (0, {}))
        return branch.precedes(last, starts)


class Replay:
    """The answers a task has received, in order, each with the question it answers.

    `taken` are messages that questions took after the last answered question, `late` those that nobody has taken: the
    next `ask` gets them. `usage` holds the tokens used up to the last answered question; a run that replaces one that
    `crashed`, which died while it worked, counts on from there. `delegated` holds the outcomes of delegations, `passed`
    the answers that were passed on to delegated tasks, by task, and `steps` the outcomes of steps, and sleeps. The
    replay is `active` as long as any of these are left, but for outcomes of delegations. `began_ms` is when
    the task was taken on after its last question, or at all; None if it has not been. With `places` numbered words have
    places; without they are counted. `said` are the events up to the last recorded answer, of a log with branches; None
    of any other. `until` is the seq of that answer.
    """

    __slots__ = (
        "_agents_at",
        "_answers",
        "_at",
        "_baseline",
        "_claimed",
        "_delegated",
        "_named",
        "_passed",
        "_places_left",
        "_said",
        "_steps",
        "_taken",
        "_unplaced",
        "_untold",
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
        steps: RecordedSteps | None = None,
    ) -> None:
        self.usage = usage
        self.began_ms = began_ms
        self.places = places
        self._delegated: dict[int, Delegated] = {}
        for each in delegated:
            self._delegated[each.number] = each
        self._agents_at = {place_of(each): each.agent for each in self._delegated.values() if each.placed is not None}
        """The agents of the delegations by place."""
        self._untold = {each.number for each in self._delegated.values() if not in_named_branch(place_of(each))}
        """The numbers of those that were not told again."""
        self._passed: dict[str, deque[Message]] = {}
        for child_id, answer in passed:
            self._passed.setdefault(child_id, deque()).append(answer)
        placed = list(answers)
        self._named = {each.place: each for each in placed if in_named_branch(each.place)}
        """The answers to questions in named branches, which stay."""
        for outcome in self._delegated.values():
            if in_named_branch(place_of(outcome)):
                self._passed.pop(outcome.task_id, None)
        self._answers = dict(enumerate((each for each in placed if each.place not in self._named), 1))
        """By their number, in the order of the log."""
        self._at = {recorded.place: number for number, recorded in self._answers.items() if recorded.place}
        self._unplaced = len(self._answers) - len(self._at)
        """How many of them have no place."""
        self._taken = {recorded.place: recorded for recorded in taken}
        self._steps = RecordedSteps() if steps is None else steps
        self._places_left: PlacesLeft | None = None
        """Made when first asked for: only a log with branches needs it."""
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
        self.active = bool(self._answers or self._passed or self._steps)
        self.repeats = self.active or bool(self._said)

    def answer(self, question: Sequence[Part], place: str = "") -> Message | None:
        """Take the recorded answer to a question at that place, or to the next one that was counted, if there is one.

        Raises ReplayMismatch if something else is recorded there. The replay stays active then: if the agent goes on
        nevertheless, its words do not count.
        """
        if (taken := self._taken.pop(place, None)) is not None:
            if in_named_branch(place):
                self._named[place] = taken
            return taken.answer
        if (named := self._named.get(place)) is not None:
            if named.asked is not None and _spelled(named.asked.parts) != _spelled(question):
                raise ReplayMismatch(f"place {place}", question_of(named.asked.parts), question_of(question))
            return named.answer
        if place and (other := self._step_at(place) or self._outcome_at(place)) is not None:
            raise ReplayMismatch(f"place {place}", other, question_of(question))
        if not self._answers:
            return None
        number = self._at.get(place) or self._next_unplaced(question, place)
        if number is None:
            return None
        recorded = self._answers[number]
        if recorded.asked is not None and _spelled(recorded.asked.parts) != _spelled(question):
            raise ReplayMismatch(
                _place_text(recorded, number), question_of(recorded.asked.parts), question_of(question)
            )
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
            return ReplayMismatch(_place_text(recorded, number), asked, "the end of the run")
        for place in self._steps.places:
            return ReplayMismatch(f"place {place}", self._step_at(place) or "", "the end of the run")
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
            self._steps.drop()
            self._said = None
            self._look()

    def delegated(self, number: int, agent: str, place: str = "") -> Delegated | None:
        """The recorded outcome of a delegation, or None. Raises ReplayMismatch if something else is recorded."""
        if place and (other := self._step_at(place) or self._question_at(place)) is not None:
            raise ReplayMismatch(f"place {place}", other, delegation_to(agent))
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
        self._untold.discard(number)
        self.forget_passed(known.task_id)
        return known

    def stepped(self, word: Step, place: str) -> Stepped | None:
        """Take the recorded outcome of a step; None if there is none. Raises ReplayMismatch if another word is recorded
        there, or a step of another name or key."""
        other, known = self._question_at(place) or self._outcome_at(place), self._steps.at(place)
        if other is None and known is not None and not is_step(known, word):
            other = recorded_text(known)
        if other is not None:
            raise ReplayMismatch(f"place {place}", other, step_of(word.name, word.key))
        self.forget_step(place)
        return known if isinstance(known, Stepped) else None

    def knows_patch(self, name: str, branch: Branch | None) -> bool | None:
        """Whether a change of the code is recorded; None if it is not, and no run has come further than that branch."""
        if name in self._steps.patches:
            return True
        if branch is not None and branch.named:
            repeats = PlacesLeft((*self._named, *self._steps.named_places)).are_after(branch)
        else:
            repeats = self.active and (branch is None or self.precedes(branch))
        return False if repeats or self._precedes_outcome(branch) else None

    def _precedes_outcome(self, branch: Branch | None) -> bool:
        """Whether that branch has yet to come to a delegation, or to a question that took an earlier message: what it
        says until then counts nevertheless, so that `precedes` passes over them."""
        if branch is None or not self.places:
            return bool(self._untold)
        return PlacesLeft((*self._taken, *map(place_of, self._delegated.values()))).are_after(branch)

    def times_begun(self, place: str) -> int:
        """How often a step that has no outcome was begun, of those that are to be executed at most once."""
        return self._steps.times_begun(place)

    def slept(self, place: str) -> RecordedSleep | None:
        """Take the recorded sleep; None if there is none. Raises ReplayMismatch if another word is recorded there."""
        other, known = self._question_at(place) or self._outcome_at(place), self._steps.at(place)
        if other is None and known is not None and not isinstance(known, RecordedSleep):
            other = recorded_text(known)
        if other is not None:
            raise ReplayMismatch(f"place {place}", other, A_SLEEP)
        self.forget_step(place)
        return known if isinstance(known, RecordedSleep) else None

    def keep_word(self, place: str, word: Stepped | RecordedSleep | Delegated | Message) -> "Replay":
        """Keep the outcome of a word of this run, if the branch that has told it may be run again in it.

        Returns the replay that has it: this one, or a new one instead of NOTHING.
        """
        if not in_named_branch(place):
            return self
        kept = Replay() if self is NOTHING else self
        match word:
            case Stepped():
                kept._steps.add_event(word)
            case RecordedSleep():
                kept._steps.add_sleep(place, word)
            case Delegated():
                kept._delegated[word.number] = word
                kept._agents_at[place] = word.agent
            case _:
                kept._named[place] = RecordedAnswer(None, word, place)
        return kept

    def forget_step(self, place: str) -> None:
        """Count the step or the sleep at a place as told again, if there is one."""
        if self._steps.take_outcome(place):
            self._look()

    def _step_at(self, place: str) -> str | None:
        """The step or the sleep at a place, as a text for people."""
        known = self._steps.at(place)
        return None if known is None else recorded_text(known)

    def _outcome_at(self, place: str) -> str | None:
        agent = self._agents_at.get(place)
        return None if agent is None else delegation_to(agent)

    def _question_at(self, place: str) -> str | None:
        number = self._at.get(place)
        recorded = (self._taken.get(place) or self._named.get(place)) if number is None else self._answers[number]
        if recorded is None:
            return None
        return "a question" if recorded.asked is None else question_of(recorded.asked.parts)

    def precedes(self, branch: Branch | None) -> bool:
        """Whether that branch has yet to tell a recorded word again, so that all it says until then is a repetition."""
        if self._said is None:
            return self.active
        if not self.active or branch is None:
            return False
        if self._places_left is None:
            self._places_left = PlacesLeft((*self._at, *self._steps.places))
        return self._places_left.are_after(branch)

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
        joined = 0
        if kept:
            parts = artifact.parts
            if is_plain_text(kept[-1]) and is_plain_text(parts[0]):  # as the fold joins what comes in chunks
                joined = len(kept[-1].text or "")
                parts = (Part(text=f"{kept[-1].text}{parts[0].text}"), *parts[1:])
                kept = kept[:-1]
            artifact = replace(artifact, parts=(*kept, *parts))
        placed = Placed(replaces=self.until, kept=len(kept), kept_characters=joined)
        return ArtifactChunk(artifact, False, chunk.last_chunk, placed)


NOTHING = Replay()
"""The replay of a task that was just made. Nothing is recorded in it, so that no method changes it."""


def replay_of(head: TaskHead, log: Iterable[Logged], *, crashed: bool) -> tuple[Message, Replay]:
    """Read from the whole log the message that made the task, and what a new run of it must replay.

    `crashed` says that the last run died while it worked; then its events after the last answer are to be replaced.
    """
    first: Message | None = None
    places = False
    folded = Fold(head)
    answers: list[RecordedAnswer] = []
    unasked: list[RecordedAnswer] = []
    until = 0
    delegated: list[Delegated] = []
    passed: list[tuple[str, Message]] = []
    began: str | None = None
    branched, place = False, ""
    steps = RecordedSteps()
    said: list[Logged] = []
    for logged in log:
        event = logged.event
        match event:
            case Submitted(message):
                first, places = message, event.places
            case MessageReceived(message, _):
                status = folded.status
                asked = status.message if status is not None and status.state in INTERRUPTED else None
                if asked is None:
                    unasked.append(RecordedAnswer(None, message))
                    steps.add_message()
                elif asked.reference_task_ids:
                    passed.append((asked.reference_task_ids[0], message))
                else:
                    earlier = [each for each in unasked if each.place or not place]
                    unasked = [each for each in unasked if not each.place and place]
                    answers += [*earlier, RecordedAnswer(asked, message, place)]
                if asked is not None and not in_named_branch(place):
                    until = logged.seq
            case Delegated():
                delegated.append(event)
            case StepBegun() | Stepped():
                steps.add_event(event)
                if isinstance(event, Stepped) and event.name != PATCHED and not in_named_branch(event.placed.place):
                    until = logged.seq
            case Noted() | ArtifactChunk():
                pass
            case StatusChanged():
                if event.state in INTERRUPTED:
                    began = None
                    place = place_of(event)
                elif event.placed is not None and event.placed.wakes_ms is not None:
                    began = None
                    if not in_named_branch(event.placed.place):
                        until = logged.seq
                    sleep = RecordedSleep(event.placed.wakes_ms, event.placed.wakes_on_message)
                    steps.add_sleep(event.placed.place, sleep)
                elif event.state is TaskState.WORKING:
                    began = began or event.timestamp
            case Intervened():
                pass
        if not isinstance(event, Submitted | MessageReceived | Intervened) and (placed := event.placed) is not None:
            branched = branched or in_other_branch(placed.place)
            for taken in placed.taken:
                branched = branched or in_other_branch(taken.place)
                _take(unasked, taken)
        said.append(logged)
        folded.add(logged.seq, logged.event)
    if first is None:
        raise ValueError("a log begins with Submitted")
    baseline: dict[str, Artifact] = {}
    usage: Usage | None = None
    if crashed and until:  # in a pass of its own: to join the artifacts at each answer would cost the square of the log
        before = fold_until(head, said, until)
        usage = before.usage
        baseline = {artifact.artifact_id: artifact for artifact in before.artifacts}
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
        steps,
    )


def fold_until(head: TaskHead, log: Iterable[Logged], seq: int) -> Record:
    """The task as it stood after the event `seq` of its log."""
    return fold(head, None, takewhile(lambda logged: logged.seq <= seq, log))


def _still_said(log: Iterable[Logged]) -> list[Event]:
    """The events of a log, without what a later run has replaced, and without what it repeated with its first chunk."""
    said: list[Logged] = []
    for logged in log:
        event = logged.event
        if isinstance(event, ArtifactChunk) and event.placed is not None and event.placed.replaces is not None:
            artifact, since = event.artifact, event.placed.replaces
            said = [each for each in said if each.seq <= since or not _of_artifact(each.event, artifact)]
            event = replace(event, artifact=replace(artifact, parts=_parts_after(artifact.parts, event.placed)))
        said.append(Logged(logged.seq, event))
    return [logged.event for logged in said]


def _parts_after(parts: tuple[Part, ...], placed: Placed) -> tuple[Part, ...]:
    """The parts of a chunk without those that repeat what was said before."""
    new = parts[placed.kept :]
    if placed.kept_characters and new[0].text is not None:
        new = (Part(text=new[0].text[placed.kept_characters :]), *new[1:])
    return new


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


def _place_text(recorded: RecordedAnswer, number: int) -> str:
    """The place of a question as a text for people, or its number if it was only counted."""
    return f"place {recorded.place}" if recorded.place else f"question {number}"


def question_of(parts: Sequence[Part]) -> str:
    """A question as a text for people, shortened."""
    text = beginning(parts)
    return f"the question “{shortened(text)}”" if text else "a question without text"


def step_of(name: str, key: str) -> str:
    """A step as a text for people."""
    return f"the step “{shortened(name)}”" + (f" with the key “{shortened(key)}”" if key else "")


def recorded_text(known: Stepped | RecordedSleep | StepBegun) -> str:
    """A recorded step or sleep as a text for people."""
    match known:
        case Stepped(name, key):
            return step_of(name, key)
        case StepBegun(name):
            return step_of(name, "")
        case RecordedSleep():
            return A_SLEEP


def is_step(known: Stepped | RecordedSleep | StepBegun, word: Step) -> bool:
    """Whether that step is recorded there, or its beginning, which has no key."""
    match known:
        case Stepped(name, key):
            return name == word.name and key == word.key
        case StepBegun(name):
            return name == word.name
        case RecordedSleep():
            return False


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
