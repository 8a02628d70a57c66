"""The history of a simulation: everything that was committed, told to somebody, or done to the replicas, in order.

Invariant: it is written as things happen, by the simulation and never by the code under test.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.lifecycle import SPELLED
from dragoman.model.task import TaskState
from tests.simulation.database import ReplicaRow, Row


class Committed(Struct, gc=False):
    """Events were added to a log, under `epoch`. A run or a worker guards its write with the epoch `run`; others: None.

    A worker's write is one under the lease `token`, which is to run then (`runs`).
    """

    task_id: str
    by: str
    first: int
    events: Sequence[Event]
    epoch: int
    run: int | None
    holder: str | None
    agent: str
    parent: str | None
    detached: bool
    token: str | None
    runs: bool


class Leased(Struct, gc=False):
    """A task has a new epoch. `alive` says whether the last holder was; `lapsed` that it let an offer run out."""

    task_id: str
    by: str
    epoch: int
    holder: str | None
    before: str | None
    alive: bool
    lapsed: bool


class Held(Struct, gc=False):
    """The lease of a task has changed. `holder` None leaves a task that goes on in its queue; `offered` is an offer."""

    task_id: str
    holder: str | None
    offered: bool
    epoch: int


class Beat(Struct, gc=False):
    """A replica joined or renewed its heartbeat. `alive` says whether it was in time."""

    replica: str
    alive: bool


class Revived(Struct, gc=False):
    """A worker's lease was renewed that had run out."""

    token: str


class Gone(Struct, gc=False):
    """A replica was declared dead."""

    replica: str


class Swept(Struct, gc=False):
    """A task was deleted, since it ended long ago."""

    task_id: str


class Rewound(Struct, gc=False):
    """A standby has taken over that lacks the last commits. It has these tasks, each with its seq and epoch."""

    tasks: Mapping[str, tuple[int, int]]


class Began(Struct, gc=False):
    """An agent began to run."""

    task_id: str
    by: str
    epoch: int


class Executed(Struct, gc=False):
    """An agent executes a step, in a run that began under `epoch`."""

    task_id: str
    by: str
    step: str
    epoch: int


class Remembered(Struct, gc=False):
    """The state of an agent was written, by a run of a task under `epoch`."""

    task_id: str
    by: str
    epoch: int


class Granted(Struct, gc=False):
    """A worker is given a lease of a task, and may die before it hears of it."""

    task_id: str
    worker: str


class Took(Struct, gc=False):
    """A worker begins with a task."""

    worker: str
    task_id: str


class Let(Struct, gc=False):
    """A worker has a task no longer. `gives_back`: others may have it at once, else when its lease is over."""

    worker: str
    task_id: str
    gives_back: bool


class Ended(Struct, gc=False):
    """The process of a worker has ended."""

    worker: str


class Idle(Struct, gc=False):
    """A worker begins or ceases to wait for a task."""

    worker: str
    waits: bool


class Asked(Struct, gc=False):
    """A client sends a request."""

    client: str
    replica: str
    what: str
    task_id: str


class Told(Struct, gc=False):
    """A client has an answer to a request of `asked_s`: the task at `seq`. `message` is the id of one it had sent.

    `waited` says that the call was to be answered when the task settles.
    """

    client: str
    what: str
    task_id: str
    asked_s: float
    seq: int
    state: TaskState
    message: str = ""
    waited: bool = False


class Answered(Struct, gc=False):
    """A client's message to an agent, with a `script`, was answered with a Message of this id and text."""

    client: str
    message: str
    script: str
    answer: str
    text: str


class Followed(Struct, gc=False):
    """A stream, opened at `asked_s`, has brought an event, or as its first item (`event` None) the task at `seq`."""

    client: str
    stream: int
    task_id: str
    asked_s: float
    seq: int
    event: Event | None
    state: TaskState | None = None


class Left(Struct, gc=False):
    """A client reads a stream no longer."""

    client: str
    stream: int
    task_id: str


class Listed(Struct, gc=False):
    """A client has a list of its tasks, as asked for at `asked_s`."""

    client: str
    asked_s: float
    agent: str
    task_ids: tuple[str, ...]
    owners: tuple[str, ...]


class Erred(Struct, gc=False):
    """A client got an error. `expected` says that it may be told so."""

    client: str
    what: str
    task_id: str
    error: str
    expected: bool


class Leaked(Struct, gc=False):
    """A client was told something of a task that is not its own."""

    client: str
    what: str
    task_id: str


class Registered(Struct, gc=False):
    """A client was told that its webhook is registered for a task, as of `seq`."""

    task_id: str
    config_id: str
    asked_s: float


class Delivered(Struct, gc=False):
    """A webhook call has arrived, which reports `seq`. `answered` says that its sender knows.

    `said` describes the event there as it was rendered; empty if the task was to be reported as it stands.
    """

    task_id: str
    config_id: str
    webhook_id: str
    seq: int
    answered: bool
    said: str = ""


class Complained(Struct, gc=False):
    """The code under test has logged an error."""

    by: str
    text: str


class Fault(Struct, gc=False):
    """Something was done to the replicas, the database or the bus."""

    text: str


class Weather(Struct, gc=False):
    """`cause` disturbs the world until `until_s`, together with what it takes to recover from it."""

    cause: str
    until_s: float


Happening = (
    Committed
    | Leased
    | Held
    | Beat
    | Revived
    | Gone
    | Swept
    | Rewound
    | Began
    | Executed
    | Remembered
    | Granted
    | Took
    | Let
    | Ended
    | Idle
    | Asked
    | Told
    | Answered
    | Followed
    | Left
    | Listed
    | Erred
    | Leaked
    | Registered
    | Delivered
    | Complained
    | Fault
    | Weather
)


class History:
    """All happenings, each with its time."""

    def __init__(self) -> None:
        self.happenings: list[tuple[float, Happening]] = []
        self.now_s = lambda: 0.0

    def add(self, happening: Happening) -> None:
        """Add what happens now."""
        self.happenings.append((self.now_s(), happening))

    # -- as the witness of a database ----------------------------------------------------------------------------------

    def committed(
        self, by: str, row: Row, events: Sequence[Event], run: int | None, token: str | None, runs: bool
    ) -> None:
        head, first = row.head, row.seq - len(events) + 1
        made = Committed(
            head.id, by, first, events, row.epoch, run, row.holder, head.agent, head.parent, head.detached, token, runs
        )
        self.add(made)

    def leased(self, by: str, row: Row, before: str | None, before_alive: bool, offered: bool) -> None:
        self.add(Leased(row.head.id, by, row.epoch, row.holder, before, before_alive, offered))

    def held(self, row: Row) -> None:
        self.add(Held(row.head.id, row.holder, row.offered_until_ms is not None, row.epoch))

    def remembered(self, by: str, task_id: str, epoch: int) -> None:
        self.add(Remembered(task_id, by, epoch))

    def granted(self, task_id: str, worker: str) -> None:
        self.add(Granted(task_id, worker))

    def beat(self, replica: ReplicaRow, was_alive: bool) -> None:
        self.add(Beat(replica.id, was_alive))

    def renewed(self, token: str, ran: bool) -> None:
        if not ran:
            self.add(Revived(token))

    def gone(self, replica_id: str) -> None:
        self.add(Gone(replica_id))

    def swept(self, row: Row) -> None:
        self.add(Swept(row.head.id))

    def rewound(self, rows: Mapping[str, Row]) -> None:
        self.add(Rewound({task_id: (row.seq, row.epoch) for task_id, row in rows.items()}))


def describe(event: Event) -> str:
    """An event in a few characters."""
    match event:
        case Submitted(message, _):
            return f"submitted {message.text!r}"
        case MessageReceived(message, _):
            return f"message {message.text!r}"
        case StatusChanged(state, _, message):
            said = "" if message is None else f" {message.text!r}"
            reason = "" if message is None or not message.metadata else f" {message.metadata.get('reason', '')}"
            return f"{SPELLED[state]}{said}{reason}"
        case ArtifactChunk(artifact, append, _):
            return ("+" if append else "=") + "".join(part.text or "" for part in artifact.parts)
        case Delegated():
            return f"delegated {event.number}: {SPELLED[event.state]} {event.text!r}"
        case Noted(note):
            return f"note {note}"
        case StepBegun(name):
            return f"begins step {name}"
        case Stepped(name):
            return f"step {name}: {''.join(part.text or '' for part in event.result)}"
        case Intervened():
            return f"operator {event.operator} {event.action}"


def trace(history: History, beats: bool = False) -> str:
    """The history as text, one line a happening, tasks by short names."""
    names: dict[str, str] = {}

    def short(task_id: str) -> str:
        return names.setdefault(task_id, f"T{len(names) + 1}") if task_id else ""

    lines: list[str] = []
    for at_s, happening in history.happenings:
        match happening:
            case Committed(task_id, by, first, events, epoch, run, holder):
                said = "  ".join(map(describe, events))
                whose = "" if run is None else f", run of epoch {run}"
                text = f"{by:12} writes {short(task_id)} {first} epoch {epoch} ({holder}{whose}): {said}"
            case Leased(task_id, by, epoch, holder, before, alive, lapsed):
                state = "alive" if alive else "dead"
                text = f"{by:12} leases {short(task_id)} to {holder}, epoch {epoch}; before: {before} ({state})"
                text += ", whose offer ran out" if lapsed else ""
            case Held() | Left() | Idle():
                continue
            case Granted() | Ended():
                continue
            case Took(worker, task_id):
                text = f"{worker:12} takes {short(task_id)}"
            case Let(worker, task_id, gives_back):
                text = f"{worker:12} lets {short(task_id)} go" + ("" if gives_back else ", as it is dead")
            case Beat(replica, alive):
                if alive and not beats:
                    continue
                text = f"{replica:12} beats" + ("" if alive else ", though it is dead")
            case Revived(token):
                text = f"{'':12} lease {token} is renewed, though it has run out"
            case Gone(replica):
                text = f"{replica:12} is declared dead"
            case Swept(task_id):
                text = f"             --- {short(task_id)} is deleted ---"
            case Rewound(tasks):
                left = " ".join(f"{short(task_id)}: {seq} ({epoch})" for task_id, (seq, epoch) in tasks.items())
                text = f"             --- a standby takes over, which has {left} ---"
            case Began(task_id, by, epoch):
                text = f"{by:12} runs {short(task_id)}, epoch {epoch}"
            case Executed(task_id, by, step, epoch):
                text = f"{by:12} executes {step} of {short(task_id)}, epoch {epoch}"
            case Remembered(task_id, by, epoch):
                text = f"{by:12} remembers something in {short(task_id)}, epoch {epoch}"
            case Asked(client, replica, what, task_id):
                text = f"{client:12} asks {replica}: {what} {short(task_id)}"
            case Told(client, what, task_id, _, seq, state, message):
                text = f"{client:12} is told {what} {short(task_id)}: seq {seq}, {SPELLED[state]} {message[-4:]}"
            case Answered(client, message, script, answer, text):
                text = f"{client:12} is answered {message[-4:]} ({script!r}): {text!r} ({answer[-4:]})"
            case Followed(client, stream, task_id, _, seq, event, _):
                said = "the task" if event is None else describe(event)
                text = f"{client:12} follows {short(task_id)} (stream {stream}) {seq}: {said}"
            case Listed(client, _, agent, task_ids, _):
                text = f"{client:12} is told the tasks of {agent}: {' '.join(map(short, task_ids))}"
            case Erred(client, what, task_id, error, expected):
                text = f"{client:12} {'fails to' if expected else 'CANNOT'} {what} {short(task_id)}: {error}"
            case Leaked(client, what, task_id):
                text = f"{client:12} SEES {short(task_id)} by {what}"
            case Registered(task_id, config_id, _):
                text = f"{'':12} webhook {config_id} is registered for {short(task_id)}"
            case Delivered(task_id, config_id, webhook_id, seq, answered):
                heard = "" if answered else ", unanswered"
                text = f"{'':12} webhook {config_id} of {short(task_id)} hears of {seq} ({webhook_id[-4:]}{heard})"
            case Complained(by, text):
                text = f"{by:12} LOGS {text}"
            case Fault(text):
                text = f"             --- {text} ---"
            case Weather(cause, until_s):
                text = f"             --- {cause}: disturbed until {until_s:.3f} ---"
        lines.append(f"{at_s:8.3f} {text}")
    return "\n".join(lines)


def log_text(log: Sequence[Logged]) -> str:
    """A log, one line an event."""
    return "\n".join(f"  {logged.seq} {describe(logged.event)}" for logged in log)
