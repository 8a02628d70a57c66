"""Words: what an agent says about its task, as values.

Invariant: a word that its `check` has returned can be written to any task, and be read back in every dialect. All
agents speak the same words, whether they work in this process, in a worker process or behind an adapter. Two values of
the model are words as they are: an `ArtifactChunk`, which becomes an event unchanged, and a `Usage`.

| Word | says |
|---|---|
| `Working` | the task has been taken on |
| `Waiting` | why the task makes no progress at present |
| `Say` | a report while the task is `working` |
| `ArtifactChunk` | an artifact, or a chunk of one |
| `Usage` | tokens used since the word before |
| `Note` | something for a later run of the task |
| `Ask` | a question to the caller, which has an answer |
| `Delegation` | a task for another agent, which has an outcome |
| `Step` | a piece of work that is done once, and whose outcome is recorded |
| `Sleep` | that nobody works on the task until a time |
| `End` | the end of the task |
"""

from typing import Any, Literal, final

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.bounds import Bounds, flag, integer, name, name_or_none, shown, steps, type_name
from dragoman.model.events import StepFailure
from dragoman.model.message import Artifact, Part
from dragoman.model.task import TERMINAL, TaskState

TIMEOUT_S_MAX = 1e9
"""Longest time for a delegation: some thirty years, which every clock and every store can count."""

QUESTIONS = {
    TaskState.INPUT_REQUIRED: (Part(text="More input is needed."),),
    TaskState.AUTH_REQUIRED: (Part(text="Authentication is needed."),),
}
"""The question of an agent that says only in which state its task waits."""


class Working(Struct, frozen=True):
    """The task has been taken on. It goes into `working`, if it is not yet, and streams open."""


WORKING = Working()


class Waiting(Struct, frozen=True):
    """Why the task makes no progress at present. Its state does not change."""

    parts: tuple[Part, ...]

    def check(self, bounds: Bounds) -> "Waiting":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        return Waiting(bounds.parts("parts", self.parts))


@final
class Say(Struct, frozen=True):
    """A report while `working`. An empty one of a worker only carries its usage."""

    parts: tuple[Part, ...] = ()
    progress: tuple[int, int] | None = None
    metadata: dict[str, Any] | None = None

    def check(self, bounds: Bounds, argument: str = "parts") -> "Say":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        parts = bounds.parts(argument, self.parts) if self.parts else ()
        return Say(parts, steps(self.progress), bounds.metadata("metadata", self.metadata))


class Note(Struct, frozen=True):
    """Notes by name for a later run of the task. Callers never see them.

    They are written now; or `soon`, which waits briefly for another event, to be written with it.
    """

    note: dict[str, str]
    soon: bool = False

    def check(self, bounds: Bounds) -> "Note":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        return Note(bounds.note(self.note), self.soon)


class Ask(Struct, frozen=True):
    """A question to the caller, for its credentials if `auth`.

    `number` counts the questions of a worker's lease, 0: a new one. `note` is stored with it. `place` is where the
    agent asks (`engine.runs.places`), if somebody else passes its question on: empty for one that is only counted.
    """

    parts: tuple[Part, ...]
    auth: bool = False
    number: int = 0
    note: dict[str, str] | None = None
    place: str | None = None

    def check(self, bounds: Bounds, argument: str = "parts") -> "Ask":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        note = None if self.note is None else bounds.note(self.note)
        return Ask(bounds.parts(argument, self.parts), self.auth, self.number, note, self.place)


class Delegation(Struct, frozen=True, kw_only=True):
    """A task for another agent of this server.

    With `context_id` None the task joins the conversation of the delegating task. It is canceled after `timeout_s`, or
    at the deadline of the delegating task if that is earlier. With `progress` the delegating task repeats its reports.
    `asks` decides about its questions: `pass` hands them to the caller and the answers back, `raise` ends the
    delegation with the first one. With `detach` nobody waits for the task, and it outlives the delegating one. `number`
    counts the delegations of a run from 1, so that a later run of the task recognises them; 0 takes the next number.
    """

    agent: str
    parts: tuple[Part, ...]
    skill: str | None = None
    context_id: str | None = None
    timeout_s: float | None = None
    progress: bool = False
    asks: Literal["pass", "raise"] = "pass"
    detach: bool = False
    number: int = 0

    def check(self, bounds: Bounds, own: tuple[Part, ...] = ()) -> "Delegation":
        """Return the order as it is carried out. Raises TypeError or ValueError, which names the argument.

        `own` are the parts of the caller's message, which may be handed on as they are.
        """
        agent = name("agent", self.agent)
        if not agent:
            raise ValueError("agent is empty: name an agent of this server by its id")
        if self.asks not in ("pass", "raise"):
            raise ValueError(f"asks={shown(self.asks)}: must be 'pass' or 'raise'")
        timeout_s = self.timeout_s
        if timeout_s is not None:
            if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
                raise TypeError(f"timeout_s must be a number of seconds, not {type_name(timeout_s)}")
            if not 0 < timeout_s <= TIMEOUT_S_MAX:
                raise ValueError(f"timeout_s={shown(timeout_s)}: must be more than 0, and at most {TIMEOUT_S_MAX:g}")
        return replace(
            self,
            agent=agent,
            parts=self.parts if self.parts is own else bounds.parts("message", self.parts),
            skill=name_or_none("skill", self.skill),
            context_id=name_or_none("context_id", self.context_id),
            progress=flag("progress", self.progress),
            detach=flag("detach", self.detach),
            number=integer("number", self.number),
        )


class Step(Struct, frozen=True):
    """A piece of the agent's work, whose outcome is recorded, so that a later run does not do it again.

    `key` tells steps of one name apart, where their places do not. With `at_most_once` it is recorded before it is
    executed, too; then it is not executed again if nobody knows whether it was. A `soon` step is recorded with the next
    event, without a commit of its own. Names that begin with `$` are ours.
    """

    name: str
    key: str = ""
    at_most_once: bool = False
    soon: bool = False

    @property
    def drawn(self) -> bool:
        """Whether it is a value that the run draws, or reads of its memory: no work that anybody would want to see."""
        return self.name.startswith("$") and self.name != MODEL_STEP

    def check(self, bounds: Bounds) -> "Step":
        """Return the word as it is told. Raises TypeError or ValueError, which names the argument."""
        said = name("name", self.name)
        if not said:
            raise ValueError("name is empty: give the step a name")
        return Step(said, name("key", self.key), flag("at_most_once", self.at_most_once), self.soon)


MODEL_STEP = "$model"
"""The name of a step that is an answer of a model."""

PATCHED = "$patched"
"""The name under which a task records that it knows a change of its agent's code: a step whose key names the change."""

JSON_FORM = "json"
"""The form of a step's result that is one data part, which is the value."""


SLEEP_MS_MAX = 3653 * 86_400_000
"""The longest sleep: ten years. A longer one is a mistake, such as milliseconds that were taken for seconds."""


class Sleep(Struct, frozen=True, kw_only=True):
    """Nobody works on the task for `for_ms` milliseconds, or until `until_ms` since the epoch: one of them is set.

    A time that has passed is over at once. With `wake_on_message` a further message of the caller ends the sleep, too;
    one that the agent has not read yet does so at once.
    """

    for_ms: int | None = None
    until_ms: int | None = None
    wake_on_message: bool = False

    def check(self, bounds: Bounds) -> "Sleep":
        """Return the word as it is told. Raises TypeError or ValueError, which names the argument."""
        if (self.for_ms is None) == (self.until_ms is None):
            raise ValueError("either for_ms or until_ms must be set")
        return replace(self, wake_on_message=flag("wake_on_message", self.wake_on_message))


FAILURE_CHARACTERS = 2000
"""How much of the text of a step's failure is recorded."""


class StepDone(Struct, frozen=True):
    """The outcome of a step that was executed: a `result` in a `form` (see `model.events.Stepped`), or a `failure`."""

    result: tuple[Part, ...] = ()
    form: str = ""
    failure: StepFailure | None = None
    attempts: int = 1


class End(Struct, frozen=True):
    """The end of the task in `state`, which is terminal, with its last `artifacts`, and `parts` for the caller.

    `reason` is for programs. `retry_after_s`: see `engine.api.Ended`.
    """

    state: TaskState
    parts: tuple[Part, ...] = ()
    reason: str = ""
    retry_after_s: float | None = None
    artifacts: tuple[Artifact, ...] = ()

    def check(self, bounds: Bounds, argument: str = "parts") -> "End":
        """Return the word as it is written. Raises TypeError or ValueError, which names the argument."""
        state, after_s = self.state, self.retry_after_s
        if not isinstance(state, TaskState) or state not in TERMINAL:
            raise ValueError(f"state={shown(state)}: a task ends in one of {', '.join(sorted(TERMINAL))}")
        if after_s is not None:
            if isinstance(after_s, bool) or not isinstance(after_s, int | float):
                raise TypeError(f"retry_after_s must be a number of seconds, not {type_name(after_s)}")
            if not 0 <= after_s <= TIMEOUT_S_MAX:
                raise ValueError(f"retry_after_s={shown(after_s)}: must be from 0 to {TIMEOUT_S_MAX:g}")
        return End(
            state,
            bounds.parts(argument, self.parts),
            bounds.text("reason", self.reason),
            after_s,
            tuple([bounds.artifact(artifact) for artifact in self.artifacts]),
        )
