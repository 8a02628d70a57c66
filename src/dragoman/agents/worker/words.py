"""The words of workers, as their reports bring them: see `engine.words`.

Invariant: a report that does not fit raises InvalidParams, which names the field.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.content import parts_of, sound_artifact
from dragoman.engine.bounds import Bounds, name
from dragoman.engine.files import same_parts
from dragoman.engine.usage_reports import admit_usage
from dragoman.engine.words import QUESTIONS, Ask, Delegation, End, Note, Say, Sleep, Step, StepDone
from dragoman.model.errors import InvalidParams
from dragoman.model.events import ArtifactChunk
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import CompleteTask, UpdateStatus
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead, TaskState, Usage


class ToldStep(Struct, frozen=True):
    """A step of a worker: it is about to be executed, or it is `done`.

    `place` is where a later worker finds it again, and `number` counts the steps of a lease that replays; 0 if its
    worker replays by itself. It was executed for `took_ms`. If `uncertain` is not None, the worker decides about a step
    that must not be executed twice, and has decided so far that it is executed although it was begun so many times.
    """

    step: Step
    place: str
    number: int = 0
    done: StepDone | None = None
    took_ms: int = 0
    uncertain: int | None = None

    @property
    def looks(self) -> bool:
        """Whether nothing is to be written, unless the step does not fit."""
        return self.done is None and not self.step.at_most_once

    def check(self, bounds: Bounds) -> "ToldStep":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        done = self.done
        if done is not None and done.result:
            done = replace(done, result=bounds.parts("result", done.result))
        return replace(self, step=self.step.check(bounds), place=name("place", self.place), done=done)


class ToldSleep(Struct, frozen=True):
    """A sleep of a worker. `place` and `number` are as in `ToldStep`.

    Its lease ends, unless it `keeps` the task and waits by itself.
    """

    sleep: Sleep
    place: str
    number: int = 0
    keeps: bool = False

    def check(self, bounds: Bounds) -> "ToldSleep":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        return replace(self, sleep=self.sleep.check(bounds), place=name("place", self.place))


SpokenWord = Say | ArtifactChunk | Note | Ask | Delegation | ToldStep | ToldSleep | End
"""The words that workers say by themselves. Their usage comes beside any of them."""


def word_of(report: CompleteTask | UpdateStatus) -> SpokenWord:
    """Convert a report by BeeOS' methods to a word. Raises InvalidParams."""
    if isinstance(report, CompleteTask):
        return End(TaskState.COMPLETED, artifacts=artifacts_of(report.artifacts))
    parts = sound_parts(report.parts, "status.message")
    state, progress = report.state, report.progress
    if state in TERMINAL:
        return End(state, parts, report.reason)
    if state in INTERRUPTED:
        return Ask(parts or QUESTIONS[state], auth=state is TaskState.AUTH_REQUIRED)
    if state is not TaskState.WORKING:
        raise InvalidParams("status.state", "must be working, input-required, auth-required, or one that ends the task")
    if progress is not None and progress.message and not parts:
        parts = (Part(text=progress.message),)
    return Say(parts, None if progress is None else (progress.current, progress.total))


def within(word: SpokenWord, bounds: Bounds) -> SpokenWord:
    """Check a word by the bounds of the run that it is for. Raises InvalidParams."""
    try:
        match word:
            case ArtifactChunk():
                return replace(word, artifact=bounds.artifact(word.artifact))
            case Delegation() | ToldStep() | ToldSleep() | Note():
                return word.check(bounds)
            case _:
                return word.check(bounds, "message")
    except (TypeError, ValueError) as error:
        raise InvalidParams("report", str(error)) from error


def used_within(usage: Usage | None, bounds: Bounds, head: TaskHead) -> Usage | None:
    """The tokens of a report as they count for a task: see `admit_usage`. Raises InvalidParams."""
    try:
        return None if usage is None else admit_usage(usage, bounds, head)
    except (TypeError, ValueError) as error:
        raise InvalidParams("usage", str(error)) from error


def artifacts_of(given: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Check the artifacts that a worker gives. Those without an id get one. Raises InvalidParams."""
    made: list[Artifact] = []
    for index, artifact in enumerate(given):
        named = replace(artifact, artifact_id=artifact.artifact_id or new_id(), parts=_unbound(artifact.parts))
        try:
            made.append(sound_artifact(named))
        except (TypeError, ValueError) as error:
            raise InvalidParams(f"artifacts[{index}]", str(error)) from error
    return tuple(made)


def sound_parts(parts: Sequence[Part], field: str) -> tuple[Part, ...]:
    """Check the parts. Raises InvalidParams."""
    try:
        return parts_of(_unbound(parts)) if parts else ()
    except (TypeError, ValueError) as error:
        raise InvalidParams(field, str(error)) from error


def _unbound(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts without the fields that only the store may set: which of its files they are."""
    return tuple(
        part if part.blob is None and part.file is None else replace(part, blob=None, file=None) for part in parts
    )


def says_anything(word: Say) -> bool:
    """Whether the report has any content."""
    return bool(word.parts) or word.progress is not None or word.metadata is not None


def adds(record: Record, word: Say) -> bool:
    """Whether the report adds anything to what the task already says."""
    said = record.status.message.parts if record.status.message is not None else ()
    at = None if record.progress is None else (record.progress.current, record.progress.total)
    return (
        record.state is not TaskState.WORKING
        or not same_parts(said, word.parts)
        or (word.progress is not None and at != word.progress)
        or word.metadata is not None
    )
