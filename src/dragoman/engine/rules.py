"""Rules: what is written to a task, what becomes of its lease, or why it is refused.

Invariant: pure. A decision depends on the arguments alone, and no other module decides what a write changes.

The rules in prose
------------------
* Nothing follows an end. The first end to be committed counts; whatever comes after it writes nothing, or is refused.
* One replica has the lease of a task, or nobody. Taking it raises the epoch, so that the holder before is fenced.
* A task is written before anybody works on it: submitted, and leased to a replica that serves its agent, or queued.
* A worker takes a task from the queue under a lease of its own beside the task's. What it says is written only while
  both last. Its own lease outlives its questions: the answer gives the task back to it.
* A question ends the lease. Its answer, or its withdrawal, says how the task goes on, and gives the next lease: to the
  replica that keeps the suspended run, else to this one, else to nobody, and then the task waits in its agent's queue.
* A message to a task that is at work changes nothing but the log. The run reads it with its next question.
* A message that names the question it answers answers no other one: it is refused unless that question is open.
* A sleep ends the lease, too, and the epoch grows. Nobody has the task until it wakes; then anybody claims it. A
  message that is to wake it ends the sleep, and gives the next lease: to this replica if it serves the agent, else to
  nobody.
* A replica changes only leases that it has, or that it takes: a request that names an epoch writes nothing under
  another one.
* A task that began with another version of the agent's code (`engine.code_versions`) is handed over to a replica that
  serves that version, which accepts it as it does any offer. While there is none it is put aside: nobody has it until a
  moment that this replica names, when anybody claims it. Neither writes anything to its log.
* An operator who disables an agent may have its work canceled. That ends a task whose lease a replica or a worker has,
  without asking the run. One that waits for its caller, that sleeps, or that nobody has, stays as it is.
* A run has one voice: while one is here, nobody here takes the task from it or gives it back.

The machines
------------
Task states and what may follow each: `model.lifecycle.FOLLOWS`. A write here goes only where that table leads.

Lease, of the task's row: `holder`, `epoch`, `keeper`.

    nobody's ── LeaseToWorker, an answer ────────────────► held: the epoch grows ── WritePage, UseClaim ──► held
        ▲     └ an answer, to the keeper ► offered ── AcceptOffer ──► held
        ├── GiveBack, Disown, EndWorkerLease, a question (names a keeper), an end ──── held
        ├── a message that wakes it, an end ──── asleep ◄── a sleep, PutAside: the epoch grows ── held
        │                                              held ── HandOver: the epoch grows ──► offered
        └── the offer was not accepted in time, the task wakes, or the holder is dead: anybody claims it
            (`Store.claim`), then UseClaim

Question: none ──► open (the task is input- or auth-required) ──► answered, withdrawn, or ended with the task.

Cancel: wanted ──► noted, if an operator wants it (NoteCancel) ──► the run is asked to stop ──► canceled (EndTask), or
another end that was committed first. SwitchOff asks nobody: the end is written at once.

Write: queued, under way, in doubt, overtaken, landed: `engine.writes`. A write that is overtaken is decided again.

Not covered by the tables
-------------------------
* Whether a guard still holds when the write arrives: the store checks it (`store.api.Append`).
* Claims of tasks that nobody works on: one statement of the store, `Store.claim`.
* How an agent's words become events, and which of them a replay leaves out: `engine.runs`.
* Effects, which follow a commit elsewhere, and the queries that find them again: `engine.effects`. An end is followed
  by `CancelChildren`, a suspended run that is kept too long by `DropSuspended`.
* Calls that are repeated, quotas, budgets, files: `engine.intake`, before anything is decided here.
* Whether a worker's own lease still runs: the store checks it (`store.worker_leases`). How its words become events:
  `agents.worker.word_outcome`.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NoReturn, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.errors import InvalidParams, QuestionClosed, UnsupportedOperation
from dragoman.model.events import Event, Intervened, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, STATES, TERMINAL, TaskHead, TaskState
from dragoman.store.api import ASIDE, ASLEEP, Dedupe, NewTask, Quota, TaskEnded
from dragoman.store.budgets import BudgetClaim
from dragoman.store.outbox import Registration
from dragoman.store.worker_leases import WORKER, WorkerLeaseChange

OFFERED_MS = 2_000
"""How long the replica that keeps a suspended run has to accept a lease. After that anybody runs the agent again."""

VERSION_NOTE = ".steps_version"
"""The note of the version of its agent's code with which a task began, if the first worker that took it named one."""

WEBHOOKS_MAX = 20
"""How many webhooks a task may have. Each event is rendered, written and sent once for each of them."""


# -- what is decided upon ----------------------------------------------------------------------------------------------


class Row(Struct, frozen=True):
    """The facts in the task's row: its state, reached at `status_ms`, its lease, how often its webhooks have changed.

    `holder` has the lease; None if nobody has. `keeper` keeps the suspended run. `delivered` counts the leases that
    workers have had.
    """

    state: TaskState = TaskState.SUBMITTED
    status_ms: int = 0
    epoch: int = 0
    holder: str | None = None
    keeper: str | None = None
    webhooks_version: int = 0
    delivered: int = 0


class View(Struct, frozen=True):
    """A task as it stands, and what this replica, `here`, knows of it.

    `state`, `epoch`, `holder`, `keeper`, `question`, the open one, and `wakes_on_message`, which is that of a task that
    sleeps, are committed. `run_epoch` is the epoch under which the run here writes, None if none is here; `run_asks`
    says that it waits for an answer. `living_keeper` is the keeper, if it is another replica that is known to be alive.
    `served`: this replica runs the agent, which `waits` to be taken on (`engine.api.Traits`). `closed`: it is stopping.
    """

    head: TaskHead
    state: TaskState
    epoch: int
    holder: str | None
    keeper: str | None = None
    question: Message | None = None
    here: str = ""
    run_epoch: int | None = None
    run_asks: bool = False
    living_keeper: str | None = None
    served: bool = False
    waits: bool = False
    closed: bool = False
    wakes_on_message: bool = False


class AddMessage(Struct, frozen=True):
    """A caller's message to the task, with the webhook that it asks for.

    `one_message` is a trait of the agent. `in_order`: a run here has to hear the messages in the order of the log.
    `webhooks` is how many webhooks the task has with the new one; `place` is the path of its id in the call. `answers`
    is the id of the question that the message answers; empty if its caller names none.
    """

    received: MessageReceived
    dedupe: Dedupe | None = None
    push: Registration | None = None
    one_message: bool = False
    in_order: bool = False
    webhooks: int = 0
    place: str = ""
    answers: str = ""


class OperatorAnswer(Struct, frozen=True):
    """An operator's answer in the caller's place, and the word in the log that says so. `answers` is as in
    `AddMessage`."""

    received: MessageReceived
    intervened: Intervened
    dedupe: Dedupe | None = None
    answers: str = ""


class NoteCancel(Struct, frozen=True):
    """The word in the log that an operator cancels the task."""

    intervened: Intervened


class AddWebhook(Struct, frozen=True):
    """A webhook for the task. `webhooks` is how many it has with that one; `place` is the path of its id."""

    push: Registration
    webhooks: int
    place: str


class UseClaim(Struct, frozen=True):
    """This replica has claimed the task, and goes on with it."""


class AcceptOffer(Struct, frozen=True):
    """The suspended run here goes on under the lease `epoch`, which was offered for it."""

    epoch: int


class WithdrawQuestion(Struct, frozen=True):
    """The question that the task asks on behalf of its child needs no answer any more."""

    child_id: str


class GiveBack(Struct, frozen=True):
    """The claimed task goes back into the queue of its agent, for workers. It had the lease `epoch`."""

    epoch: int


class HandOver(Struct, frozen=True):
    """The claimed task goes to the replica `replica_id`, which has the code that it began with.

    It had the lease `epoch`.
    """

    epoch: int
    replica_id: str


class PutAside(Struct, frozen=True):
    """Nobody has the claimed task until `wakes_ms`, since nobody has the code that it began with.

    It had the lease `epoch`.
    """

    epoch: int
    wakes_ms: int


class LeaseToWorker(Struct, frozen=True):
    """A worker takes the task from the queue.

    `answered` says that the task waits there since its question was answered, because the lease of the worker that had
    asked was over by then. `begins_with` is the version of the worker's code, if it is the first that takes the task.
    """

    change: WorkerLeaseChange
    answered: bool = False
    begins_with: str = ""


class EndWorkerLease(Struct, frozen=True):
    """The lease of a worker ends: it gives the task back, or has been silent for too long."""

    change: WorkerLeaseChange


class WriteWords(Struct, frozen=True):
    """What a worker has said, under its lease, or without one while the task is queued, or what is said in its place.

    `state` is that of the task afterwards. With `content_bytes`, which bounds the size of the parts in `events`, their
    types have been checked. With `wakes_ms` the task sleeps until then.
    """

    events: tuple[Event, ...]
    state: TaskState
    change: WorkerLeaseChange | None = None
    content_bytes: int | None = None
    wakes_ms: int | None = None


class Disown(Struct, frozen=True):
    """This replica keeps no run of the task any more."""


class EndTask(Struct, frozen=True):
    """An end that the task's run does not write. With `epoch` it ends only under that lease."""

    end: StatusChanged
    epoch: int | None = None


class SwitchOff(Struct, frozen=True):
    """An operator has disabled the agent and has its work canceled: the word in the log that says so, and the end."""

    intervened: Intervened
    end: StatusChanged


class WritePage(Struct, frozen=True):
    """The words of a run since its last write, under the lease `epoch`. `state` is that of the task after it.

    A question stands behind everything that is said with it, except for notes. `status_ms` is when `state` was reached.
    With `wakes_ms` the task sleeps until then. A page that is said `after_messages` stands behind those messages of the
    caller that the run has heard, and no others.
    """

    events: tuple[Event, ...]
    epoch: int
    state: TaskState
    status_ms: int
    content_bytes: int | None = None
    wakes_ms: int | None = None
    after_messages: bool = False


Request = (
    AddMessage
    | OperatorAnswer
    | NoteCancel
    | AddWebhook
    | UseClaim
    | AcceptOffer
    | WithdrawQuestion
    | GiveBack
    | HandOver
    | PutAside
    | Disown
    | EndTask
    | SwitchOff
    | WritePage
    | LeaseToWorker
    | EndWorkerLease
    | WriteWords
)
"""A wish to write to a task."""


# -- what is decided ---------------------------------------------------------------------------------------------------


class Decision(Struct, frozen=True, kw_only=True):
    """Events to append, and the change of the lease that goes with them.

    A run names its `epoch`, which guards its write. Every other write is guarded by the seq on which it was decided. So
    are a run's question, its end and any write with a snapshot, because they depend on the content of the log. A write
    that depends on the state and the lease alone names the `expected_epoch`, so that no run that streams overtakes it.

    `now_ms` is the time of the last status among `events`, if there is one. `holder` takes a new lease, and the epoch
    grows by one; with `offered_ms` that is an offer to another replica. `release` ends the present lease, and `keeper`
    keeps the suspended run. `dedupe` and `push` come from the caller's message. `content_bytes` bounds the size of the
    parts in `events`, if it is known. `checked` says that the types in `events` have been checked (`model/typed.py`).

    `lease` is the change of a worker's lease, and `to_worker` gives the task to the worker that has one: see
    `store.worker_leases`. `wakes_ms` is when a task wakes whose `holder` becomes `ASLEEP` or `ASIDE`. A write by a
    lease that `depends` on the content of the log, too, names the seq beside it.

    `plain`: it has nothing but `events`, `now_ms`, `epoch`, `content_bytes` and `checked`, as nearly all of a run.
    """

    events: tuple[Event, ...]
    now_ms: int
    epoch: int | None = None
    expected_epoch: int | None = None
    holder: str | None = None
    release: bool = False
    dedupe: Dedupe | None = None
    push: Registration | None = None
    keeper: str | None = None
    offered_ms: int | None = None
    content_bytes: int | None = None
    checked: bool = False
    lease: WorkerLeaseChange | None = None
    to_worker: bool = False
    wakes_ms: int | None = None
    depends: bool = False
    plain: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether somebody goes on with the task: under a new lease, or from the queue of its agent."""
        return self.holder is not None or self.to_worker or self.release


class LogEntry(Enum):
    """A thing that is written to the log. Several entries are one write, in their order."""

    MESSAGE = "the caller's message"
    INTERVENTION = "the word that an operator did it"
    GOES_ON = "a status: working, or submitted if the agent waits to be taken on and nobody has taken it on yet"
    END = "the end"
    WORDS = "what the run or the worker has said"
    WORKS = "a status: working"
    VERSION = "a note of the code with which the task begins"


class LeaseChange(Enum):
    """The lease after the write."""

    STAYS = "it stays as it is, whoever has it, unless the task ends: then nobody has it"
    TAKEN = "this replica takes it; the epoch grows"
    OFFERED = "the keeper, or the replica that the request names, has `OFFERED_MS` to accept it; the epoch grows"
    ENDED = "nobody has it; nobody keeps a run"
    SUSPENDED = "nobody has it; its holder keeps the suspended run"
    WORKERS = "a worker takes it; the epoch grows"
    ASLEEP = "nobody has it until the task wakes, when anybody may claim it; the epoch grows"
    ASIDE = "nobody has it until a time, when anybody may claim it to look for its code; the epoch grows"
    RESUMED = "the worker whose own lease runs has it, and the epoch grows; if there is none, nobody has it"


class WriteGuard(Enum):
    """The thing that must not have changed when the write arrives."""

    RUN = "the lease under which it is said; for a worker its own one, too, and the log if the words depend on it"
    LEASE = "the lease and the state, whatever a run has added to the log"
    LOG = "the log"
    BOTH = "the log, and the lease, which a replica may claim without a word in the log"


class RefusalReason(Enum):
    """Why the one who asked gets an error: see `refuse`."""

    WAITS_FOR_NO_ANSWER = auto()
    ANSWERS_ANOTHER = auto()
    HAS_ENDED = auto()
    TAKES_ONE_MESSAGE = auto()
    TOO_MANY_WEBHOOKS = auto()
    ENDED_FOR_RUN = auto()


class Fact(Enum):
    """A condition of a rule, beside the task's state. `TRUTH` says when each is so."""

    UNMOVED = "the task still has the epoch that the request names"
    UNDER_LEASE = "the request names an epoch"
    LEASED_HERE = "this replica has the lease"
    RUN_HERE = "a run of the task is here, at work or suspended"
    RUN_HAS_LEASE = "the run here writes under the present lease"
    RUN_WAITS = "the run here waits for an answer, and the present lease is the first since it asked"
    KEPT_HERE = "this replica is the keeper"
    KEPT_ELSEWHERE = "another replica that is alive keeps the suspended run, and none is here"
    SERVED_HERE = "this replica runs the agent"
    CLOSED = "this replica is stopping"
    FOR_CHILD = "the open question is that of the child which the request names"
    ONE_MESSAGE = "the agent takes no further message while it works"
    TOO_MANY_WEBHOOKS = "the task would have more than `WEBHOOKS_MAX` webhooks"
    IN_ORDER = "a run here hears messages in the order of the log, or a webhook is told how the task stands at a seq"
    ASKS = "the run asks, or the worker"
    NOBODYS = "nobody has the lease"
    HELD = "a replica has the lease, or a worker"
    WORKS = "a worker has the lease"
    ANSWERED = "the question of a worker was answered when its lease was over"
    NAMES_VERSION = "the worker is the first, and names the version of its code"
    BY_LEASE = "the words are said under a worker's own lease"
    SLEEPS = "the run puts the task to sleep, or the worker"
    WAKES = "the task sleeps, and a message wakes it"
    ANSWERS_ANOTHER = "the message answers a question that is not the open one"


class LawRule(Struct, frozen=True):
    """A row of the law. It fits a task in one of `states`, if all of `when` are so and none of `unless`.

    `writes` None writes nothing, and `()` changes the lease alone.
    """

    states: frozenset[TaskState]
    when: tuple[Fact, ...] = ()
    unless: tuple[Fact, ...] = ()
    writes: tuple[LogEntry, ...] | None = None
    lease: LeaseChange = LeaseChange.STAYS
    guard: WriteGuard = WriteGuard.LOG
    refusal: RefusalReason | None = None


NOTHING = LawRule(frozenset(STATES))
"""Nothing is written, and nobody gets an error."""


# -- the tables --------------------------------------------------------------------------------------------------------

SUBMITTED = frozenset({TaskState.SUBMITTED})
WORKING = frozenset({TaskState.WORKING})
AT_WORK = WORKING | SUBMITTED
ASKED = INTERRUPTED
OPEN = AT_WORK | ASKED
ENDED = TERMINAL
ANY = OPEN | ENDED

F, E = Fact, LogEntry

NEXT_PAGE = LawRule(OPEN, writes=(E.WORDS,), guard=WriteGuard.RUN)
"""By far most writes of runs are by this rule."""

NEXT_WORDS = LawRule(AT_WORK, (F.BY_LEASE,), writes=(E.WORDS,), guard=WriteGuard.RUN)
"""By far most writes of workers are by this rule."""

LAW: Mapping[type[Request], tuple[LawRule, ...]] = {
    # Callers and operators.
    AddMessage: (
        LawRule(ANY, (F.ANSWERS_ANOTHER,), refusal=RefusalReason.ANSWERS_ANOTHER),
        LawRule(ENDED, refusal=RefusalReason.HAS_ENDED),
        LawRule(AT_WORK, (F.ONE_MESSAGE,), refusal=RefusalReason.TAKES_ONE_MESSAGE),
        LawRule(OPEN, (F.TOO_MANY_WEBHOOKS,), refusal=RefusalReason.TOO_MANY_WEBHOOKS),
        LawRule(WORKING, (F.WAKES, F.SERVED_HERE), (), (E.MESSAGE, E.GOES_ON), LeaseChange.TAKEN, WriteGuard.BOTH),
        LawRule(WORKING, (F.WAKES,), (), (E.MESSAGE, E.GOES_ON), LeaseChange.ENDED, WriteGuard.BOTH),
        LawRule(AT_WORK, (F.IN_ORDER,), writes=(E.MESSAGE,)),
        LawRule(AT_WORK, writes=(E.MESSAGE,), guard=WriteGuard.LEASE),
        LawRule(ASKED, (F.KEPT_ELSEWHERE,), writes=(E.MESSAGE, E.GOES_ON), lease=LeaseChange.OFFERED),
        LawRule(ASKED, (F.SERVED_HERE,), writes=(E.MESSAGE, E.GOES_ON), lease=LeaseChange.TAKEN),
        LawRule(ASKED, writes=(E.MESSAGE, E.GOES_ON), lease=LeaseChange.RESUMED),
    ),
    OperatorAnswer: (
        LawRule(ANY, (F.ANSWERS_ANOTHER,), refusal=RefusalReason.ANSWERS_ANOTHER),
        LawRule(AT_WORK | ENDED, refusal=RefusalReason.WAITS_FOR_NO_ANSWER),
        LawRule(ASKED, (F.KEPT_ELSEWHERE,), writes=(E.INTERVENTION, E.MESSAGE, E.GOES_ON), lease=LeaseChange.OFFERED),
        LawRule(ASKED, (F.SERVED_HERE,), writes=(E.INTERVENTION, E.MESSAGE, E.GOES_ON), lease=LeaseChange.TAKEN),
        LawRule(ASKED, writes=(E.INTERVENTION, E.MESSAGE, E.GOES_ON), lease=LeaseChange.RESUMED),
    ),
    NoteCancel: (LawRule(OPEN, writes=(E.INTERVENTION,), guard=WriteGuard.LEASE),),
    AddWebhook: (
        LawRule(ANY, (F.TOO_MANY_WEBHOOKS,), refusal=RefusalReason.TOO_MANY_WEBHOOKS),
        LawRule(OPEN, writes=()),  # on an ended task, nothing is written to the log: `engine.webhooks`
    ),
    # The replica.
    UseClaim: (LawRule(OPEN, (F.LEASED_HERE,), (F.RUN_HAS_LEASE,), (E.GOES_ON,), guard=WriteGuard.RUN),),
    AcceptOffer: (LawRule(OPEN, (F.UNMOVED, F.LEASED_HERE, F.RUN_WAITS), writes=(), guard=WriteGuard.RUN),),
    WithdrawQuestion: (
        LawRule(ASKED, (F.FOR_CHILD, F.KEPT_ELSEWHERE), (F.CLOSED,), (E.GOES_ON,), LeaseChange.OFFERED),
        LawRule(ASKED, (F.FOR_CHILD, F.SERVED_HERE), (F.CLOSED,), (E.GOES_ON,), LeaseChange.TAKEN),
        LawRule(ASKED, (F.FOR_CHILD,), (F.CLOSED,), (E.GOES_ON,), LeaseChange.RESUMED),
    ),
    GiveBack: (
        LawRule(OPEN, (F.UNMOVED, F.LEASED_HERE), (F.RUN_HERE,), (E.GOES_ON,), LeaseChange.ENDED, WriteGuard.RUN),
    ),
    HandOver: (LawRule(OPEN, (F.UNMOVED, F.LEASED_HERE), (F.RUN_HERE,), (), LeaseChange.OFFERED, WriteGuard.RUN),),
    PutAside: (LawRule(OPEN, (F.UNMOVED, F.LEASED_HERE), (F.RUN_HERE,), (), LeaseChange.ASIDE, WriteGuard.RUN),),
    Disown: (LawRule(ASKED, (F.KEPT_HERE,), (F.RUN_HERE,), (), LeaseChange.ENDED, WriteGuard.LEASE),),
    EndTask: (
        LawRule(OPEN, (F.UNMOVED,), writes=(E.END,), guard=WriteGuard.RUN),
        LawRule(OPEN, (), (F.UNDER_LEASE,), (E.END,)),
    ),
    SwitchOff: (LawRule(AT_WORK, (F.HELD,), writes=(E.INTERVENTION, E.END)),),
    # A run.
    WritePage: (
        LawRule(ENDED, refusal=RefusalReason.ENDED_FOR_RUN),
        LawRule(OPEN, (F.ASKS,), writes=(E.WORDS,), lease=LeaseChange.SUSPENDED, guard=WriteGuard.RUN),
        LawRule(AT_WORK, (F.SLEEPS,), writes=(E.WORDS,), lease=LeaseChange.ASLEEP, guard=WriteGuard.RUN),
        NEXT_PAGE,
    ),
    # A worker.
    LeaseToWorker: (
        LawRule(SUBMITTED, (F.NOBODYS, F.NAMES_VERSION), writes=(E.VERSION, E.WORKS), lease=LeaseChange.WORKERS),
        LawRule(SUBMITTED, (F.NOBODYS,), writes=(E.WORKS,), lease=LeaseChange.WORKERS),
        LawRule(WORKING, (F.NOBODYS, F.ANSWERED), writes=(E.WORKS,), lease=LeaseChange.WORKERS),
        LawRule(WORKING, (F.NOBODYS,), writes=(), lease=LeaseChange.WORKERS),
    ),
    EndWorkerLease: (
        LawRule(AT_WORK, (F.WORKS,), writes=(E.WORKS,), lease=LeaseChange.ENDED),
        LawRule(OPEN, writes=(), guard=WriteGuard.LEASE),
    ),
    WriteWords: (
        LawRule(ENDED | ASKED, refusal=RefusalReason.ENDED_FOR_RUN),
        LawRule(AT_WORK, (F.BY_LEASE, F.ASKS), writes=(E.WORDS,), lease=LeaseChange.ENDED, guard=WriteGuard.RUN),
        LawRule(AT_WORK, (F.BY_LEASE, F.SLEEPS), writes=(E.WORDS,), lease=LeaseChange.ASLEEP, guard=WriteGuard.RUN),
        NEXT_WORDS,
        LawRule(AT_WORK, (F.ASKS,), writes=(E.WORDS,), lease=LeaseChange.ENDED),
        LawRule(AT_WORK, writes=(E.WORDS,)),
    ),
}
"""The law. The first rule of a request that fits is the one that counts; if none fits, it is `NOTHING`."""

TRUTH: Mapping[Fact, Callable[[View, Any], bool]] = {
    F.UNMOVED: lambda view, request: view.epoch == request.epoch,
    F.UNDER_LEASE: lambda view, request: request.epoch is not None,
    F.LEASED_HERE: lambda view, request: view.holder == view.here,
    F.RUN_HERE: lambda view, request: view.run_epoch is not None,
    F.RUN_HAS_LEASE: lambda view, request: view.run_epoch == view.epoch,
    F.RUN_WAITS: lambda view, request: view.run_asks and view.run_epoch == view.epoch - 1,
    F.KEPT_HERE: lambda view, request: view.keeper == view.here,
    F.KEPT_ELSEWHERE: lambda view, request: (
        view.living_keeper is not None and view.keeper == view.living_keeper and view.run_epoch is None
    ),
    F.SERVED_HERE: lambda view, request: view.served,
    F.CLOSED: lambda view, request: view.closed,
    F.FOR_CHILD: lambda view, request: (
        view.question is not None and view.question.reference_task_ids == (request.child_id,)
    ),
    F.ONE_MESSAGE: lambda view, request: request.one_message,
    F.TOO_MANY_WEBHOOKS: lambda view, request: request.webhooks > WEBHOOKS_MAX,
    F.IN_ORDER: lambda view, request: request.in_order or request.push is not None,
    F.NOBODYS: lambda view, request: view.holder is None,
    F.HELD: lambda view, request: view.holder not in (None, ASLEEP, ASIDE),
    F.WORKS: lambda view, request: view.holder == WORKER,
    F.ANSWERED: lambda view, request: request.answered,
    F.NAMES_VERSION: lambda view, request: bool(request.begins_with),
    F.WAKES: lambda view, request: view.holder == ASLEEP and view.wakes_on_message,
    F.ANSWERS_ANOTHER: lambda view, request: (
        request.answers != "" and (view.question is None or view.question.message_id != request.answers)
    ),
}
"""When each fact is so, but for those of pages and words: see `find_page_rule` and `find_words_rule`. A rule asks only
for facts that its request has.
"""


# -- to decide ---------------------------------------------------------------------------------------------------------


NO_NOTE: Mapping[str, str] = MappingProxyType({})


def new_task(
    head: TaskHead,
    message: Message,
    now_ms: int,
    write: int,
    holder: str | None,
    *,
    dedupe: Dedupe | None = None,
    quota: Quota | None = None,
    claims: tuple[BudgetClaim, ...] = (),
    note: Mapping[str, str] = NO_NOTE,
) -> NewTask:
    """The write that makes a task: submitted, with a `note` of its agent's, and leased to `holder`, or queued.

    Its epoch is 1. The store refuses it if the call was made before, is over its quota, or claims more than a budget
    has left. `write` is the id of the write.
    """
    submitted = Submitted(message, head.created_at, places=True)
    return NewTask(
        head=head,
        events=(submitted, Noted(dict(note))) if note else (submitted,),
        state=TaskState.SUBMITTED,
        status_ms=now_ms,
        holder=holder,
        dedupe=dedupe,
        quota=quota,
        claims=claims,
        write=write,
    )


def decide(view: View, request: Request, now_ms: int) -> Decision | None:
    """The write that a request leads to, `now_ms` in milliseconds since the epoch; None if nothing is written.

    Raises UnsupportedOperation or InvalidParams for the caller, TaskEnded for a run.
    """
    if isinstance(request, WritePage):
        return decide_page(view, request)
    if isinstance(request, WriteWords):
        return decide_words(view, request, now_ms)
    rule = find_rule(type(request), view.state, lambda fact: TRUTH[fact](view, request))
    return carry_out(rule, view, request, now_ms)


def find_rule(request: type[Request], state: TaskState, is_so: Callable[[Fact], bool]) -> LawRule:
    """The rule for a kind of request to a task in `state`, as the facts are."""
    for rule in LAW[request]:
        if state in rule.states and all(map(is_so, rule.when)) and not any(map(is_so, rule.unless)):
            return rule
    return NOTHING


def find_page_rule(state: TaskState, then: TaskState, *, sleeps: bool) -> LawRule:
    """The rule for a page of a run, after which a task in `state` is in the state `then`, and may sleep."""
    return find_rule(WritePage, state, {F.ASKS: then in INTERRUPTED, F.SLEEPS: sleeps}.__getitem__)


PAGES: Mapping[tuple[TaskState, TaskState, bool], LawRule] = {
    (state, then, sleeps): find_page_rule(state, then, sleeps=sleeps)
    for state in STATES
    for then in STATES
    for sleeps in (False, True)
}
"""The rules for pages, found once: a run that streams writes many, and a look through the table takes 2 µs."""


def find_words_rule(state: TaskState, then: TaskState, *, by_lease: bool, sleeps: bool) -> LawRule:
    """The rule for words of a worker, after which a task in `state` is in the state `then`, and may sleep."""
    facts = {F.ASKS: then in INTERRUPTED, F.BY_LEASE: by_lease, F.SLEEPS: sleeps}
    return find_rule(WriteWords, state, facts.__getitem__)


WORDS: Mapping[tuple[TaskState, TaskState, bool, bool], LawRule] = {
    (state, then, by_lease, sleeps): find_words_rule(state, then, by_lease=by_lease, sleeps=sleeps)
    for state in STATES
    for then in STATES
    for by_lease in (False, True)
    for sleeps in (False, True)
}
"""The rules for words of workers, with and without a lease, found once."""


def carry_out(rule: LawRule, view: View, request: Request, now_ms: int) -> Decision | None:
    """The decision that a rule stands for. Raises what `refuse` raises."""
    if rule.refusal is not None:
        refuse(rule.refusal, view, request)
    if rule.writes is None:
        return None
    lease = rule.lease
    page = request if isinstance(request, WritePage) else None
    content_bytes = request.content_bytes if isinstance(request, WritePage | WriteWords) else None
    decision = Decision(
        events=write_out(rule.writes, view, request, now_ms),
        now_ms=now_ms,
        epoch=None if rule.guard is not WriteGuard.RUN else view.epoch if page is None else page.epoch,
        expected_epoch=view.epoch if rule.guard in (WriteGuard.LEASE, WriteGuard.BOTH) else None,
        holder=next_holder(lease, view, request),
        release=lease in (LeaseChange.ENDED, LeaseChange.SUSPENDED),
        keeper=view.holder if lease is LeaseChange.SUSPENDED else None,
        offered_ms=OFFERED_MS if lease is LeaseChange.OFFERED else None,
        content_bytes=content_bytes,
        checked=page is not None or content_bytes is not None,
        lease=request.change if isinstance(request, LeaseToWorker | EndWorkerLease | WriteWords) else None,
        to_worker=lease is LeaseChange.RESUMED,
        wakes_ms=(
            request.wakes_ms
            if isinstance(request, WritePage | WriteWords | PutAside)
            and lease in (LeaseChange.ASLEEP, LeaseChange.ASIDE)
            else None
        ),
        depends=rule.guard is WriteGuard.BOTH
        or (page is not None and (page.after_messages or lease is LeaseChange.ASLEEP)),
    )
    match request:
        case AddMessage(dedupe=dedupe, push=push):
            return replace(decision, dedupe=dedupe, push=push)
        case OperatorAnswer(dedupe=dedupe):
            return replace(decision, dedupe=dedupe)
        case AddWebhook(push=push):
            return replace(decision, push=push)
        case _:
            return decision


def next_holder(lease: LeaseChange, view: View, request: Request) -> str | None:
    """Who takes the lease, or is offered it; None if nobody does."""
    match lease:
        case LeaseChange.TAKEN:
            return view.here
        case LeaseChange.OFFERED:
            return request.replica_id if isinstance(request, HandOver) else view.keeper
        case LeaseChange.WORKERS:
            return WORKER
        case LeaseChange.ASLEEP:
            return ASLEEP
        case LeaseChange.ASIDE:
            return ASIDE
        case _:
            return None


def decide_page(view: View, page: WritePage) -> Decision | None:
    """As `decide`, for a page of a run. Raises TaskEnded."""
    rule = PAGES[view.state, page.state, page.wakes_ms is not None]
    if rule is not NEXT_PAGE or page.after_messages:
        return carry_out(rule, view, page, page.status_ms)
    return Decision(  # the same, in a third of the time
        events=page.events,
        now_ms=page.status_ms,
        epoch=page.epoch,
        content_bytes=page.content_bytes,
        checked=True,
        plain=True,
    )


def decide_words(view: View, words: WriteWords, now_ms: int) -> Decision | None:
    """As `decide`, for words of a worker. The view needs the task, its state and its lease. Raises TaskEnded."""
    change = words.change
    rule = WORDS[view.state, words.state, change is not None, words.wakes_ms is not None]
    if rule is not NEXT_WORDS:
        return carry_out(rule, view, words, now_ms)
    return Decision(  # the same, in a third of the time
        events=words.events,
        now_ms=now_ms,
        epoch=view.epoch,
        content_bytes=words.content_bytes,
        checked=words.content_bytes is not None,
        lease=change,
    )


def write_out(entries: tuple[LogEntry, ...], view: View, request: Request, now_ms: int) -> tuple[Event, ...]:
    """The events of a request that a rule has written, in that order."""
    events: list[Event] = []
    for entry in entries:
        match entry, request:
            case LogEntry.MESSAGE, AddMessage() | OperatorAnswer():
                events.append(replace(request.received, timestamp=timestamp(now_ms)))
            case LogEntry.INTERVENTION, OperatorAnswer() | NoteCancel() | SwitchOff():
                events.append(request.intervened)
            case LogEntry.GOES_ON, _:
                events.append(StatusChanged(state_resumed(view), timestamp(now_ms)))
            case LogEntry.END, EndTask(end=end) | SwitchOff(end=end):
                events.append(end)
            case LogEntry.WORDS, WritePage(events=said) | WriteWords(events=said):
                events += said
            case LogEntry.VERSION, LeaseToWorker(begins_with=version):
                events.append(Noted({VERSION_NOTE: version}))
            case LogEntry.WORKS, _:
                events.append(StatusChanged(TaskState.WORKING, timestamp(now_ms)))
            case _:
                raise ValueError(f"no rule writes {entry} at a {type(request).__name__}")
    return tuple(events)


def state_resumed(view: View) -> TaskState:
    """The state in which a task goes on: working, unless its agent waits for somebody to take it on, and nobody has."""
    return TaskState.SUBMITTED if view.waits and view.state is TaskState.SUBMITTED else TaskState.WORKING


def refuse(refusal: RefusalReason, view: View, request: Request) -> NoReturn:
    """Raise the error of a refusal."""
    head, state = view.head, view.state
    match refusal:
        case RefusalReason.WAITS_FOR_NO_ANSWER:
            raise UnsupportedOperation(f"task {head.id} is {SPELLED[state]}: it waits for no answer")
        case RefusalReason.ANSWERS_ANOTHER:
            raise QuestionClosed(head.id)
        case RefusalReason.HAS_ENDED:
            raise UnsupportedOperation(
                f"task {head.id} has ended ({state.value}): send without taskId, with contextId {head.context_id}"
            )
        case RefusalReason.TAKES_ONE_MESSAGE:
            raise UnsupportedOperation(f"{head.agent} takes no further message while it works: wait for the task")
        case RefusalReason.TOO_MANY_WEBHOOKS:
            assert isinstance(request, AddMessage | AddWebhook)
            raise InvalidParams(
                request.place,
                f"the task has {WEBHOOKS_MAX} webhooks, the most there may be: give the id of one to replace it",
            )
        case RefusalReason.ENDED_FOR_RUN:
            raise TaskEnded(head.id)
        case _:
            assert_never(refusal)
